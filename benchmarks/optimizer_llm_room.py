"""The project in which `optimizer_llm` lets engines search. Needs Django set up and a stack."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from django.conf import settings
from django.db.models import Sum

from benchmarks.optimizer_llm import CERTIFY_SHARE, POLL_S, Ended
from optimizer.harness import load_folder
from optimizer.models import HarnessVersion, Search, SearchState
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.climbs.demo import EXAMPLE, RUBRIC, TASK_SEED, new_tasks
from orchestrator.environments.models import (
    Environment,
    EnvironmentKind,
    EnvironmentVersion,
    Split,
)
from orchestrator.environments.services import create_version
from orchestrator.environments.terminal.tasks import generate
from orchestrator.projects.models import Project, User
from orchestrator.projects.services import create_first_admin, create_project
from orchestrator.runs.models import Purpose, Rollout, Run
from orchestrator.runs.seeds import derive_seed
from orchestrator.runs.services import PlannedRollout, RunSpec, create_run, start_run
from orchestrator.searches.services import SearchForm, start_search
from orchestrator.searches.settings import MIN_PAIRS, BudgetSettings, SearchSettings
from rubrics.models import Rubric, RubricVersion
from rubrics.versions import create_rubric_version

WORKING = (SearchState.QUEUED, SearchState.RUNNING)


@dataclass(frozen=True)
class Sealed:
    """Mean scores on the sealed tasks, by harness."""

    seed_harness: int
    means: dict[int, float | None]

    def score(self, harness: int | None) -> float | None:
        """Of the seed without a harness; None where no rollout has a score."""
        return self.means[self.seed_harness if harness is None else harness]

    def gain(self, harness: int) -> float | None:
        ours, base = self.score(harness), self.score(None)
        return None if ours is None or base is None else ours - base


@dataclass(frozen=True)
class Room:
    actor: User
    project: Project
    version: EnvironmentVersion
    rubric: RubricVersion
    model: ModelEndpoint
    seed_harness: HarnessVersion

    @classmethod
    def made(cls, *, train: int, select: int, test: int) -> Room:
        actor = create_first_admin(username="bench").user
        project = create_project(actor=actor, name="Bench")
        environment = Environment.objects.create(
            project=project,
            slug="terminal-files",
            name="Terminal files",
            kind=EnvironmentKind.TERMINAL,
        )
        counts = {"train": train, "select": select, "test": test}
        version = create_version(
            environment=environment,
            source={"generator": "terminal-files", "seed": TASK_SEED, **counts},
            tasks=new_tasks(generate(TASK_SEED, counts)),
        )
        rubric = Rubric.objects.create(project=project, name="answer-and-steps")
        model = ModelEndpoint.objects.create(
            project=project, name="bundled", kind=EndpointKind.LOCAL, model=settings.MODEL_NAME
        )
        harness = load_folder(settings.BASE_DIR / EXAMPLE / "harness")
        return cls(
            actor=actor,
            project=project,
            version=version,
            rubric=create_rubric_version(rubric=rubric, spec=RUBRIC),
            model=model,
            seed_harness=store_harness(project_id=project.pk, harness=harness, label="seed"),
        )

    def search(self, name: str, engine: str, seed: int, rollouts: int, limit_s: float) -> Ended:
        """Runs a search to its end. Raises RuntimeError if it takes longer than the limit."""
        pairs = max(MIN_PAIRS, int(CERTIFY_SHARE * rollouts) // 2)
        form = SearchForm(
            name=f"{name} {seed}",
            environment_version=self.version,
            rubric_version=self.rubric,
            model=self.model,
            seed_harness=self.seed_harness,
            settings=SearchSettings(
                engine=engine,
                budget=BudgetSettings(rollouts=rollouts),
                certify_pairs=pairs if name == "ours" else MIN_PAIRS,
                test=False,
            ),
        )
        began = time.monotonic()
        search = start_search(actor=self.actor, project=self.project, form=form, seed=seed)

        def has_ended() -> bool:
            search.refresh_from_db()
            return search.state not in WORKING

        _wait(has_ended, limit_s, f"{search}")
        wall_s = time.monotonic() - began
        rollouts, tokens = spent(search)
        return Ended(
            engine=name,
            search=search.pk,
            rollouts=rollouts,
            tokens=tokens,
            wall_s=wall_s,
            state=f"{search.state}{': ' + search.error if search.error else ''}",
            **self._claims(search, name),
        )

    def _claims(self, search: Search, name: str) -> dict[str, Any]:
        outcome = search.outcome
        seed = self.seed_harness.pk
        if not outcome:
            return {
                "harness": seed,
                "claimed_gain": 0.0,
                "claimed_score": None,
                "claims_improved": False,
            }
        if name == "ours":
            return {
                "harness": outcome["shipped"],
                "claimed_gain": outcome["claimed"],
                "claimed_score": _certified_score(search),
                "claims_improved": outcome["is_promotable"],
            }
        # gepa's own best: what it would have printed, whatever our certificate says of it.
        best = {row.harness_id: row.estimate for row in search.candidates.all()}
        mine, base = best.get(outcome["winner"]), best.get(seed)
        gain = mine - base if mine is not None and base is not None else 0.0
        return {
            "harness": outcome["winner"],
            "claimed_gain": gain,
            "claimed_score": mine,
            "claims_improved": gain > 0,
        }

    def sealed(self, harnesses: Sequence[int], seed: int, limit_s: float) -> Sealed:
        """All of them and the seed harness on every sealed task, under the same seeds."""
        sides = list(dict.fromkeys([self.seed_harness.pk, *harnesses]))
        tasks = self.version.tasks.filter(split=Split.TEST).order_by("key")
        run = create_run(
            spec=RunSpec(
                project=self.project,
                purpose=Purpose.EVALUATE,
                label=f"Sealed tasks, seed {seed}",
                environment_version=self.version,
                rubric_version=self.rubric,
                model=self.model,
                seed=derive_seed("sealed", seed),
            ),
            plan=[PlannedRollout(side, task) for task in tasks for side in sides],
        )
        start_run(run=run)
        _wait(lambda: Run.objects.get(pk=run.pk).has_ended, limit_s, "the sealed run")
        scores: dict[int, list[float]] = {side: [] for side in sides}
        for side, score in run.rollouts.values_list("harness", "score"):
            if score is not None:
                scores[side].append(score)
        means = {side: fmean(own) if own else None for side, own in scores.items()}
        return Sealed(self.seed_harness.pk, means)


def spent(search: Search) -> tuple[int, int]:
    """Rollouts of all phases, repeats included, and tokens in and out."""
    own = Rollout.everything.filter(run__search_run__search=search)
    tokens = own.aggregate(read=Sum("tokens_in"), written=Sum("tokens_out"))
    return own.count(), (tokens["read"] or 0) + (tokens["written"] or 0)


def _certified_score(search: Search) -> float | None:
    """Mean of the candidate's side of the certificate's pairs."""
    certificate = search.comparisons.filter(method="e_process").order_by("-id").first()
    if certificate is None:
        return None
    scores = [
        candidate for _, _, candidate in certificate.details["pairs"] if candidate is not None
    ]
    return fmean(scores) if scores else None


def _wait(is_done: Callable[[], bool], limit_s: float, what: str) -> None:
    ends = time.monotonic() + limit_s
    while not is_done():
        if time.monotonic() > ends:
            raise RuntimeError(f"{what} has not ended after {limit_s:.0f} s; allow more by --limit")
        time.sleep(POLL_S)
