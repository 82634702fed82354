"""What is under way when a fault comes.

`begin` brings an activity about and returns at a random moment inside it, with its subject: what
has to go on afterwards. Long work (searches, climbs, trainings) is shared by the moments that hit
it.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import django.db

from tests.kills.doubles import wait_s
from tests.kills.world import World

REACH_S = 150.0
"""At most so long until work is in the phase that a moment asks for."""
T = TypeVar("T")


class NotReached(AssertionError):
    """The phase did not come about in time."""


@dataclass(frozen=True)
class Subject:
    name: str
    look: Callable[[], tuple[bool, Any]]
    """Whether it is over, and a mark that changes when it goes on."""


@dataclass
class Activities:
    world: World
    draw: random.Random
    tend: Callable[[], None]
    runs: list[int] = field(default_factory=list)
    """Ended ones that nobody has graded again."""

    def __post_init__(self) -> None:
        self.all: dict[str, Callable[[], Subject]] = {
            "ingest": self.ingest,
            "rollouts": self.rollouts,
            "sandboxed-rollouts": self.sandboxed,
            "judge": self.judge,
            "re-grade": self.regrade,
            "optimise": lambda: self.search("preflight", "evidence", "search"),
            "certify": lambda: self.search("certify"),
            "gate": self.gate,
            "train-sampling": lambda: self.train("sampling"),
            "train-update": lambda: self.train("loading", "rows", "backward", "step"),
            "train-evaluating": lambda: self.train("evaluating"),
            "checkpoint": lambda: self.train("saving", "publishing"),
            "climb-transition": self.climb,
            "webhook": self.webhook,
        }

    def begin(self, name: str) -> Subject:
        """Raises NotReached."""
        subject = self.all[name]()
        wait_s(self.draw.uniform(0.0, 0.6))
        return subject

    # --- the kinds ------------------------------------------------------------------------------

    def ingest(self) -> Subject:
        ingest = self.world.ingest
        before = ingest.batches
        self._until(lambda: ingest.batches > before, "a batch")
        return Subject("ingest", lambda: (False, ingest.batches))

    def rollouts(self) -> Subject:
        return self._run(self.world.start_run(), least=1)

    def sandboxed(self) -> Subject:
        return self._run(self.world.start_terminal_run(), least=1)

    def judge(self) -> Subject:
        self.world.judge.is_asked.clear()
        pk = self.world.start_run(is_judged=True)
        self._until(self.world.judge.is_asked.is_set, "a judge to be asked")
        return run_subject(pk)

    def regrade(self) -> Subject:
        if not self.runs:
            pk = self.world.start_run()
            self._until(lambda: run_subject(pk).look()[0], "a run to grade again")
            self.runs.append(pk)
        self.world.judge.is_asked.clear()
        pk = self.world.start_regrade(self.runs.pop())
        self._until(self.world.judge.is_asked.is_set, "a judge to be asked")
        return _owner("re-grade", pk)

    def gate(self) -> Subject:
        pk = self.world.start_gate()
        subject = _owner("gate", pk)
        self._until(lambda: (subject.look()[1] or 0) >= 2, "a run of the gate")
        return subject

    def search(self, *phases: str) -> Subject:
        from optimizer.models import Search, SearchState

        def open_one() -> int | None:
            going = Search.objects.filter(climb=None, rung=None, state__in=("queued", "running"))
            if not going.exists():
                self.world.start_search()
            found = going.filter(state=SearchState.RUNNING, phase__in=phases).first()
            return found.pk if found is not None else None

        return _owner("search", self._until(open_one, f"a search in {' or '.join(phases)}"))

    def train(self, *phases: str) -> Subject:
        from training.models import TrainingJob

        def one() -> int | None:
            going = TrainingJob.objects.filter(state__in=("queued", "running"))
            if not going.exists():
                self.world.start_training()
            for job in going.filter(state="running"):
                if _phase(Path(job.folder)) in phases:
                    return int(job.pk)
            return None

        pk = self._until(one, f"a training in {' or '.join(phases)}", pause_s=0.01)
        return _owner("training", pk)

    def climb(self) -> Subject:
        """Just after a climb has turned."""
        from orchestrator.climbs.models import Climb
        from orchestrator.events.models import Event

        def last_turn() -> int:
            turns = Event.objects.filter(kind__in=("phase", "rung"), stream__kind="climb")
            return int(turns.order_by("-id").values_list("id", flat=True).first() or 0)

        before = last_turn()

        def turned() -> int | None:
            going = Climb.objects.filter(state__in=("queued", "running"))
            if not going.exists():
                return self.world.start_climb()
            return going[0].pk if last_turn() > before else None

        return _owner("climb", self._until(turned, "a climb to turn", pause_s=0.02))

    def webhook(self) -> Subject:
        self.world.receiver.is_busy.clear()
        self.world.start_run(n_tasks=1, replicates=1)
        self._until(self.world.receiver.is_busy.is_set, "a webhook")
        return Subject("webhook", _waiting_deliveries)

    # --- waiting --------------------------------------------------------------------------------

    def _run(self, pk: int, *, least: int) -> Subject:
        from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout

        ended = Rollout.objects.filter(run_id=pk).exclude(state__in=OPEN_ROLLOUT_STATES)
        self._until(lambda: ended.count() >= least, "a rollout to end")
        return run_subject(pk)

    def _until(self, condition: Callable[[], T | None], what: str, pause_s: float = 0.1) -> T:
        deadline_s = time.monotonic() + REACH_S
        while not (value := patiently(condition)):
            if time.monotonic() > deadline_s:
                raise NotReached(f"waited {REACH_S:g} s for {what}")
            self.tend()
            wait_s(pause_s)
        return value


def patiently(look: Callable[[], T | None]) -> T | None:
    """None while the database does not answer."""
    try:
        return look()
    except django.db.Error:
        django.db.connection.close()
        return None


def run_subject(pk: int) -> Subject:
    return _owner("run", pk)


def _owner(kind: str, pk: int) -> Subject:
    """Over when it has ended; its mark is the head of its log, and that of the runs below."""
    from optimizer.models import Search
    from orchestrator.climbs.models import Climb
    from orchestrator.gates.models import Gate
    from orchestrator.grading.models import Regrade
    from orchestrator.runs.models import Run
    from training.models import TrainingJob

    models: dict[str, Any] = {
        **{"run": Run, "re-grade": Regrade, "search": Search, "climb": Climb},
        **{"training": TrainingJob, "gate": Gate},
    }

    def look() -> tuple[bool, Any]:
        row = models[kind].objects.select_related("stream").get(pk=pk)
        is_over = row.ended_at is not None or row.state == "awaiting_approval"
        return is_over, row.stream.last_seq

    return Subject(f"{kind} {pk}", look)


def _waiting_deliveries() -> tuple[bool, Any]:
    from orchestrator.webhooks.models import Delivery, DeliveryState

    waiting = Delivery.objects.filter(state=DeliveryState.WAITING).count()
    return not waiting, waiting


def _phase(folder: Path) -> str:
    try:
        return str(json.loads((folder / "heartbeat.json").read_text()).get("phase", ""))
    except (OSError, ValueError):
        return ""
