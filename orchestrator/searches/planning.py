"""From a search's row to the pure plan that decides what it does next."""

from __future__ import annotations

from optimizer.models import Search
from optimizer.search_plan import SearchPlan
from optimizer.tasks import TaskRef
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
    )


def refs_of(version: EnvironmentVersion) -> dict[Split, tuple[TaskRef, ...]]:
    found: dict[Split, list[TaskRef]] = {split: [] for split in Split}
    for split, key, family in version.tasks.order_by("key").values_list("split", "key", "family"):
        found[Split(split)].append(TaskRef(key, family))
    return {split: tuple(refs) for split, refs in found.items()}
