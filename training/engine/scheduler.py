"""The thread that samples: requests in, futures out.

Each turn of the loop admits waiting requests (prefill) and then decodes one token for every row
in flight. Rows join and leave between steps; a finished row stops costing at once. One thread
owns all tensors, so nothing here is locked but the queue and the table of adapters.

Admission looks for work that is already done (`reuse.py`). A request that shares more with a
request of the same round than with anything computed waits for the next round, where it copies:
so eight samples of one task prefill its prompt once. Room for a row's whole answer is reserved
when it is admitted; a row never has to be evicted.

Failures: a request that cannot be served is refused on submission. If a step fails, every row in
flight fails with `SamplerFault`, all caches are dropped, and the loop goes on with the next
request.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.engine.adapters import Adapter, load_adapter
from training.engine.forward import RowStep, forward_step
from training.engine.kv import GROWTH, ROW_GROWTH, Ids, Pool, Prefix, round_up
from training.engine.reuse import PoolRow, Sequence, Store, common_length
from training.engine.sampling import Chooser, Draw
from training.engine.weights import load_base
from training.tokenizer import ChatTokenizer

PREFILL_TOKENS = 512
"most new tokens of one prefill step: bounds score memory and how long decoding rows wait"
DEFER_TOKENS = 8
"a request waits one round if that saves at least this many tokens"
STOP_TAIL_TOKENS = 8
"tokens decoded beyond a stop string's length, so that one begun earlier is seen"

BASE_KEY = -1
"cache key of the base model; adapters count from 0"

log = logging.getLogger(__name__)


class SamplerFault(RuntimeError):
    """The sampler failed in a way that is not the request's fault; trying again may help."""


class SamplerBusy(RuntimeError):
    """The queue is full; the message names the limit."""


class DeadlineExceeded(TimeoutError):
    """The request was not finished by its deadline."""


class RequestRefused(ValueError):
    """The request cannot be served; the message names the field."""


class UnknownModel(RequestRefused):
    """Neither the base model nor a loaded adapter has this name."""


class AdapterConflict(ValueError):
    """The adapter's name is taken by another folder, or reserved."""


@dataclass(frozen=True)
class SampleRequest:
    """One row to sample."""

    model: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    seed: int | None = None
    "None draws a fresh one"
    stop: tuple[str, ...] = ()
    deadline_s: float = 120.0
    "from submission"


@dataclass(frozen=True)
class SampleResult:
    """One sampled row. Lists are of equal length and include the tokens that completed a stop."""

    token_ids: list[int]
    token_logprobs: list[float]
    sampling_logprobs: list[float]
    text: str
    "cut before the stop string; without special tokens"
    finish_reason: str
    "`stop` or `length`"
    stop_reason: str | None
    "the stop string that ended it, if one did"
    sampled_eos: bool
    weight_version: str
    reused_tokens: int
    "prompt tokens that needed no computation"


@dataclass(frozen=True)
class Limits:
    """What the sampler may use."""

    max_rows: int = 32
    max_waiting: int = 512
    kv_tokens: int = 6144
    "padded own tokens of all rows in flight; one token of SmolLM2 takes 46 kB"
    prefix_bytes: int = 192_000_000
    "four harnesses of 900 tokens side by side; with fewer they push each other out at every turn"
    sequence_bytes: int = 64_000_000
    max_adapters: int = 8


@dataclass
class Counters:
    """Work done since the start."""

    requests: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    prefill_tokens: int = 0
    sampled_tokens: int = 0
    decode_steps: int = 0
    prefixes_made: int = 0
    faults: int = 0


