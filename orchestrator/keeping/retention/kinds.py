"""The kinds of things that a rule may let go: what is due, how large it is, how it goes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast, Coalesce, Length

from orchestrator.events.models import Event, Stream
from orchestrator.events.services import NewEvent, append
from orchestrator.judging.models import JudgeCall
from orchestrator.keeping.models import OPEN_STATES, Direction, RetentionRule, Transfer, What
from orchestrator.keeping.retention import protecting
from orchestrator.keeping.retention.protecting import Reasons
from orchestrator.runs.models import (
    OPEN_ROLLOUT_STATES,
    Rollout,
    Run,
    TokenRow,
    VerdictRecord,
)
from orchestrator.traces.models import OutsideEvent
from orchestrator.trainings.folders import adapter_folder
from orchestrator.webhooks.models import Delivery, DeliveryState
from training.models import Checkpoint


class Kind(Protocol):
    def due(self, rule: RetentionRule, before: datetime) -> QuerySet[Any]:
        """Rows that ended before then, protected ones included."""
        ...

    def protected(self, project_id: int) -> Reasons: ...

    def size(self, keys: Sequence[int]) -> int:
        """Bytes, of a few hundred."""
        ...

    def name(self, key: int) -> str:
        """Of one, for people."""
        ...

    def remove(self, rule: RetentionRule, keys: Sequence[int]) -> None:
        """A few hundred, in transactions of its own. Doing it again is safe."""
        ...


class Traces:
    """Events, sampled tokens and outside spans of rollouts. Scores and verdicts stay.

    One event stays of the log, `trace.removed`: its sequence has no gap, and readers are told.
    """

    def due(self, rule: RetentionRule, before: datetime) -> QuerySet[Any]:
        found = Rollout.everything.filter(
            run__project_id=rule.project_id, ended_at__lt=before, stream__last_seq__gt=1
        ).exclude(state__in=OPEN_ROLLOUT_STATES)
        return found.filter(run__purpose__in=rule.purposes) if rule.purposes else found

    def protected(self, project_id: int) -> Reasons:
        return protecting.rollouts(project_id)

    def size(self, keys: Sequence[int]) -> int:
        return (
            _bytes(Event.objects.filter(stream__rollout__in=keys), "payload")
            + _bytes(TokenRow.objects.filter(rollout__in=keys), "ids", "kinds", "logprobs")
            + _bytes(OutsideEvent.objects.filter(owner__rollout__in=keys), "body")
        )

    def name(self, key: int) -> str:
        return f"rollout {key}"

    def remove(self, rule: RetentionRule, keys: Sequence[int]) -> None:
        streams = Stream.objects.filter(rollout__in=keys)
        with transaction.atomic():
            tokens = TokenRow.objects.filter(rollout__in=keys)
            tokens._raw_delete(tokens.db)
            OutsideEvent.objects.filter(owner__rollout__in=keys).delete()
            for stream in streams.select_for_update():
                events = Event.objects.filter(stream=stream)
                count = stream.last_seq
                events._raw_delete(events.db)
                stream.last_seq = 0
                stream.save(update_fields=["last_seq"])
                told = NewEvent("trace.removed", {"rule_days": rule.days, "events": count})
                append(stream_id=stream.pk, items=[told])


class Runs:
    """Runs with their rollouts, verdicts and logs. What they led to stays."""

    def due(self, rule: RetentionRule, before: datetime) -> QuerySet[Any]:
        found = Run.objects.filter(project_id=rule.project_id, ended_at__lt=before)
        return found.filter(purpose__in=rule.purposes) if rule.purposes else found

    def protected(self, project_id: int) -> Reasons:
        return protecting.runs(project_id)

    def size(self, keys: Sequence[int]) -> int:
        rollouts = Rollout.everything.filter(run__in=keys)
        return (
            _bytes(Event.objects.filter(stream__run__in=keys), "payload")
            + _bytes(Event.objects.filter(stream__rollout__run__in=keys), "payload")
            + _bytes(TokenRow.objects.filter(rollout__run__in=keys), "ids", "kinds", "logprobs")
            + _bytes(VerdictRecord.objects.filter(rollout__run__in=keys), "reason", "detail")
            + _bytes(rollouts, "answer", "message")
        )

    def name(self, key: int) -> str:
        return f"run {key}"

    def remove(self, rule: RetentionRule, keys: Sequence[int]) -> None:
        for key in keys:
            while rollouts := list(
                Rollout.everything.filter(run=key).values_list("pk", "stream_id")[:500]
            ):
                with transaction.atomic():
                    Rollout.everything.filter(pk__in=[pk for pk, _ in rollouts]).delete()
                    _drop_streams([stream for _, stream in rollouts])
            with transaction.atomic():
                streams = list(Run.objects.filter(pk=key).values_list("stream_id", flat=True))
                Run.objects.filter(pk=key).delete()
                _drop_streams(streams)


class Checkpoints:
    """Files of checkpoints that nobody promoted. The rows with their measures stay."""

    def due(self, rule: RetentionRule, before: datetime) -> QuerySet[Any]:
        """Rows do not know whether their files are there, so folders are looked at."""
        found = Checkpoint.objects.filter(
            training_job__project_id=rule.project_id, training_job__ended_at__lt=before
        ).select_related("training_job")
        kept = [each.pk for each in found if any(path.is_dir() for path in _folders(each))]
        return found.filter(pk__in=kept)

    def protected(self, project_id: int) -> Reasons:
        found = Checkpoint.objects.filter(training_job__project_id=project_id)
        chosen = Q(step=F("training_job__chosen_step"))
        return {
            protecting.PROMOTED: found.filter(promoted_at__isnull=False).values("pk"),
            "the result of its training": found.filter(chosen).values("pk"),
        }

    def size(self, keys: Sequence[int]) -> int:
        found = Checkpoint.objects.filter(pk__in=keys).select_related("training_job")
        return sum(
            path.stat().st_size
            for each in found
            for folder in _folders(each)
            for path in folder.rglob("*")
            if path.is_file()
        )

    def name(self, key: int) -> str:
        found = Checkpoint.objects.select_related("training_job").get(pk=key)
        return f"step {found.step} of training {found.training_job_id}"

    def remove(self, rule: RetentionRule, keys: Sequence[int]) -> None:
        for each in Checkpoint.objects.filter(pk__in=keys).select_related("training_job"):
            for folder in _folders(each):
                shutil.rmtree(folder, ignore_errors=True)


class JudgeCalls:
    """What judges were asked and said. The verdicts they led to stay."""

    def due(self, rule: RetentionRule, before: datetime) -> QuerySet[Any]:
        return JudgeCall.objects.filter(project_id=rule.project_id, created_at__lt=before)

    def protected(self, project_id: int) -> Reasons:
        """Calls that verdicts of protected rollouts cite."""
        found: Reasons = {}
        for reason, keys in protecting.rollouts(project_id).items():
            cited = {
                call
                for detail in VerdictRecord.objects.filter(rollout__in=keys)
                .exclude(detail={})
                .values_list("detail", flat=True)
                for call in _calls(detail)
            }
            found[reason] = JudgeCall.objects.filter(
                project_id=project_id, pk__in=sorted(cited)
            ).values("pk")
        return found

    def size(self, keys: Sequence[int]) -> int:
        return _bytes(JudgeCall.objects.filter(pk__in=keys), "request", "replies", "reason")

    def name(self, key: int) -> str:
        return f"judge call {key}"

    def remove(self, rule: RetentionRule, keys: Sequence[int]) -> None:
        JudgeCall.objects.filter(pk__in=keys).delete()


class Deliveries:
    def due(self, rule: RetentionRule, before: datetime) -> QuerySet[Any]:
        found = Delivery.objects.filter(webhook__project_id=rule.project_id, created_at__lt=before)
        return found.exclude(state=DeliveryState.WAITING)

    def protected(self, project_id: int) -> Reasons:
        return {}

    def size(self, keys: Sequence[int]) -> int:
        return _bytes(Delivery.objects.filter(pk__in=keys), "body", "attempts")

    def name(self, key: int) -> str:
        return f"delivery {key}"

    def remove(self, rule: RetentionRule, keys: Sequence[int]) -> None:
        Delivery.objects.filter(pk__in=keys).delete()


class Archives:
    """The rows stay and say that there was a file; the store drops it when it cleans."""

    def due(self, rule: RetentionRule, before: datetime) -> QuerySet[Any]:
        found = Transfer.objects.filter(
            project_id=rule.project_id, direction=Direction.EXPORT, ended_at__lt=before
        )
        return found.exclude(file_sha256="").exclude(state__in=OPEN_STATES)

    def protected(self, project_id: int) -> Reasons:
        return {}

    def size(self, keys: Sequence[int]) -> int:
        found = Transfer.objects.filter(pk__in=keys).aggregate(n=Sum("size_bytes"))
        return int(found["n"] or 0)

    def name(self, key: int) -> str:
        return f"export {key}"

    def remove(self, rule: RetentionRule, keys: Sequence[int]) -> None:
        Transfer.objects.filter(pk__in=keys).update(file_sha256="")


KINDS: dict[str, Kind] = {
    What.TRACES: Traces(),
    What.RUNS: Runs(),
    What.CHECKPOINTS: Checkpoints(),
    What.JUDGE_CALLS: JudgeCalls(),
    What.DELIVERIES: Deliveries(),
    What.ARCHIVES: Archives(),
}


@dataclass(frozen=True)
class Explained:
    """What people are told of a kind before they make a rule of it."""

    goes: str
    stays: str


ABOUT: dict[str, Explained] = {
    What.TRACES: Explained(
        "events, sampled tokens and spans of rollouts", "scores, verdicts, answers and costs"
    ),
    What.RUNS: Explained(
        "runs with their rollouts, verdicts and logs", "searches, climbs and gates they were for"
    ),
    What.CHECKPOINTS: Explained(
        "files of checkpoints of ended trainings", "their measures, and promoted or chosen ones"
    ),
    What.JUDGE_CALLS: Explained("questions to judges and their replies", "the verdicts"),
    What.DELIVERIES: Explained("bodies and attempts of webhook messages", "the webhooks"),
    What.ARCHIVES: Explained("files of exports", "the list of exports"),
}


def _bytes(rows: QuerySet[Any], *fields: str) -> int:
    """Of the texts as they are stored: characters, which are bytes but for accents."""
    sizes = {f"n_{name}": Coalesce(Sum(Length(Cast(name, TextField()))), 0) for name in fields}
    return sum(int(value) for value in rows.order_by().aggregate(**sizes).values())


def _drop_streams(keys: Sequence[int]) -> None:
    events = Event.objects.filter(stream__in=keys)
    events._raw_delete(events.db)
    Stream.objects.filter(pk__in=keys).delete()


def _folders(checkpoint: Checkpoint) -> list[Path]:
    if not checkpoint.training_job.folder:
        return []
    folder = Path(checkpoint.training_job.folder)
    return [
        each
        for each in (
            adapter_folder(checkpoint),
            folder / "checkpoints" / f"step-{checkpoint.step:06d}",
            folder / "merged" / f"v{checkpoint.step:04d}",
        )
        if each.is_dir()
    ]


def _calls(detail: Any) -> list[int]:
    found = [*(detail.get("calls") or ())] if isinstance(detail, dict) else []
    for step in detail.get("steps") or () if isinstance(detail, dict) else ():
        found += step.get("calls") or () if isinstance(step, dict) else ()
    return [call["call"] for call in found if isinstance(call, dict) and call.get("call")]
