"""What a list can be asked for: the fields of rollouts and of runs, with words about each.

A field says where its value stands and what kind it has; `compiling` knows what each kind can be
compared with. What an environment keeps to itself (a task's spec and reference) is no field: a
filter must not become an oracle for the answers of a sealed test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.db.models import F
from django.db.models.functions import Coalesce

from orchestrator.environments.models import EnvironmentKind, Split
from orchestrator.runs.models import Purpose, RolloutState, RunState

Kind = Literal["number", "text", "choice", "time", "hash", "id"]
OPERATORS_OF: Mapping[str, Sequence[str]] = {
    "number": ("=", "!=", "<", "<=", ">", ">=", "in", "not in", "empty", "not empty"),
    "id": ("=", "!=", "<", "<=", ">", ">=", "in", "not in"),
    "text": ("=", "!=", "~", "!~", "in", "not in", "empty", "not empty"),
    "choice": ("=", "!=", "in", "not in"),
    "time": ("=", "!=", "<", "<=", ">", ">=", "empty", "not empty"),
    "hash": ("=", "!=", "in", "not in"),
}


@dataclass(frozen=True)
class Field:
    name: str
    kind: Kind
    place: Any
    """A path of the ORM, or an expression."""
    about: str
    choices: tuple[tuple[str, str], ...] = ()
    """(value, words) of a choice."""


@dataclass(frozen=True)
class Nested:
    """A place in JSON: `sampling.temperature`."""

    name: str
    place: str
    """Path of the ORM to the JSON column."""
    about: str


@dataclass(frozen=True)
class Schema:
    fields: Mapping[str, Field]
    nested: Mapping[str, Nested]
    is_of_runs: bool = False
    """Words are looked for in the traces of their rollouts, and they have no verdicts."""


def _choices(choices: Any) -> tuple[tuple[str, str], ...]:
    return tuple((str(value), str(label)) for value, label in choices)


def _named(*fields: Field) -> dict[str, Field]:
    return {field.name: field for field in fields}


_SPLITS = _choices(Split.choices)
_PURPOSES = _choices(Purpose.choices)

ROLLOUTS = Schema(
    fields=_named(
        Field("score", "number", "score", "0 to 1; empty unless scored"),
        Field("state", "choice", "state", "of the rollout", _choices(RolloutState.choices)),
        Field("task", "text", "task__key", "key of the task"),
        Field("family", "text", "task__family", "the task's group"),
        Field("split", "choice", "task__split", "train, select or test", _SPLITS),
        Field("difficulty", "number", "task__difficulty", "by the task's author"),
        Field("run", "id", "run_id", "number of the run"),
        Field("label", "text", "run__label", "the run's label"),
        Field("purpose", "choice", "run__purpose", "what the run was for", _PURPOSES),
        Field("harness", "hash", "harness__sha256", "as h_… or the first digits of its hash"),
        Field("model", "text", "run__model__name", "name of the endpoint"),
        Field("weights", "text", "weight_version", "version that sampled; empty for the base"),
        Field(
            "environment",
            "text",
            "run__environment_version__environment__slug",
            "as in the environment's address",
        ),
        Field("rubric", "text", "run__rubric_version__rubric__name", "name of the rubric"),
        Field("reward", "number", "reward", "what the environment itself gave"),
        Field("answer", "text", "answer", "what the agent answered"),
        Field("cause", "text", "cause", "short reason of an error"),
        Field("reason", "text", "message", "why there is no score"),
        Field("steps", "number", "n_steps", "actions that were answered"),
        Field("tokens", "number", F("tokens_in") + F("tokens_out"), "in and out"),
        Field("tokens_in", "number", "tokens_in", "read by the model"),
        Field("tokens_out", "number", "tokens_out", "written by the model"),
        Field("cost", "number", "cost_usd", "in US dollars"),
        Field("latency", "number", "latency_s", "wall time in seconds"),
        Field("events", "number", "stream__last_seq", "length of the trace"),
        Field("replicate", "number", "replicate", "0 for the first"),
        Field("attempt", "number", "attempt", "above 1 after a lost worker"),
        Field("seed", "number", "seed", "of the rollout"),
        Field("started", "time", "started_at", "a date, or ago: 2h, 7d"),
        Field("ended", "time", "ended_at", "a date, or ago: 2h, 7d"),
        Field("id", "id", "id", "number of the rollout"),
    ),
    nested={
        "sampling": Nested("sampling", "run__sampling", "the run's sampling parameters"),
        "limits": Nested("limits", "task__limits", "the task's limits"),
        "isolation": Nested("isolation", "run__isolation", "what kept the agent apart"),
    },
)

RUNS = Schema(
    fields=_named(
        Field("state", "choice", "state", "of the run", _choices(RunState.choices)),
        Field("purpose", "choice", "purpose", "what it was for", _PURPOSES),
        Field("label", "text", "label", "its name, if it has one"),
        Field("score", "number", F("mean_score"), "mean of the scored rollouts"),
        Field("scored", "number", Coalesce(F("n_scored"), 0), "rollouts with a score"),
        Field("errored", "number", Coalesce(F("n_errored"), 0), "rollouts without one, by error"),
        Field("rollouts", "number", Coalesce(F("n_rollouts"), 0), "planned"),
        Field("cost", "number", Coalesce(F("sum_cost"), 0.0), "in US dollars, of all rollouts"),
        Field("environment", "text", "environment_version__environment__slug", "its address"),
        Field(
            "kind",
            "choice",
            "environment_version__environment__kind",
            "of environment",
            _choices(EnvironmentKind.choices),
        ),
        Field("version", "number", "environment_version__number", "of the environment"),
        Field("rubric", "text", "rubric_version__rubric__name", "name of the rubric"),
        Field("model", "text", "model__name", "name of the endpoint"),
        Field("adapter", "text", "adapter_name", "trained weights; empty for the base"),
        Field("error", "text", "error", "why it ended early"),
        Field("started", "time", "started_at", "a date, or ago: 2h, 7d"),
        Field("ended", "time", "ended_at", "a date, or ago: 2h, 7d"),
        Field("id", "id", "id", "number of the run"),
    ),
    nested={
        "sampling": Nested("sampling", "sampling", "sampling parameters"),
        "isolation": Nested("isolation", "isolation", "what kept agents apart"),
    },
    is_of_runs=True,
)
