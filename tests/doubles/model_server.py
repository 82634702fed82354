"""A scripted model behind real HTTP: OpenAI's chat route and the routes of our own server.

A script is a function from what was asked to what is answered, so that a test can make the model
good, bad, slow or broken. Token ids are the code points of the text, special tokens lie above them;
so a script reads prompts of token ids as text, and a test can decode what was stored.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

BEGIN, END = "<|begin|>", "<|end|>"
_SPECIAL = {BEGIN: 0x110000, END: 0x110001}
_NAMES = {number: name for name, number in _SPECIAL.items()}
_PIECES = re.compile("|".join(map(re.escape, _SPECIAL)))
_TURN = re.compile(rf"{re.escape(BEGIN)}(\w+)\n(.*?)(?:{re.escape(END)}|$)", re.DOTALL)
LOGPROB = -0.25
"""Of every sampled token."""


def encode(text: str, *, special: bool = True) -> list[int]:
    """`special`: the names of special tokens stand for them."""
    ids: list[int] = []
    at = 0
    for found in _PIECES.finditer(text) if special else ():
        ids += [*map(ord, text[at : found.start()]), _SPECIAL[found[0]]]
        at = found.end()
    return [*ids, *map(ord, text[at:])]


def decode(ids: Sequence[int]) -> str:
    return "".join(_NAMES[i] if i in _NAMES else chr(i) for i in ids)


def render(messages: Sequence[Mapping[str, str]]) -> str:
    """The chat template, up to the start of the next action."""
    turns = (f"{BEGIN}{m['role']}\n{m['content']}{END}\n" for m in messages)
    return "".join(turns) + f"{BEGIN}assistant\n"


@dataclass(frozen=True)
class Asked:
    """One request for a completion."""

    model: str
    messages: Sequence[tuple[str, str]]
    """Role and content of the turns so far."""
    body: Mapping[str, Any]
    ids: Sequence[int] = ()
    """The prompt; empty on the chat route."""

    @property
    def last(self) -> str:
        return self.messages[-1][1]


@dataclass(frozen=True)
class Raw:
    """Sent as it is, in place of an answer."""

    status: int = 200
    text: str = "{}"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """What the model says, when more than its text matters."""

    text: str
    obeys_limits: bool = True
    """False: `stop` and `max_tokens` are not looked at."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the choice to replace; None removes one."""
    calls: Sequence[tuple[str, str]] = ()
    """Function calls: name and arguments as the model wrote them."""


Script = Callable[[Asked], "str | Reply | Raw"]


class ScriptedModel:
    """`with ScriptedModel(script) as model:` serves at `model.url` until the block ends."""

    def __init__(
        self, script: Script, *, name: str = "scripted", takes_functions: bool = True
    ) -> None:
        self.script = script
        self.name = name
        self.takes_functions = takes_functions
        """False: a request that offers functions is refused."""
        self.asked: list[Asked] = []
        """Completions asked for, in the order in which they arrived."""
        self.adapters: dict[str, str] = {}
        self.registrations: list[tuple[str, str]] = []
        self.failures: list[Raw] = []
        """Answers to the next requests, before the script is asked."""
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Again on the same port, if it was started before."""
        model = self

        class Handler(_Handler):
            served = model

        server = _Server(("127.0.0.1", self._port), Handler)
        self._port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Closes the port and every connection. Safe to call twice."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- routes ---------------------------------------------------------------------------------

    def answer(self, path: str, body: dict[str, Any]) -> Raw:
        with self._lock:
            if self.failures and "completions" in path:
                return self.failures.pop(0)
        if path == "/v1/adapters":
            self.registrations.append((body["name"], body["path"]))
            self.adapters[body["name"]] = body["path"]
            return _json({"id": body["name"], "path": body["path"]}, 201)
        if path == "/v1/tokenize":
            return _json(_bridge(body["bridge"]) if "bridge" in body else _prompt(body["messages"]))
        if path not in ("/v1/completions", "/v1/chat/completions"):
            return refusal(404, f"no route {path}", "not_found")
        if body["model"] not in (self.name, *self.adapters):
            return refusal(404, f"unknown model {body['model']!r}", "model_not_found")
        is_chat = path == "/v1/chat/completions"
        if is_chat and (complaint := self._complaint(body)):
            return refusal(400, complaint)
        ids = [] if is_chat else list(body["prompt"])
        turns = (
            [(m["role"], m["content"] or "") for m in body["messages"]]
            if is_chat
            else _TURN.findall(decode(ids))[:-1]
        )
        asked = Asked(model=body["model"], messages=turns, body=body, ids=ids)
        with self._lock:
            self.asked.append(asked)
        said = self.script(asked)
        if isinstance(said, Raw):
            return said
        reply = Reply(said) if isinstance(said, str) else said
        return _json(_chat(reply, asked) if is_chat else _completion(reply, asked))

    def _complaint(self, body: Mapping[str, Any]) -> str:
        """What real endpoints refuse about functions; empty if nothing."""
        if "tools" in body and not self.takes_functions:
            return "this model does not support tools"
        waiting: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    return "a tool message answers no call"
                waiting.remove(message["tool_call_id"])
                continue
            if waiting:
                return f"no answer to the calls {waiting}"
            for call in message.get("tool_calls") or ():
                waiting.append(call["id"])
                # Chat templates read them, and fail on what is not an object.
                if not isinstance(json.loads(call["function"]["arguments"]), dict):
                    return "arguments of a call are no object"
        return f"no answer to the calls {waiting}" if waiting else ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._open: set[Any] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        for request in list(self._open):
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up, or that was cut off by `stop`: nobody is left to tell."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: ScriptedModel

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        raw = self.served.answer(self.path, body)
        data = raw.text.encode()
        self.send_response(raw.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in raw.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def refusal(status: int, message: str, code: str = "bad_request") -> Raw:
    """An error in OpenAI's shape."""
    return _json({"error": {"message": message, "type": "invalid", "code": code}}, status)


