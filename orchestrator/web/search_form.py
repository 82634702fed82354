"""The form that starts a search: what may be chosen, and the settings that it comes to.

A field that is left empty keeps its default or has no cap. What cannot work is said at its field,
with the limit and the way out, before anything is spent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from optimizer.certification import MAX_MARGIN
from optimizer.engines import registry
from optimizer.models import HarnessVersion, Search
from optimizer.operators.registry import OFFLINE as OPERATORS
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.projects.models import Project
from orchestrator.searches import proposers
from orchestrator.searches.services import SearchForm
from orchestrator.searches.settings import MIN_PAIRS, BudgetSettings, SearchSettings
from orchestrator.web import run_choices
from orchestrator.web.form_fields import describe_fields, fill_choices
from rubrics.models import RubricVersion

ENGINE_WORDS = {
    "factorial": (
        "Factorial",
        "Tries many edits at once and estimates each one’s effect. The choice for edits that can "
        "be combined.",
    ),
    "race": (
        "Race",
        "Runs whole rewrites and models against what is best so far, task by task. The choice for "
        "proposals that cannot be taken apart.",
    ),
    "bootstrap": (
        "Bootstrap",
        "Looks for the best set of demonstrations only. Cheap, and often enough for small models.",
    ),
    "gepa": (
        "GEPA",
        "The gepa package, metered by our budget and certified by our test. For comparison.",
    ),
}
PROPOSER_WORDS = {
    "offline": (
        "Offline",
        "Demonstrations from references and own successes, instructions, skills, sampling. Needs "
        "no model.",
    ),
    "reflection": (
        "Reflection",
        "A model reads failed and passed traces, names the cause and proposes edits.",
    ),
    "reflection.skill": ("Skills by reflection", "A skill from what passed attempts share."),
    "reflection.tools": (
        "Tool descriptions by reflection",
        "Repairs what tools say of themselves, from calls that went wrong.",
    ),
    "reflection.triggers": (
        "Skill descriptions by reflection",
        "Tunes when a skill is loaded, against its own test queries.",
    ),
    "handed_in": ("Handed in", "The search waits for you, or for an agent that you ask."),
}
_SETTINGS, _BUDGET = SearchSettings(), BudgetSettings()


def engine_choices() -> list[tuple[str, str]]:
    return [(name, ENGINE_WORDS.get(name, (name, ""))[0]) for name in registry.ENGINES]


def proposer_choices() -> list[tuple[str, str]]:
    """Single operators come with *offline*."""
    names = [name for name in proposers.KNOWN if name not in OPERATORS]
    return [(name, PROPOSER_WORDS.get(name, (name, ""))[0]) for name in names]


def operator_choices() -> list[tuple[str, str]]:
    return [(name, f"{name}: {operator.about}") for name, operator in OPERATORS.items()]


class CapsForm(forms.Form):
    """What may be spent besides rollouts; an empty field has no cap of its own."""

    tokens = forms.IntegerField(min_value=1, required=False, label="Tokens of the agent")
    usd = forms.FloatField(min_value=0.01, required=False, label="US dollars of the agent")
    minutes = forms.FloatField(min_value=1, required=False, label="Minutes of runs")
    judge_tokens = forms.IntegerField(min_value=1, required=False, label="Tokens of judges")
    judge_usd = forms.FloatField(min_value=0.01, required=False, label="US dollars of judges")
    proposer_tokens = forms.IntegerField(min_value=1, required=False, label="Tokens of proposers")
    proposer_usd = forms.FloatField(min_value=0.01, required=False, label="US dollars of proposers")

    def budget(self, rollouts: int) -> BudgetSettings:
        """Of a valid form."""
        given = self.cleaned_data
        return BudgetSettings(
            rollouts=rollouts,
            tokens=given["tokens"],
            usd=given["usd"],
            seconds=None if given["minutes"] is None else round(60 * given["minutes"]),
            judge_tokens=given["judge_tokens"],
            judge_usd=given["judge_usd"],
            proposer_usd=given["proposer_usd"],
            proposer_tokens=given["proposer_tokens"],
        )


def caps_of(search: Search) -> dict[str, Any]:
    """Initial values of the form; a search without settings of its own has no caps."""
    budget: Mapping[str, Any] = search.settings.get("budget") or {}
    seconds = budget.get("seconds")
    return {
        **{name: budget.get(name) for name in CapsForm.base_fields if name != "minutes"},
        "minutes": None if seconds is None else seconds / 60,
    }


def rollouts_of(search: Search) -> int:
    return SearchSettings.from_json(search.settings).budget.rollouts


class SearchStartForm(CapsForm):
    name = forms.CharField(max_length=120, required=False, label="Name")
    version = forms.ModelChoiceField(EnvironmentVersion.objects.none(), label="Environment")
    rubric = forms.ModelChoiceField(RubricVersion.objects.none(), label="Rubric")
    model = forms.ModelChoiceField(ModelEndpoint.objects.none(), label="Model")
    harness = forms.ModelChoiceField(
        HarnessVersion.objects.none(),
        required=False,
        label="Seed harness",
        empty_label="plain: no instructions, no demonstrations",
    )
    engine = forms.ChoiceField(widget=forms.RadioSelect, label="Engine")
    proposers = forms.MultipleChoiceField(
        widget=forms.CheckboxSelectMultiple, label="Who proposes edits"
    )
    operators = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label="Only these offline operators",
        help_text="None ticked: all of them.",
    )
    proposer_model = forms.ModelChoiceField(
        ModelEndpoint.objects.none(),
        required=False,
        label="Model that reflects",
        empty_label="the same model",
        help_text="A stronger one proposes better edits; it never acts.",
    )
    rollouts = forms.IntegerField(
        min_value=1,
        max_value=1_000_000,
        initial=_BUDGET.rollouts,
        label="Rollouts",
        help_text="All phases together: this cap is never passed.",
    )
    certify_pairs = forms.IntegerField(
        min_value=MIN_PAIRS,
        max_value=100_000,
        initial=_SETTINGS.certify_pairs,
        label="Pairs to certify with",
        help_text="Two rollouts each; more pairs show smaller gains.",
        error_messages={
            "min_value": f"{MIN_PAIRS} straight wins are the shortest way to a certificate: allow "
            f"at least {MIN_PAIRS} pairs."
        },
    )
    twin_pairs = forms.IntegerField(
        min_value=0,
        max_value=10_000,
        initial=12,
        label="A/A pairs",
        help_text="The seed against itself: what chance alone gives. 0 leaves it out.",
    )
    test = forms.BooleanField(
        required=False,
        initial=True,
        label="Read the sealed test for the winner, once",
    )
    test_replicates = forms.IntegerField(
        min_value=1, max_value=16, initial=1, label="Attempts at each sealed task"
    )
    alpha = forms.FloatField(
        min_value=0.001,
        max_value=0.5,
        initial=_SETTINGS.alpha,
        label="α",
        help_text="How often a harness that is no better may be certified. 0.05 is one in twenty.",
    )
    max_certificates = forms.IntegerField(
        min_value=1,
        max_value=20,
        initial=1,
        label="Certificates at most",
        help_text="With more than one, α is divided among them.",
    )
    models = forms.ModelMultipleChoiceField(
        ModelEndpoint.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label="Models to choose among",
        help_text="The cheapest that is not inferior wins. None: only the one above.",
    )
    margin = forms.FloatField(
        min_value=0,
        max_value=100 * MAX_MARGIN,
        initial=100 * _SETTINGS.margin,
        label="Points that a cheaper model may be worse by",
    )
    model_rollouts = forms.IntegerField(
        min_value=2,
        max_value=100_000,
        initial=_SETTINGS.model_rollouts,
        required=False,
        label="Rollouts to tell models apart",
        help_text="On train tasks; only where there are models to choose among.",
    )
    model_pairs = forms.IntegerField(
        min_value=MIN_PAIRS,
        max_value=100_000,
        initial=_SETTINGS.model_pairs,
        required=False,
        label="Pairs to test models with",
        help_text="Two rollouts each. A model that ties needs 62 at 10 points, 122 at 5.",
    )
    cost_weight = forms.FloatField(
        min_value=0,
        initial=0,
        label="Points that a US dollar per rollout is worth",
        help_text="λ: a candidate must gain after its price is taken off. 0: price does not count.",
    )
    safety = forms.CharField(
        required=False,
        label="Criteria that must never fail",
        help_text="Ids of criteria of the rubric, with commas between. A harness that fails one in "
        "a single rollout of its certificate is refused, also where the seed failed it.",
    )
    protected = forms.CharField(
        required=False,
        label="Parts that no edit may touch",
        help_text="For instance instructions.md, tools.json; with commas between.",
    )
    concurrency = forms.IntegerField(
        min_value=1, max_value=256, initial=_SETTINGS.concurrency, label="Rollouts at a time"
    )

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = run_choices.of(project.pk)
        fill_choices(
            self,
            {
                "version": (choices.versions, run_choices.version_label),
                "rubric": (choices.rubrics, str),
                "model": (choices.models, run_choices.model_label),
                "harness": (choices.harnesses, run_choices.harness_label),
                "proposer_model": (choices.models, run_choices.model_label),
                "models": (choices.models, run_choices.model_label),
            },
        )
        for name, options, first in (
            ("engine", engine_choices(), _SETTINGS.engine),
            ("proposers", proposer_choices(), list(_SETTINGS.proposers)),
            ("operators", operator_choices(), []),
        ):
            field = self.fields[name]
            assert isinstance(field, forms.ChoiceField)
            field.choices = options
            field.initial = first
        describe_fields(self)

    def settings(self) -> SearchSettings:
        """Of a valid form. Raises ValueError for what only the whole can tell."""
        given = self.cleaned_data
        return SearchSettings(
            engine=given["engine"],
            proposers=tuple(given["proposers"]),
            proposer_settings=(
                {proposers.OFFLINE: {"operators": given["operators"]}} if given["operators"] else {}
            ),
            proposer_model=_pk(given["proposer_model"]),
            protected=_listed(given["protected"]),
            budget=self.budget(given["rollouts"]),
            certify_pairs=given["certify_pairs"],
            max_certificates=given["max_certificates"],
            twin_pairs=given["twin_pairs"],
            alpha=given["alpha"],
            margin=given["margin"] / 100,
            models=tuple(model.pk for model in given["models"]),
            model_rollouts=given["model_rollouts"] or _SETTINGS.model_rollouts,
            model_pairs=given["model_pairs"] or _SETTINGS.model_pairs,
            safety=_listed(given["safety"]),
            cost_weight=given["cost_weight"] / 100,
            test=given["test"],
            test_replicates=given["test_replicates"],
            concurrency=given["concurrency"],
        )

    def asked(self, seed_harness: HarnessVersion) -> SearchForm:
        """Raises ValueError."""
        given = self.cleaned_data
        return SearchForm(
            name=given["name"].strip() or f"{given['version'].environment.name}, search",
            environment_version=given["version"],
            rubric_version=given["rubric"],
            model=given["model"],
            seed_harness=seed_harness,
            settings=self.settings(),
        )


def _pk(row: ModelEndpoint | None) -> int | None:
    return None if row is None else row.pk


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def like(search: Search) -> Mapping[str, Any]:
    """Initial values that repeat a search."""
    settings = SearchSettings.from_json(search.settings)
    budget = settings.budget
    return {
        "name": search.name,
        "version": search.environment_version_id,
        "rubric": search.rubric_version_id,
        "model": search.model_id,
        "harness": search.seed_harness_id,
        "engine": settings.engine,
        "proposers": list(settings.proposers),
        "operators": settings.proposer_settings.get(proposers.OFFLINE, {}).get("operators", []),
        "proposer_model": settings.proposer_model,
        "rollouts": budget.rollouts,
        **caps_of(search),
        "certify_pairs": settings.certify_pairs,
        "max_certificates": settings.max_certificates,
        "twin_pairs": settings.twin_pairs,
        "alpha": settings.alpha,
        "margin": 100 * settings.margin,
        "models": list(settings.models),
        "model_rollouts": settings.model_rollouts,
        "model_pairs": settings.model_pairs,
        "safety": ", ".join(settings.safety),
        "protected": ", ".join(settings.protected),
        "cost_weight": 100 * settings.cost_weight,
        "test": settings.test,
        "test_replicates": settings.test_replicates,
        "concurrency": settings.concurrency,
    }
