"""Labels and verdicts of a rubric from the database, as `calibration` takes them.

A fixed number of queries for a rubric, whatever the number of its criteria.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from orchestrator.grading.models import RegradedScore
from orchestrator.judging.models import JudgeCall
from orchestrator.review.calibration import Calibration, Given, Label, calibrate
from orchestrator.review.calibration_criteria import (
    CriterionSpec,
    calls_of,
    criterion_specs,
    judge_of,
)
from orchestrator.review.models import Annotation
from orchestrator.runs.models import Rollout, VerdictRecord
from rubrics.agreement.binary import Confusion
from rubrics.agreement.summary import Judged
from rubrics.models import Rubric, RubricVersion
from rubrics.types import State

WORDINGS = 6
POPULATION = 20_000
"""Newest verdicts of a rubric that the judge's own pass rate is counted over."""


def calibrations(
    rubric: Rubric, version: RubricVersion, *, only: str = ""
) -> dict[str, list[Calibration]]:
    """By criterion of that version, in its order; `only`: of this one alone."""
    criteria = criterion_specs(version.spec)
    if only:
        criteria = {id: spec for id, spec in criteria.items() if id == only}
    versions = {v.pk: v for v in rubric.versions.order_by("number")}
    specs = {pk: criterion_specs(v.spec) for pk, v in versions.items()}
    labels = _labels(rubric, criteria, specs)
    rollouts = {label.rollout for each in labels.values() for label in each}
    verdicts = _verdicts(rubric, criteria, versions, specs, rollouts)
    judged = _judged(criteria, versions, specs)
    return {
        id: calibrate(spec, labels[id], verdicts[id], judged[id]) for id, spec in criteria.items()
    }


@dataclass(frozen=True)
class Wording:
    """The same labels against the criterion as other versions ask it."""

    versions: str
    """`v1` or `v1 to v3`."""
    question: str
    confusion: Confusion
    kappa: float | None


def wordings(rubric: Rubric, versions: Sequence[RubricVersion]) -> Mapping[str, Sequence[Wording]]:
    """By criterion: one for each content that it had, the newest first, where verdicts exist.

    `versions`: the newest first; `WORDINGS` of those that brought other words are looked at.
    """
    contents: dict[tuple[str, str], list[RubricVersion]] = {}
    for version in versions:
        for id, spec in criterion_specs(version.spec).items():
            contents.setdefault((id, spec.content), []).append(version)
    changed = Counter(id for id, _ in contents)
    found: dict[str, list[Wording]] = {}
    measured: dict[int, dict[str, list[Calibration]]] = {}
    for (id, _), same in contents.items():
        newest, oldest = same[0], same[-1]
        if changed[id] < 2 or (newest.pk not in measured and len(measured) == WORDINGS):
            continue
        if newest.pk not in measured:
            measured[newest.pk] = calibrations(rubric, newest)
        first = measured[newest.pk][id][0]
        if first.n:
            words = f"v{oldest.number}"
            words += f" to v{newest.number}" if newest.number != oldest.number else ""
            confusion = Confusion.of((pair.person, pair.judge) for pair in first.pairs)
            wording = Wording(words, first.criterion.question, confusion, first.kappa)
            found.setdefault(id, []).append(wording)
    return found


def _labels(
    rubric: Rubric,
    criteria: Mapping[str, CriterionSpec],
    specs: Mapping[int, Mapping[str, CriterionSpec]],
) -> dict[str, list[Label]]:
    found: dict[str, list[Label]] = {id: [] for id in criteria}
    rows = (
        Annotation.objects.filter(rubric=rubric, criterion__in=criteria)
        .select_related("user", "rollout")
        .only(
            *("criterion", "state", "value", "preference", "note", "is_held_out", "updated_at"),
            *("rubric_version_id", "rollout__task_id", "rollout__is_replaced", "user__username"),
        )
    )
    for row in rows:
        spec = specs.get(row.rubric_version_id or 0, {}).get(row.criterion)
        found[row.criterion].append(
            Label(
                id=row.pk,
                rollout=row.rollout_id,
                task=row.rollout.task_id,
                user=row.user_id,
                user_name=row.user.username,
                state=row.state,
                value=row.value,
                preference=row.preference,
                note=row.note,
                scale=spec.scale if spec else None,
                is_earlier_wording=bool(spec and spec.content != criteria[row.criterion].content),
                is_held_out=row.is_held_out,
                is_replaced=row.rollout.is_replaced,
                at=row.updated_at,
            )
        )
    return found


def _verdicts(
    rubric: Rubric,
    criteria: Mapping[str, CriterionSpec],
    versions: Mapping[int, RubricVersion],
    specs: Mapping[int, Mapping[str, CriterionSpec]],
    rollouts: Collection[int],
) -> dict[str, dict[int, list[Given]]]:
    """Of the criteria's content, by criterion and rollout: the run's own, then newest re-grades."""
    found: dict[str, dict[int, list[Given]]] = {id: defaultdict(list) for id in criteria}
    records = VerdictRecord.objects.filter(
        rollout__in=rollouts, criterion__in=criteria, rollout__run__rubric_version__in=versions
    ).select_related("rollout__run")
    for record in records:
        version = versions[record.rollout.run.rubric_version_id]
        if not _is_same(specs[version.pk], criteria[record.criterion]):
            continue
        ended = record.rollout.ended_at or record.rollout.run.created_at
        found[record.criterion][record.rollout_id].append(
            Given(
                rollout=record.rollout_id,
                state=record.state,
                value=record.value,
                reason=record.reason,
                cites=tuple(record.cites),
                detail=record.detail,
                judge=judge_of(record.detail),
                version=f"v{version.number}",
                regrade=None,
                at=ended,
            )
        )
    scores = (
        RegradedScore.objects.filter(rollout__in=rollouts, regrade__rubric=rubric)
        .select_related("regrade__version")
        .order_by("-regrade_id")
    )
    regraded: dict[int, Mapping[str, CriterionSpec]] = {}
    for score in scores:
        regrade = score.regrade
        spec = regraded.setdefault(regrade.pk, criterion_specs(regrade.spec))
        for raw in score.verdicts:
            id = str(raw.get("criterion", ""))
            if id not in criteria or not _is_same(spec, criteria[id]):
                continue
            found[id][score.rollout_id].append(_regraded(score, raw))
    return found


