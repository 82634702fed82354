"""Who may play: editors of the project, as whatever an environment says to people is shown."""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from orchestrator.projects.access import Actor, project_for_edit
from orchestrator.tryouts.models import Tryout


def tryout_for_edit(actor: Actor, project_id: int, slug: str, tryout_id: int) -> Tryout:
    project = project_for_edit(actor, project_id)
    return get_object_or_404(
        Tryout.objects.select_related(
            "version__environment__project",
            "task",
            "user",
            "job",
            "stream",
            "rubric_version__rubric",
        ),
        pk=tryout_id,
        version__environment__project=project,
        version__environment__slug=slug,
    )
