"""Getting an image, and freezing it by its digest."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from orchestrator.environments.errors import ServerStartError, SourceError
from orchestrator.environments.packages.preparing import Check, Prepared, Report
from orchestrator.environments.servers.docker import client_environment, docker, program
from orchestrator.environments.servers.process import has_ended

PULL_TIMEOUT_S = 30 * 60.0
REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_POLL_S = 0.25


def prepare_image(source: Mapping[str, Any], *, report: Report, check: Check) -> Prepared:
    """The source with the image named by what it is now; pulled if it is not on this machine."""
    image = str(source["image"])
    report(f"Looking for {image}")
    try:
        known = _inspect(image)
        if known is None:
            _pull(image, report, check)
            known = _inspect(image)
    except ServerStartError as exc:
        raise SourceError(f"image: {exc}") from exc
    if known is None:
        raise SourceError(f"image: {image} was pulled and is not there")
    return Prepared({**{k: v for k, v in source.items() if v not in ("", None, [], {})}, **known})


def _inspect(image: str) -> dict[str, str] | None:
    """`pinned`, by which any machine may pull it where it has one; None if it is not here."""
    try:
        said = docker("image", "inspect", image)
    except ServerStartError as exc:
        if "No such image" in str(exc):
            return None
        raise
    try:
        (found,) = json.loads(said)
        digests = [str(text) for text in found.get("RepoDigests") or ()]
        return {"pinned": digests[0] if digests else str(found["Id"]), "image_id": str(found["Id"])}
    except (ValueError, KeyError, AttributeError) as exc:
        raise ServerStartError("docker image inspect answered something else") from exc


def _pull(image: str, report: Report, check: Check) -> None:
    report(f"Pulling {image}")
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [program(), "pull", "--quiet", image],
            env=client_environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            end_s = time.monotonic() + PULL_TIMEOUT_S
            while not has_ended(process, within_s=_POLL_S):
                check()
                if time.monotonic() > end_s:
                    raise SourceError(f"image: the pull took more than {PULL_TIMEOUT_S:g} s")
        finally:
            if not has_ended(process):
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        if status != 0:
            said.seek(0)
            words = said.read().decode(errors="replace").strip()
            raise SourceError(f"image: {image} cannot be pulled: {words[-500:]}")
