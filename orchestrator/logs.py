"""How the product logs: one line for each thing that happens, as JSON or for a terminal.

Every line carries what it belongs to: `request_id` of the request that asked, `job_id` and
`attempt`, `rollout_id`, and with tracing on `trace_id`. A job inherits the request id of whoever
made it, so that a search for one id finds what a click has set off in all processes.

The last step before a line is written takes out what looks like a key, whatever came to stand in
it: of ours by its prefix, of others by the header that carries it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

from orchestrator import tracing

FORMATS = ("json", "console")
HIDDEN = "[hidden]"
CONTEXT = ("request_id", "job_id", "attempt", "rollout_id")
_SECRETS = re.compile(
    r"\b(?:swb|swi|whsec|sk|rk|ghp|hf)[_-][A-Za-z0-9_+/=-]{12,}"
    r"|(?<=[Bb]earer )[^\s\"',\[\]]{6,}"
    r"|(?<=://)[^/@\s:]+:[^/@\s]+(?=@)"
)
_NAMES = re.compile(r"(?i)^(?:authorization|cookie|password|secret|api_?key|token)$")


def hide_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if _NAMES.fullmatch(name):
            event[name] = HIDDEN
        elif isinstance(value, str):
            event[name] = _SECRETS.sub(HIDDEN, value)
        elif isinstance(value, Mapping | list | tuple):
            event[name] = _hidden(value)
    return event


def _hidden(value: Any) -> Any:
    if isinstance(value, str):
        return _SECRETS.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if _NAMES.fullmatch(str(name)) else _hidden(part)
            for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_hidden(part) for part in value]
    return value


def add_trace(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event.update(tracing.ids())
    return event


def context_for_child() -> dict[str, str]:
    """An environment variable that tells a child process what its log lines belong to."""
    bound = structlog.contextvars.get_contextvars()
    told = {name: bound[name] for name in CONTEXT if name in bound}
    return {"SWITCHBACK_LOG_CONTEXT": json.dumps(told)} if told else {}


SHARED_PROCESSORS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    add_trace,
]


def configure() -> None:
    structlog.configure(
        processors=[
            *SHARED_PROCESSORS,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def logging_settings(*, level: str, form: str) -> dict[str, Any]:
    """Django's `LOGGING`. `form`: one of FORMATS."""
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=False)
        if form == "console"
        else structlog.processors.JSONRenderer()
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "lines": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": SHARED_PROCESSORS,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    structlog.processors.format_exc_info,
                    hide_secrets,
                    renderer,
                ],
            },
        },
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "lines",
                "stream": sys.stderr,
            },
        },
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": "INFO", "propagate": True},
            # One line per request comes from our middleware, with the request id.
            "uvicorn.access": {"handlers": [], "level": "WARNING", "propagate": False},
            "uvicorn": {"handlers": [], "level": "INFO", "propagate": True},
            "uvicorn.error": {"handlers": [], "level": "INFO", "propagate": True},
            "httpx": {"level": "WARNING"},
            # At DEBUG it writes headers, and with them what a server quotes of a key.
            "httpcore": {"level": "WARNING"},
            "asyncio": {"level": "WARNING"},
            # It warns of every try; that a batch of spans is lost is an error.
            "opentelemetry.exporter": {"level": "ERROR"},
            # It warns that `filesystem://` names no host; there is none to name.
            "kombu.connection": {"level": "ERROR"},
        },
    }
