"""pip as a child process: explicit environment, deadline, log, and what failed in its own words."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from orchestrator.environments.errors import SourceError
from orchestrator.environments.packages.preparing import Check, Report

DEADLINE_S = 20 * 60.0
LOOK_UP_S = 120.0
_POLL_S = 0.5
_SHOWN = re.compile(r"^(Collecting|Downloading|Building|Installing|Preparing|Saved)\b.*")
_NO_WHEEL = "only wheels are installed here, and there is none of it for this Python"
_OPTIONS = (
    "--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--prefer-binary",
)  # fmt: skip


class Pip:
    """pip that works on the environment of `python`."""

    def __init__(
        self, python: Path, *, log: Path | None = None, report: Report | None = None
    ) -> None:
        self._python = python
        self._log = log
        self._report = report

    def install(self, requirements: Sequence[str], check: Check) -> None:
        self._run(
            ["install", *_OPTIONS, *_builds(), "--no-warn-script-location", "--", *requirements],
            check,
            DEADLINE_S,
        )

    def download(self, requirements: Sequence[str], folder: Path, check: Check) -> None:
        """Wheels of the requirements and of all that they need."""
        self._run(
            ["download", *_OPTIONS, *_builds(), "-d", str(folder), "--", *requirements],
            check,
            DEADLINE_S,
        )

    def newest(self, requirement: str, check: Check) -> str:
        """The version that would be installed."""
        said = self._run(
            [
                "install",
                *_OPTIONS,
                *_builds(),
                "--dry-run",
                "--no-deps",
                "--ignore-installed",
                "--quiet",
                "--report",
                "-",
                "--",
                requirement,
            ],  # fmt: skip
            check,
            LOOK_UP_S,
        )
        try:
            report = json.loads(said[said.index("{") : said.rindex("}") + 1])
            return str(report["install"][0]["metadata"]["version"])
        except (ValueError, KeyError, IndexError) as exc:
            raise SourceError(f"requirement: pip did not say a version of {requirement}") from exc

    def _run(self, arguments: Sequence[str], check: Check, deadline_s: float) -> str:
        """What it printed. `SourceError` with its reason; what `check` raises, once it is dead."""
        process = subprocess.Popen(
            [str(self._python), "-m", "pip", *arguments],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            said = self._follow(process, check, time.monotonic() + deadline_s, deadline_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode != 0:
            raise SourceError(f"the installation failed: {reason_of(said)}")
        return said

    def _follow(
        self, process: subprocess.Popen[str], check: Check, end_s: float, deadline_s: float
    ) -> str:
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        if process.stdout is None:
            raise SourceError("no pipe to pip")
        reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
        reader.start()
        said: list[str] = []
        with open(self._log or os.devnull, "a", encoding="utf-8") as log:
            while True:
                check()
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    raise SourceError(f"the installation took more than {deadline_s:g} s")
                try:
                    line = lines.get(timeout=min(_POLL_S, left_s))
                except queue.Empty:
                    continue
                if line is None:
                    return "".join(said)
                said.append(line)
                log.write(line)
                log.flush()
                if self._report and _SHOWN.match(line.strip()):
                    self._report(line.strip()[:160])


def reason_of(said: str) -> str:
    """The first error that pip printed, with what belongs to it; else its last words."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    shown = errors[:2] or lines[-3:]
    text = " ".join(line.removeprefix("ERROR:").strip() for line in shown)[:800]
    if any("No matching distribution" in line for line in errors) and _builds():
        text += f" (or {_NO_WHEEL}; an operator may set SWITCHBACK_PACKAGE_BUILDS=true)"
    return text or "pip said nothing"


def _read(pipe: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in pipe:
        lines.put(line)
    lines.put(None)


def _builds() -> list[str]:
    from django.conf import settings

    return [] if settings.PACKAGE_BUILDS else ["--only-binary", ":all:"]


def _environment() -> dict[str, str]:
    """Where programs, indexes, proxies and certificates are; none of this process's secrets."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    environ.setdefault("PATH", os.defpath)
    for name, value in os.environ.items():
        if name.startswith("PIP_") or name.lower() in ("http_proxy", "https_proxy", "no_proxy"):
            environ[name] = value
    # A user's own packages are not part of what is installed.
    return {**environ, "PYTHONNOUSERSITE": "1", "PIP_REQUIRE_VIRTUALENV": "0"}