def _json(value: Mapping[str, Any], status: int = 200) -> Raw:
    return Raw(status, json.dumps(value))


def _prompt(messages: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    ids = encode(render(messages))
    return {"ids": ids, "kinds": ["scaffold"] * len(ids)}


def _bridge(bridge: Mapping[str, Any]) -> dict[str, Any]:
    """Closes the action's turn, a user turn with the segments, opens the next action."""
    before = f"{'' if bridge['sampled_eos'] else END}\n{BEGIN}user\n"
    pieces = [("scaffold", encode(before))]
    pieces += [(s["kind"], encode(s["text"], special=False)) for s in bridge["segments"]]
    pieces.append(("scaffold", encode(f"{END}\n{BEGIN}assistant\n")))
    return {
        "ids": [i for _, ids in pieces for i in ids],
        "kinds": [kind for kind, ids in pieces for _ in ids],
    }


def _sampled(reply: Reply, body: Mapping[str, Any]) -> tuple[str, list[int], str, str | None]:
    """Text without the stop string, sampled ids, finish reason and the stop string met."""
    ids = encode(reply.text, special=False)
    if reply.obeys_limits:
        for stop in body.get("stop") or []:
            text, met, _ = reply.text.partition(stop)
            if met:
                return text, encode(text + stop, special=False), "stop", stop
        if len(ids) >= body["max_tokens"]:
            ids = ids[: body["max_tokens"]]
            return decode(ids), ids, "length", None
    return reply.text, [*ids, _SPECIAL[END]], "stop", None


def _choice(reply: Reply, choice: dict[str, Any]) -> dict[str, Any]:
    changed = {**choice, **reply.changes}
    return {key: value for key, value in changed.items() if value is not None}


def _completion(reply: Reply, asked: Asked) -> dict[str, Any]:
    text, ids, reason, met = _sampled(reply, asked.body)
    choice = {
        "index": 0,
        "text": text,
        "finish_reason": reason,
        "stop_reason": met,
        "weight_version": asked.model,
        "token_ids": ids,
        "logprobs": {
            "token_logprobs": [LOGPROB] * len(ids),
            "sampling_logprobs": [LOGPROB] * len(ids),
        },
    }
    return {"choices": [_choice(reply, choice)], "usage": _usage(len(asked.ids), len(ids))}


def _chat(reply: Reply, asked: Asked) -> dict[str, Any]:
    text, ids, reason, _ = _sampled(reply, asked.body)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reply.calls:
        reason = "tool_calls"
        message["content"] = text or None
        message["tool_calls"] = [
            {
                "id": f"call-{len(asked.messages)}-{number}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for number, (name, arguments) in enumerate(reply.calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": reason}
    tokens_in = sum(len(content) for _, content in asked.messages)
    return {"choices": [_choice(reply, choice)], "usage": _usage(tokens_in, len(ids))}


def _usage(tokens_in: int, tokens_out: int) -> dict[str, int]:
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
