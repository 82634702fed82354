"""What if this were not there? One edit for each part of the seed, that leaves it out.

Harnesses grow by addition, and hardly anybody finds out which part has stopped helping. A part that
is left out without loss makes every rollout cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator

from optimizer.edits import SKILLS, Edit, Op, apply_edit
from optimizer.errors import EditInvalid
from optimizer.harness import ACTIONS, DEMONSTRATIONS, INSTRUCTIONS, Harness
from optimizer.paragraphs import paragraphs, protected_parts

MAX_PARTS = 40


def ablations(harness: Harness, *, support: int) -> list[Edit]:
    """Deletes of the seed's paragraphs, demonstrations, skills and paragraphs of skills.

    Parts marked as protected stay, and so does what tells the agent how to act. `support`: distinct
    tasks on which the seed was seen.
    """
    return list(_deletes(harness, support))[:MAX_PARTS]


def _deletes(harness: Harness, support: int) -> Iterator[Edit]:
    for block in _free(harness.instructions):
        if ACTIONS not in block:
            yield from _possible(harness, INSTRUCTIONS, block, "ablation.paragraph", support)
    for item in harness.demonstrations:
        yield from _possible(harness, DEMONSTRATIONS, item.id, "ablation.demonstration", support)
    for skill in harness.skills:
        yield from _possible(harness, SKILLS, skill.name, "ablation.skill", support)
    for skill in harness.skills:
        blocks = _free(skill.body)
        if len(blocks) > 1:  # without its only paragraph nothing would be left to load
            for block in blocks:
                component = f"skills/{skill.name}/SKILL.md"
                yield from _possible(harness, component, block, "ablation.paragraph", support)


def _free(text: str) -> list[str]:
    """Paragraphs that an edit may take out."""
    kept = [block for part in protected_parts(text) for block in paragraphs(part)]
    if kept and protected_parts(text):
        marked = [block for block in paragraphs(text) if any(part in block for part in kept)]
        return [block for block in paragraphs(text) if block not in marked and "<!--" not in block]
    return paragraphs(text)


def _possible(
    harness: Harness, component: str, anchor: str, operator: str, support: int
) -> Iterator[Edit]:
    edit = Edit(Op.DELETE, component, anchor, operator=operator, support=support)
    try:
        apply_edit(harness, edit)
    except EditInvalid:
        return
    yield edit
