"""Comparison of runs, and of two rollouts step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from orchestrator.projects.access import project_for_view
from orchestrator.runs.comparison import conditions, reading, table
from orchestrator.runs.comparison.steps import aligned, first_divergence, stretches
from orchestrator.web import compare_cards as cards
from orchestrator.web import compare_rows, comparing
from orchestrator.web.frame import Crumb, page


@login_required
@require_safe
def compare_runs(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    options = comparing.options_of(dict(request.GET.lists()))
    sides, unknown = reading.sides_of(project.pk, options.tokens)
    crumbs = [Crumb("Runs", reverse("web:runs", args=[project_id])), Crumb("Compare")]
    shared: dict[str, Any] = {"options": options, "sides": sides, "unknown": unknown}
    if len(sides) < 2:
        return page(
            request,
            "web/compare_choose.html",
            project,
            "runs",
            crumbs,
            choices=reading.runs_to_choose(project.pk),
            chosen=[side.run.pk for side in sides],
            most=reading.MAX_SIDES,
            **shared,
        )
    families, splits = reading.groups_of(sides)
    facts = reading.facts_of(sides, family=options.family, split=options.split)
    rows = table.tasks_by_side(facts)
    told = reading.conditions_of(sides, facts)
    missing = [table.alone(rows, side) for side in range(1, len(sides))]
    selected = comparing.select(rows, options)
    fields = conditions.fields_of(told)
    return page(
        request,
        "web/compare.html",
        project,
        "runs",
        crumbs,
        heads=compare_rows.heads(sides, options),
        warnings=conditions.warnings_of(
            told, [(each.base, each.other) for each in missing], reading.changed_prompts(sides)
        ),
        fields=[each for each in fields if each.differs or not options.differs],
        n_equal_fields=sum(not each.differs for each in fields),
        card=cards.score_card(rows, len(sides)),
        criteria=cards.criterion_cards(
            rows, len(sides), compare_rows.criteria_of_sides(sides), reading.marks_of(sides)
        ),
        measures=cards.measures(rows, len(sides)),
        map=cards.task_map(selected.all_rows, [side.name for side in sides]),
        modes=comparing.mode_counts(rows),
        selected=selected,
        rows=_drawn(selected, options),
        families=cards.families(selected.all_rows, len(sides))
        if options.layout == "summary"
        else [],
        family_names=families,
        splits=splits,
        layouts=comparing.LAYOUTS,
        sorts=comparing.SORTS,
        **shared,
    )


def _drawn(
    selected: comparing.Selected, options: comparing.Options
) -> Sequence[compare_rows.DrawnRow]:
    if options.layout == "summary":
        return []
    first = [cell.facts[0].rollout for row in selected.rows for cell in row.cells if cell.facts]
    texts = reading.texts_of(first) if options.layout == "grid" else {}
    return compare_rows.drawn(
        selected.rows, reading.prompts_of(first), texts, is_word_diff=options.words
    )


@login_required
@require_safe
def compare_rollouts(
    request: HttpRequest, project_id: int, left_id: int, right_id: int
) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    left = reading.rollout_in(project.pk, left_id)
    right = reading.rollout_in(project.pk, right_id)
    if left is None or right is None:
        raise Http404("This project has no such rollout.")
    rows = aligned(reading.moves_of(left), reading.moves_of(right))
    shown = rows[: compare_rows.STEPS_SHOWN]
    return page(
        request,
        "web/compare_rollouts.html",
        project,
        "runs",
        [
            Crumb("Runs", reverse("web:runs", args=[project_id])),
            Crumb(
                "Compare",
                f"{reverse('web:compare', args=[project_id])}?runs={left.run_id},{right.run_id}",
            ),
            Crumb(f"Rollouts {left.pk} and {right.pk}"),
        ],
        left=left,
        right=right,
        notes=compare_rows.notes_of(left, right),
        verdicts=compare_rows.verdict_rows(left, right),
        stretches=compare_rows.drawn_stretches(stretches(shown)),
        divergence=first_divergence(rows),
        n_rows=len(rows),
        n_hidden=len(rows) - len(shown),
        counts=compare_rows.kind_counts(rows),
    )
