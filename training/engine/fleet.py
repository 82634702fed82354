"""The base model with its adapters, and whole models of the same tokenizer beside it.

Where every weight is trained, a version of the weights is a model folder of its own. It is loaded
under a name through the same door as an adapter, and gets a sampler with a thread of its own. Whole
models are large, so few are held: the one used longest ago makes room before the next is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from threading import Lock

from safetensors import SafetensorError

from training.engine.adapters import Adapter, AdapterError
from training.engine.scheduler import (
    AdapterConflict,
    Counters,
    Sampler,
    SamplerBusy,
    SampleRequest,
    SampleResult,
)
from training.errors import TrainingError
from training.tokenizer import ChatTokenizer

MODEL_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
MAX_MODELS = 2
"""Beside the base: the weights that are trained, and those that they are compared with."""


@dataclass(frozen=True)
class WholeModel:
    """A model folder under a name."""

    name: str
    path: str
    sampler: Sampler


class Fleet:
    """See `training.engine.api.Serving`. Public methods are thread-safe; it owns the base."""

    def __init__(self, base: Sampler, folder: Path, *, max_models: int = MAX_MODELS) -> None:
        self._base, self._folder = base, folder
        self._max_models = max_models
        self._models: dict[str, WholeModel] = {}  # in order of last use
        self._in_flight: Counter[str] = Counter()
        self._lock = Lock()
        self._loading = Lock()
        """Held while a folder is read, so that no two are read at a time."""

    @property
    def name(self) -> str:
        """Of the base."""
        return self._base.name

    @property
    def tokenizer(self) -> ChatTokenizer:
        """Of all of them."""
        return self._base.tokenizer

    @property
    def context(self) -> int:
        """Of the base."""
        return self._base.context

    @property
    def counters(self) -> Counters:
        """Of all that are loaded."""
        with self._lock:
            parts = [self._base.counters, *(each.sampler.counters for each in self._of_models())]
        total = Counters()
        for field in fields(Counters):
            setattr(total, field.name, sum(getattr(part, field.name) for part in parts))
        return total

    def adapters(self) -> Sequence[Adapter | WholeModel]:
        """Adapters of the base, then whole models."""
        with self._lock:
            return [*self._base.adapters(), *self._of_models()]

    def add_adapter(self, *, name: str, path: Path) -> Adapter | WholeModel:
        """Loads an adapter or a whole model; the same name and folder again is no change.

        Raises AdapterConflict (the name is taken), AdapterError (the folder does not fit) and
        SamplerBusy (every whole model has requests; asking again helps).
        """
        if not (path / MODEL_FILE).is_file():
            self._require_free(name, "", self._of_models())
            return self._base.add_adapter(name=name, path=path)
        path = path.absolute()
        with self._loading:
            with self._lock:
                known = self._models.get(name)
            if known is not None and known.path == str(path):
                return known
            taken: list[Adapter | WholeModel] = [*self._of_models(), *self._base.adapters()]
            self._require_free(name, self._base.name, taken)
            self._check_tokenizer(name, path)
            if self._max_models < 1:
                raise AdapterConflict("whole models are not served here (--max-models)")
            self._make_room()
            loaded = WholeModel(name, str(path), self._read(name, path))
            with self._lock:
                self._models[name] = loaded
        return loaded

    def remove_adapter(self, name: str) -> bool:
        """Forgets it; what it is asked at the moment fails. False if there is none."""
        with self._lock:
            found = self._models.pop(name, None)
        if found is None:
            return self._base.remove_adapter(name)
        found.sampler.close()
        return True

    def submit(self, *requests: SampleRequest) -> list[Future[SampleResult]]:
        """As `Sampler.submit`; the requests of one call are for one model."""
        with self._lock:
            found = self._models.pop(requests[0].model, None) if requests else None
            if found is None:
                return self._base.submit(*requests)
            self._models[found.name] = found  # used last
            futures = found.sampler.submit(*requests)
            self._in_flight[found.name] += len(futures)
        for future in futures:
            future.add_done_callback(partial(self._done, found.name))
        return futures

    def _done(self, name: str, _: Future[SampleResult]) -> None:
        with self._lock:
            self._in_flight[name] -= 1

    def close(self) -> None:
        """Ends all."""
        with self._lock:
            models = self._of_models()
            self._models.clear()
        for each in models:
            each.sampler.close()
        self._base.close()

    def _of_models(self) -> list[WholeModel]:
        return list(self._models.values())

    def _require_free(self, name: str, base: str, others: Sequence[Adapter | WholeModel]) -> None:
        if name == base:
            raise AdapterConflict(f"{name!r} is the name of the base model")
        for other in others:
            if other.name == name:
                raise AdapterConflict(f"{name!r} is already loaded from {other.path}")

    def _check_tokenizer(self, name: str, path: Path) -> None:
        """Prompts come as ids of the base's tokenizer: another one would read other words."""
        try:
            same = (path / TOKENIZER_FILE).read_bytes() == (
                self._folder / TOKENIZER_FILE
            ).read_bytes()
        except OSError as error:
            raise AdapterError(f"cannot read the model {name!r} in {path}: {error}") from error
        if not same:
            raise AdapterError(f"{name!r} in {path} has another tokenizer than {self._base.name}")

    def _make_room(self) -> None:
        while len(self._models) >= self._max_models:
            with self._lock:
                idle = next(
                    (each for each in self._of_models() if not self._in_flight[each.name]), None
                )
                if idle is None:
                    raise SamplerBusy(
                        f"{self._max_models} whole models are loaded and in use (--max-models)"
                    )
                del self._models[idle.name]
            idle.sampler.close()

    def _read(self, name: str, path: Path) -> Sampler:
        try:
            return Sampler(path, name=name, limits=self._base.limits)
        except (OSError, ValueError, KeyError, SafetensorError, TrainingError) as error:
            raise AdapterError(f"cannot read the model {name!r} in {path}: {error}") from error
