"""Reads the sides of a comparison and the moves of a trace. A fixed number of queries.

Verdicts and summaries are read, not traces; texts only for the rows that are shown.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Max, Q

from optimizer.models import HarnessVersion
from orchestrator.environments.models import Task
from orchestrator.events.models import Event
from orchestrator.runs.comparison.conditions import Conditions
from orchestrator.runs.comparison.steps import Move
from orchestrator.runs.comparison.table import Fact, Mark
from orchestrator.runs.models import Rollout, Run, VerdictRecord

MAX_SIDES = 8
_TOKEN = re.compile(r"(\d{1,18})(?:\.(\d{1,18}))?\Z")
LEFT_OUT = frozenset(
    {"rollout.started", "told", "waiting", "final_state", "not_sent", "rollout.judging"}
    | {"verdict", "rollout.ended", "rollout.restarted"}
)
"""Kinds that are no move of the agent; what an environment keeps to itself is among them."""


@dataclass(frozen=True)
class Side:
    run: Run
    harness: HarnessVersion | None
    """The one that is looked at, or the run's only one."""
    harnesses: Sequence[HarnessVersion]
    """All that the run had."""
    is_part: bool
    """Only one harness of several."""

    @property
    def token(self) -> str:
        if self.is_part and self.harness is not None:
            return f"{self.run.pk}.{self.harness.pk}"
        return str(self.run.pk)

    @property
    def name(self) -> str:
        if self.is_part and self.harness is not None:
            return f"Run {self.run.pk} {self.harness.short}"
        return f"Run {self.run.pk}"

    def covers(self, harness_id: int) -> bool:
        return not self.is_part or (self.harness is not None and self.harness.pk == harness_id)


def sides_of(project_id: int, tokens: Iterable[str]) -> tuple[list[Side], list[str]]:
    """Sides in the order asked for, each once, and the tokens that name nothing in this project.

    A token is the id of a run, or `run.harness`. Two queries.
    """
    asked: dict[str, tuple[int, int | None]] = {}
    unknown: list[str] = []
    for token in tokens:
        match = _TOKEN.match(token.strip())
        if match:
            asked.setdefault(token.strip(), (int(match[1]), int(match[2]) if match[2] else None))
        elif token.strip():
            unknown.append(token.strip())
    runs = Run.objects.select_related(
        "environment_version__environment", "rubric_version__rubric", "model"
    ).in_bulk([run for run, _ in asked.values()])
    runs = {pk: run for pk, run in runs.items() if run.project_id == project_id}
    harnesses = _harnesses(runs)
    found: list[Side] = []
    for token, (run_id, harness_id) in asked.items():
        run = runs.get(run_id)
        had = harnesses.get(run_id, [])
        chosen = [each for each in had if harness_id in (None, each.pk)]
        if run is None or (harness_id is not None and not chosen):
            unknown.append(token)
            continue
        is_part = harness_id is not None and len(had) > 1
        found.append(Side(run, chosen[0] if len(chosen) == 1 else None, had, is_part))
    return found[:MAX_SIDES], unknown


def _harnesses(run_ids: Iterable[int]) -> dict[int, list[HarnessVersion]]:
    found: dict[int, list[HarnessVersion]] = defaultdict(list)
    pairs = (
        Rollout.objects.filter(run_id__in=list(run_ids))
        .order_by("run_id", "harness_id")
        .values_list("run_id", "harness_id")
        .distinct()
    )
    listed = list(pairs)
    versions = HarnessVersion.objects.in_bulk({harness for _, harness in listed})
    for run_id, harness_id in listed:
        found[run_id].append(versions[harness_id])
    return dict(found)


