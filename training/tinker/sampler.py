"""Weights on a Tinker-protocol server behind the interface of our own sampler.

What `training.engine.api` serves from this has the routes, token ids and log-probabilities of the
model server, so agents, graders and training rows know no difference. An "adapter" is a published
folder with `tinker.json`: a name stands for one snapshot of weights as long as this process lives,
and every answer carries it.

Log-probabilities of the protocol are those at temperature 1. At 0 the sampled token is the likely
one, with log-probability 0; any other temperature is refused, for its numbers would be wrong.
Stop strings are looked for here, in whole tokens: what lies behind one is cut off, and the
beginning of a sample is a sample with the numbers it had.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import tinker
from tinker import types

from training.engine.adapters import AdapterError
from training.engine.scheduler import (
    STOP_TAIL_TOKENS,
    AdapterConflict,
    Counters,
    DeadlineExceeded,
    RequestRefused,
    SamplerBusy,
    SampleRequest,
    SampleResult,
    SamplerFault,
    UnknownModel,
)
from training.errors import DeadlineExceeded as WaitedTooLong
from training.errors import RemoteError
from training.llama import sizes_of
from training.tinker.connection import ended, service_of
from training.tokenizer import ChatTokenizer

POINTER_FILE = "tinker.json"
MAX_AT_ONCE = 64
MAX_WAITING = 512
MAX_ADAPTERS = 256
"""Handles alone; the weights are the server's."""
CONNECT_S = 60.0
SEEDS = 2**31
"""Of the protocol; ours are larger and are folded."""


@dataclass(frozen=True)
class RemoteWeights:
    """A snapshot on the server."""

    name: str
    path: str
    """Of the folder that points to it."""
    client: Any


