"""One rollout, a criterion's verdict on it, and the person's own: label, and go to the next.

The verdict is hidden until the person has answered, or asks to see it: agreement with an answer
that one has just read is no agreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.grading.queries import versions_of
from orchestrator.review.calibration import Calibration
from orchestrator.review.calibration_criteria import CriterionSpec, criterion_specs
from orchestrator.review.calibration_labels import label
from orchestrator.review.calibration_queries import (
    calibrations,
    calls_behind,
    labels_on,
    unlabelled,
    verdict_on,
)
from orchestrator.review.errors import ReviewRefused
from orchestrator.review.scales import scales_of
from orchestrator.review.splits import is_held_out
from orchestrator.web import queries
from orchestrator.web.calibration_access import rollout_in
from orchestrator.web.frame import Crumb, page
from orchestrator.web.rubric_access import rubric_for_edit, rubric_for_view
from orchestrator.web.trace import build_trace
from orchestrator.web.views.calibration import chosen_version
from rubrics.models import Rubric, RubricVersion

DISAGREEMENTS, UNLABELLED = "disagreements", "unlabelled"
AHEAD = 50
"""Unmarked rollouts that are looked up to walk through."""
TELLS = ("verdict", "ended")
"""Cards that would give the verdict away."""


@dataclass(frozen=True)
class Walk:
    """The rollouts that the page goes through, and where it stands."""

    kind: str
    rollouts: Sequence[int]
    at: int | None

    @property
    def next(self) -> int | None:
        if not self.rollouts:
            return None
        if self.at is None:
            return self.rollouts[0]
        after = (self.at + 1) % len(self.rollouts)
        return self.rollouts[after] if after != self.at else None

    @property
    def previous(self) -> int | None:
        if self.at is None or len(self.rollouts) < 2:
            return None
        return self.rollouts[self.at - 1]


@login_required
@require_safe
def calibration_compare(
    request: HttpRequest, project_id: int, rubric_id: int, criterion: str
) -> HttpResponse:
    rubric = rubric_for_view(request.user, project_id, rubric_id)
    version, spec = _criterion(rubric, request.GET.get("version", ""), criterion)
    judges = calibrations(rubric, version, only=criterion)[criterion]
    found = next((c for c in judges if c.judge == request.GET.get("judge")), judges[0])
    wanted = request.GET.get("rollout", "")
    walk = _walk(rubric, version, found, request.GET.get("walk", DISAGREEMENTS), wanted)
    rollout = rollout_in(project_id, wanted or str(walk.next or ""))
    if wanted and rollout is None:
        raise Http404("There is no such rollout in this project.")
    if rollout is not None and not wanted:
        walk = _walk(rubric, version, found, walk.kind, str(rollout.pk))
    crumbs = [
        Crumb("Rubrics", reverse("web:rubrics", args=[project_id])),
        Crumb(rubric.name, reverse("web:rubric", args=[project_id, rubric_id])),
        Crumb("Calibration", reverse("web:rubric_calibration", args=[project_id, rubric_id])),
        Crumb(spec.name),
    ]
    context: dict[str, Any] = {
        "rubric": rubric,
        "version": version,
        "criterion": spec,
        "found": found,
        "walk": walk,
        "base": urlencode({"version": version.number, "judge": found.judge, "walk": walk.kind}),
    }
    if rollout is None:
        return page(
            request, "web/calibration_none.html", rubric.project, "rubrics", crumbs, **context
        )
    given = verdict_on(rubric, version, criterion, rollout.pk)
    labels = labels_on(rubric, criterion, rollout.pk)
    own = next((mark for mark in labels if mark.user_id == request.user.pk), None)
    scale = next(s for s in scales_of(version.spec) if s.id == criterion)
    is_shown = own is not None or "show" in request.GET
    cards = build_trace(queries.events_of(rollout.stream_id))[-1].cards
    return page(
        request,
        "web/calibration_compare.html",
        rubric.project,
        "rubrics",
        crumbs,
        rollout=rollout,
        run=rollout.run,
        given=given,
        said=None if given is None or given.value is None else spec.passes(given.value),
        calls=calls_behind(given) if given and is_shown else [],
        cards=[card for card in cards if card.kind not in TELLS],
        labels=[
            (mark, scale.label_of(mark.state, mark.value), _agrees(spec, mark.value, given))
            for mark in labels
        ],
        own=own,
        own_said=scale.said_of(own.state, own.value) if own else "",
        scale=scale,
        is_shown=is_shown,
        is_held_out=is_held_out(rollout.pk),
        **context,
    )


def _agrees(spec: CriterionSpec, value: float | None, given: object) -> bool | None:
    other = getattr(given, "value", None)
    if value is None or other is None:
        return None
    return spec.passes(value) == spec.passes(other)


def _criterion(rubric: Rubric, wanted: str, id: str) -> tuple[RubricVersion, CriterionSpec]:
    version = chosen_version(versions_of(rubric), wanted)
    spec = criterion_specs(version.spec).get(id) if version else None
    if version is None or spec is None:
        raise Http404("This rubric has no such criterion.")
    return version, spec


def _walk(rubric: Rubric, version: RubricVersion, found: Calibration, kind: str, at: str) -> Walk:
    ids = [pair.rollout for pair in found.disagreements]
    if kind == UNLABELLED or not ids:
        kind = UNLABELLED
        ids = [r.pk for r in unlabelled(rubric, version, found.criterion.id, AHEAD)]
    place = int(at) if at.isdecimal() and len(at) < 19 else None
    return Walk(kind, ids, ids.index(place) if place in ids else None)


@login_required
@require_POST
def calibration_label(
    request: HttpRequest, project_id: int, rubric_id: int, criterion: str
) -> HttpResponse:
    """The person's verdict. `next`: go on to the next rollout of the walk."""
    rubric = rubric_for_edit(request.user, project_id, rubric_id)
    version, _ = _criterion(rubric, request.POST.get("version", ""), criterion)
    rollout = rollout_in(project_id, request.POST.get("rollout", ""))
    if rollout is None:
        raise Http404("There is no such rollout in this project.")
    follow = rollout.pk
    try:
        label(
            actor=request.user,  # type: ignore[arg-type] # login_required
            rollout=rollout,
            version=version,
            criterion=criterion,
            said=request.POST.get("typed", "").strip() or request.POST.get("said", ""),
            note=request.POST.get("note", ""),
        )
        after = request.POST.get("after", "")
        if "next" in request.POST and after.isdecimal() and len(after) < 19:
            follow = int(after)
    except ReviewRefused as refused:
        messages.error(request, str(refused))
    url = reverse("web:calibration_compare", args=[project_id, rubric_id, criterion])
    query = {
        "version": version.number,
        "judge": request.POST.get("judge", ""),
        "walk": request.POST.get("walk", ""),
        "rollout": follow,
    }
    return redirect(f"{url}?{urlencode(query)}")
