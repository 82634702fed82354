"""The back-test of a draft, and what a re-grade has found beside what runs had said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.environments.models import Split
from orchestrator.grading import kept
from orchestrator.grading.comparison import Comparison, Pair, Side, compare
from orchestrator.grading.models import Regrade, RegradedScore, RegradePurpose, RubricDraft
from orchestrator.grading.regrade import start
from orchestrator.grading.selecting import BACKTEST_ROLLOUTS, Selection, chosen_ids, in_words
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.runs.models import Rollout, VerdictRecord
from rubrics.codec import from_json
from rubrics.types import RubricSpec

MAX_BACKTEST = 5_000


def start_backtest(
    *,
    actor: User,
    draft: RubricDraft,
    chosen: Selection | None = None,
    limit: int = BACKTEST_ROLLOUTS,
) -> Regrade:
    """Grades the newest `limit` chosen rollouts by the draft as it is stored now.

    Without a choice: those that this rubric has graded. Only criteria whose content is not that of
    the run's version are graded; the others keep their verdicts, errors too, so that whatever
    changes comes from the edit. Raises RegradeRefused.
    """
    rubric = draft.rubric
    require(actor, rubric.project_id, Role.EDITOR)
    chosen = chosen or Selection(rubric_id=rubric.pk)
    ids = chosen_ids(rubric.project_id, chosen, max(1, min(limit, MAX_BACKTEST)))
    return start(
        actor=actor,
        rubric=rubric,
        version=None,
        spec=draft.spec,
        purpose=RegradePurpose.BACKTEST,
        ids=ids,
        selection={
            "text": in_words(rubric.project_id, chosen, len(ids)),
            "chosen": chosen.as_json(),
            "keep": "all",
            "revision": draft.revision,
        },
    )


def comparison_of(regrade: Regrade, limit: int | None = None) -> Comparison:
    """Of the rollouts that are graded so far, at most `limit` of them, in four queries."""
    after_spec = from_json(regrade.spec)
    rows = list(regrade.scores.order_by("rollout_id")[:limit])
    rollouts = {
        rollout.pk: rollout
        for rollout in Rollout.everything.filter(regraded__regrade=regrade)
        .select_related("task", "run__rubric_version__rubric")
        .defer("task__spec", "task__prompt")
    }
    stored: dict[int, list[Mapping[str, Any]]] = {}
    verdicts = VerdictRecord.objects.filter(rollout__regraded__regrade=regrade)
    for verdict in verdicts.values("rollout_id", "criterion", "name", "state", "value", "reason"):
        stored.setdefault(verdict["rollout_id"], []).append(verdict)
    specs = _Specs()
    rows = [row for row in rows if row.rollout_id in rollouts]  # one may come in between
    pairs = [_pair(row, rollouts[row.rollout_id], stored, after_spec, specs) for row in rows]
    names = {v["criterion"]: v["name"] for verdicts in stored.values() for v in verdicts}
    ordered = {c.id: c.label for c in after_spec.criteria}
    befores = list(specs.by_version.values())
    same = [kept.unchanged(before, after_spec) for before in befores]
    return compare(
        pairs,
        {**ordered, **{id: name for id, name in names.items() if id not in ordered}},
        frozenset.intersection(*same) if same else frozenset(),
    )


class _Specs:
    """Rubric versions of runs, each read once."""

    def __init__(self) -> None:
        self.by_version: dict[int, RubricSpec] = {}

    def of(self, rollout: Rollout) -> RubricSpec:
        version = rollout.run.rubric_version
        if version.pk not in self.by_version:
            self.by_version[version.pk] = from_json(version.spec)
        return self.by_version[version.pk]


def _pair(
    row: RegradedScore,
    rollout: Rollout,
    stored: Mapping[int, Sequence[Mapping[str, Any]]],
    after: RubricSpec,
    specs: _Specs,
) -> Pair:
    before = specs.of(rollout)
    return Pair(
        rollout_id=rollout.pk,
        task=rollout.task.key,
        replicate=rollout.replicate,
        is_sealed=rollout.task.split == Split.TEST,
        before=_side(
            rollout.state, rollout.score, before.pass_threshold, stored.get(rollout.pk, ())
        ),
        after=_side(row.state, row.score, after.pass_threshold, row.verdicts),
        graded_by=str(rollout.run.rubric_version),
    )


def _side(
    state: str, score: float | None, passes_at: float, verdicts: Sequence[Mapping[str, Any]]
) -> Side:
    return Side(
        state=state,
        score=score,
        passes_at=passes_at,
        values={v["criterion"]: v["value"] for v in verdicts},
        states={v["criterion"]: v["state"] for v in verdicts},
        reasons={v["criterion"]: v["reason"] for v in verdicts},
    )
