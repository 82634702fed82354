"""Tryouts for tests: hosted by the product's job in a thread of this process, as a worker does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.db import connections

from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion
from orchestrator.environments.services import NewTask, create_version
from orchestrator.events.models import Event
from orchestrator.jobs import lease
from orchestrator.jobs.errors import Stopped
from orchestrator.jobs.registry import JobContext, handler_for
from orchestrator.projects.models import Project
from orchestrator.tryouts.models import CommandState, Tryout, TryoutCommand, TryoutState
from orchestrator.tryouts.play import Play, fold
from tests.waiting import wait_until

LIMIT_S = 30.0


def make_terminal(project: Project, *, slug: str = "files") -> EnvironmentVersion:
    """One task in each split: how many lines has list.txt (3)."""
    environment = Environment.objects.create(
        project=project, slug=slug, name="Files", kind=EnvironmentKind.TERMINAL
    )
    return create_version(
        environment=environment,
        source={},
        tasks=[
            NewTask(
                key=f"{split}-0001",
                split=split,
                prompt="list.txt: number of lines",
                family="count_lines",
                reset={"task": f"{split}-0001"},
                spec={
                    "split": split,
                    "family": "count_lines",
                    "files": {"list.txt": "a\nb\nc\n"},
                    "answer": "3",
                    "match": "number",
                    "reference": [],
                    "max_steps": 6,
                },
            )
            for split in ("train", "select", "test")
        ],
    )


@dataclass
class Hosted:
    """The job of a tryout at work in a thread, without a heartbeat."""

    ctx: JobContext
    thread: threading.Thread
    errors: list[Exception] = field(default_factory=list)

    def join(self) -> None:
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()

    def give_up(self) -> None:
        """As when its worker is killed: it writes nothing more, and its job is to be claimed."""
        self.ctx.lost.set()
        self.join()
        lease.release(self.ctx.fence)

    def stop(self) -> None:
        """As on SIGTERM."""
        self.ctx.stop.set()
        self.join()
        assert isinstance(self.errors[0], Stopped)
        lease.release(self.ctx.fence)


@contextmanager
def hosting(tryout: Tryout) -> Iterator[Hosted]:
    tryout.refresh_from_db()
    assert tryout.job_id is not None
    claimed = lease.claim(tryout.job_id)
    assert claimed is not None
    ctx = JobContext(
        job_id=claimed.job.pk, spec=claimed.job.spec, fence=claimed.fence, stop=threading.Event()
    )
    errors: list[Exception] = []

    def work() -> None:
        try:
            handler_for(claimed.job.kind).run(ctx)
        except Exception as exc:  # the boundary: handed to the test
            errors.append(exc)
        finally:
            connections.close_all()

    hosted = Hosted(ctx, threading.Thread(target=work, daemon=True), errors)
    hosted.thread.start()
    try:
        yield hosted
    finally:
        ctx.stop.set()
        hosted.thread.join(LIMIT_S)


def wait_state(tryout: Tryout, *states: TryoutState) -> None:
    def reached() -> bool:
        tryout.refresh_from_db()
        return tryout.state in states

    wait_until(reached, limit_s=LIMIT_S, what=f"the tryout to be {states}, not {tryout.state}")


def wait_quiet(tryout: Tryout, hosted: Hosted) -> Play:
    """The play once every command has been carried out."""

    def is_quiet() -> bool:
        assert not hosted.errors, hosted.errors
        pending = TryoutCommand.objects.filter(tryout=tryout, state=CommandState.PENDING)
        return not pending.exists()

    wait_until(is_quiet, limit_s=LIMIT_S, what="all commands to be carried out")
    tryout.refresh_from_db()
    return play_of(tryout)


def play_of(tryout: Tryout) -> Play:
    return fold(Event.objects.filter(stream_id=tryout.stream_id).order_by("seq"))


def kinds_of(tryout: Tryout) -> list[str]:
    events = Event.objects.filter(stream_id=tryout.stream_id).order_by("seq")
    return [event.kind for event in events]
