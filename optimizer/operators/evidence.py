"""What operators look at. Evidence comes from the train split alone.

Everything is optional but the task and what was said: an author's transcript has no score, an
environment may have no errors to tell, and a rubric may be none of the agent's business. Where its
evidence is missing an operator proposes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimizer.edits import Edit
from optimizer.harness import Message

SUCCESS = 0.9
"""Score from which an attempt counts as passed; rubrics take a point off for a step too many."""


@dataclass(frozen=True)
class Step:
    """One action of the agent and what it brought."""

    action: str
    """As the agent wrote it."""
    output: str = ""
    """As the agent read it; empty after the last action."""
    tool: str = ""
    """Name of the function that was called; empty for a text action."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of the call."""
    error: str = ""
    """What went wrong with it, in the environment's words; empty where nothing did."""
    event: int = 0
    """Number of what it brought in the rollout's log; 0 where there is none."""


@dataclass(frozen=True)
class Judgement:
    """What one criterion said of an attempt."""

    criterion: str
    """Id of the criterion."""
    value: float | None
    """0 to 1; None where it was not scored."""
    reason: str = ""
    is_passed: bool | None = None
    """By the criterion's own threshold and sign; None where it was not scored."""
    name: str = ""
    cites: Sequence[int] = ()
    """Events that it rests on."""


@dataclass(frozen=True)
class Trace:
    """An attempt at a task as the model would see it: the author's, or the agent's own."""

    task: str
    """Key of the task."""
    messages: Sequence[Message]
    """From the task's text (`user`) to the last action (`assistant`)."""
    stratum: str = ""
    """For instance the task's family."""
    score: float | None = None
    """None for a reference transcript and for attempts without a score."""
    steps: Sequence[Step] = ()
    """The actions one by one; see `moves` for traces that come without."""
    judgements: Sequence[Judgement] = ()
    error: str = ""
    """Why it ended without a score."""
    answer: str | None = None
    """The final answer, where the environment knows one."""
    cost_usd: float = 0.0
    tokens: int = 0
    """In and out."""
    latency_s: float | None = None
    source: str = ""
    """Where it can be looked up, for instance `rollout 17`."""
    skills_loaded: Sequence[str] = ()

    @property
    def size_chars(self) -> int:
        return sum(len(message["content"]) for message in self.messages)

    @property
    def moves(self) -> Sequence[Step]:
        """The steps, or else what the messages show of them."""
        if self.steps:
            return self.steps
        said = [m["content"] for m in self.messages[1:]]
        roles = [m["role"] for m in self.messages[1:]]
        return [
            Step(text, said[i + 1] if i + 1 < len(said) and roles[i + 1] != "assistant" else "")
            for i, text in enumerate(said)
            if roles[i] == "assistant"
        ]

    def has_passed(self, at_least: float = SUCCESS) -> bool:
        return self.score is not None and self.score >= at_least

    def has_failed(self, at_least: float = SUCCESS) -> bool:
        """It has a score, and it is too low; without a score nothing is known."""
        return self.score is not None and self.score < at_least


@dataclass(frozen=True)
class PublicCriterion:
    """A criterion whose text the agent may know. Others are not to be handed to an operator."""

    id: str
    text: str
    """What it asks for, in words that were written for the agent's ears too."""
    weight: float = 1.0
    is_negative: bool = False
    """The text says what must not happen."""


@dataclass(frozen=True)
class Evidence:
    """All that is known when edits are proposed."""

    references: Sequence[Trace] = ()
    """The authors' transcripts of train tasks."""
    attempts: Sequence[Trace] = ()
    """What agents did on train tasks, the seed's first."""
    criteria: Sequence[PublicCriterion] = ()
    action_format: str = ""
    """What one action looks like, in the environment's words; empty leaves it to the operator."""
    candidates: Sequence[Sequence[Edit]] = ()
    """Sets of edits of the seed that are worth crossing, best first."""
    success: float = SUCCESS

    @property
    def passed(self) -> list[Trace]:
        return [trace for trace in self.attempts if trace.has_passed(self.success)]

    @property
    def failed(self) -> list[Trace]:
        return [trace for trace in self.attempts if trace.has_failed(self.success)]


def distinct_tasks(traces: Iterable[Trace]) -> tuple[str, ...]:
    """Keys of the tasks behind traces, sorted; support counts these and never attempts."""
    return tuple(sorted({trace.task for trace in traces}))
