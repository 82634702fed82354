"""What a judge sees of a rollout, as JSON. Never more than its criterion names.

Long traces lose steps from their middle, long texts theirs from the end; both say so in the data.
The environment's metadata is never in it, its final state only where the criterion looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rubrics.types import Scope, Step, Transcript

TEXT_CHARS = 8_000
"""Of one text."""
STEPS_CHARS = 60_000
"""Of all steps together."""
PARTS = ("task", "steps", "answer", "expected")
DEFAULT_PARTS = ("task", "steps", "answer")


def view_of(
    transcript: Transcript, parts: Sequence[str], scope: Scope, room: int = STEPS_CHARS
) -> dict[str, Any]:
    """`parts`: of PARTS; the final state is added for its scope. `room`: for its steps."""
    shown: dict[str, Any] = {}
    if "task" in parts:
        shown["task"] = _cut(transcript.task)
    if "expected" in parts:
        shown["reference_answer"] = _cut(transcript.expected or "(none)")
    if "steps" in parts:
        shown["steps"] = steps_of(transcript.steps, room)
    if "answer" in parts:
        shown["final_answer"] = None if transcript.answer is None else _cut(transcript.answer)
    if scope is Scope.ENVIRONMENT_STATE:
        shown["final_state"] = transcript.state
    return shown


def steps_of(steps: Sequence[Step], room: int = STEPS_CHARS) -> list[dict[str, Any]]:
    """All steps, or as many from both ends as fit, with the number left out between them."""
    shown = [step_of(step) for step in steps]
    sizes = [sum(len(str(value)) for value in step.values()) for step in shown]
    if sum(sizes) <= room:
        return shown
    first = last = 0
    spent = 0
    while first + last < len(shown):
        place = first if first <= last else len(shown) - 1 - last
        spent += sizes[place]
        if spent > room and first:
            break
        first, last = (first + 1, last) if first <= last else (first, last + 1)
    left_out = len(shown) - first - last
    note = [{"left_out": f"{left_out} steps, for want of room"}] if left_out else []
    return [*shown[:first], *note, *(shown[-last:] if last else [])]


def step_of(step: Step) -> dict[str, Any]:
    shown: dict[str, Any] = {"event": f"E{step.seq}", "said": _cut(step.action)}
    if step.tool is not None:
        shown["tool"] = {"name": step.tool, "arguments": _cut_values(step.arguments)}
    if step.output:
        shown["observed"] = _cut(step.output)
    if step.tool_error:
        shown["tool_error"] = _cut(step.tool_error)
    if step.exit_status is not None:
        shown["exit_status"] = step.exit_status
    return shown


def _cut_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _cut(value) if isinstance(value, str) else value for key, value in values.items()}


def _cut(text: str) -> str:
    if len(text) <= TEXT_CHARS:
        return text
    return f"{text[:TEXT_CHARS]} [cut: {len(text)} characters in all]"
