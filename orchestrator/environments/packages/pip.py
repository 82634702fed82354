"""pip, in the sandbox: what a package's build runs is its author's code.

Inside, pip sees the network, the interpreter, our packages, and one folder that it may change. It
gets its own configuration (indexes, certificates) as variables, for it cannot work without; so an
index's password that stands in there is visible to builds. There is a deadline, a log, and the
reason of a failure in pip's own words.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from orchestrator.environments.errors import ServerStartError, SourceError
from orchestrator.environments.packages.installation import interpreter_paths, shared_packages
from orchestrator.environments.packages.preparing import Check, Report
from orchestrator.environments.resources import Network, Resources
from orchestrator.environments.sandbox.service import ServiceSpec, service_command
from orchestrator.environments.servers.process import base_environment, has_ended, spawn

DEADLINE_S = 20 * 60.0
LOOK_UP_S = 60.0
ALLOWED = Resources(
    memory_mb=4096, cpus=4.0, processes=512, disk_mb=8192, network=Network(mode="open")
)
_POLL_S = 0.25
_SHOWN = re.compile(r"^(Collecting|Downloading|Building|Installing|Preparing|Saved)\b.*")
_OPTIONS = (
    *("--disable-pip-version-check", "--no-input", "--progress-bar", "off"),
    *("--no-cache-dir", "--prefer-binary"),
)


class Pip:
    """pip that works on the environment `venv` in `workplace`."""

    def __init__(self, workplace: Path, inside: Path, log: Path, report: Report) -> None:
        """`inside`: the path of the workplace in the sandbox. `log` is appended to."""
        self._workplace = workplace
        self._inside = inside
        self._log = log
        self._report = report

    def install(self, requirements: Sequence[str], check: Check) -> None:
        self._run("install", ["--no-warn-script-location", "--", *requirements], check)

    def download(self, requirements: Sequence[str], folder: str, check: Check) -> None:
        """Wheels of the requirements and of all that they need, into a folder of the workplace."""
        # Wheels, also of what is only published as source: installing them needs no build.
        self._run("wheel", ["-w", str(self._inside / folder), "--", *requirements], check)

    def _run(self, verb: str, arguments: Sequence[str], check: Check) -> None:
        """`SourceError` with pip's reason; whatever `check` raises, once pip is dead."""
        temporary = self._workplace / "tmp"
        configuration = _configuration()
        spec = ServiceSpec(
            command=(
                *(str(self._inside / "venv" / "bin" / "python"), "-m", "pip"),
                *(verb, *_OPTIONS, *arguments),
            ),
            readable=tuple(
                (path, path)
                for path in (
                    *interpreter_paths(),
                    *shared_packages(),
                    *_local_places(configuration),
                )
            ),
            writable=((str(self._workplace), str(self._inside)),),
            folder=str(self._inside),
            env={
                "PATH": f"{self._inside}/venv/bin:/usr/bin:/bin",
                "TMPDIR": str(self._inside / temporary.name),
                "PYTHONNOUSERSITE": "1",
                **configuration,
            },
            resources=ALLOWED,
        )
        beside = self._workplace.parent
        command = service_command(
            spec, spec_path=beside / "pip.json", decisions=beside / "decisions.jsonl"
        )
        socket = str(beside / "pip.sock")
        command = tuple(socket if part == "{socket}" else part for part in command)
        launcher = (sys.executable, "-I", str(Path(__file__).parents[1] / "launch.py"))
        started_at = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            try:
                process = spawn(
                    [*launcher, str(os.getpid()), "--", *command],
                    base_environment(),
                    log.fileno(),
                )
            except ServerStartError as exc:
                raise SourceError(f"the installation did not start: {exc}") from exc
        try:
            self._follow(process, check, started_at)
        finally:
            if not has_ended(process):
                # The launcher ends the sandbox and then itself.
                process.terminate()
                has_ended(process, within_s=5)
                process.kill()
            status = process.wait()
        if status != 0:
            said = self._log.read_bytes()[started_at:].decode(errors="replace")
            raise SourceError(f"the installation failed: {reason_of(said)}")

    def _follow(self, process: subprocess.Popen[bytes], check: Check, at: int) -> None:
        """Until it has ended, telling what it does. `SourceError` at the deadline."""
        end_s = time.monotonic() + DEADLINE_S
        with self._log.open(encoding="utf-8", errors="replace") as log:
            log.seek(at)
            while True:
                is_over = has_ended(process, within_s=_POLL_S)
                check()
                shown = [line.strip() for line in log if _SHOWN.match(line.strip())]
                if shown:
                    self._report(shown[-1][:160])
                if is_over:
                    return
                if time.monotonic() > end_s:
                    raise SourceError(f"the installation took more than {DEADLINE_S:g} s")


