"""Holds one Azure sandbox for a worker: `python -m orchestrator.environments.servers.aca_child`.

Reads one line of JSON (the fields of `AcaSpec`), makes the sandbox, answers one line, `base_url` or
`error`, and deletes the sandbox when its standard input ends, or on SIGTERM.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from types import FrameType
from typing import Any

EXTRA_HINT = (
    "Azure's library is not installed for this worker: python -m pip install 'openenv[aca]==0.10.0'"
)
MAX_REASON_CHARS = 1000


def main() -> int:
    """Exit code 1: no sandbox was made; the answer says why."""
    signal.signal(signal.SIGTERM, _leave)
    request = json.loads(sys.stdin.buffer.readline())
    # What libraries print must not be taken for the answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    provider: Any = None
    try:
        try:
            provider = _provider(request)
            answer = {"base_url": provider.start_container()}
        except Exception as exc:
            answer = {"error": _reason(exc, request)}
        print(json.dumps(answer), file=answers, flush=True)
        if "error" in answer:
            return 1
        # Until the worker closes its end, or is gone.
        sys.stdin.buffer.read()
    finally:
        if provider is not None:
            provider.close()
    return 0


def _provider(request: dict[str, Any]) -> Any:
    # openenv imports gradio for a page that is not served here.
    sys.modules["gradio"] = None  # type: ignore[assignment]
    from openenv.core.containers.runtime.aca_provider import ACASandboxProvider

    return ACASandboxProvider(
        **request["place"],
        image=request["image"],
        cpu=request["cpu"],
        memory=request["memory"],
        env_vars=request["env"] or None,
        cmd=request["command"] or None,
        working_directory=request["folder"] or None,
        labels={"app": "switchback", "environment": request["name"]},
        # Never unset: without a policy everything is allowed.
        egress_policy=ACASandboxProvider.deny_all_egress(allow=list(request["allowed_hosts"])),
        anonymous_port=True,
        create_timeout=request["create_timeout_s"],
        _adapter=_adapter(request["adapter"]),
    )


def _adapter(name: str) -> Any:
    if not name:
        return None
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)()


def _reason(error: Exception, request: dict[str, Any]) -> str:
    """For people; without the values of variables, which may be secrets."""
    if "optional dependencies" in str(error):
        return EXTRA_HINT
    text = f"{type(error).__name__}: {error}"
    for value in request["env"].values():
        # Shorter ones are numbers and flags, which stand in any text.
        if len(value) >= 6:
            text = text.replace(value, "***")
    return text[:MAX_REASON_CHARS]


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
