"""What an installation stands on, each tried for real: a write that commits, a file that is synced.

Some of it this process cannot serve without; the rest may be away for a while and nothing is lost,
since jobs wait in the database. Every part has a deadline: one that does not answer is away, and is
not asked a second time while the first question hangs.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import structlog
from django.conf import settings
from django.db import connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from orchestrator.blobs.errors import BlobError
from orchestrator.blobs.services import store
from orchestrator.jobs.announcing import BROKER_ERRORS, count_messages
from orchestrator.operating.signs import last_sweep_age_s, queues_without_worker
from orchestrator.processes.models import Process, ProcessKind
from orchestrator.processes.queries import gone_after_s

log = structlog.get_logger(__name__)

DEADLINE_S = 3.0
FRESH_S = 2.0
"""Strangers may ask as often as they like; the parts are asked so often at most."""
DISK_NEEDED_MB = 256
_HANGS = "see whether it hangs or is overloaded; it is not asked again until it answers"
_BREAKS = "mend what the reason names; the log of this process says more"

Level = Literal["ok", "degraded", "down"]


@dataclass(frozen=True)
class State:
    """Of one part."""

    name: str
    level: Level
    text: str
    fix: str = ""
    """What to do about it, where that is known; commands stand between backticks."""


@dataclass(frozen=True)
class Part:
    name: str
    is_needed: bool
    """Without it this process serves nobody."""
    look: Callable[[], str]
    """What is well, in words. Raises whatever goes wrong."""


class Away(Exception):
    """The part is not well. `fix`: what to do about it."""

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.fix = fix


def database() -> str:
    """A row is written, committed and read back."""
    began_s = time.monotonic()
    now = timezone.now()
    with transaction.atomic():
        row = Process.objects.create(
            key=secrets.token_hex(16),
            kind=ProcessKind.WEB,
            host="probe",
            pid=0,
            started_at=now,
            seen_at=now,
        )
        if not Process.objects.filter(key=row.key).exists():
            raise Away("what was written could not be read back")
        row.delete()
    return f"wrote, read and committed in {(time.monotonic() - began_s) * 1000:.0f} ms"


def migrations() -> str:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        names = ", ".join(f"{one.app_label} {one.name}" for one, _ in missing[:3])
        raise Away(f"{len(missing)} not applied ({names})", "run `manage.py migrate`")
    return "all applied"


def data_folder() -> str:
    folder = Path(settings.DATA_DIR)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\0" * 4096)
        file.flush()
    free_mb = shutil.disk_usage(folder).free // 2**20
    if free_mb < DISK_NEEDED_MB:
        raise Away(f"{free_mb} MiB free at {folder}", f"free at least {DISK_NEEDED_MB} MiB")
    return f"writable, {free_mb / 1024:.1f} GiB free"


def broker() -> str:
    try:
        n = sum(count_messages(queue) for queue in settings.JOB_QUEUES)
    except BROKER_ERRORS as error:
        text = f"not reached ({type(error).__name__}); jobs wait in the database"
        raise Away(text, "start it, or correct `BROKER_URL`") from error
    return f"reached, {n} message{'' if n == 1 else 's'} waiting"


def blob_store() -> str:
    try:
        store().check()
    except BlobError as error:
        fix = "make it answer, or correct `SWITCHBACK_BLOBS`"
        raise Away(f"{error}; what is kept there waits", fix) from error
    return "a blob was written and read"


def workers() -> str:
    if missing := queues_without_worker():
        fix = "start one: `manage.py up`, or Celery as in docs/operations.md"
        raise Away(f"none gives signs of life for {', '.join(missing)}", fix)
    return "every queue has one"


def sweep() -> str:
    age_s = last_sweep_age_s()
    limit_s = gone_after_s() + 10 * settings.JOB_SWEEP_S
    if age_s is None or age_s > limit_s:
        last = "never swept" if age_s is None else f"last swept {age_s:.0f} s ago"
        fix = "start it: `manage.py up`, or `manage.py sweep`"
        raise Away(f"{last}; jobs whose message is lost wait", fix)
    return f"swept within the last {age_s:.0f} s"


PARTS = [
    Part("database", True, database),
    Part("migrations", True, migrations),
    Part("data folder", True, data_folder),
    Part("broker", False, broker),
    Part("blob store", False, blob_store),
    Part("workers", False, workers),
    Part("sweep", False, sweep),
]


class Watch:
    """Asks the parts in threads of its own and remembers their answers for a moment."""

    def __init__(self, parts: Sequence[Part] = PARTS, deadline_s: float = DEADLINE_S) -> None:
        self._parts, self._deadline_s = parts, deadline_s
        self._threads = ThreadPoolExecutor(len(parts), thread_name_prefix="part")
        self._lock = threading.Lock()
        self._asked: dict[str, Future[str]] = {}
        self._states: list[State] = []
        self._asked_s = float("-inf")

    def states(self) -> list[State]:
        with self._lock:
            if time.monotonic() - self._asked_s > FRESH_S:
                self._states = self._ask()
                self._asked_s = time.monotonic()
            return self._states

    def _ask(self) -> list[State]:
        deadline_s = time.monotonic() + self._deadline_s
        for part in self._parts:
            if part.name not in self._asked:
                self._asked[part.name] = self._threads.submit(partial(_looked_at, part))
        return [self._told(part, deadline_s) for part in self._parts]

    def _told(self, part: Part, deadline_s: float) -> State:
        bad: Level = "down" if part.is_needed else "degraded"
        answer = self._asked[part.name]
        try:
            text = answer.result(timeout=max(0.0, deadline_s - time.monotonic()))
        except TimeoutError:
            if not answer.done():
                return State(part.name, bad, f"no answer within {self._deadline_s:g} s", _HANGS)
            text = ""
        except Away as away:
            del self._asked[part.name]
            return State(part.name, bad, str(away), away.fix)
        except Exception as error:
            # The boundary around a part: whatever breaks it is its state.
            del self._asked[part.name]
            log.warning("part is away", part=part.name, error=f"{type(error).__name__}: {error}")
            return State(part.name, bad, f"{type(error).__name__}: {error}", _BREAKS)
        del self._asked[part.name]
        return State(part.name, "ok", text)


def _looked_at(part: Part) -> str:
    try:
        return part.look()
    finally:
        connections.close_all()


watch = Watch()


def worst(states: Sequence[State]) -> Level:
    levels = {state.level for state in states}
    return "down" if "down" in levels else "degraded" if "degraded" in levels else "ok"
