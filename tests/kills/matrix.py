"""Moments: an activity, a fault, what went on, and what does not hold."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import django.db
import httpx

from orchestrator.invariants.finding import Finding
from orchestrator.invariants.jobs import LONGEST_TAKEOVER_S
from orchestrator.invariants.verification import verify
from tests.kills.activities import Activities, NotReached, Subject, patiently
from tests.kills.doubles import wait_s
from tests.kills.faults import Fault, Scene

GOES_ON_S = 240.0
"""What was hit must go on within this; on an idle machine it takes seconds."""
REST_S = 900.0


@dataclass
class Moment:
    number: int
    activity: str
    fault: str
    subject: str = ""
    hit: str = ""
    at_s: float = 0.0
    """Since the start of the matrix."""
    lasted_s: float = 0.0
    """The fault."""
    recovered_s: float | None = None
    """From its end until the subject went on and the pages answered; null: it did not."""
    is_over: bool = False
    """The subject has come to its end rather than gone on."""
    note: str = ""
    findings: list[str] = field(default_factory=list)

    @property
    def has_passed(self) -> bool:
        return self.recovered_s is not None and not self.findings

    @property
    def counts(self) -> bool:
        """Whether a fault was done to something."""
        return bool(self.hit)


@dataclass
class Matrix:
    scene: Scene
    activities: Activities
    say: Callable[[Moment], None]

    def run(self, moments: int, faults: list[Fault], *, limit_s: float) -> list[Moment]:
        """So many moments in which something was hit; fewer if time is up, or on an interrupt."""
        began_s = time.monotonic()
        done: list[Moment] = []
        counted = 0
        for number, (activity, fault) in enumerate(self._plan(faults), start=1):
            moment = Moment(number, activity, fault.name, at_s=time.monotonic() - began_s)
            try:
                self._strike(moment, fault)
            except KeyboardInterrupt:
                return done
            self.say(moment)
            done.append(moment)
            counted += moment.counts
            is_late = time.monotonic() - began_s > limit_s
            if counted >= moments or len(done) >= 2 * moments or is_late:
                return done
        return done

    def _plan(self, faults: list[Fault]) -> Iterator[tuple[str, Fault]]:
        """Each fault as often as any other, each with the activity that it has met least."""
        draw = self.scene.draw
        met: Counter[tuple[str, str]] = Counter()
        used: Counter[str] = Counter()
        while True:
            for fault in draw.sample(faults, len(faults)):
                names = list(fault.fits or self.activities.all)
                draw.shuffle(names)
                chosen = min(names, key=lambda name: (met[fault.name, name], used[name]))
                met[fault.name, chosen] += 1
                used[chosen] += 1
                yield chosen, fault

    def _strike(self, moment: Moment, fault: Fault) -> None:
        try:
            subject = self.activities.begin(moment.activity)
        except NotReached as reason:
            moment.note = str(reason)
            moment.findings = self.findings()
            return
        moment.subject = subject.name
        before = patiently(subject.look)
        began_s = time.monotonic()
        moment.hit = fault.strike(self.scene)
        ended_s = time.monotonic()
        moment.lasted_s = ended_s - began_s
        if not moment.hit:
            moment.note = "nothing to hit"
        self._wait(moment, subject, before, ended_s)
        moment.findings = self.findings()

    def _wait(self, moment: Moment, subject: Subject, before: object, since_s: float) -> None:
        while time.monotonic() - since_s < GOES_ON_S:
            self.scene.product.tend()
            now = patiently(subject.look)
            if now is not None and (now[0] or now != before) and self._pages_answer():
                moment.recovered_s = time.monotonic() - since_s
                moment.is_over = now[0]
                return
            wait_s(0.1)

    def _pages_answer(self) -> bool:
        try:
            return all(
                httpx.get(f"{url}/healthz", timeout=5).status_code == 200
                for url in self.scene.product.urls
            )
        except httpx.HTTPError:
            return False

    def findings(self, *, at_rest: bool = False) -> list[str]:
        """What does not hold now.

        A clock that was set makes a lease look long over: that is a finding if it stays so.
        """
        patient_until_s = time.monotonic() + LONGEST_TAKEOVER_S
        failures = 0
        while failures < 20:
            try:
                report = verify(at_rest=at_rest)
                kept: list[Finding] = list(self.scene.world.journal.check())
                if at_rest:
                    kept += self.scene.world.journal.check_heard()
                found = [*report.findings, *kept]
                is_lease = any(finding.invariant == "job.lease" for finding in found)
                if is_lease and time.monotonic() < patient_until_s:
                    wait_s(1.0)
                    continue
                return [str(finding) for finding in found]
            except django.db.Error:
                failures += 1
                django.db.connection.close()
                wait_s(0.5)
        return ["the database cannot be read"]

    # --- the end --------------------------------------------------------------------------------

    def rest(self) -> list[str]:
        """Lets all work end, as a person would; what does not hold then."""
        deadline_s = time.monotonic() + REST_S
        still: list[str] = ["?"]
        while still and time.monotonic() < deadline_s:
            self.scene.product.tend()
            still = patiently(self._unfinished) or []
            if still:
                wait_s(1.0)
        left = [f"has not ended: {name}" for name in still]
        return [*left, *self.findings(at_rest=True)]

    def _unfinished(self) -> list[str]:
        from optimizer.models import ENDED_SEARCH_STATES, Search, SearchState
        from orchestrator.climbs.models import ENDED_CLIMB_STATES, Climb, ClimbState
        from orchestrator.gates.models import ENDED_GATE_STATES, Gate
        from orchestrator.jobs.models import Job, JobState
        from orchestrator.runs.models import ENDED_RUN_STATES, Run
        from training.models import ENDED_TRAINING_STATES, TrainingJob

        client = self.scene.world.client
        found = []
        for search in Search.objects.exclude(state__in=ENDED_SEARCH_STATES):
            found.append(f"search {search.pk} ({search.state}: {search.error})")
            if search.state == SearchState.AWAITING_APPROVAL:
                client.post(f"searches/{search.pk}/decision", {"approve": True})
            elif search.state == SearchState.PAUSED and not hasattr(search, "climb"):
                client.post(f"searches/{search.pk}/resume", {})
        for climb in Climb.objects.exclude(state__in=ENDED_CLIMB_STATES):
            found.append(f"climb {climb.pk} ({climb.state} {climb.phase})")
            if climb.state == ClimbState.PAUSED:
                client.post(f"climbs/{climb.pk}/resume", {})
        for job in TrainingJob.objects.exclude(state__in=ENDED_TRAINING_STATES):
            found.append(f"training {job.pk} ({job.state} {job.pause_reason})")
            if job.pause_reason:
                client.post(f"trainings/{job.pk}/resume", {})
        for run in Run.objects.exclude(state__in=ENDED_RUN_STATES):
            found.append(f"run {run.pk} ({run.state})")
        for gate in Gate.objects.exclude(state__in=ENDED_GATE_STATES):
            found.append(f"gate {gate.pk} ({gate.state})")
        for work in Job.objects.filter(state__in=(JobState.QUEUED, JobState.RUNNING)):
            found.append(f"job {work.pk} ({work.kind} {work.state})")
        return found


def states() -> dict[str, dict[str, int]]:
    """How many things came to which end."""
    from django.db.models import Count

    from optimizer.models import Search
    from orchestrator.climbs.models import Climb
    from orchestrator.gates.models import Gate
    from orchestrator.grading.models import Regrade
    from orchestrator.jobs.models import Job
    from orchestrator.runs.models import Rollout, Run
    from orchestrator.webhooks.models import Delivery
    from training.models import TrainingJob

    return {
        name: dict(rows.order_by().values_list("state").annotate(n=Count("id")).order_by("state"))
        for name, rows in {
            "runs": Run.objects.all(),
            "rollouts": Rollout.everything.filter(outside=None),
            "rollouts that were repeated": Rollout.everything.filter(is_replaced=True),
            "re-grades": Regrade.objects.all(),
            "searches": Search.objects.all(),
            "gates": Gate.objects.all(),
            "climbs": Climb.objects.all(),
            "trainings": TrainingJob.objects.all(),
            "webhooks": Delivery.objects.all(),
            "jobs": Job.objects.all(),
        }.items()
    }
