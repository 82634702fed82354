"""The form that starts a climb: what may be chosen, and the settings that it comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django import forms

from optimizer.models import HarnessVersion
from orchestrator.agents.models import ModelEndpoint
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.projects.models import Project
from orchestrator.trainings.settings import SAMPLERS
from orchestrator.web import run_choices
from orchestrator.web.form_fields import describe_fields, fill_choices
from rubrics.models import RubricVersion

SAMPLER_WORDS = {
    "sequential": "in order: shuffled passes over all tasks",
    "uniform": "at random, each task alike",
    "signal": "by what a task is expected to teach",
}
_SETTINGS = ClimbSettings()


class ClimbStartForm(forms.Form):
    name = forms.CharField(max_length=120, required=False, label="Name")
    version = forms.ModelChoiceField(EnvironmentVersion.objects.none(), label="Environment")
    rubric = forms.ModelChoiceField(RubricVersion.objects.none(), label="Rubric")
    model = forms.ModelChoiceField(
        ModelEndpoint.objects.none(),
        label="Model",
        help_text="Weights are trained for local models; others climb by their harness alone.",
    )
    harness = forms.ModelChoiceField(
        HarnessVersion.objects.none(),
        required=False,
        label="Seed harness",
        empty_label="plain: no instructions, no demonstrations",
    )
    max_rollouts = forms.IntegerField(
        min_value=1,
        max_value=1_000_000,
        initial=_SETTINGS.max_rollouts,
        label="Rollouts",
        help_text="Of the agent, for the whole climb; never passed.",
    )
    max_harness_rungs = forms.IntegerField(
        min_value=1,
        max_value=10,
        initial=_SETTINGS.max_harness_rungs,
        label="Harness searches at most",
        help_text="Another one follows where it promises more than training.",
    )
    certify_pairs = forms.IntegerField(
        min_value=8,
        max_value=10_000,
        initial=_SETTINGS.search.certify_max_pairs,
        label="Pairs to certify with",
        help_text="Two rollouts each; more pairs show smaller gains.",
    )
    test_replicates = forms.IntegerField(
        min_value=1,
        max_value=16,
        initial=_SETTINGS.test_replicates,
        label="Attempts at each sealed task",
    )
    steps = forms.IntegerField(
        min_value=1, max_value=10_000, initial=_SETTINGS.train.steps, label="Training steps"
    )
    groups = forms.IntegerField(
        min_value=1, max_value=512, initial=_SETTINGS.train.groups, label="Tasks per step"
    )
    samples = forms.IntegerField(
        min_value=2, max_value=64, initial=_SETTINGS.train.samples, label="Rollouts per task"
    )
    sampler = forms.ChoiceField(
        choices=[(name, SAMPLER_WORDS.get(name, name)) for name in SAMPLERS],
        initial=_SETTINGS.train.sampler,
        label="Which tasks come next",
    )
    env_loss_weight = forms.FloatField(
        min_value=0,
        max_value=10,
        initial=_SETTINGS.train.env_loss_weight,
        label="λ of the environment loss",
        help_text="0 is plain GRPO.",
    )
    concurrency = forms.IntegerField(
        min_value=1, max_value=256, initial=_SETTINGS.concurrency, label="Rollouts at a time"
    )
    held_out = forms.ModelChoiceField(
        RubricVersion.objects.none(),
        required=False,
        label="Held-out rubric of the watch",
        empty_label="none: no gap between rubrics is watched",
        help_text="Another rubric on which nobody climbs. If it falls behind, the climb pauses.",
    )

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = run_choices.of(project.pk)
        fill_choices(
            self,
            {
                "version": (choices.versions, run_choices.version_label),
                "rubric": (choices.rubrics, str),
                "held_out": (choices.rubrics, str),
                "model": (choices.models, run_choices.model_label),
                "harness": (choices.harnesses, run_choices.harness_label),
            },
        )
        describe_fields(self)

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or self.cleaned_data
        rubric, held_out = given.get("rubric"), given.get("held_out")
        if rubric and held_out and rubric.rubric_id == held_out.rubric_id:
            self.add_error(
                "held_out", "Choose another rubric than the one that is climbed on, or none."
            )
        return given

    def settings(self) -> ClimbSettings:
        """Of a valid form."""
        given, usual = self.cleaned_data, ClimbSettings()
        held_out = given["held_out"]
        return replace(
            usual,
            search=replace(usual.search, certify_max_pairs=given["certify_pairs"]),
            train=replace(
                usual.train,
                steps=given["steps"],
                groups=given["groups"],
                samples=given["samples"],
                sampler=given["sampler"],
                env_loss_weight=given["env_loss_weight"],
            ),
            watch=replace(usual.watch, held_out_rubric=held_out and held_out.pk),
            max_harness_rungs=given["max_harness_rungs"],
            test_replicates=given["test_replicates"],
            concurrency=given["concurrency"],
            max_rollouts=given["max_rollouts"],
        )
