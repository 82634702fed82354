"""The form that starts a training of its own, or a sweep where several values of λ are given."""

from __future__ import annotations

import math
from typing import Any

from django import forms

from optimizer.models import HarnessVersion
from orchestrator.agents.models import GIVE_TOKENS, ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.projects.models import Project
from orchestrator.trainings.settings import TrainSettings
from orchestrator.trainings.sweeps import MAX_JOBS
from orchestrator.web import run_choices
from rubrics.models import RubricVersion
from training.types import AdvantageMode, EnvNorm

PLAIN = TrainSettings()


def numbers(text: str, kind: type[float] | type[int]) -> list[Any]:
    """Parts between commas; raises ValidationError that names the first which is no number."""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        try:
            value = kind(part)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0:
            raise forms.ValidationError(f"{part!r} is not a number from 0 up.")
        found.append(value)
    if not found:
        raise forms.ValidationError("At least one number, with commas between several.")
    return found


class TrainForm(forms.Form):
    name = forms.CharField(max_length=90, required=False, label="Name")
    version = forms.ModelChoiceField(EnvironmentVersion.objects.none(), label="Environment")
    rubric = forms.ModelChoiceField(RubricVersion.objects.none(), label="Rubric")
    model = forms.ModelChoiceField(
        ModelEndpoint.objects.none(),
        label="Model",
        help_text="Of this installation’s model server or of a Tinker server, since training needs "
        "tokens as sampled. A Tinker server computes at temperature 1.",
    )
    harness = forms.ModelChoiceField(HarnessVersion.objects.none(), label="Harness")
    steps = forms.IntegerField(min_value=1, max_value=5000, initial=PLAIN.steps, label="Steps")
    groups = forms.IntegerField(
        min_value=1, max_value=512, initial=PLAIN.groups, label="Tasks per step"
    )
    samples = forms.IntegerField(
        min_value=1, max_value=128, initial=PLAIN.samples, label="Rollouts per task"
    )
    lambdas = forms.CharField(
        initial=f"{PLAIN.env_loss_weight:g}",
        label="λ, weight of the environment loss",
        help_text="Several, as 0, 0.01, 0.05, make a sweep with one verdict.",
    )
    env_normalisation = forms.ChoiceField(
        choices=[(norm.value, norm.value) for norm in EnvNorm if norm is not EnvNorm.MAX_SEQ_LEN],
        initial=PLAIN.env_normalisation,
        label="Normalisation of λ",
        help_text="λ means nothing without it.",
    )
    seeds = forms.CharField(
        initial="0",
        label="Seeds",
        help_text="A sweep needs at least two to call a value better.",
    )
    advantage = forms.ChoiceField(
        choices=[(mode.value, mode.value) for mode in AdvantageMode],
        initial=PLAIN.advantage,
        label="Advantage",
    )
    learning_rate = forms.FloatField(
        min_value=1e-9, max_value=1.0, initial=PLAIN.learning_rate, label="Learning rate"
    )
    full_weights = forms.BooleanField(
        required=False,
        label="Train every weight",
        help_text="Each version is a whole model then, and several times the memory is needed.",
    )
    lora_rank = forms.IntegerField(
        min_value=1, max_value=512, initial=PLAIN.lora_rank, label="LoRA rank"
    )
    temperature = forms.FloatField(
        min_value=0.05, max_value=2.0, initial=PLAIN.temperature, label="Sampling temperature"
    )
    evaluate_every = forms.IntegerField(
        min_value=0,
        max_value=1000,
        initial=PLAIN.evaluate_every,
        label="Held-out evaluation every so many steps",
        help_text="On tasks of the split select; the best step by it is the result. 0 for none.",
    )
    evaluate_rollouts = forms.IntegerField(
        min_value=1, max_value=512, initial=PLAIN.evaluate_rollouts, label="Rollouts of each"
    )
    priority = forms.IntegerField(
        min_value=-10, max_value=10, initial=0, label="Priority", help_text="Higher goes first."
    )
    device = forms.ChoiceField(choices=[("cpu", "cpu"), ("cuda", "cuda")], label="Kind of device")

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = run_choices.of(project.pk)
        for name, queryset, label in (
            ("version", choices.versions, run_choices.version_label),
            ("rubric", choices.rubrics, str),
            ("model", choices.models.filter(kind__in=GIVE_TOKENS), run_choices.model_label),
            ("harness", choices.harnesses, run_choices.harness_label),
        ):
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = queryset
            field.label_from_instance = label  # type: ignore[method-assign, assignment]

    @property
    def missing(self) -> list[str]:
        """Choices without anything to choose from."""
        found = []
        for name in ("version", "rubric", "model", "harness"):
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField)
            if field.queryset is None or not field.queryset.exists():
                found.append(name)
        return found

    def clean_lambdas(self) -> list[float]:
        return sorted(set(numbers(self.cleaned_data["lambdas"], float)))

    def clean_seeds(self) -> list[int]:
        return sorted(set(numbers(self.cleaned_data["seeds"], int)))

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        values, seeds = given.get("lambdas") or [], given.get("seeds") or []
        if len(values) * len(seeds) > MAX_JOBS:
            self.add_error(
                "seeds", f"At most {MAX_JOBS} jobs: {len(values)} × {len(seeds)} are more."
            )
        return given

    @property
    def settings(self) -> TrainSettings:
        """Of the first λ; needs a valid form."""
        given = self.cleaned_data
        taken = (
            *("steps", "groups", "samples", "env_normalisation", "advantage", "learning_rate"),
            *(
                "full_weights",
                "lora_rank",
                "temperature",
                "evaluate_every",
                "evaluate_rollouts",
                "priority",
            ),
            "device",
        )
        return TrainSettings(
            **{name: given[name] for name in taken}, env_loss_weight=given["lambdas"][0]
        )

    @property
    def parts(self) -> dict[str, Any]:
        given = self.cleaned_data
        return {
            "environment_version": given["version"],
            "rubric_version": given["rubric"],
            "model": given["model"],
            "harness": given["harness"],
        }


class QuotaForm(forms.Form):
    max_running = forms.IntegerField(
        min_value=0, max_value=1000, required=False, label="Jobs at a time", help_text="Empty: any."
    )
    minutes = forms.IntegerField(
        min_value=0,
        max_value=100_000,
        required=False,
        label="Minutes of devices a day",
        help_text="Empty: as many as fair share gives.",
    )
