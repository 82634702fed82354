"""What a run can be made of in a project, and what is likely meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Max, QuerySet

from optimizer.models import HarnessVersion
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.runs.models import Run
from orchestrator.searches import releases
from rubrics.models import RubricVersion


@dataclass(frozen=True)
class RunChoices:
    versions: QuerySet[EnvironmentVersion]
    rubrics: QuerySet[RubricVersion]
    models: QuerySet[ModelEndpoint]
    harnesses: QuerySet[HarnessVersion]


def of(project_id: int) -> RunChoices:
    """The newest version of each environment and rubric; all models; harnesses, newest first."""
    newest = (
        EnvironmentVersion.objects.filter(environment__project_id=project_id)
        .values("environment")
        .annotate(newest=Max("pk"))
        .values("newest")
    )
    rubrics = (
        RubricVersion.objects.filter(rubric__project_id=project_id)
        .values("rubric")
        .annotate(newest=Max("pk"))
        .values("newest")
    )
    return RunChoices(
        versions=EnvironmentVersion.objects.filter(pk__in=newest)
        .select_related("environment")
        .order_by("environment__name"),
        rubrics=RubricVersion.objects.filter(pk__in=rubrics)
        .select_related("rubric")
        .order_by("rubric__name"),
        models=ModelEndpoint.objects.filter(project_id=project_id).order_by("name"),
        harnesses=HarnessVersion.objects.filter(project_id=project_id).order_by("-pk"),
    )


def suggested(project_id: int, slug: str) -> dict[str, Any]:
    """Values of the newest run on that environment, with the harness that is released there; else
    what an example brought under its name; else the only choice, or none.
    """
    choices = of(project_id)
    runs = Run.objects.filter(project_id=project_id).order_by("-pk")
    on_it = runs.filter(environment_version__environment__slug=slug).first()
    last = on_it or runs.first()
    found: dict[str, Any] = {}
    versions = choices.versions
    version = versions.filter(environment__slug=slug).first() if slug else versions.first()
    if version is not None:
        found["version"] = version.pk
        found["split"] = "select" if version.tasks.filter(split="select").exists() else "train"
    if len(models := list(choices.models[:2])) == 1:
        found["model"] = models[0].pk
    if last is not None:
        found["model"] = last.model_id
    if (rubric := likely_rubric(project_id, slug)) is not None:
        found["rubric"] = rubric.pk
    released = releases.current(version.environment) if version is not None else None
    if released is not None:
        found["harness"] = released.harness_id
    elif on_it is not None:
        found["harness"] = on_it.rollouts.values_list("harness_id", flat=True).first()
    elif slug and (own := choices.harnesses.filter(label=slug).first()) is not None:
        found["harness"] = own.pk
    return found


def likely_rubric(project_id: int, slug: str) -> RubricVersion | None:
    """What an environment is graded by: the newest version of the rubric of its newest run; else of
    the one that an example brought under its name; else of the project's only one.
    """
    rubrics = list(of(project_id).rubrics)
    run = (
        Run.objects.filter(project_id=project_id, environment_version__environment__slug=slug)
        .select_related("rubric_version")
        .order_by("-pk")
        .first()
    )
    used = run.rubric_version.rubric_id if run else None
    for rubric in rubrics:
        if rubric.rubric_id == used or (run is None and rubric.rubric.name == slug):
            return rubric
    return rubrics[0] if len(rubrics) == 1 else None


def version_label(version: EnvironmentVersion) -> str:
    return f"{version.environment.name}, version {version.number}"


def model_label(model: ModelEndpoint) -> str:
    return f"{model.name} ({model.get_kind_display()})"


def harness_label(harness: HarnessVersion) -> str:
    return f"{harness.short} {harness.label}".strip()
