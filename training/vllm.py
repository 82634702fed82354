"""A client of one vLLM server, by its HTTP API: tokens in, tokens out, adapters by name.

Prompts go as ids, and ids come back with the log-prob of each. What the server does beside drawing
from the distribution is switched off in every request, since a model's `generation_config` may
switch it on. The model that answers has to be the one that was asked: another one, or an answer
without ids and log-probs, is an error and never taken for a sample.

The server is started with `--enable-lora`, `--max-lora-rank` and `--max-loras` for what is trained,
and `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`. Its log-probs are those at temperature 1 unless it runs
with `--logprobs-mode processed_logprobs`, when they are those of the distribution drawn from.

Written against vLLM's documented API and tested against a stand-in: no server was at hand.
"""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.errors import SamplerError

PLAIN = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
"""Drawn from the whole distribution as it is."""
SEEDS = 2**63


class NotServed(SamplerError):
    """The server has no model of this name."""


class Refused(SamplerError):
    """The server will not serve this request, however often it is asked."""


class TooSlow(SamplerError):
    """No answer in time."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One completion, as sampled."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    """Before the stop string, without special tokens."""
    is_truncated: bool
    """It ran into `max_tokens`."""
    stop: str | None
    """The stop string that ended it, if one did."""


@dataclass(frozen=True, slots=True)
class VllmServer:
    """Requests to one server; may be shared by threads."""

    url: str
    """Up to and without `/v1`."""
    api_key: str = ""
    timeout_s: float = 60.0
    """Of what is not sampling."""

    def served(self) -> dict[str, str]:
        """Names of models and adapters, each with the folder or name that it was loaded from."""
        cards = self._call("/v1/models", None, self.timeout_s).get("data") or []
        return {str(card["id"]): str(card.get("root") or "") for card in cards}

    def load(self, name: str, folder: Path) -> None:
        """Serve an adapter's folder, which the server must see under the same path."""
        self._call(
            "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)}, self.timeout_s
        )
        if name not in self.served():
            raise SamplerError(f"{self.url}: {name} was loaded and is not served")

    def unload(self, name: str) -> None:
        """Forget an adapter; one that is not there is forgotten already."""
        try:
            self._call("/v1/unload_lora_adapter", {"lora_name": name}, self.timeout_s)
        except NotServed:
            return

    def complete(
        self,
        prompt: Sequence[int],
        *,
        model: str,
        max_tokens: int,
        temperature: float = 1.0,
        seed: int | None = None,
        stop: Sequence[str] = (),
        timeout_s: float = 600.0,
    ) -> Sampled:
        """One completion of `prompt` by `model`.

        Raises NotServed, Refused, TooSlow, and SamplerError where asking again may help.
        """
        request: dict[str, Any] = {
            **PLAIN,
            "model": model,
            "prompt": list(prompt),
            "n": 1,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "stop": list(stop),
            "logprobs": 0,
            "return_token_ids": True,
        }
        if seed is not None:
            request["seed"] = seed % SEEDS
        answer = self._call("/v1/completions", request, timeout_s)
        if answer.get("model", model) != model:
            raise SamplerError(f"{self.url}: asked for {model}, {answer['model']} answered")
        choices = answer.get("choices") or []
        if len(choices) != 1:
            raise SamplerError(f"{self.url}: asked for one completion, got {len(choices)}")
        return self._sampled(choices[0], list(prompt))

    def _sampled(self, choice: dict[str, Any], prompt: list[int]) -> Sampled:
        ids = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if ids is None or logprobs is None:
            raise Refused(
                f"{self.url}: no token ids or log-probs in the answer; vLLM knows return_token_ids "
                "since 0.10.2"
            )
        if not ids or len(ids) != len(logprobs):
            raise Refused(f"{self.url}: {len(ids)} ids but {len(logprobs)} log-probs")
        echoed = choice.get("prompt_token_ids")
        if echoed is not None and list(echoed) != prompt:
            raise Refused(f"{self.url}: it saw another prompt than was sent")
        values = tuple(math.nan if value is None else float(value) for value in logprobs)
        if not all(math.isfinite(value) for value in values):
            raise SamplerError(f"{self.url}: a log-prob is not finite")
        stop = choice.get("stop_reason")
        return Sampled(
            ids=tuple(int(token) for token in ids),
            logprobs=values,
            text=str(choice.get("text") or ""),
            is_truncated=choice.get("finish_reason") == "length",
            stop=stop if isinstance(stop, str) else None,  # a number is a token that ends turns
        )

    def _call(self, path: str, body: dict[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        place = self.url.rstrip("/") + path
        request = urllib.request.Request(
            place,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Content-Type": "application/json",
                **({"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}),
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as response:
                text = response.read().decode("utf-8")
        except urllib.error.HTTPError as error:
            raise _of_status(place, error) from error
        except TimeoutError as error:
            raise TooSlow(f"{place}: no answer within {timeout_s:g} s") from error
        except OSError as error:
            if isinstance(getattr(error, "reason", None), TimeoutError):
                raise TooSlow(f"{place}: no answer within {timeout_s:g} s") from error
            raise SamplerError(f"{place}: {error}") from error
        try:
            # Loading answers with a sentence, everything else with JSON.
            parsed = json.loads(text) if text.lstrip().startswith("{") else {}
        except ValueError as error:
            raise SamplerError(f"{place}: the answer is not JSON") from error
        return parsed if isinstance(parsed, dict) else {}


def _of_status(place: str, error: urllib.error.HTTPError) -> SamplerError:
    words = f"{place}: HTTP {error.code}: {error.read(500).decode('utf-8', 'replace')}"
    if error.code == 404:
        return NotServed(words)
    if error.code in (400, 401, 403, 413, 422):
        return Refused(words)
    return SamplerError(words)