class RemoteSampler:
    """See the module. Public methods are thread-safe."""

    def __init__(self, *, base_url: str, api_key: str, name: str, folder: Path) -> None:
        """`folder`: tokenizer and configuration of the base model `name`."""
        self.name, self.base_url = name, base_url
        self.tokenizer = ChatTokenizer.from_folder(folder)
        self.vocabulary, self.context = sizes_of(folder)
        self.counters = Counters()
        self._service = service_of(base_url, api_key)
        self._base: Any = None
        self._adapters: OrderedDict[str, RemoteWeights] = OrderedDict()
        self._lock = Lock()
        self._waiting = 0
        self._threads = ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="remote-sample")

    def close(self) -> None:
        """Requests that have not begun fail."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def adapters(self) -> list[RemoteWeights]:
        with self._lock:
            return list(self._adapters.values())

    def add_adapter(self, *, name: str, path: Path) -> RemoteWeights:
        """Takes the weights that a folder points to under a name.

        Raises AdapterConflict where the name is another folder's, and AdapterError.
        """
        path = path.absolute()
        with self._lock:
            known = self._adapters.get(name)
        if known is not None and known.path == str(path):
            return known
        if known is not None or name == self.name:
            raise AdapterConflict(f"{name!r} is taken{f' by {known.path}' if known else ''}")
        client = self._client(self._pointer(name, path))
        with self._lock:
            added = self._adapters.setdefault(name, RemoteWeights(name, str(path), client))
            while len(self._adapters) > MAX_ADAPTERS:
                self._adapters.popitem(last=False)
        return added

    def remove_adapter(self, name: str) -> bool:
        """False if there is none."""
        with self._lock:
            return self._adapters.pop(name, None) is not None

    def submit(self, *requests: SampleRequest) -> list[Future[SampleResult]]:
        """Queues samples, all or none.

        Raises RequestRefused, UnknownModel, SamplerBusy. A future raises DeadlineExceeded,
        SamplerFault or RequestRefused.
        """
        for request in requests:
            self._check(request)
        clients = [self._weights_of(request.model) for request in requests]
        with self._lock:
            if self._waiting + len(requests) > MAX_WAITING:
                raise SamplerBusy(f"{MAX_WAITING} samples are waiting")
            self._waiting += len(requests)
            self.counters.requests += len(requests)
        futures = [
            self._threads.submit(self._sample, client, request)
            for client, request in zip(clients, requests, strict=True)
        ]
        for future in futures:
            future.add_done_callback(self._done)
        return futures

    def _done(self, _: Future[SampleResult]) -> None:
        with self._lock:
            self._waiting -= 1

    def _check(self, request: SampleRequest) -> None:
        if not request.prompt_ids:
            raise RequestRefused("prompt: it has no tokens")
        if not all(0 <= token < self.vocabulary for token in request.prompt_ids):
            raise RequestRefused(f"prompt: token ids must lie in 0..{self.vocabulary - 1}")
        if request.max_tokens < 1:
            raise RequestRefused("max_tokens: must be at least 1")
        if len(request.prompt_ids) + request.max_tokens > self.context:
            raise RequestRefused(
                f"prompt of {len(request.prompt_ids)} tokens and max_tokens {request.max_tokens} "
                f"are more than the model's context of {self.context}"
            )
        if request.temperature not in (0.0, 1.0):
            raise RequestRefused(
                f"temperature: {request.temperature:g}, but a Tinker server gives "
                "log-probabilities at 1; sample at 1, or at 0"
            )

    def _weights_of(self, model: str) -> Any:
        if model == self.name:
            if self._base is None:
                try:
                    self._base = ended(
                        self._service.create_sampling_client(base_model=self.name),
                        f"{self.base_url}: sample {self.name}",
                        CONNECT_S,
                    )
                except RemoteError as error:
                    raise _classified(error) from error
            return self._base
        with self._lock:
            found = self._adapters.get(model)
        if found is None:
            raise UnknownModel(f"model: {model!r} is not served; the base is {self.name}")
        return found.client

    def _pointer(self, name: str, path: Path) -> str:
        try:
            values = json.loads((path / POINTER_FILE).read_text(encoding="utf-8"))
            pointed, server = str(values["path"]), str(values["base_url"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AdapterError(
                f"{name!r}: {path} points to no weights of a Tinker server ({error})"
            ) from error
        if server.rstrip("/") != self.base_url.rstrip("/"):
            raise AdapterError(f"{name!r}: its weights are on {server}, this is {self.base_url}")
        return pointed

    def _client(self, pointed: str) -> Any:
        try:
            return ended(
                self._service.create_sampling_client(model_path=pointed),
                f"{self.base_url}: sample {pointed}",
                CONNECT_S,
            )
        except RemoteError as error:
            raise AdapterError(str(error)) from error

    def _sample(self, client: Any, request: SampleRequest) -> SampleResult:
        seed = request.seed if request.seed is not None else int.from_bytes(os.urandom(4))
        params = types.SamplingParams(
            max_tokens=request.max_tokens,
            seed=seed % SEEDS,
            temperature=request.temperature,
            stop=[self.tokenizer.eos_id],
        )
        prompt = types.ModelInput.from_ints(list(request.prompt_ids))
        try:
            answer = ended(
                client.sample(prompt=prompt, num_samples=1, sampling_params=params),
                f"{self.base_url}: sample",
                request.deadline_s,
            )
        except WaitedTooLong as error:
            raise DeadlineExceeded(str(error)) from error
        except RemoteError as error:
            raise _classified(error) from error
        result = self._result(request, answer.sequences[0])
        if request.temperature == 1.0:
            return result
        sampled = len(result.token_ids)
        scores = self._scores(client, [*request.prompt_ids, *result.token_ids], request.deadline_s)
        return replace(result, token_logprobs=scores[-sampled:], sampling_logprobs=[0.0] * sampled)

    def _scores(self, client: Any, ids: list[int], deadline_s: float) -> list[float]:
        prompt = types.ModelInput.from_ints(ids)
        try:
            found = ended(client.compute_logprobs(prompt), f"{self.base_url}: score", deadline_s)
        except RemoteError as error:
            raise _classified(error) from error
        return [0.0 if value is None else float(value) for value in found]

    def _result(self, request: SampleRequest, sequence: types.SampledSequence) -> SampleResult:
        tokens = [int(token) for token in sequence.tokens]
        given = sequence.logprobs
        if not tokens or given is None or len(given) != len(tokens):
            raise SamplerFault(
                f"{self.base_url}: {len(tokens)} tokens came with "
                f"{'no' if given is None else len(given)} log-probabilities"
            )
        length, stop = self._end(tokens, request.stop)
        tokens = tokens[:length]
        logprobs = [float(value) for value in given[:length]]
        sampled_eos = tokens[-1] == self.tokenizer.eos_id
        text = self.tokenizer.decode(tokens)
        if stop is not None:
            text = text[: min(text.index(s) for s in request.stop if s in text)]
        with self._lock:
            self.counters.prompt_tokens += len(request.prompt_ids)
            self.counters.sampled_tokens += len(tokens)
        return SampleResult(
            token_ids=tokens,
            token_logprobs=logprobs,
            sampling_logprobs=logprobs,
            text=text,
            finish_reason="stop" if sampled_eos or stop is not None else "length",
            stop_reason=stop,
            sampled_eos=sampled_eos,
            weight_version=request.model,
            reused_tokens=0,
        )

    def _end(self, tokens: Sequence[int], stops: tuple[str, ...]) -> tuple[int, str | None]:
        """How many tokens count, and the stop string that the last of them completed."""
        tail = max((len(stop.encode()) for stop in stops), default=0) + STOP_TAIL_TOKENS
        for length, token in enumerate(tokens, start=1):
            if token == self.tokenizer.eos_id:
                return length, None
            if stops:
                text = self.tokenizer.decode(tokens[max(0, length - tail) : length])
                found = next((stop for stop in stops if stop in text), None)
                if found is not None:
                    return length, found
        return len(tokens), None


def _classified(error: RemoteError) -> RequestRefused | SamplerFault:
    """What asking again cannot help is the request's fault; the rest may pass."""
    cause = error.__cause__
    permanent = (
        tinker.AuthenticationError,
        tinker.PermissionDeniedError,
        tinker.NotFoundError,
        tinker.BadRequestError,
        tinker.UnprocessableEntityError,
    )
    is_users = isinstance(cause, tinker.RequestFailedError) and str(
        getattr(cause.category, "value", cause.category)
    ).lower().endswith("user")
    if is_users or isinstance(cause, permanent):
        return RequestRefused(str(error))
    return SamplerFault(str(error))