def _regraded(score: RegradedScore, raw: Mapping[str, Any]) -> Given:
    regrade = score.regrade
    detail = raw.get("detail") or {}
    return Given(
        rollout=score.rollout_id,
        state=str(raw.get("state", "")),
        value=raw.get("value"),
        reason=str(raw.get("reason", "")),
        cites=tuple(raw.get("cites") or ()),
        detail=detail,
        judge=judge_of(detail),
        version=f"v{regrade.version.number}" if regrade.version else "draft",
        regrade=regrade.pk,
        at=regrade.ended_at or regrade.created_at,
    )


def _is_same(specs: Mapping[str, CriterionSpec], criterion: CriterionSpec) -> bool:
    spec = specs.get(criterion.id)
    return spec is not None and spec.content == criterion.content


def _judged(
    criteria: Mapping[str, CriterionSpec],
    versions: Mapping[int, RubricVersion],
    specs: Mapping[int, Mapping[str, CriterionSpec]],
) -> dict[str, dict[str, Judged]]:
    """What each judge said of all rollouts that runs graded by that content."""
    counts: dict[str, dict[str, list[int]]] = {id: {} for id in criteria}
    same = {
        id: [pk for pk in versions if _is_same(specs[pk], criterion)]
        for id, criterion in criteria.items()
    }
    wanted = Q()
    for id, pks in same.items():
        wanted |= Q(criterion=id, rollout__run__rubric_version__in=pks)
    if not criteria:
        return {}
    rows = VerdictRecord.objects.filter(
        wanted, state=State.SCORED.value, rollout__is_replaced=False
    ).order_by("-id")
    for id, value, detail in rows.values_list("criterion", "value", "detail")[:POPULATION]:
        judge = judge_of(detail) if criteria[id].is_judge else judge_of({})
        pair = counts[id].setdefault(judge, [0, 0])
        pair[0] += value is not None and criteria[id].passes(value)
        pair[1] += 1
    return {
        id: {judge: Judged(passed, n) for judge, (passed, n) in each.items()}
        for id, each in counts.items()
    }


def unlabelled(rubric: Rubric, version: RubricVersion, criterion: str, n: int) -> Sequence[Rollout]:
    """Rollouts to label next: graded by this content, unmarked, half of them passed by the judge.

    Rates of a class need labels of that class, so the rarer verdict is sought out. Newest first.
    """
    spec = criterion_specs(version.spec)[criterion]
    same = [v.pk for v in rubric.versions.all() if _is_same(criterion_specs(v.spec), spec)]
    marked = Annotation.objects.filter(rubric=rubric, criterion=criterion, preference="")
    queued = Q(rollout__review_items__queue__rubric_version__rubric=rubric)
    records = (
        VerdictRecord.objects.filter(
            criterion=criterion,
            state=State.SCORED.value,
            rollout__run__rubric_version__in=same,
            rollout__is_replaced=False,
        )
        .exclude(rollout__in=marked.values("rollout"))
        .exclude(queued)
        .order_by("-id")
        .values_list("rollout_id", "value")[:POPULATION]
    )
    passed: list[int] = []
    failed: list[int] = []
    for rollout_id, value in records:
        (passed if value is not None and spec.passes(value) else failed).append(rollout_id)
    half = n // 2
    n_passed = min(len(passed), max(half, n - len(failed)))
    chosen = [*passed[:n_passed], *failed[: n - n_passed]]
    rows = {row.pk: row for row in Rollout.objects.filter(pk__in=chosen)}
    return [rows[pk] for pk in _alternating(passed[:n_passed], failed[: n - n_passed])]


def _alternating(first: Sequence[int], second: Sequence[int]) -> Iterable[int]:
    """So that a queue that is left half done has both."""
    for i in range(max(len(first), len(second))):
        yield from first[i : i + 1]
        yield from second[i : i + 1]


def verdict_on(
    rubric: Rubric, version: RubricVersion, criterion: str, rollout_id: int
) -> Given | None:
    """The newest verdict of this content on one rollout, whoever judged; None: there is none."""
    criteria = {id: s for id, s in criterion_specs(version.spec).items() if id == criterion}
    versions = {v.pk: v for v in rubric.versions.order_by("number")}
    specs = {pk: criterion_specs(v.spec) for pk, v in versions.items()}
    found = _verdicts(rubric, criteria, versions, specs, [rollout_id])
    given = found.get(criterion, {}).get(rollout_id, [])
    return given[0] if given else None


def calls_behind(given: Given) -> Sequence[JudgeCall]:
    """What the judge really sent, with what was wrong with each reply."""
    return list(JudgeCall.objects.filter(pk__in=calls_of(given.detail)).order_by("pk"))


def labels_on(rubric: Rubric, criterion: str, rollout_id: int) -> Sequence[Annotation]:
    """People's marks of one rollout, the newest first; not those of pairs."""
    return list(
        Annotation.objects.filter(
            rubric=rubric, criterion=criterion, rollout=rollout_id, preference=""
        )
        .select_related("user")
        .order_by("-updated_at")
    )
