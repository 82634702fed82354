"""What the page and the API read of attacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, QuerySet

from orchestrator.grading.models import GoldenCase, RedTeamReport
from orchestrator.judging.models import JudgeCall
from rubrics.codec import from_json
from rubrics.errors import RubricInvalid
from rubrics.models import Rubric
from rubrics.redteam.attacks import ATTACKS, BY_ID, Attack, Family, Ground, is_judge
from rubrics.redteam.summary import order_of


@dataclass(frozen=True)
class Shown:
    """One result with what is known of its attack."""

    number: int
    result: Mapping[str, Any]
    attack: Attack
    base: Mapping[str, Any]
    calls: Sequence[JudgeCall]
    """What judges really said, of the criteria that paid."""
    is_golden: bool


@dataclass(frozen=True)
class Finding:
    """An attack that got paid: on the rollout where it got most, and on how many."""

    worst: Shown
    n_paid: int
    n_tried: int


@dataclass(frozen=True)
class Report:
    report: RedTeamReport
    paid: Sequence[Finding]
    """The worst of each family, the largest gain first."""
    others: Sequence[Finding]
    n_paid: int
    """Gradings in which something got paid."""
    controls: Sequence[Shown]
    """Controls that came out wrong."""
    withstood: Sequence[Shown]
    errored: Sequence[Shown]


def attacks_in(project_id: int) -> QuerySet[RedTeamReport]:
    attacks = RedTeamReport.objects.filter(rubric__project_id=project_id)
    return attacks.select_related("rubric__project", "version", "job")


def reports_of(rubric: Rubric) -> list[RedTeamReport]:
    """The newest 30, without what they hold in detail; `numbers` of the summary are annotated."""
    rows = rubric.attacks.select_related("version", "asked_by", "rubric")
    brief = rows.defer("results", "spec", "summary").annotate(numbers=F("summary__numbers"))
    return list(brief[:30])


def whole_report(rubric: Rubric, pk: int) -> RedTeamReport:
    """With all that it holds. Raises RedTeamReport.DoesNotExist."""
    return rubric.attacks.select_related("version", "asked_by", "rubric").get(pk=pk)


def report(found: RedTeamReport) -> Report:
    """What got paid most comes first. Three queries."""
    paid: list[Shown] = []
    controls: list[Shown] = []
    withstood: list[Shown] = []
    errored: list[Shown] = []
    for item in _shown(found):
        is_control = item.attack.family is Family.CONTROL
        if item.result["score"] is None:
            errored.append(item)
        elif item.result["paid"]:
            (controls if is_control else paid).append(item)
        else:
            withstood.append(item)
    first, others = _findings(paid, withstood)
    return Report(found, first, others, len(paid), controls, withstood, errored)


def _findings(
    paid: Sequence[Shown], withstood: Sequence[Shown]
) -> tuple[list[Finding], list[Finding]]:
    n_paid = Counter(item.attack.id for item in paid)
    n_tried = n_paid + Counter(item.attack.id for item in withstood)
    seen: set[str] = set()
    families: set[Family] = set()
    first: list[Finding] = []
    others: list[Finding] = []
    for item in paid:
        if item.attack.id in seen:
            continue
        seen.add(item.attack.id)
        finding = Finding(item, n_paid[item.attack.id], n_tried[item.attack.id])
        (others if item.attack.family in families else first).append(finding)
        families.add(item.attack.family)
    return first, others


def _shown(found: RedTeamReport) -> list[Shown]:
    bases = found.summary.get("bases", [])
    rows = [
        (number, result)
        for number, result in enumerate(found.results)
        if result["attack"] in BY_ID and result["base"] < len(bases)
    ]
    rows.sort(key=lambda row: order_of(row[1]))
    ids = {call for _, result in rows if result["paid"] for call in _calls_in(result)}
    calls = {
        call.pk: call
        for call in JudgeCall.objects.filter(
            project_id=found.rubric.project_id, pk__in=ids
        ).select_related("endpoint")
    }
    golden = set(
        GoldenCase.objects.filter(rubric_id=found.rubric_id).values_list("name", flat=True)
    )
    return [
        Shown(
            number,
            result,
            BY_ID[result["attack"]],
            bases[result["base"]],
            [calls[pk] for pk in _calls_in(result) if pk in calls] if result["paid"] else [],
            golden_name(BY_ID[result["attack"]], bases[result["base"]]) in golden,
        )
        for number, result in rows
    ]


def golden_name(attack: Attack, base: Mapping[str, Any]) -> str:
    return f"Red team: {attack.name} ({base['label']})"[:120]


def _calls_in(result: Mapping[str, Any]) -> list[int]:
    """Ids of judge calls behind the criteria that paid; of all where none is named."""
    payers = {payer["criterion"] for payer in result["payers"]}
    found: list[int] = []
    for verdict in result["verdicts"]:
        if not payers or verdict["criterion"] in payers:
            found += _ids(verdict["detail"])
    return list(dict.fromkeys(found))[:6]


def _ids(value: Any) -> list[int]:
    if isinstance(value, Mapping):
        own = [value["call"]] if isinstance(value.get("call"), int) else []
        return own + [pk for key, held in value.items() if key != "call" for pk in _ids(held)]
    if isinstance(value, list):
        return [pk for held in value for pk in _ids(held)]
    return []


@dataclass(frozen=True)
class Effort:
    """What an attack takes, at most, before anything is answered from memory."""

    gradings: int
    judge_calls: int


def effort_of(spec: Mapping[str, Any], n_bases: int) -> Effort | None:
    """None for a rubric that cannot be read. Half of the rollouts are taken to have passed."""
    try:
        read = from_json(spec)
    except RubricInvalid:
        return None
    passed = (n_bases + 1) // 2
    per = {Ground.SUCCESS: passed, Ground.FAILURE: n_bases - passed, Ground.BOTH: n_bases}
    gradings = n_bases + sum(per[attack.ground] for attack in ATTACKS)
    calls = sum(
        int(c.params.get("repeats", 1))
        * len(c.params.get("models", ()) or (1,))
        # Three rollouts in pairs, both orders.
        * (6 if c.params.get("method") == "pairwise" else 1)
        for c in read.criteria
        if is_judge(c.kind)
    )
    return Effort(gradings, gradings * calls)
