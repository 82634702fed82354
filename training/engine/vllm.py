"""A vLLM server behind the interface of our own sampler.

What `training.engine.api` serves from this has the routes, ids and log-probabilities of the model
server, so agents, graders and training rows know no difference, and no weights are loaded here. An
adapter is registered there under the name that it has here, which carries its version: no cache of
the server can hold another one's under it. A few are kept, and the one used longest ago is
unloaded.

Log-probabilities are those of the distribution that was drawn from. vLLM gives them where the
temperature is 1, or where it runs with `--logprobs-mode processed_logprobs`; any other temperature
than 0 is refused without, for the numbers would be wrong. What it does not give, the list at
temperature 1 in that mode, is empty.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock

from training.engine.adapters import AdapterError
from training.engine.scheduler import (
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
from training.errors import SamplerError
from training.llama import sizes_of
from training.tokenizer import ChatTokenizer
from training.vllm import NotServed, Refused, Sampled, TooSlow, VllmServer

MAX_AT_ONCE = 128
MAX_WAITING = 512
MAX_ADAPTERS = 4


@dataclass(frozen=True)
class ServedAdapter:
    """An adapter that the server has under this name."""

    name: str
    path: str


class VllmSampler:
    """See `training.engine.api.Serving`. Public methods are thread-safe."""

    def __init__(
        self,
        server: VllmServer,
        *,
        folder: Path,
        name: str,
        remote_name: str = "",
        is_processed: bool = False,
        max_adapters: int = MAX_ADAPTERS,
    ) -> None:
        """`folder`: tokenizer and configuration of the base, called `name` here and `remote_name`
        there. Raises ConfigurationError or OSError where they cannot be read."""
        self.name = name
        self.tokenizer = ChatTokenizer.from_folder(folder)
        self.vocabulary, self.context = sizes_of(folder)
        self.counters = Counters()
        self._server = server
        self._remote_name = remote_name or name
        self._is_processed = is_processed
        self._max_adapters = max_adapters
        self._adapters: dict[str, ServedAdapter] = {}  # in order of last use
        self._in_flight: Counter[str] = Counter()
        self._lock = Lock()
        self._loading = Lock()
        """Held while an adapter is registered, so that the number of them is kept."""
        self._threads = ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="vllm-sample")

    def close(self) -> None:
        """Requests that have not begun fail."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def adapters(self) -> list[ServedAdapter]:
        with self._lock:
            return list(self._adapters.values())

    def add_adapter(self, *, name: str, path: Path) -> ServedAdapter:
        """Has the server load a folder under a name; the same name and folder again asks only
        whether it still has it.

        Raises AdapterConflict, AdapterError (the server refuses the folder), SamplerBusy (all that
        it holds for us are in use) and SamplerFault.
        """
        path = path.absolute()
        with self._loading:
            known = self._known(name)
            if name in (self.name, self._remote_name):
                raise AdapterConflict(f"{name!r} is the name of the base model")
            if known is not None and known.path != str(path):
                raise AdapterConflict(f"adapter {name!r} is already loaded from {known.path}")
            try:
                root = self._server.served().get(name)
                if root is None:
                    self._make_room(name)
                    self._server.load(name, path)
                elif root != str(path):
                    raise AdapterConflict(f"the server has another adapter {name!r}, from {root}")
            except (NotServed, Refused) as error:
                raise AdapterError(f"{name!r}: {error}") from error
            except SamplerError as error:
                raise SamplerFault(str(error)) from error
            with self._lock:
                return self._adapters.setdefault(name, ServedAdapter(name, str(path)))

    def remove_adapter(self, name: str) -> bool:
        """False if there is none."""
        with self._lock:
            found = self._adapters.pop(name, None)
        if found is None:
            return False
        try:
            self._server.unload(name)
        except SamplerError as error:
            raise SamplerFault(str(error)) from error
        return True

    def submit(self, *requests: SampleRequest) -> list[Future[SampleResult]]:
        """Queues samples, all or none.

        Raises RequestRefused, UnknownModel, SamplerBusy. A future raises DeadlineExceeded,
        SamplerFault, UnknownModel (the server has lost the adapter) or RequestRefused.
        """
        for request in requests:
            self._check(request)
        with self._lock:
            if self._in_flight.total() + len(requests) > MAX_WAITING:
                raise SamplerBusy(f"{MAX_WAITING} samples are waiting")
            for request in requests:
                self._in_flight[request.model] += 1
                if request.model in self._adapters:  # used last
                    self._adapters[request.model] = self._adapters.pop(request.model)
            self.counters.requests += len(requests)
        futures = [self._threads.submit(self._sample, request) for request in requests]
        for future, request in zip(futures, requests, strict=True):
            future.add_done_callback(partial(self._done, request.model))
        return futures

    def _done(self, model: str, _: Future[SampleResult]) -> None:
        with self._lock:
            self._in_flight[model] -= 1

    def _known(self, name: str) -> ServedAdapter | None:
        with self._lock:
            return self._adapters.get(name)

    def _make_room(self, name: str) -> None:
        """Unloads before loading: the server has slots for so many."""
        while True:
            with self._lock:
                others = [other for other in self._adapters if other != name]
                if len(others) < self._max_adapters:
                    return
                idle = next((other for other in others if not self._in_flight[other]), None)
                if idle is None:
                    raise SamplerBusy(f"{self._max_adapters} adapters are in use (--max-adapters)")
                del self._adapters[idle]
            self._server.unload(idle)

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
        if not self._is_processed and request.temperature not in (0.0, 1.0):
            raise RequestRefused(
                f"temperature: {request.temperature:g}, but this vLLM server gives "
                "log-probabilities at 1. Start it with --logprobs-mode processed_logprobs and say "
                "so (SWITCHBACK_VLLM_PROCESSED), or sample at 1"
            )
        if request.model != self.name and self._known(request.model) is None:
            names = ", ".join([self.name, *(each.name for each in self.adapters())])
            raise UnknownModel(f"model: {request.model!r} is not served; there are {names}")

    def _sample(self, request: SampleRequest) -> SampleResult:
        model = self._remote_name if request.model == self.name else request.model
        try:
            sampled = self._server.complete(
                request.prompt_ids,
                model=model,
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                seed=request.seed,
                stop=request.stop,
                timeout_s=request.deadline_s,
            )
        except NotServed as error:
            # The server was started anew: whoever needs the adapter brings it again.
            with self._lock:
                self._adapters.pop(request.model, None)
            raise UnknownModel(f"model: {error}") from error
        except TooSlow as error:
            raise DeadlineExceeded(str(error)) from error
        except Refused as error:
            raise RequestRefused(str(error)) from error
        except SamplerError as error:
            raise SamplerFault(str(error)) from error
        return self._result(request, sampled)

    def _result(self, request: SampleRequest, sampled: Sampled) -> SampleResult:
        ids, logprobs = list(sampled.ids), list(sampled.logprobs)
        sampled_eos = sampled.stop is None and ids[-1] == self.tokenizer.eos_id
        stop = sampled.stop
        if stop is None and not sampled_eos and not sampled.is_truncated:
            # Another token that ends turns, which the bridge to the next turn must not take for it.
            stop = self.tokenizer.pieces(ids[-1:])[0]
        if request.temperature == 0.0:
            at_one = [] if self._is_processed else logprobs
            drawn = [0.0] * len(ids)  # the likely one, for certain
        else:
            at_one = logprobs if request.temperature == 1.0 else []
            drawn = logprobs
        with self._lock:
            self.counters.prompt_tokens += len(request.prompt_ids)
            self.counters.sampled_tokens += len(ids)
        return SampleResult(
            token_ids=ids,
            token_logprobs=at_one,
            sampling_logprobs=drawn,
            text=sampled.text,
            finish_reason="length" if sampled.is_truncated else "stop",
            stop_reason=stop,
            sampled_eos=sampled_eos,
            weight_version=request.model,
            reused_tokens=0,
        )
