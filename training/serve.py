"""The model server: an OpenAI-compatible API over one base model and its adapters.

`python -m training.serve --model DIR --name NAME --port N`. Loopback by default. With `--vllm URL`
no weights are loaded: a vLLM server samples, and this one speaks to it. JSON in, JSON out:

    GET    /health                 200 when the model is loaded; process id and counters
    GET    /v1/models              base model and adapters
    POST   /v1/adapters            {"name", "path"}: load a LoRA folder in PEFT format, or the
                                   folder of a whole model with the same tokenizer
    DELETE /v1/adapters/<name>
    POST   /v1/completions         prompt: text or token ids
    POST   /v1/chat/completions    messages, through the model's chat template
    POST   /v1/tokenize            messages, or the bridge between two actions, with a kind per
    token

Both completion routes take the standard `model, max_tokens, temperature, seed, stop, n` and
`timeout_s`; `logprobs` or `return_token_ids` add per choice the sampled `token_ids`,
`logprobs.token_logprobs` (temperature 1) and `logprobs.sampling_logprobs` (at the sampling
temperature), both over the full vocabulary. Every choice names its `weight_version`. Options that
would change the distribution without a trace in those numbers (`top_p`, `top_k`, penalties,
`logit_bias`) are refused unless neutral. There is no streaming.

Errors have OpenAI's shape `{"error": {"message", "type", "param", "code"}}`: 400 bad request, 404
unknown model or adapter, 409 adapter conflict, 413 body too large, 429 queue full (with
Retry-After), 503 sampler failed or closing, 504 deadline. A caller that hangs up frees its rows
at the next step. SIGTERM ends after the answers in flight, at most GRACE_S. The log is JSON lines
on stderr and holds no prompt text.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import uvicorn

from training.engine.api import Serving, create_app
from training.engine.fleet import MAX_MODELS, Fleet
from training.engine.scheduler import Limits, Sampler
from training.engine.vllm import VllmSampler
from training.vllm import VllmServer

GRACE_S = 5
"seconds that answers in flight have after SIGTERM"

log = logging.getLogger("training.serve")


class _JsonLines(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _end_with_parent(parent: int) -> None:
    """Asks the kernel for SIGTERM when the parent dies (Linux); exits if it is dead already."""
    if sys.platform != "linux":
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the parent process is gone")


def _return_freed_memory() -> None:
    """Gives large blocks back to the system when freed (glibc).

    Otherwise glibc raises its threshold to 32 MB after the first large block, and the caches of
    coming and going rows leave holes: 300 MB after a few hundred requests.
    """
    m_mmap_threshold = -3
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(m_mmap_threshold, 1 << 20)


def _own(options: argparse.Namespace) -> Serving:
    limits = Limits(
        max_rows=options.max_rows,
        max_waiting=options.max_waiting,
        max_adapters=options.max_adapters,
        kv_tokens=options.kv_tokens,
    )
    sampler = Sampler(options.model, name=options.name, limits=limits)
    return Fleet(sampler, options.model, max_models=options.max_models)


def _vllm(options: argparse.Namespace) -> Serving:
    if not options.vllm.startswith(("http://", "https://")):
        raise ValueError(f"--vllm: {options.vllm!r} is no http(s) address")
    return VllmSampler(
        VllmServer(options.vllm, api_key=os.environ.get("SWITCHBACK_VLLM_API_KEY", "")),
        folder=options.model,
        name=options.name,
        remote_name=options.vllm_model,
        is_processed=options.vllm_processed,
        max_adapters=options.max_adapters,
    )


def main(arguments: list[str] | None = None) -> int:
    parent = os.getppid()
    parser = argparse.ArgumentParser(prog="training.serve")
    parser.add_argument("--model", type=Path, required=True, help="prepared model folder")
    parser.add_argument("--name", required=True, help="name of the base model in requests")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1, help="threads of the arithmetic")
    parser.add_argument("--max-rows", type=int, default=Limits.max_rows)
    parser.add_argument("--max-waiting", type=int, default=Limits.max_waiting)
    parser.add_argument("--max-adapters", type=int, default=Limits.max_adapters)
    parser.add_argument(
        "--max-models", type=int, default=MAX_MODELS, help="whole models beside the base"
    )
    parser.add_argument("--kv-tokens", type=int, default=Limits.kv_tokens)
    parser.add_argument("--vllm", default="", help="address of a vLLM server that samples instead")
    parser.add_argument(
        "--vllm-model", default="", help="what it calls the base model; the same name if empty"
    )
    parser.add_argument(
        "--vllm-processed",
        action="store_true",
        help="it runs with --logprobs-mode processed_logprobs, so any temperature may be used",
    )
    parser.add_argument(
        "--detached", action="store_true", help="live on when the parent process ends"
    )
    options = parser.parse_args(arguments)
    _log_to_stderr()
    if not options.detached:
        _end_with_parent(parent)
    # One compiled kernel per number of tokens; the default of 1024 of them takes 100 MB.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    _return_freed_memory()
    torch.set_num_threads(options.threads)
    begin = time.monotonic()
    try:
        serving = _vllm(options) if options.vllm else _own(options)
    except (OSError, ValueError) as error:
        print(f"error: cannot load the model in {options.model}: {error}", file=sys.stderr)
        return 1
    seconds = round(time.monotonic() - begin, 2)
    log.info("model loaded", extra={"fields": {"model": options.name, "duration_s": seconds}})
    uvicorn.run(
        create_app(serving),
        host=options.host,
        port=options.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=60,
        backlog=1024,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
