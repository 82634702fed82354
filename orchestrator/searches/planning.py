"""From a search's row to the pure plan that decides what it does next."""

from __future__ import annotations

import json

from optimizer.edits import Edit, Op
from optimizer.harness import CONFIG
from optimizer.models import Search
from optimizer.search_plan import SearchPlan
from optimizer.tasks import TaskRef
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion, Split
from orchestrator.searches.settings import SearchSettings, shares_of


def plan_of(search: Search, settings: SearchSettings) -> SearchPlan:
    """Raises SearchInvalid."""
    assert search.environment_version is not None
    return make_plan(search.environment_version, settings, seed=search.seed)


def make_plan(version: EnvironmentVersion, settings: SearchSettings, *, seed: int) -> SearchPlan:
    """Raises SearchInvalid."""
    refs = refs_of(version)
    shares = shares_of(settings, test_tasks=len(refs[Split.TEST]))
    return SearchPlan(
        train=refs[Split.TRAIN],
        select=refs[Split.SELECT],
        search_rollouts=shares.engine(settings),
        certify_pairs=settings.certify_pairs,
        engine=settings.engine,
        engine_settings=settings.engine_settings,
        seed=seed,
        twin_pairs=settings.twin_pairs,
        certify_batch=settings.certify_batch,
        alpha=settings.alpha,
        max_certificates=settings.max_certificates,
        safety=settings.safety,
        models=model_edits(settings),
        model_margin=settings.margin,
        model_rollouts=settings.model_rollouts,
        model_pairs=settings.model_pairs,
        cost_weight=settings.cost_weight,
    )


def model_edits(settings: SearchSettings) -> tuple[Edit, ...]:
    """One for each model to choose among, in the order of the settings."""
    names = dict(ModelEndpoint.objects.filter(pk__in=settings.models).values_list("pk", "name"))
    return tuple(
        Edit(Op.SET, CONFIG, anchor="model", content=json.dumps(names[pk]), operator="models")
        for pk in settings.models
        if pk in names
    )


def refs_of(version: EnvironmentVersion) -> dict[Split, tuple[TaskRef, ...]]:
    found: dict[Split, list[TaskRef]] = {split: [] for split in Split}
    for split, key, family in version.tasks.order_by("key").values_list("split", "key", "family"):
        found[Split(split)].append(TaskRef(key, family))
    return {split: tuple(refs) for split, refs in found.items()}
