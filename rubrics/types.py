"""The words of grading as frozen values: criteria, rubric, transcript, verdict, score.

Everything here can be stored and compared. A verdict or a score that contradicts itself cannot
be constructed: a number exists only in state `scored`, lies in 0 to 1, and a missing number
always has its reason beside it.

Later kinds (judges, sandboxed code, state checks) need no other types: they read `Transcript`
and `Services` and return the same `Verdict`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from rubrics.errors import VerdictInvalid

if TYPE_CHECKING:
    from rubrics.judge.ask import Answer
    from rubrics.judge.question import Question


class State(StrEnum):
    """What is known of a verdict or of a score. No state but `scored` has a number."""

    SCORED = "scored"
    """Decided; the value is 0 to 1."""
    ERRORED = "errored"
    """Could not be decided because something broke; the reason says what."""
    NOT_APPLICABLE = "not_applicable"
    """Does not concern this rollout; leaves the denominator."""
    PENDING = "pending"
    """Not decided yet."""


class Scope(StrEnum):
    """What a criterion looks at."""

    FINAL_ANSWER = "final_answer"
    """The text of the answer."""
    TRAJECTORY = "trajectory"
    """All steps as one."""
    STEP = "step"
    """Each step by itself; the value is the share of steps that satisfy the criterion."""
    ENVIRONMENT_STATE = "environment_state"
    """What the environment reports of its final state."""


class Aggregation(StrEnum):
    """How verdicts become one score."""

    WEIGHTED_MEAN = "weighted_mean"
    """Points by weight, penalties subtracted."""
    ALL_PASS = "all_pass"
    """1 if all that applies is passed, else 0."""
    SEQUENTIAL = "sequential"
    """One after the other: 0 at the first that is not passed, else the value of the last."""


@dataclass(frozen=True)
class Applicability:
    """When a criterion concerns a rollout.

    Everything stated must hold; nothing stated means always.
    """

    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label of the task -> accepted values, for instance family -> (count_lines,)."""
    answered: bool | None = None
    """True: only rollouts that gave an answer; False: only those that gave none."""
    min_steps: int = 0
    """Only rollouts with at least so many steps."""


@dataclass(frozen=True)
class Criterion:
    """One question on a rollout.

    `id` is stable over versions; history and calibration hang on it.
    """

    id: str
    kind: str
    """Key of `rubrics.kinds.KINDS`."""
    name: str = ""
    """What people read; the id where empty."""
    params: Mapping[str, Any] = field(default_factory=dict)
    weight: int = 1
    """1 to 10."""
    required: bool = False
    """Failing it makes the score 0; being unable to decide it makes the score errored."""
    negative: bool = False
    """A value of 1 means that the bad thing happened; it is subtracted."""
    threshold: float = 0.5
    """Passed at or above it; a negative criterion is passed below it."""
    gate: bool = False
    """If it is not passed, the criteria after it are not graded."""
    scope: Scope = Scope.FINAL_ANSWER
    applies: Applicability = field(default_factory=Applicability)
    group: str = ""
    """Id of its group; empty for none."""

    @property
    def label(self) -> str:
        return self.name or self.id


@dataclass(frozen=True)
class Group:
    """Criteria that count as one."""

    id: str
    name: str = ""
    aggregation: Aggregation = Aggregation.WEIGHTED_MEAN
    weight: int = 1
    """1 to 10, of the group as a whole; weights inside it divide its own points."""
    threshold: float = 0.5
    """Passed at or above it."""

    @property
    def label(self) -> str:
        return self.name or self.id


@dataclass(frozen=True)
class RubricSpec:
    """A rubric's content. Equal content has an equal hash (`rubrics.codec.content_hash`)."""

    criteria: tuple[Criterion, ...]
    aggregation: Aggregation = Aggregation.WEIGHTED_MEAN
    pass_threshold: float = 1.0
    """A rollout counts as passed at or above this score."""
    min_coverage: float = 0.5
    """Share of the applicable weight that must be decided; below it the score is errored."""
    groups: tuple[Group, ...] = ()
    """A group stands where its first criterion stands."""