def facts_of(sides: Sequence[Side], *, family: str = "", split: str = "") -> list[list[Fact]]:
    """One query for all sides."""
    query = Rollout.objects.filter(run_id__in={side.run.pk for side in sides})
    if family:
        query = query.filter(task__family=family)
    if split:
        query = query.filter(task__split=split)
    found: list[list[Fact]] = [[] for _ in sides]
    rows = query.order_by("pk").values_list(
        "run_id",
        "harness_id",
        "pk",
        "task__version__environment_id",
        "task__key",
        "task__family",
        "task__split",
        "replicate",
        "state",
        "score",
        "tokens_in",
        "tokens_out",
        "cost_usd",
        "latency_s",
    )
    for row in rows:
        run_id, harness_id, fact = row[0], row[1], _fact(row[2:])
        for place, side in enumerate(sides):
            if side.run.pk == run_id and side.covers(harness_id):
                found[place].append(fact)
    return found


def _fact(row: tuple[Any, ...]) -> Fact:
    pk, environment, key, family, split, replicate, state, score, *rest = row
    tokens_in, tokens_out, cost_usd, latency_s = rest
    return Fact(
        rollout=pk,
        task=(environment, key),
        family=family,
        split=split,
        replicate=replicate,
        state=state,
        score=score,
        tokens=tokens_in + tokens_out,
        cost_usd=cost_usd,
        latency_s=latency_s,
    )


def marks_of(sides: Sequence[Side]) -> dict[str, dict[int, Mark]]:
    """Criterion -> rollout -> what it said. One query."""
    found: dict[str, dict[int, Mark]] = defaultdict(dict)
    rows = VerdictRecord.objects.filter(
        rollout__run_id__in={side.run.pk for side in sides}, rollout__is_replaced=False
    ).order_by()
    for criterion, rollout, state, value in rows.values_list(
        "criterion", "rollout_id", "state", "value"
    ):
        found[criterion][rollout] = Mark(state, value)
    return dict(found)


def conditions_of(sides: Sequence[Side], facts: Sequence[Sequence[Fact]]) -> list[Conditions]:
    """Two queries, for the judges."""
    judges = judges_of({side.run.pk for side in sides})
    found = []
    for side, own in zip(sides, facts, strict=True):
        run = side.run
        scored = sum(fact.state == "scored" for fact in own)
        errored = sum(fact.state == "errored" for fact in own)
        n = len(side.harnesses)
        found.append(
            Conditions(
                name=side.name,
                environment=str(run.environment_version),
                environment_id=run.environment_version.environment_id,
                rubric=str(run.rubric_version),
                rubric_id=run.rubric_version.rubric_id,
                harness=side.harness.short if side.harness else f"{n} harnesses" if n else "",
                model=run.model.name,
                weights=run.adapter_name or run.model.model,
                judge=judges.get(run.pk, ""),
                sampling=run.sampling,
                seed=run.seed,
                isolation=str(run.isolation.get("mode", "")),
                has_ended=run.has_ended,
                coverage=scored / (scored + errored) if scored + errored else 1.0,
                n_harnesses=1 if side.harness else n,
            )
        )
    return found


def judges_of(run_ids: Iterable[int]) -> dict[int, str]:
    """Names of the models that decided criteria of each run, by its newest verdict of each
    criterion that keeps its calls. Two queries.
    """
    newest = (
        VerdictRecord.objects.filter(rollout__run_id__in=list(run_ids), detail__has_key="calls")
        .order_by()
        .values("rollout__run_id", "criterion")
        .annotate(newest=Max("pk"))
        .values_list("rollout__run_id", "newest")
    )
    run_of = {verdict: run for run, verdict in newest}
    names: dict[int, set[str]] = defaultdict(set)
    for verdict, detail in VerdictRecord.objects.filter(pk__in=run_of).values_list("pk", "detail"):
        for call in detail.get("calls") or ():
            if isinstance(call, dict) and call.get("model"):
                names[run_of[verdict]].add(str(call["model"]))
    return {run: ", ".join(sorted(found)) for run, found in names.items()}


def changed_prompts(sides: Sequence[Side]) -> list[str]:
    """Keys of tasks whose prompt is another one in some version. One query, or none."""
    versions = {side.run.environment_version_id for side in sides}
    if len(versions) < 2:
        return []
    rows = (
        Task.objects.filter(version_id__in=versions)
        .order_by("key")
        .values("version__environment_id", "key")
        .annotate(n=Count("prompt", distinct=True))
        .filter(n__gt=1)
    )
    return [row["key"] for row in rows]


