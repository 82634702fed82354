"""Findings of `training.alarms` as rows, events and pauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils import timezone

from orchestrator.events.services import Fence, NewEvent, append
from orchestrator.projects.models import User
from orchestrator.trainings.origins import Origin
from training.alarms import Alarm, Level, look
from training.models import TrainingAlarm, TrainingJob

AGAIN_AFTER = 12
"""Steps after which an alarm that was acknowledged may come back."""


def raise_alarms(
    *,
    job: TrainingJob,
    origin: Origin,
    steps: Sequence[Mapping[str, Any]],
    pauses: bool,
    fence: Fence,
) -> list[TrainingAlarm]:
    """Needs a transaction. The training pauses for what calls for it, where `pauses`."""
    raised = [_row(job, alarm) for alarm in look(steps) if _is_news(job, alarm)]
    if not raised:
        return []
    events = [
        NewEvent(
            "train.alarm",
            {
                "id": row.pk,
                "signal": row.signal,
                "level": row.level,
                "step": row.step,
                "value": row.value,
                "text": row.sentence,
            },
        )
        for row in raised
    ]
    append(stream_id=job.stream_id, items=events, fence=fence)
    origin.tell(events, fence)
    reasons = [row.sentence for row in raised if row.level == Level.PAUSE]
    if pauses and reasons:
        origin.pause(f"The training may collapse. {' '.join(reasons)}", fence)
    return raised


def acknowledge_all(*, actor: User, job: TrainingJob) -> None:
    """Whoever lets a training go on has seen why it stopped."""
    TrainingAlarm.objects.filter(training_job=job, acknowledged_at=None).update(
        acknowledged_at=timezone.now(), acknowledged_by=actor
    )


def _is_news(job: TrainingJob, alarm: Alarm) -> bool:
    """One per signal and level, until it was seen and twelve steps have gone by."""
    last = TrainingAlarm.objects.filter(training_job=job, signal=alarm.signal).first()
    if last is None:
        return True
    if last.level == Level.WARN and alarm.level == Level.PAUSE:
        return True
    return last.acknowledged_at is not None and alarm.step - last.step >= AGAIN_AFTER


def _row(job: TrainingJob, alarm: Alarm) -> TrainingAlarm:
    return TrainingAlarm.objects.create(
        training_job=job,
        signal=alarm.signal.value,
        level=alarm.level.value,
        step=alarm.step,
        before=alarm.before,
        value=alarm.now,
        sentence=alarm.sentence,
    )
