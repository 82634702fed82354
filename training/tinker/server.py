"""Serves the Tinker protocol from this machine: `python -m training.tinker.server --model DIR`.

For recipes that are written for Tinker, and as an offline double of it. Listens on loopback alone,
since the protocol has no authentication that we could check. Training is computed one request at a
time in the order in which they come; the SDK sends those of a client in the order of their `seq_id`
and is told not to send chunks side by side. Sampling is the model server's (`training.engine`):
prompts that begin alike are computed once, and it goes on while another model is trained. It ends
at the end-of-turn token whatever `stop` says.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Self

import torch

from training.checkpoint import write_folder
from training.engine.scheduler import Sampler, SampleRequest, SampleResult
from training.engine.wire import choice_seed
from training.errors import TrainingError
from training.tinker import wire
from training.tinker.engine import AdamParams, Engine, Training
from training.tinker.graph import read_loss

DEFAULT_PORT = 8021
SAMPLE_LIMIT_S = 600.0
"""Of one sample, waiting included."""
WAIT_S = 20.0
"""Longest that a request for a result is kept waiting; the SDK asks again."""
CONFIG = {
    "parallel_fwdbwd_chunks": False,
    "proto_compress_fwdbwd": False,
    "custom_loss_server_side": True,
    "use_pyqwest_transport": False,
}


@dataclass
class Promise:
    """The result of a request, once it is there."""

    done: threading.Event
    body: bytes = b""
    content_type: str = "application/json"

    def settle(self, compute: Callable[[], dict[str, Any] | bytes]) -> None:
        """Takes a result, or why there is none."""
        try:
            result = compute()
            if isinstance(result, bytes):
                self.body, self.content_type = result, wire.PROTOBUF
            else:
                self.body = json.dumps(result).encode()
        except (TrainingError, KeyError, ValueError, RuntimeError, TimeoutError) as error:
            said = f"{type(error).__name__}: {error}"
            self.body = json.dumps({"error": said, "category": "user"}).encode()
        self.done.set()


class TinkerServer:
    """`with TinkerServer(Engine(folder)) as server:` serves at `server.url`."""

    def __init__(self, engine: Engine, *, port: int = 0) -> None:
        self.engine = engine
        self._folder = tempfile.TemporaryDirectory(prefix="tinker-")
        self._sampler: Sampler | None = None
        self._numbers = count(1)
        self._promises: dict[str, Promise] = {}
        self._samplers: dict[str, str] = {}
        """Sampling session to the path of its weights; empty: the base."""
        self._lock = threading.Lock()  # one model call at a time, and the tables above
        server = self

        class Handler(_Handler):
            served = server

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        if self._sampler is not None:
            self._sampler.close()
        self._folder.cleanup()

    def serve_forever(self) -> None:
        self._http.serve_forever()

    # --- verbs ------------------------------------------------------------------------------

    def answer(self, path: str, body: bytes, content_type: str) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        name = path.rstrip("/").removeprefix("/api/v1/")
        if name == "forward_backward":
            return self._promise(lambda: self._forward_backward(body))
        given: dict[str, Any] = json.loads(body or b"{}")
        if name == "retrieve_future":
            return self._retrieve(given)
        if name in ("client/config", "client/dynamic_config"):
            return _json(CONFIG)
        if name == "create_session":
            return _json({"type": "create_session", "session_id": f"session-{next(self._numbers)}"})
        if name in ("session_heartbeat", "telemetry", "healthz"):
            kind = {"type": "session_heartbeat"} if name == "session_heartbeat" else {}
            return _json({**kind, "status": "accepted" if name == "telemetry" else "ok"})
        if name == "get_server_capabilities":
            return _json({"supported_models": [{"model_name": self.engine.folder.name}]})
        if name == "create_sampling_session":
            return _json(
                {
                    "type": "create_sampling_session",
                    "sampling_session_id": self._sampling_session(self._known(given)),
                }
            )
        if name == "get_info":
            return self._info(given)
        verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any] | bytes]] = {
            "create_model": self._create,
            "create_custom_loss": self._create_loss,
            "load_weights": self._load,
            "save_weights": self._save,
            "save_weights_for_sampler": self._publish,
            "optim_step": self._optim_step,
        }
        if name == "asample":
            return self._sample(given)
        if name.startswith("samplers/"):
            return self._sampler_info(name.removeprefix("samplers/"))
        if name.startswith("sessions/"):
            return 204, "application/json", b""
        if name not in verbs:
            return 404, "application/json", json.dumps({"error": f"no verb {name!r}"}).encode()
        return self._promise(lambda: verbs[name](given))

    def _promise(self, compute: Callable[[], dict[str, Any] | bytes]) -> tuple[int, str, bytes]:
        """Computes at once; the answer is fetched by its id."""
        name, promise = self._promised()
        with self._lock:
            promise.settle(compute)
        return _json({"request_id": name})

    def _promised(self) -> tuple[str, Promise]:
        name = f"request-{next(self._numbers)}"
        promise = self._promises[name] = Promise(threading.Event())
        return name, promise

    def _retrieve(self, given: dict[str, Any]) -> tuple[int, str, bytes]:
        promise = self._promises.get(given["request_id"])
        if promise is None:
            return 410, "application/json", b'{"error": "no such request"}'
        if not promise.done.wait(WAIT_S):
            return _json({"type": "try_again", "queue_state": "active"})
        return 200, promise.content_type, promise.body

    def _training(self, given: dict[str, Any]) -> Training:
        training = self.engine.trainings[given["model_id"]]
        if training.error:
            raise TrainingError(f"an earlier request failed ({training.error}); load a saved state")
        return training

    def _forward_backward(self, body: bytes) -> bytes:
        model, data, loss_fn, config, is_forward_only = wire.read_forward_backward(body)
        training = self._training({"model_id": model})
        try:
            passed = self.engine.forward_backward(
                training, data, loss_fn, config, is_forward_only=is_forward_only
            )
        except (TrainingError, KeyError, ValueError, RuntimeError) as error:
            training.error = str(error)
            raise
        return wire.write_passed(passed)

    def _create(self, given: dict[str, Any]) -> dict[str, Any]:
        lora = given.get("lora_config") or {}
        name = self.engine.create(
            rank=int(lora.get("rank") or 32), seed=lora.get("seed"), name=_model_id(given)
        )
        return {"type": "create_model", "model_id": name}

    def _create_loss(self, given: dict[str, Any]) -> dict[str, Any]:
        name = f"loss-{next(self._numbers)}"
        loss = read_loss(str(given.get("name") or name), given["inputs"], given["graph"])
        self.engine.losses[name] = loss
        return {"type": "create_custom_loss", "loss_id": name}

    def _optim_step(self, given: dict[str, Any]) -> dict[str, Any]:
        params = given.get("adam_params") or given.get("optimizer_params") or {}
        if params.get("type", "adamw") not in ("adamw", "adam"):
            raise TrainingError(f"optimizer {params['type']!r} is not served; use Adam")
        known = {item.name for item in fields(AdamParams)}
        adam = AdamParams(**{name: float(v) for name, v in params.items() if name in known})
        metrics = self.engine.optim_step(self._training(given), adam)
        return {"type": "optim_step", "metrics": metrics}

    def _save(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given.get("path") or f"state-{next(self._numbers)}"
        path = f"tinker://{given['model_id']}/weights/{name}"
        self.engine.save(self._training(given), path)
        return {"type": "save_weights", "path": path}

    def _load(self, given: dict[str, Any]) -> dict[str, Any]:
        name = self.engine.load(
            given["path"], has_optimizer=bool(given.get("optimizer")), name=_model_id(given)
        )
        return {"type": "load_weights", "path": given["path"], "model_id": name}

    def _publish(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given.get("path") or f"sampler-{next(self._numbers)}"
        path = f"tinker://{given['model_id']}/sampler_weights/{name}"
        training = self._training(given)
        self.engine.save(training, path)
        self._serve(path, training)
        answer: dict[str, Any] = {"type": "save_weights_for_sampler", "path": path}
        if not given.get("path"):
            answer = {**answer, "path": None, "sampling_session_id": self._sampling_session(path)}
        return answer

    def _known(self, given: dict[str, Any]) -> str:
        """The path that is asked for; KeyError where nothing was saved under it."""
        path = str(given.get("model_path") or "")
        if path and path not in self.engine.states:
            raise KeyError(f"no weights are saved under {path!r}")
        return path

    def _sampling_session(self, path: str) -> str:
        name = f"sampling-{next(self._numbers)}"
        self._samplers[name] = path
        return name

    def _sample(self, given: dict[str, Any]) -> tuple[int, str, bytes]:
        """Answers at once; the promise is kept when the last sample is there."""
        n = int(given.get("num_samples") or 1)
        name, promise = self._promised()
        ids = [f"sequence-{next(self._numbers)}" for _ in range(n)]
        try:
            prompt, futures = self._sampling(given, n)
        except (TrainingError, KeyError, ValueError, RuntimeError) as caught:
            error = caught  # the name of an except clause ends with it

            def refuse() -> bytes:
                raise error

            promise.settle(refuse)
        else:
            left = count(n - 1, -1)

            def on_done(_: Future[SampleResult]) -> None:
                if next(left) == 0:
                    # In a thread of its own: the sampler's must not wait for the lock.
                    answer = partial(promise.settle, partial(self._sampled, given, prompt, futures))
                    threading.Thread(target=answer, daemon=True).start()

            for future in futures:
                future.add_done_callback(on_done)
        return _json({"request_id": name, "sample_sequence_ids": ids})

    def _sampling(
        self, given: dict[str, Any], n: int
    ) -> tuple[list[int], list[Future[SampleResult]]]:
        path = self._path_of(given)
        prompt = wire.tokens_of_prompt(given["prompt"])
        params = given.get("sampling_params") or {}
        seed = params.get("seed")
        texts, _ = wire.stops_of(params)
        with self._lock:
            sampler = self._ready_sampler()
            if path and path not in {adapter.name for adapter in sampler.adapters()}:
                self._serve(path, self.engine.trainings.pop(self._loaded(path)))
        return prompt, sampler.submit(
            *(
                SampleRequest(
                    model=path or sampler.name,
                    prompt_ids=tuple(prompt),
                    max_tokens=int(params.get("max_tokens") or 16),
                    temperature=float(params.get("temperature", 1.0)),
                    seed=choice_seed(None if seed is None else int(seed), index),
                    stop=texts,
                    deadline_s=SAMPLE_LIMIT_S,
                )
                for index in range(n)
            )
        )

    def _sampled(
        self, given: dict[str, Any], prompt: list[int], futures: Sequence[Future[SampleResult]]
    ) -> bytes:
        _, tokens = wire.stops_of(given.get("sampling_params") or {})
        samples = [wire.cut_at(future.result(), tokens) for future in futures]
        scores = None
        if given.get("prompt_logprobs"):
            with self._lock:
                scores = self._scores(self._path_of(given), prompt)
        return wire.write_samples(samples, scores)

    def _sampler_info(self, name: str) -> tuple[int, str, bytes]:
        path = self._samplers[name]
        values = {"sampler_id": name, "base_model": self.engine.folder.name}
        return _json({**values, "model_path": path} if path else values)

    def _path_of(self, given: dict[str, Any]) -> str:
        path = self._samplers.get(given.get("sampling_session_id") or "", "")
        return path or str(given.get("model_path") or "")

    def _scores(self, path: str, prompt: list[int]) -> list[float]:
        # The base as it is: a fresh adapter's B is zero.
        name = self._loaded(path) if path else self.engine.create(rank=1, seed=0)
        return self.engine.score(self.engine.trainings.pop(name).model, prompt)

    def _loaded(self, path: str) -> str:
        return self.engine.load(path, has_optimizer=False)

    def _ready_sampler(self) -> Sampler:
        """Needs the lock."""
        if self._sampler is None:
            self._sampler = Sampler(self.engine.folder, name=self.engine.folder.name)
        return self._sampler

    def _serve(self, path: str, training: Training) -> None:
        """Lets the sampler have these weights under their path. Needs the lock."""
        folder = Path(self._folder.name) / f"adapter-{next(self._numbers)}"
        write_folder(folder, self.engine.adapter_files(training))
        self._ready_sampler().add_adapter(name=path, path=folder)

    def _info(self, given: dict[str, Any]) -> tuple[int, str, bytes]:
        training = self.engine.trainings[given["model_id"]]
        name = self.engine.folder.name
        return _json(
            {
                "type": "get_info",
                "model_data": {"arch": "llama", "model_name": name, "tokenizer_id": name},
                "model_id": given["model_id"],
                "is_lora": True,
                "lora_rank": training.rank,
                "model_name": name,
            }
        )


class _Handler(BaseHTTPRequestHandler):
    served: TinkerServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("content-length") or 0)))

    def do_GET(self) -> None:
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        kind = self.headers.get("content-type") or ""
        try:
            status, content_type, answer = self.served.answer(self.path.split("?")[0], body, kind)
        except (KeyError, ValueError) as error:
            said = {"error": f"{type(error).__name__}: {error}"}
            status, content_type, answer = 404, "application/json", json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing: a line per request would drown what matters."""


def _model_id(given: dict[str, Any]) -> str:
    """As the SDK derives it, without waiting for the answer."""
    if given.get("session_id") is None or given.get("model_seq_id") is None:
        return str(given.get("model_id") or "")
    return f"{given['session_id']}:train:{given['model_seq_id']}"


def _json(values: dict[str, Any]) -> tuple[int, str, bytes]:
    return 200, "application/json", json.dumps(values).encode()


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m training.tinker.server", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a prepared model folder")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="on 127.0.0.1")
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    server = TinkerServer(Engine(options.model), port=options.port)
    print(f"serving {options.model.name} at {server.url}; TINKER_BASE_URL={server.url}", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
