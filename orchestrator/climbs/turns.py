"""The turn after a harness rung: another search, the weights, or the end.

`optimizer.plateau` weighs what the next unit of budget is expected to gain either way; what it says
is stored on the climb and told with its reason. A person overrules it beforehand, or afterwards
where the climb has ended on its word.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.db import transaction
from django.db.models import F, Max
from django.utils import timezone

from optimizer.harness import DEMONSTRATIONS
from optimizer.models import Search
from optimizer.plateau import (
    Advice,
    Effect,
    HarnessOutlook,
    Next,
    TrainingRung,
    WeightsOutlook,
    weigh,
)
from orchestrator.agents.models import EndpointKind
from orchestrator.climbs.models import Climb, ClimbState, Phase, Rung, RungKind, RungState
from orchestrator.climbs.services import ClimbError, queue_advance
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.events.services import Fence, NewEvent, append, hold_fence
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User

CHOICES = tuple(str(choice) for choice in Next)


def turn(climb: Climb, fence: Fence) -> Next:
    """What comes next. Decided once for each harness rung: the same after a kill."""
    rung = newest(climb, RungKind.HARNESS)
    with transaction.atomic():
        hold_fence(fence)
        climb.refresh_from_db()
        if climb.advice.get("rung") == rung.index:
            return Next(climb.advice["chosen"])
        advice = advise(climb)
        chosen, text = _choose(climb, advice)
        climb.advice = {"rung": rung.index, "chosen": str(chosen), **_as_json(advice)}
        climb.overruled = ""
        climb.save(update_fields=["advice", "overruled"])
        if chosen is Next.HARNESS:
            _add_harness_rung(climb, rung)
        elif chosen is Next.STOP:
            climb.rungs.filter(kind=RungKind.ECHO, state=RungState.PENDING).update(
                sentence=f"Not tried. {text}"
            )
        append(stream_id=climb.stream_id, items=[NewEvent("decision", {"text": text})], fence=fence)
    return chosen


def overrule(*, actor: User, climb: Climb, next: str) -> None:
    """Decides the next turn instead of the rule; reopens a climb that has ended on its word.

    Raises ClimbError.
    """
    require(actor, climb.project, Role.EDITOR)
    if next not in CHOICES:
        raise ClimbError(f"A climb goes on with {', '.join(CHOICES)}, not {next!r}.")
    with transaction.atomic():
        climb.refresh_from_db()
        if climb.phase in (Phase.TRAIN, Phase.ECHO_TEST):
            raise ClimbError(f"{climb.name} has turned to weights; cancel it to stop the training.")
        may_reopen = climb.state == ClimbState.COMPLETED and (
            climb.advice.get("chosen") == Next.STOP
        )
        if climb.has_ended and not (may_reopen and next != Next.STOP):
            raise ClimbError(f"{climb.name} is {climb.get_state_display()}; it has ended.")
        if next == Next.WEIGHTS and not is_trainable(climb):
            raise ClimbError("The model's weights cannot be trained here: it is an endpoint.")
        said = f"{actor} overrules the rule: {next} next."
        append(stream_id=climb.stream_id, items=[NewEvent("decision", {"text": said})])
        Climb.objects.filter(pk=climb.pk).update(overruled=next)
        if may_reopen:
            # The turn is taken again, by the person's word.
            Climb.objects.filter(pk=climb.pk).update(
                state=ClimbState.RUNNING, phase=Phase.HARNESS_TEST, advice={}, ended_at=None
            )
            state = {"state": ClimbState.RUNNING, "error": ""}
            append(stream_id=climb.stream_id, items=[NewEvent("climb.state", state)])
            after = f"overruled-{timezone.now().timestamp():.6f}"
            queue_advance(climb_id=climb.pk, after=after)
    climb.refresh_from_db()


def advise(climb: Climb) -> Advice:
    """What the rule says of the climb as it stands."""
    settings = ClimbSettings.from_json(climb.config)
    search = climb.search
    harness = None
    if search is not None and search.outcome:
        harness = _harness_outlook(search)
    weights = None
    if is_trainable(climb):
        train = settings.train
        weights = WeightsOutlook(
            _training_rungs(climb), cost=max(1, train.steps * train.groups * train.samples)
        )
    return weigh(harness, weights, headroom=_headroom(climb))


def _headroom(climb: Climb) -> float | None:
    """What the best score on the sealed test lacks of full marks."""
    best = climb.rungs.filter(score__isnull=False).aggregate(best=Max("score"))["best"]
    return None if best is None else max(0.0, 1.0 - float(best))


def _choose(climb: Climb, advice: Advice) -> tuple[Next, str]:
    settings = ClimbSettings.from_json(climb.config)
    if climb.overruled:
        chosen = Next(climb.overruled)
        return chosen, f"{chosen.capitalize()} next, as a person decided. The rule: {advice.reason}"
    searches = climb.rungs.filter(kind=RungKind.HARNESS).count()
    if advice.next is not Next.HARNESS or searches < settings.max_harness_rungs:
        return advice.next, advice.reason
    chosen = Next.WEIGHTS if is_trainable(climb) else Next.STOP
    word = "weights" if chosen is Next.WEIGHTS else "the end"
    count = f"{searches} harness rung{'' if searches == 1 else 's'}"
    return chosen, (
        f"{advice.reason} The climb allows {count} (max_harness_rungs), so {word} comes next."
    )


def _as_json(advice: Advice) -> dict[str, Any]:
    return {
        "next": str(advice.next),
        "reason": advice.reason,
        "harness": advice.harness and asdict(advice.harness),
        "weights": advice.weights and asdict(advice.weights),
    }


def _harness_outlook(search: Search) -> HarnessOutlook:
    edits = list(search.edits.all())
    has_demonstrations = any(e.in_bundle and e.component == DEMONSTRATIONS for e in edits)
    effects = [
        Effect(edit.effect_mean, edit.effect_sd, edit.in_bundle)
        for edit in edits
        if edit.effect_mean is not None
        and edit.effect_sd is not None
        # Its effect is that of a first demonstration; the harness has that already.
        and (edit.in_bundle or not has_demonstrations or edit.component != DEMONSTRATIONS)
    ]
    seed = search.candidates.filter(edits=[]).first()
    winner = search.candidates.filter(harness=search.outcome.get("winner")).first()
    estimated = None
    if seed is not None and winner is not None and seed.score is not None:
        believed = winner.estimate if winner.estimate is not None else winner.score
        estimated = None if believed is None else believed - seed.score
    certificate = search.comparisons.filter(method="e_process").order_by("-id").first()
    rollouts = search.settings.get("budget", {}).get("rollouts") or 1
    return HarnessOutlook(
        effects=effects,
        cost=float(rollouts),
        estimated=estimated,
        certified=certificate.difference if certificate else None,
    )


def _training_rungs(climb: Climb) -> list[TrainingRung]:
    """What weights have brought in this environment so far, on sealed tests."""
    rungs = Rung.objects.filter(
        climb__project=climb.project_id,
        climb__environment_version__environment=climb.environment_version.environment_id,
        kind=RungKind.ECHO,
        state=RungState.DONE,
        comparison__difference__isnull=False,
        rollouts_spent__gt=0,
    ).values_list("comparison__difference", "rollouts_spent")
    return [
        TrainingRung(gain, float(cost)) for gain, cost in rungs.order_by("id") if gain is not None
    ]


def is_trainable(climb: Climb) -> bool:
    return climb.model.kind == EndpointKind.LOCAL


def newest(climb: Climb, kind: str) -> Rung:
    """The rung of the kind that is under way, or was last."""
    rung = climb.rungs.select_related("harness", "test_run", "search").filter(kind=kind)
    return rung.order_by("-index")[0]


def _add_harness_rung(climb: Climb, last: Rung) -> None:
    """Between this one and what stands above it. Needs a transaction."""
    for above in climb.rungs.filter(index__gt=last.index).order_by("-index"):
        Rung.objects.filter(pk=above.pk).update(index=F("index") + 1)
    Rung.objects.create(climb=climb, index=last.index + 1, kind=RungKind.HARNESS)
    Climb.objects.filter(pk=climb.pk).update(search=None)