@dataclass(frozen=True)
class Step:
    """One exchange with the environment, as the trace recorded it."""

    index: int
    seq: int
    """Sequence number of its event; what a verdict cites."""
    action: str
    """What the agent said."""
    command: str | None = None
    """The command that was run, where the action was one."""
    answer: str | None = None
    """The answer that was given, where the action was one."""
    output: str = ""
    exit_status: int | None = None
    reward: float | None = None
    done: bool = False
    tool: str | None = None
    """The tool that was called, where the action was a call."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What it was called with."""
    tool_error: str = ""
    """What the tool said went wrong."""


@dataclass(frozen=True)
class Transcript:
    """What grading may see of a finished rollout."""

    steps: tuple[Step, ...] = ()
    answer: str | None = None
    """The final answer; None when the agent gave none."""
    expected: str | None = None
    """The task's reference answer, where it has one."""
    reward: float | None = None
    """What the environment gave; None when it gave nothing."""
    task: str = ""
    """The task as the agent read it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What is known of the task, for instance its family."""
    wall_s: float | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    components: Mapping[str, float | None] = field(default_factory=dict)
    """Scores that the environment reports under a name, for instance of its own rubric."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What the environment reports of its final state; never shown to the agent.

    `files`: path -> {"size", "sha256", "text" or null}; `tables`: name -> {"columns", "rows"}.
    """

    @property
    def n_steps(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Verdict:
    """What one criterion says of one rollout.

    Raises VerdictInvalid for a contradiction in itself.
    """

    criterion: str
    state: State
    value: float | None = None
    reason: str = ""
    cites: tuple[int, ...] = ()
    """Sequence numbers of the events that it rests on."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What it rests on beside the trace: judge calls, members of a panel, printed output."""

    def __post_init__(self) -> None:
        _check_value(f"verdict of {self.criterion}", self.state, self.value)
        if self.state in (State.ERRORED, State.NOT_APPLICABLE) and not self.reason.strip():
            raise VerdictInvalid(f"verdict of {self.criterion}: {self.state} needs a reason")

    @classmethod
    def scored(
        cls,
        criterion: Criterion,
        value: float,
        reason: str,
        cites: tuple[int, ...] = (),
        detail: Mapping[str, Any] | None = None,
    ) -> Verdict:
        return cls(criterion.id, State.SCORED, float(value), reason, cites, detail or {})

    @classmethod
    def errored(
        cls, criterion: Criterion, reason: str, detail: Mapping[str, Any] | None = None
    ) -> Verdict:
        return cls(criterion.id, State.ERRORED, None, reason, (), detail or {})

    @classmethod
    def not_applicable(
        cls, criterion: Criterion, reason: str, detail: Mapping[str, Any] | None = None
    ) -> Verdict:
        return cls(criterion.id, State.NOT_APPLICABLE, None, reason, (), detail or {})


@dataclass(frozen=True)
class Score:
    """One rollout's result with the counts behind it."""

    state: State
    value: float | None = None
    reason: str = ""
    n_scored: int = 0
    n_errored: int = 0
    n_not_applicable: int = 0
    n_pending: int = 0
    failed_required: tuple[str, ...] = ()
    """Ids of the required criteria that were not passed; not empty means a score of 0."""

    def __post_init__(self) -> None:
        _check_value("score", self.state, self.value)


@dataclass(frozen=True)
class CodeRequest:
    """An author's function to be run on a transcript, apart from everything else."""

    source: str
    """Python text that defines the function."""
    function: str
    trace: Mapping[str, Any]
    """JSON, what the function gets."""


@dataclass(frozen=True)
class CodeResult:
    value: Any
    """JSON, what the function returned."""
    printed: str = ""


class Services(Protocol):
    """What a kind may ask for from outside. The caller bounds every call in time and money."""

    @property
    def frame_secret(self) -> bytes:
        """Of the installation; the frames of judged data hang on it."""

    def judge(self, question: Question) -> Awaitable[Answer]:
        """The judge's verdict. Raises CriterionFailed where the endpoint gives none."""

    def run_code(self, request: CodeRequest) -> Awaitable[CodeResult]:
        """User code in the sandbox. Raises CriterionFailed with what ended it."""


def _check_value(what: str, state: State, value: float | None) -> None:
    if state is not State.SCORED:
        if value is not None:
            raise VerdictInvalid(f"{what}: state {state} has no value, got {value!r}")
        return
    if value is None or not math.isfinite(value) or not 0.0 <= value <= 1.0:
        raise VerdictInvalid(f"{what}: a value must be a number from 0 to 1, got {value!r}")
