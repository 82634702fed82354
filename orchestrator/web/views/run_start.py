"""The form that starts a run."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from optimizer.models import HarnessVersion
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.projects.access import project_for_edit
from orchestrator.projects.models import Project
from orchestrator.runs.starting import OPEN_SPLITS, Asked, RunRefused, start_run_by_hand
from orchestrator.web import run_choices
from orchestrator.web.frame import Crumb, page
from rubrics.models import RubricVersion


class StartForm(forms.Form):
    version = forms.ModelChoiceField(EnvironmentVersion.objects.none(), label="Environment")
    split = forms.ChoiceField(
        choices=[(split.value, split.value) for split in OPEN_SPLITS],
        label="Tasks of the split",
        help_text="The test split is sealed: climbs and gates read it, once for each claim.",
    )
    n_tasks = forms.IntegerField(
        min_value=1, required=False, label="Tasks at most", help_text="Empty for all."
    )
    rubric = forms.ModelChoiceField(RubricVersion.objects.none(), label="Rubric")
    model = forms.ModelChoiceField(ModelEndpoint.objects.none(), label="Model")
    harness = forms.ModelChoiceField(
        HarnessVersion.objects.none(),
        required=False,
        label="Harness",
        empty_label="plain: no instructions, no demonstrations",
    )
    replicates = forms.IntegerField(
        min_value=1, max_value=64, initial=1, label="Attempts at each task"
    )
    concurrency = forms.IntegerField(
        min_value=1, max_value=256, initial=32, label="Rollouts at a time"
    )
    label = forms.CharField(max_length=120, required=False, label="Label")

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = run_choices.of(project.pk)
        for name, queryset, label in (
            ("version", choices.versions, run_choices.version_label),
            ("rubric", choices.rubrics, str),
            ("model", choices.models, run_choices.model_label),
            ("harness", choices.harnesses, run_choices.harness_label),
        ):
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = queryset
            field.label_from_instance = label  # type: ignore[method-assign, assignment]

    @property
    def missing(self) -> list[str]:
        """Choices without anything to choose from."""
        return [name for name in ("version", "rubric", "model") if not self._has(name)]

    def _has(self, name: str) -> bool:
        field = self.fields[name]
        assert isinstance(field, forms.ModelChoiceField)
        return field.queryset is not None and field.queryset.exists()


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def run_start(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_edit(request.user, project_id)
    initial = run_choices.suggested(project.pk, request.GET.get("environment", ""))
    if (asked := request.GET.get("harness", "")).isdecimal():
        initial["harness"] = asked
    form = StartForm(project, request.POST or None, initial=initial)
    if form.is_bound and form.is_valid():
        given = form.cleaned_data
        try:
            run = start_run_by_hand(
                actor=request.user,  # type: ignore[arg-type] # login_required
                project=project,
                asked=Asked(
                    version=given["version"],
                    split=given["split"],
                    rubric_version=given["rubric"],
                    model=given["model"],
                    harness=given["harness"],
                    n_tasks=given["n_tasks"],
                    replicates=given["replicates"],
                    concurrency=given["concurrency"],
                    label=given["label"].strip(),
                ),
            )
        except RunRefused as refused:
            form.add_error(refused.field, str(refused))
        else:
            messages.success(request, "The run is queued. Its rollouts appear as they start.")
            return redirect("web:run", project_id, run.pk)
    return page(
        request,
        "web/run_start.html",
        project,
        "runs",
        [Crumb("Runs", reverse("web:runs", args=[project_id])), Crumb("Start")],
        status=422 if form.is_bound else 200,
        form=form,
        missing=form.missing,
    )
