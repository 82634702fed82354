"""What a filter field can complete: fields with operators, and values that the project has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import Environment, Task
from orchestrator.runs.filtering.fields import OPERATORS_OF, ROLLOUTS, RUNS
from orchestrator.runs.filtering.grammar import quoted
from orchestrator.runs.models import ListKind, Run
from rubrics.models import Rubric, RubricVersion

MOST_VALUES = 200
NEWEST_RUNS = 200
"""Whose labels and sampling parameters are offered."""


def words_of(project_id: int, of: ListKind) -> list[dict[str, Any]]:
    """`{"name", "about", "operators", "values"}` for each field; seven queries at most."""
    schema = RUNS if of == ListKind.RUNS else ROLLOUTS
    known = _known_values(project_id, of)
    found = []
    for field in schema.fields.values():
        values = [quoted(name) for name, _ in field.choices] or known.get(field.name, [])
        found.append(_entry(field.name, field.about, OPERATORS_OF[field.kind], values))
    if of == ListKind.ROLLOUTS:
        for criterion, about in _criteria(project_id).items():
            name = f"verdict.{criterion if quoted(criterion) == criterion else quoted(criterion)}"
            values = ["errored", "not_applicable", "pending"]
            found.append(_entry(name, about, OPERATORS_OF["number"], values))
    for nested in schema.nested.values():
        for key in known.get(nested.name, []):
            operators = (*OPERATORS_OF["number"], "~")
            found.append(_entry(f"{nested.name}.{key}", nested.about, operators, []))
    return found


def _entry(
    name: str, about: str, operators: Iterable[str], values: Iterable[str]
) -> dict[str, Any]:
    written = [f"is {each}" if "empty" in each else each for each in operators]
    return {"name": name, "about": about, "operators": written, "values": list(values)}


def _known_values(project_id: int, of: ListKind) -> Mapping[str, list[str]]:
    runs = list(
        Run.objects.filter(project_id=project_id)
        .order_by("-id")
        .values_list("label", "sampling", "isolation", "adapter_name")[:NEWEST_RUNS]
    )

    def plain(values: Iterable[str]) -> list[str]:
        return [quoted(value) for value in dict.fromkeys(values) if value][:MOST_VALUES]

    def keys(each: Iterable[Any]) -> list[str]:
        return sorted({quoted(key) for one in each if isinstance(one, dict) for key in one})

    slugs = Environment.objects.filter(project_id=project_id).order_by("slug")
    models = ModelEndpoint.objects.filter(project_id=project_id).order_by("name")
    rubrics = Rubric.objects.filter(project_id=project_id).order_by("name")
    found = {
        "label": plain(label for label, *_ in runs),
        "sampling": keys(sampling for _, sampling, *_ in runs),
        "isolation": keys(isolation for _, _, isolation, _ in runs),
        "adapter": plain(name for *_, name in runs),
        "environment": plain(slugs.values_list("slug", flat=True)),
        "model": plain(models.values_list("name", flat=True)),
        "rubric": plain(rubrics.values_list("name", flat=True)),
        "started": ["1h", "24h", "7d", "today", "yesterday"],
        "ended": ["1h", "24h", "7d", "today", "yesterday"],
    }
    if of == ListKind.ROLLOUTS:
        tasks = Task.objects.filter(version__environment__project_id=project_id).order_by()
        found["family"] = plain(tasks.values_list("family", flat=True).distinct()[:MOST_VALUES])
        found["task"] = plain(tasks.values_list("key", flat=True).distinct()[:MOST_VALUES])
    return found


def _criteria(project_id: int) -> dict[str, str]:
    """Names of the criteria of the project's rubrics by id."""
    found: dict[str, str] = {}
    specs = RubricVersion.objects.filter(rubric__project_id=project_id).order_by("-pk")
    for spec in specs.values_list("spec", flat=True)[:MOST_VALUES]:
        criteria = spec.get("criteria") if isinstance(spec, dict) else None
        for each in criteria if isinstance(criteria, list) else []:
            if isinstance(each, dict) and each.get("id"):
                found.setdefault(str(each["id"]), str(each.get("name") or "a criterion's verdict"))
    return found
