"""A rollout under attack, and the changes that attacks are made of.

What the environment gave belongs to what the agent did. A changed answer keeps the reward of a
failed rollout; made of a successful one it gets what the rubric calls the lowest reward, since an
environment that is fooled too is the business of the environment's own checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rubrics.redteam.wrong import Change, changed_everywhere
from rubrics.types import RubricSpec, Step, Transcript

MAX_ECHO_CHARS = 6_000


@dataclass(frozen=True)
class Case:
    """What an attack is made of."""

    transcript: Transcript
    spec: RubricSpec
    is_success: bool = False
    """Whether the rubric passed it."""

    @property
    def reference(self) -> str | None:
        """What a right answer says: the task's own, else that of a rollout that passed."""
        if self.transcript.expected is not None:
            return self.transcript.expected
        return self.transcript.answer if self.is_success else None


def with_answer(transcript: Transcript, answer: str | None) -> Transcript:
    """The same rollout with another final answer, also where its last step gives it."""
    steps = list(transcript.steps)
    at = next((i for i in range(len(steps) - 1, -1, -1) if steps[i].answer is not None), None)
    if at is not None:
        old = steps[at]
        if answer is None:
            steps[at] = replace(old, answer=None, action="")
        else:
            said = old.action.replace(old.answer, answer) if old.answer else f"answer: {answer}"
            steps[at] = replace(old, answer=answer, action=said)
    return replace(transcript, answer=answer, steps=tuple(steps))


def unpaid(transcript: Transcript, spec: RubricSpec) -> Transcript:
    """As if the environment had given nothing for it."""
    return replace(
        transcript,
        reward=None if transcript.reward is None else lowest_reward(spec),
        components={
            name: None if value is None else 0.0 for name, value in transcript.components.items()
        },
    )


def lowest_reward(spec: RubricSpec) -> float:
    lows = [
        float(c.params.get("low", 0.0)) for c in spec.criteria if c.kind == "environment_reward"
    ]
    return max(lows, default=0.0)


def with_wrong_fact(case: Case, change: Change) -> Transcript | None:
    """The right answer but for one fact, in the answer and in what was left in the environment."""
    reference = case.reference
    wrong = change(reference) if reference is not None else None
    if wrong is None:
        return None
    paid = unpaid(with_answer(case.transcript, wrong), case.spec)
    return replace(paid, state=changed_everywhere(paid.state, change))


def gave_up(case: Case) -> Transcript:
    """An honest failure on the same task: one look, then no answer worth the name."""
    first = case.transcript.steps[:1]
    steps = tuple(s for s in first if s.answer is None)
    idle = replace(case.transcript, steps=steps, answer="I could not find out.", state={})
    return unpaid(idle, case.spec)


def with_observation(transcript: Transcript, text: str) -> Transcript | None:
    """Planted in the last thing that the agent was shown; None without steps."""
    if not transcript.steps:
        return None
    last = transcript.steps[-1]
    step = replace(last, output=f"{last.output}\n{text}".strip())
    return replace(transcript, steps=(*transcript.steps[:-1], step))


def with_remark(transcript: Transcript, text: str) -> Transcript | None:
    """Planted in what the agent said on its way; None without steps."""
    if not transcript.steps:
        return None
    first = transcript.steps[0]
    step = replace(first, action=f"{first.action}\n{text}".strip())
    return replace(transcript, steps=(step, *transcript.steps[1:]))


def appended(transcript: Transcript, text: str, joint: str = "\n\n") -> Transcript:
    return with_answer(transcript, f"{transcript.answer or ''}{joint}{text}".strip())


def with_steps(transcript: Transcript, steps: Sequence[Step]) -> Transcript:
    """Numbered as if they had happened in this order."""
    if not steps:
        return replace(transcript, steps=())
    first = min(step.seq for step in steps)
    return replace(
        transcript,
        steps=tuple(
            replace(step, index=index, seq=first + 2 * index) for index, step in enumerate(steps)
        ),
    )


def words_of(spec: RubricSpec) -> str:
    """Everything that the rubric says, as an agent would recite it."""
    lines = []
    for criterion in spec.criteria:
        texts = [t for t in _texts(dict(criterion.params)) if t not in ("binary", "scale")]
        lines.append(f"{criterion.label}: {'; '.join(texts)}" if texts else criterion.label)
    return "\n".join(lines)[:MAX_ECHO_CHARS]


def keywords_of(spec: RubricSpec) -> str | None:
    """What criteria look for in texts, and nothing else."""
    names = ("texts", "expected", "equals", "contains", "pattern", "patterns", "value")
    found = [
        text
        for criterion in spec.criteria
        if not criterion.negative
        for name in names
        for text in _texts(criterion.params.get(name))
    ]
    return " ".join(dict.fromkeys(found))[:MAX_ECHO_CHARS] or None


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value.strip() else []
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [f"{value:g}"]
    if isinstance(value, dict):
        return [text for held in value.values() for text in _texts(held)]
    if isinstance(value, list | tuple):
        return [text for held in value for text in _texts(held)]
    return []