@dataclass(eq=False)
class _Row:
    """A request and what has been sampled for it."""

    request: SampleRequest
    future: Future[SampleResult]
    adapter: Adapter | None
    expires_at: float
    ids: Ids
    chance: random.Random
    prefix: Prefix | None = None
    computed: int = 0
    "own tokens whose keys and values are in the pool"
    reused: int = 0
    draws: list[Draw] = field(default_factory=list)

    @property
    def key(self) -> int:
        return self.adapter.serial if self.adapter else BASE_KEY

    @property
    def split(self) -> int:
        return len(self.prefix.ids) if self.prefix else 0

    @property
    def need(self) -> int:
        """Own tokens that the row may come to hold."""
        return len(self.ids) - self.split + self.request.max_tokens

    @property
    def tokens(self) -> list[int]:
        return [drawn.token for drawn in self.draws]

    def computed_ids(self) -> Ids:
        """All tokens whose keys and values exist."""
        sampled = np.array(self.tokens, dtype=np.int64)
        return np.concatenate([self.ids, sampled])[: self.split + self.computed]


class Sampler:
    """Serves one base model and its adapters. Public methods are thread-safe."""

    def __init__(self, folder: Path, *, name: str, limits: Limits | None = None) -> None:
        self.name = name
        self.limits = limits or Limits()
        self.tokenizer = ChatTokenizer.from_folder(folder)
        self.base = load_base(folder)
        self.counters = Counters()
        self._pool = Pool(self.base.config)
        self._chooser = Chooser()
        self._store = Store(
            prefix_bytes=self.limits.prefix_bytes, sequence_bytes=self.limits.sequence_bytes
        )
        self._rows: list[_Row] = []
        self._waiting: deque[_Row] = deque()
        self._adapters: dict[str, Adapter] = {}
        self._removed: list[Adapter] = []
        self._wake = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop, name="sampler", daemon=True)
        self._thread.start()

    @property
    def context(self) -> int:
        """Most tokens of prompt and answer together."""
        return self.base.config.max_position_embeddings

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Ends the thread; requests that are not done fail with SamplerFault."""
        with self._wake:
            self._is_closed = True
            self._wake.notify_all()
        self._thread.join(timeout_s)

    def adapters(self) -> list[Adapter]:
        with self._wake:
            return list(self._adapters.values())

    def add_adapter(self, *, name: str, path: Path) -> Adapter:
        """Loads a PEFT folder under a name; the same name and folder again is no change.

        With the limit reached, the adapter that was used longest ago makes room; whoever needs it
        again loads it again. Raises AdapterConflict (name taken, all in use), AdapterError (the
        folder does not fit).
        """
        path = path.absolute()
        with self._wake:
            known = self._adapters.get(name)
            if known is not None and known.path == str(path):
                return known
            self._require_free(name)
        adapter = load_adapter(name=name, path=path, base=self.base)
        with self._wake:
            self._require_free(name)
            self._make_room()
            self._adapters[name] = adapter
        return adapter

    def _require_free(self, name: str) -> None:
        known = self._adapters.get(name)
        if known is not None:
            raise AdapterConflict(f"adapter {name!r} is already loaded from {known.path}")
        if name == self.name:
            raise AdapterConflict(f"{name!r} is the name of the base model")

    def _make_room(self) -> None:
        """Needs the lock. The table is in order of last use."""
        if len(self._adapters) < self.limits.max_adapters:
            return
        in_use = {row.key for row in (*self._rows, *self._waiting)}
        for name, adapter in self._adapters.items():
            if adapter.serial not in in_use:
                self._removed.append(self._adapters.pop(name))
                self._wake.notify_all()
                return
        raise AdapterConflict(
            f"{self.limits.max_adapters} adapters are loaded and in use (--max-adapters)"
        )

    def remove_adapter(self, name: str) -> bool:
        """Forgets an adapter; rows in flight end with it. False if there is none."""
        with self._wake:
            adapter = self._adapters.pop(name, None)
            if adapter is None:
                return False
            self._removed.append(adapter)
            self._wake.notify_all()
        return True

    def submit(self, *requests: SampleRequest) -> list[Future[SampleResult]]:
        """Queues rows, all or none; cancelling a future drops its row at the next step.

        Raises RequestRefused, UnknownModel, SamplerBusy. A future raises DeadlineExceeded or
        SamplerFault.
        """
        for request in requests:
            self._check(request)
        with self._wake:
            if self._is_closed:
                raise SamplerFault("the sampler is closing")
            if len(self._waiting) + len(requests) > self.limits.max_waiting:
                raise SamplerBusy(f"{self.limits.max_waiting} rows are waiting (--max-waiting)")
            rows = [self._new_row(request) for request in requests]
            self._waiting.extend(rows)
            self._wake.notify_all()
        return [row.future for row in rows]

    def _check(self, request: SampleRequest) -> None:
        if not request.prompt_ids:
            raise RequestRefused("prompt: it has no tokens")
        vocabulary = self.base.config.vocab_size
        if not all(0 <= token < vocabulary for token in request.prompt_ids):
            raise RequestRefused(f"prompt: token ids must lie in 0..{vocabulary - 1}")
        if request.max_tokens < 1:
            raise RequestRefused("max_tokens: must be at least 1")
        total = len(request.prompt_ids) + request.max_tokens
        if total > self.context:
            raise RequestRefused(
                f"prompt of {len(request.prompt_ids)} tokens and max_tokens {request.max_tokens} "
                f"make {total}; the model's context is {self.context}"
            )
        if not 0 <= request.temperature <= 100:
            raise RequestRefused("temperature: must lie in 0..100")
        if any(not stop for stop in request.stop):
            raise RequestRefused("stop: a stop string must not be empty")

    def _new_row(self, request: SampleRequest) -> _Row:
        adapter = None
        if request.model != self.name:
            adapter = self._adapters.get(request.model)
            if adapter is None:
                names = ", ".join([self.name, *self._adapters])
                raise UnknownModel(f"model: {request.model!r} is not served; there are {names}")
            self._adapters[request.model] = self._adapters.pop(request.model)  # used last
        seed = request.seed if request.seed is not None else int.from_bytes(os.urandom(8))
        return _Row(
            request=request,
            future=Future(),
            adapter=adapter,
            expires_at=time.monotonic() + request.deadline_s,
            ids=np.array(request.prompt_ids, dtype=np.int64),
            chance=random.Random(seed),
        )

    # The sampler's thread from here on.

    def _loop(self) -> None:
        with torch.inference_mode():
            while self._await_work():
                try:
                    self._drop_unwanted()
                    self._admit()
                    self._decode()
                except Exception as error:  # the boundary of the thread: rows fail, it lives on
                    log.exception("sampling step failed")
                    self.counters.faults += 1
                    self._fail_all(SamplerFault(f"sampling failed: {error}"))
        self._fail_all(SamplerFault("the sampler was closed"))

    def _await_work(self) -> bool:
        with self._wake:
            while not (self._is_closed or self._rows or self._waiting or self._removed):
                self._wake.wait()
            removed, self._removed = self._removed, []
            is_open = not self._is_closed
        for adapter in removed:
            self._store.forget(adapter.serial)
        return is_open

    def _fail_all(self, error: Exception) -> None:
        with self._wake:
            rows = [*self._rows, *self._waiting]
            self._waiting.clear()
        self._rows = []
        self._pool.clear()
        self._store = Store(
            prefix_bytes=self.limits.prefix_bytes, sequence_bytes=self.limits.sequence_bytes
        )
        for row in rows:
            _settle(row.future, error=error)

    def _drop_unwanted(self) -> None:
        """Rows whose caller went away or whose time is up."""
        now = time.monotonic()
        with self._wake:
            late = [row for row in self._waiting if _is_over(row, now)]
            for row in late:
                self._waiting.remove(row)
        for row in [row for row in self._rows if _is_over(row, now)]:
            late.append(row)
            self._remove(row)
        for row in late:
            limit = row.request.deadline_s
            _settle(row.future, error=DeadlineExceeded(f"not finished within {limit:g} s"))

    def _in_flight(self, key: int) -> Iterator[Sequence]:
        for index, row in enumerate(self._rows):
            if row.key == key and row.computed:
                yield Sequence(row.computed_ids(), row.prefix, PoolRow(self._pool, index))

    def _admit(self) -> None:
        """Moves waiting rows into the pool and samples their first token."""
        admitted: list[tuple[_Row, int]] = []
        budget = PREFILL_TOKENS
        with self._wake:
            waiting = list(self._waiting)
        for row in waiting:
            if budget <= 0 or len(self._rows) + len(admitted) >= self.limits.max_rows:
                break
            row.prefix = self._prefix_for(row, waiting)
            if not self._has_room(row, [known for known, _ in admitted]):
                break
            source_length, _ = self._store.best_source(row.key, row.ids, self._in_flight(row.key))
            done = max(min(source_length, len(row.ids) - 1), row.split)
            peers = [known.ids for known, _ in admitted if known.key == row.key]
            if any(common_length(row.ids, ids) >= done + DEFER_TOKENS for ids in peers):
                continue
            admitted.append((row, done))
            budget -= len(row.ids) - done
        if not admitted:
            return
        # Equal counts of new tokens side by side: the padded part of attention stays small.
        admitted.sort(key=lambda item: len(item[0].ids) - item[1])
        need = max(row.need for row in [*self._rows, *(known for known, _ in admitted)])
        self._pool.reserve(len(self._rows) + len(admitted), need)
        for row, done in admitted:
            length, source = self._store.best_source(row.key, row.ids, self._in_flight(row.key))
            done = max(min(length, len(row.ids) - 1), row.split)
            block = source.take(row.split, done) if source and done > row.split else None
            self._pool.append(block)
            row.computed = done - row.split
            row.reused = done
            with self._wake:
                self._waiting.remove(row)
            self._rows.append(row)
            self._store.note_prompt(row.key, row.ids)
            self.counters.requests += 1
            self.counters.prompt_tokens += len(row.ids)
            self.counters.reused_tokens += done
        self._prefill(len(self._rows) - len(admitted))

    def _has_room(self, row: _Row, admitted: list[_Row]) -> bool:
        rows = [*self._rows, *admitted, row]
        widest = round_up(max(known.need for known in rows), GROWTH)
        padded = round_up(len(rows), ROW_GROWTH) * widest
        return len(rows) == 1 or padded <= self.limits.kv_tokens

    def _prefix_for(self, row: _Row, waiting: list[_Row]) -> Prefix | None:
        peers = [other.ids for other in waiting if other.key == row.key and other is not row]
        wanted = self._store.wanted_prefix(row.key, row.ids, peers[:64])
        if isinstance(wanted, Prefix):
            return wanted
        if wanted == 0:
            return None
        prefix = self._make_prefix(row, wanted)
        self._store.add_prefix(row.key, prefix)
        self._rehome(row.key, prefix)
        self.counters.prefixes_made += 1
        return prefix

    def _make_prefix(self, row: _Row, length: int) -> Prefix:
        """Keys and values of the first tokens of a prompt: copied as far as they exist."""
        ids = row.ids[:length]
        found, source = self._store.best_source(row.key, ids, self._in_flight(row.key))
        pool = Pool(self.base.config)
        pool.reserve(1, length)
        pool.append(source.take(0, found) if source else None)
        done = found
        while done < length:
            tokens = ids[done : done + PREFILL_TOKENS].tolist()
            forward_step(self.base, pool, 0, [RowStep(None, row.adapter, done, tokens)])
            self.counters.prefill_tokens += len(tokens)
            done += len(tokens)
        return Prefix(ids, pool.copy(0, 0, length))

    def _rehome(self, key: int, prefix: Prefix) -> None:
        """Rows that hold the prefix's tokens as their own read the shared copy from now on."""
        length = len(prefix.ids)
        for index, row in enumerate(self._rows):
            if row.key != key or row.prefix is not None or row.computed < length:
                continue
            if np.array_equal(row.ids[:length], prefix.ids):
                rest = self._pool.copy(index, length, row.computed)
                self._pool.write(index, rest)
                row.prefix, row.computed = prefix, rest.length

    def _prefill(self, first: int) -> None:
        """Computes the prompts of rows from `first` on, in slices, and samples their first
        token."""
        finals: list[Tensor] = []
        index = first
        while index < len(self._rows):
            end = self._slice_end(index)
            rows = self._rows[index:end]
            while True:
                steps = [self._row_step(row, PREFILL_TOKENS) for row in rows]
                logits = forward_step(self.base, self._pool, index, steps)
                for row, step in zip(rows, steps, strict=True):
                    row.computed += len(step.tokens)
                    self.counters.prefill_tokens += len(step.tokens)
                if rows[0].split + rows[0].computed == len(rows[0].ids):
                    break
            finals.append(logits)
            index = end
        self._sample(self._rows[first:], torch.cat(finals))

    def _slice_end(self, start: int) -> int:
        """End of the rows from `start` that are computed together: alike in length, bounded in
        sum."""
        total = 0
        for index in range(start, len(self._rows)):
            count = self._rows[index].need - self._rows[index].request.max_tokens
            count -= self._rows[index].computed
            total += count
            is_wide = count * (index - start + 1) > 2 * total
            if index > start and (total > PREFILL_TOKENS or is_wide):
                return index
        return len(self._rows)

    def _row_step(self, row: _Row, most: int) -> RowStep:
        done = row.split + row.computed
        tokens = row.ids[done : done + most].tolist()
        return RowStep(row.prefix, row.adapter, row.computed, tokens)

    def _decode(self) -> None:
        if not self._rows:
            return
        steps = [
            RowStep(row.prefix, row.adapter, row.computed, [row.draws[-1].token])
            for row in self._rows
        ]
        logits = forward_step(self.base, self._pool, 0, steps)
        for row in self._rows:
            row.computed += 1
        self.counters.decode_steps += 1
        self._sample(list(self._rows), logits)

    def _sample(self, rows: list[_Row], logits: Tensor) -> None:
        temperatures = [row.request.temperature for row in rows]
        uniforms = [row.chance.random() if row.request.temperature else 0.0 for row in rows]
        for row, drawn in zip(
            rows, self._chooser.draw(logits, temperatures, uniforms), strict=True
        ):
            self.counters.sampled_tokens += 1
            if not drawn.is_finite:
                self._remove(row)
                error = SamplerFault("the model gave values that are not finite")
                _settle(row.future, error=error)
                continue
            row.draws.append(drawn)
            result = self._finished(row)
            if result is not None:
                index = self._rows.index(row)
                own = self._pool.copy(index, 0, row.computed)
                self._store.add_sequence(row.key, row.computed_ids(), row.prefix, own)
                self._remove(row)
                _settle(row.future, result=result)

    def _remove(self, row: _Row) -> None:
        index = self._rows.index(row)
        last = self._rows.pop()
        if last is not row:
            self._rows[index] = last
        self._pool.remove(index, last.computed)

    def _finished(self, row: _Row) -> SampleResult | None:
        """The result, if the last token ended the row."""
        tokens = row.tokens
        sampled_eos = tokens[-1] == self.tokenizer.eos_id
        stop = None if sampled_eos else self._stop_reached(tokens, row.request.stop)
        if not sampled_eos and stop is None and len(tokens) < row.request.max_tokens:
            return None
        text = self.tokenizer.decode(tokens)
        if stop is not None:
            text = text[: min(text.index(s) for s in row.request.stop if s in text)]
        return SampleResult(
            token_ids=tokens,
            token_logprobs=[drawn.logprob for drawn in row.draws],
            sampling_logprobs=[drawn.sampling_logprob for drawn in row.draws],
            text=text,
            finish_reason="stop" if sampled_eos or stop is not None else "length",
            stop_reason=stop,
            sampled_eos=sampled_eos,
            weight_version=row.request.model,
            reused_tokens=row.reused,
        )

    def _stop_reached(self, tokens: list[int], stops: tuple[str, ...]) -> str | None:
        """The stop string that the text holds, looking only where the last token can matter."""
        if not stops:
            return None
        tail = max(len(stop.encode()) for stop in stops) + STOP_TAIL_TOKENS
        text = self.tokenizer.decode(tokens[-tail:])
        return next((stop for stop in stops if stop in text), None)


def _is_over(row: _Row, now: float) -> bool:
    return row.future.cancelled() or now > row.expires_at


def _settle(
    future: Future[SampleResult],
    *,
    result: SampleResult | None = None,
    error: Exception | None = None,
) -> None:
    """Sets a future unless its caller has cancelled it."""
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    elif result is not None:
        future.set_result(result)
