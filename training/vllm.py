"""Sampling from a vLLM server by URL, with adapters of pinned versions.

Tokens in, tokens out: prompts go as ids, and ids come back with the log-prob of each. A published
adapter gets a name of its own that carries its version, so no cache of the server can serve another
one under it; the server keeps as many as rows may be stale, and older ones are unloaded first. The
list of served models is read before sampling: a version that is not there is an error, never the
base model in its place.

The server is started with `--enable-lora`, `--max-loras` of at least the staleness plus one, and
`VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`. Its log-probs are those of the raw logits unless it runs
with `--logprobs-mode processed_logprobs`; then only may the temperature differ from 1.

Written against vLLM's documented HTTP API and tested against a stand-in: no server was at hand.
"""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.errors import ConfigurationError, SamplerError


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion, as sampled."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    is_truncated: bool
    """It ran into `max_tokens`."""
    weight_version: str


@dataclass(slots=True)
class VllmSampler:
    """A client of one server; not for use by several threads."""

    url: str
    """Up to and without `/v1`."""
    base_model: str
    """The name that the server gives the base model."""
    max_staleness: int = 1
    """Versions that rows may be behind; that many adapters and the newest are kept."""
    is_processed: bool = False
    """The server runs with `--logprobs-mode processed_logprobs`."""
    timeout_s: float = 600.0
    api_key: str = ""
    _loaded: list[str] = field(default_factory=list)

    def publish(self, version: str, folder: Path) -> None:
        """Serve an adapter folder as `version` from now on; a second call does nothing.

        The folder must be readable under the same path by the server. Raises SamplerError.
        """
        if version in self._served():
            if version not in self._loaded:
                self._loaded.append(version)
            return
        while len(self._loaded) > self.max_staleness:
            self._post("/v1/unload_lora_adapter", {"lora_name": self._loaded[0]})
            self._loaded.pop(0)
        self._post("/v1/load_lora_adapter", {"lora_name": version, "lora_path": str(folder)})
        if version not in self._served():
            raise SamplerError(f"{self.url}: {version} was loaded and is not served")
        self._loaded.append(version)

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        n: int,
        max_tokens: int,
        version: str = "",
        temperature: float = 1.0,
        seed: int | None = None,
    ) -> list[list[Sampled]]:
        """`n` completions per prompt from `version` (the base model without one).

        Raises ConfigurationError for a temperature whose log-probs the server does not give, and
        SamplerError where it fails, lacks the version, or answers without ids and log-probs.
        """
        if temperature != 1.0 and not self.is_processed:
            raise ConfigurationError(
                f"temperature: {temperature} needs a server with --logprobs-mode "
                "processed_logprobs; its log-probs are those at 1 otherwise"
            )
        model = version or self.base_model
        served = self._served()
        if model not in served:
            raise SamplerError(f"{self.url}: {model} is not served, there are {', '.join(served)}")
        return [
            self._completions(list(prompt), model, n, max_tokens, temperature, seed, index)
            for index, prompt in enumerate(prompts)
        ]

    def _completions(
        self,
        prompt: list[int],
        model: str,
        n: int,
        max_tokens: int,
        temperature: float,
        seed: int | None,
        index: int,
    ) -> list[Sampled]:
        request: dict[str, Any] = {
            "model": model,
            "prompt": prompt,
            "n": n,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": 1.0,
            "top_k": 0,
            "logprobs": 0,
            "return_token_ids": True,
        }
        if seed is not None:
            request["seed"] = seed + index
        answer = self._post("/v1/completions", request)
        if answer.get("model", model) != model:
            raise SamplerError(f"{self.url}: asked for {model}, {answer['model']} answered")
        choices = answer.get("choices") or []
        if len(choices) != n:
            raise SamplerError(f"{self.url}: asked for {n} completions, got {len(choices)}")
        return [self._sampled(choice, prompt, model) for choice in choices]

    def _sampled(self, choice: dict[str, Any], prompt: list[int], model: str) -> Sampled:
        ids = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if ids is None or logprobs is None:
            raise SamplerError(
                f"{self.url}: no token ids or log-probs in the answer; vLLM knows return_token_ids "
                "since 0.10.2"
            )
        if len(ids) != len(logprobs):
            raise SamplerError(f"{self.url}: {len(ids)} ids but {len(logprobs)} log-probs")
        echoed = choice.get("prompt_token_ids")
        if echoed is not None and list(echoed) != prompt:
            raise SamplerError(f"{self.url}: it saw another prompt than was sent")
        values = tuple(float(value) for value in logprobs)
        if not all(math.isfinite(value) for value in values):
            raise SamplerError(f"{self.url}: a log-prob is not finite")
        return Sampled(
            ids=tuple(int(token) for token in ids),
            logprobs=values,
            is_truncated=choice.get("finish_reason") == "length",
            weight_version=model,
        )

    def _served(self) -> list[str]:
        return [str(model["id"]) for model in self._call("/v1/models", None).get("data", [])]

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._call(path, body)

    def _call(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        request = urllib.request.Request(
            self.url.rstrip("/") + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Content-Type": "application/json",
                **({"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}),
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                text = response.read().decode("utf-8")
        except urllib.error.HTTPError as error:
            detail = error.read(500).decode("utf-8", "replace")
            raise SamplerError(f"{self.url}{path}: HTTP {error.code}: {detail}") from error
        except OSError as error:
            raise SamplerError(f"{self.url}{path}: {error}") from error
        try:
            # Loading answers with a sentence, everything else with JSON.
            parsed = json.loads(text) if text.lstrip().startswith("{") else {}
        except ValueError as error:
            raise SamplerError(f"{self.url}{path}: the answer is not JSON") from error
        return parsed if isinstance(parsed, dict) else {}