def newest_version(requirement: Requirement, check: Check) -> str:
    """The newest release that the index has and the requirement allows; runs no foreign code."""
    check()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "index", "versions", *_OPTIONS[:2], requirement.name],
            env=_pip_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LOOK_UP_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise SourceError(f"requirement: the index did not answer within {LOOK_UP_S:g} s") from exc
    found = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or found is None:
        reason = reason_of(done.stderr)
        raise SourceError(f"requirement: {requirement.name} was not found: {reason}")
    fitting = [
        text for text in found[1].split(", ") if _is_version(text) and text in requirement.specifier
    ]
    if not fitting:
        raise SourceError(f"requirement: no release fits {requirement}; there are {found[1][:200]}")
    return max(fitting, key=Version)


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def reason_of(said: str) -> str:
    """The errors that pip printed, the first of them first; else its last words."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    at = next((n for n, line in enumerate(lines) if line.startswith("The conflict is caused")), -1)
    shown = [*errors[:2], *(lines[at : at + 6] if at >= 0 else ())] or lines[-3:]
    text = " ".join(line.removeprefix("ERROR:").strip() for line in shown)
    return text[:1000] or "pip said nothing"


def _pip_environment() -> dict[str, str]:
    """Where programs, indexes, proxies and certificates are; none of this process's secrets."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    environ.setdefault("PATH", os.defpath)
    environ.update(_network_variables())
    return {**environ, "PYTHONNOUSERSITE": "1"}


def _network_variables() -> dict[str, str]:
    """Of pip and of proxies."""
    proxies = ("http_proxy", "https_proxy", "no_proxy")
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name.lower() in proxies
    }


_lock = threading.Lock()  # one look at the configuration is enough
_configured: dict[str, str] | None = None


def _configuration() -> Mapping[str, str]:
    """pip's configuration files, as variables: the sandbox does not show the files."""
    global _configured
    with _lock:
        if _configured is None:
            done = subprocess.run(
                [sys.executable, "-m", "pip", "config", "list", *_OPTIONS[:1]],
                env=_pip_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LOOK_UP_S,
                check=False,
            )
            found = {}
            for line in done.stdout.splitlines():
                name, _, value = line.partition("=")
                section, _, key = name.partition(".")
                if section in ("global", "install", "wheel"):
                    found[f"PIP_{key.replace('-', '_').upper()}"] = " ".join(
                        str(ast.literal_eval(value)).split()
                    )
            _configured = {**found, **_network_variables(), "PIP_REQUIRE_VIRTUALENV": "0"}
        return _configured


def _local_places(configuration: Mapping[str, str]) -> list[str]:
    """Indexes, wheels and certificates on this machine that the configuration names."""
    found = []
    for name in ("FIND_LINKS", "INDEX_URL", "EXTRA_INDEX_URL", "CERT", "CONSTRAINT"):
        for place in configuration.get(f"PIP_{name}", "").split():
            parts = urlsplit(place)
            if parts.scheme in ("", "file") and os.path.isabs(parts.path):
                # An index of folders has its files beside `simple`.
                path = parts.path.rstrip("/")
                path = path.removesuffix("/simple") if path.endswith("/simple") else path
                if os.path.exists(path) and path not in found:
                    found.append(path)
    return [path for path in found if not path.startswith("/etc/ssl/certs")]
