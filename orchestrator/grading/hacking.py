"""Rollouts as the watch sees them, gradings by a held-out rubric, and the alarms that came of it.

What is looked at, when, and what follows is the business of whoever climbs (`climbs.watch`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from orchestrator.grading.models import (
    HackingAlarm,
    Regrade,
    RegradedScore,
    RegradePurpose,
)
from orchestrator.grading.regrade import start
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.runs.models import Rollout, Run, VerdictRecord
from rubrics.codec import from_json
from rubrics.models import RubricVersion
from rubrics.redteam.watch import Finding, Sample, as_json, form_of

WARN, PAUSE = "warn", "pause"


def start_held_out(*, run: Run, version: RubricVersion, ids: Sequence[int]) -> Regrade:
    """Grades these rollouts of the run by the held-out rubric; the grading there is already.

    Raises RegradeRefused.
    """
    existing = Regrade.objects.filter(
        purpose=RegradePurpose.HELD_OUT, version=version, selection__run=run.pk
    ).first()
    if existing is not None:
        return existing
    return start(
        actor=None,
        rubric=version.rubric,
        version=version,
        spec=version.spec,
        purpose=RegradePurpose.HELD_OUT,
        ids=sorted(ids),
        selection={
            "text": f"{len(ids)} rollouts of run {run.pk}, for the watch over its climb",
            "run": run.pk,
            "keep": "",
        },
    )


def spread(rollouts: Iterable[Rollout], n: int) -> list[int]:
    """Ids of at most `n` with a score, one of each task before a second one of any."""
    scored = [r for r in rollouts if r.score is not None]
    seen: dict[int, int] = {}
    ranked = []
    for rollout in sorted(scored, key=lambda r: r.pk):
        place = seen.get(rollout.task_id, 0)
        seen[rollout.task_id] = place + 1
        ranked.append((place, rollout.pk))
    return [pk for _, pk in sorted(ranked)[:n]]


def samples(
    rollouts: Collection[Rollout],
    training: Mapping[int, float | None],
    held_out: RubricVersion | None,
    spec: Mapping[str, object],
) -> dict[int, Sample]:
    """By rollout id; `training` is what each is worth to the climb. Two queries."""
    ids = [rollout.pk for rollout in rollouts]
    others: dict[int, float | None] = {}
    if held_out is not None:
        rows = RegradedScore.objects.filter(
            rollout_id__in=ids,
            regrade__purpose=RegradePurpose.HELD_OUT,
            regrade__version=held_out,
        )
        others = dict(rows.values_list("rollout_id", "score"))
    names, negative = _criteria(spec)
    criteria: dict[int, dict[str, float]] = {}
    verdicts = VerdictRecord.objects.filter(rollout_id__in=ids, value__isnull=False)
    for pk, criterion, value in verdicts.values_list("rollout_id", "criterion", "value"):
        assert value is not None  # filtered above
        better = 1 - value if criterion in negative else value
        criteria.setdefault(pk, {})[names.get(criterion, criterion)] = better
    return {
        rollout.pk: Sample(
            rollout=rollout.pk,
            task=str(rollout.task_id),
            training=training.get(rollout.pk),
            held_out=others.get(rollout.pk),
            criteria=criteria.get(rollout.pk, {}),
            answer_chars=len(rollout.answer),
            steps=rollout.n_steps,
            format=form_of(rollout.answer),
        )
        for rollout in rollouts
    }


def _criteria(spec: Mapping[str, object]) -> tuple[dict[str, str], set[str]]:
    """Names by id, or the ids where names repeat; ids of those whose 1 is bad."""
    criteria = from_json(spec).criteria
    labels = [criterion.label for criterion in criteria]
    is_clear = len(set(labels)) == len(labels)
    return (
        {c.id: c.label if is_clear else c.id for c in criteria},
        {c.id for c in criteria if c.negative},
    )


# --- alarms --------------------------------------------------------------------------------------


def raise_alarms(
    *, run: Run, climb_id: int, findings: Iterable[Finding], step: float
) -> list[HackingAlarm]:
    """The alarms that are new, or have become worse. Needs a transaction.

    An open alarm of the same signal is brought up to date and told of again only when it turns from
    a warning into a pause. What a person has acknowledged comes back when it has grown by `step`
    more, or becomes a reason to pause.
    """
    latest: dict[tuple[str, str], HackingAlarm] = {}
    for alarm in HackingAlarm.objects.filter(climb_id=climb_id).order_by("id"):
        latest[alarm.signal, alarm.detail.get("subject", "")] = alarm
    told = []
    for finding in findings:
        known = latest.get(finding.key)
        is_worse = known is None or (known.level == WARN and finding.level == PAUSE)
        if known is not None and known.acknowledged_at is None:
            # A pause that was called for stays one until somebody has looked.
            known.level = PAUSE if PAUSE in (known.level, finding.level) else WARN
            known.value, known.detail, known.run = finding.value, as_json(finding), run
            known.save()
            told += [known] if is_worse else []
        elif known is None or is_worse or finding.value > known.value + step:
            told.append(
                HackingAlarm.objects.create(
                    project_id=run.project_id,
                    climb_id=climb_id,
                    run=run,
                    signal=finding.signal,
                    level=finding.level,
                    value=finding.value,
                    detail=as_json(finding),
                )
            )
    return told


def acknowledge(*, actor: User, alarm: HackingAlarm) -> bool:
    """Says that a person has looked; false if somebody has said so before."""
    require(actor, alarm.project_id, Role.EDITOR)
    return bool(_seen(HackingAlarm.objects.filter(pk=alarm.pk), actor))


def acknowledge_all(*, actor: User, climb_id: int) -> int:
    """Of a climb that a person lets go on. The caller has checked the right."""
    with transaction.atomic():
        return _seen(HackingAlarm.objects.filter(climb_id=climb_id), actor)


def _seen(alarms: QuerySet[HackingAlarm], actor: User) -> int:
    return alarms.filter(acknowledged_at__isnull=True).update(
        acknowledged_by=actor, acknowledged_at=timezone.now()
    )


def alarms_of(climb_id: int) -> list[HackingAlarm]:
    """What nobody has acknowledged first, of these the pauses; the newest before older ones."""
    rows = HackingAlarm.objects.filter(climb_id=climb_id).select_related("acknowledged_by", "run")
    return sorted(rows[:50], key=_order)


def _order(alarm: HackingAlarm) -> tuple[bool, bool, int]:
    return alarm.acknowledged_at is not None, alarm.level != PAUSE, -alarm.pk


def open_alarms(project_id: int) -> list[HackingAlarm]:
    """One query; pauses first."""
    rows = HackingAlarm.objects.filter(project_id=project_id, acknowledged_at__isnull=True)
    return sorted(rows.select_related("climb")[:50], key=_order)