@dataclass(frozen=True)
class RolloutText:
    answer: str
    message: str
    cause: str


def texts_of(rollout_ids: Iterable[int]) -> dict[int, RolloutText]:
    rows = Rollout.objects.filter(pk__in=list(rollout_ids)).values_list(
        "pk", "answer", "message", "cause"
    )
    return {pk: RolloutText(*texts) for pk, *texts in rows}


def prompts_of(rollout_ids: Iterable[int]) -> dict[int, str]:
    """Rollout -> prompt of its task."""
    return dict(Rollout.objects.filter(pk__in=list(rollout_ids)).values_list("pk", "task__prompt"))


def groups_of(sides: Sequence[Side]) -> tuple[list[str], list[str]]:
    """Families and splits of the tasks of the sides' runs."""
    rows = (
        Rollout.objects.filter(run_id__in={side.run.pk for side in sides})
        .order_by()
        .values_list("task__family", "task__split")
        .distinct()
    )
    listed = list(rows)
    return (
        sorted({family for family, _ in listed if family}),
        sorted({split for _, split in listed}),
    )


def runs_to_choose(project_id: int, *, limit: int = 30) -> list[Run]:
    """The newest that have a rollout with a score."""
    return list(
        Run.objects.filter(project_id=project_id)
        .annotate(n_scored=Count("rollouts", filter=Q(rollouts__state="scored")))
        .filter(n_scored__gt=0)
        .select_related("environment_version__environment", "model")
        .order_by("-pk")[:limit]
    )


# --- two rollouts -----------------------------------------------------------------------------


def rollout_in(project_id: int, rollout_id: int) -> Rollout | None:
    return (
        Rollout.everything.select_related(
            "run__environment_version__environment",
            "run__rubric_version__rubric",
            "run__model",
            "run__project",
            "task",
            "harness",
        )
        .prefetch_related("verdicts")
        .filter(run__project_id=project_id, pk=rollout_id)
        .first()
    )


def moves_of(rollout: Rollout) -> list[Move]:
    """What the agent did in its last attempt, and what each action brought. One query."""
    moves: list[Move] = []
    events = Event.objects.filter(stream_id=rollout.stream_id).order_by("seq")
    for seq, kind, payload in events.values_list("seq", "kind", "payload").iterator(1000):
        if kind == "rollout.restarted":
            moves.clear()
        elif kind == "observation" and moves and moves[-1].result_seq is None:
            moves[-1] = _answered(moves[-1], seq, payload)
        elif kind not in LEFT_OUT:
            moves.append(_move(seq, kind, payload))
    return moves


def _move(seq: int, kind: str, payload: Any) -> Move:
    if not isinstance(payload, dict):
        return Move(seq, kind, kind, _text(payload), "")
    if kind == "action":
        tool = str(payload.get("tool") or payload.get("form") or "action")
        if payload.get("tool"):
            call = _text(payload.get("arguments") or {})
        else:
            call = str(payload.get("command") or payload.get("answer") or payload.get("text") or "")
        return Move(seq, f"step {payload.get('step', '')}".strip(), tool, call, "")
    if kind.startswith("skill."):
        return Move(
            seq,
            kind,
            kind,
            "/".join(str(payload[k]) for k in ("name", "file") if payload.get(k)),
            _text(payload.get("content", "")),
        )
    tool = str(payload.get("name") or kind)
    return Move(seq, kind, tool, _text(payload.get("content", payload)), "")


def _answered(move: Move, seq: int, payload: Mapping[str, Any]) -> Move:
    segments = payload.get("segments") or ()
    text = "".join(str(s.get("text", "")) for s in segments if isinstance(s, dict))
    if payload.get("tool_error"):
        text += f"\n{payload['tool_error']}"
    reward = payload.get("reward")
    return Move(
        move.seq,
        move.label,
        move.tool,
        move.call,
        text,
        result_seq=seq,
        reward=float(reward) if isinstance(reward, int | float) else None,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
