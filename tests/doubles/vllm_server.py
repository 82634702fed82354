"""Speaks vLLM's HTTP API over our own sampler: ids, log-probs and adapters are real.

What of vLLM is imitated: cards of models with their root; adapters loaded and unloaded by name at
run time, in few slots; a request without sampling options gets those of a `generation_config`
(greedy here); log-probs at temperature 1, or processed; EOS among the ids; a stop string's tokens
among the ids and not in the text. `changes` are fields of a choice that go wrong.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from training.engine.adapters import AdapterError
from training.engine.scheduler import RequestRefused, Sampler, SampleRequest, UnknownModel

NAME = "org/base"
LIMIT_S = 120.0


class HttpError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass
class VllmDouble:
    sampler: Sampler
    slots: int = 4
    is_processed: bool = False
    api_key: str = ""
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    """Every adapter that was ever loaded, in order."""
    changes: dict[str, Any] = field(default_factory=dict)
    loses_adapters: bool = False

    def restart(self) -> None:
        """It knows no adapter any more."""
        for adapter in self.sampler.adapters():
            self.sampler.remove_adapter(adapter.name)

    def answer(self, path: str, body: dict[str, Any], key: str) -> dict[str, Any] | str:
        if self.api_key and key != f"Bearer {self.api_key}":
            raise HttpError(401, "Unauthorized")
        match path:
            case "/v1/models":
                return {"object": "list", "data": self.cards()}
            case "/v1/load_lora_adapter":
                return self.load(body["lora_name"], Path(body["lora_path"]))
            case "/v1/unload_lora_adapter":
                if not self.sampler.remove_adapter(body["lora_name"]):
                    raise HttpError(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
                return f"Success: LoRA adapter '{body['lora_name']}' removed successfully."
            case "/v1/completions":
                return self.complete(body)
        raise HttpError(404, "Not Found")

    def cards(self) -> list[dict[str, Any]]:
        adapters = self.sampler.adapters()
        return [
            {"id": NAME, "object": "model", "root": NAME, "parent": None},
            *({"id": a.name, "object": "model", "root": a.path, "parent": NAME} for a in adapters),
        ]

    def load(self, name: str, folder: Path) -> str:
        names = [adapter.name for adapter in self.sampler.adapters()]
        if name in names:
            raise HttpError(400, f"The lora adapter '{name}' has already been loaded.")
        if len(names) >= self.slots:
            raise HttpError(400, "no free slot")
        try:
            self.sampler.add_adapter(name=name, path=folder)
        except AdapterError as error:
            raise HttpError(400, str(error)) from error
        self.loaded.append(name)
        if self.loses_adapters:
            self.sampler.remove_adapter(name)
        return f"Success: LoRA adapter '{name}' added successfully."

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(body)
        is_plain = body.get("top_k") == 0 and body.get("top_p") == 1
        temperature = float(body.get("temperature", 1.0)) if is_plain else 0.0
        request = SampleRequest(
            model=self.sampler.name if body["model"] == NAME else body["model"],
            prompt_ids=tuple(body["prompt"]),
            max_tokens=body["max_tokens"],
            temperature=temperature,
            seed=body.get("seed"),
            stop=tuple(body.get("stop") or ()),
            deadline_s=LIMIT_S,
        )
        try:
            [future] = self.sampler.submit(request)
            result = future.result(timeout=LIMIT_S)
        except UnknownModel as error:
            raise HttpError(404, f"The model `{body['model']}` does not exist.") from error
        except RequestRefused as error:
            raise HttpError(400, str(error)) from error
        logprobs = result.sampling_logprobs if self.is_processed else result.token_logprobs
        choice = {
            "index": 0,
            "text": result.text,
            "finish_reason": result.finish_reason,
            "stop_reason": result.stop_reason,
            "token_ids": result.token_ids if body.get("return_token_ids") else None,
            "prompt_token_ids": body["prompt"] if body.get("return_token_ids") else None,
            "logprobs": None if body.get("logprobs") is None else {"token_logprobs": logprobs},
            **self.changes,
        }
        return {"object": "text_completion", "model": body["model"], "choices": [choice]}


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[VllmDouble]:
    """A double over the model of `folder`, by real HTTP."""
    double = VllmDouble(Sampler(folder, name="behind"), **options)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            status = 200
            try:
                said = double.answer(self.path, body, self.headers.get("Authorization", ""))
            except HttpError as error:
                status = error.status
                said = {"error": {"message": error.message, "code": error.status}}
            content = (said if isinstance(said, str) else json.dumps(said)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # names of the base class

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    double.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        double.sampler.close()
