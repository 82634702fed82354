"""The operators by name: what *New search* offers, and what `offline` stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from optimizer.edits import Edit, with_whole_anchor
from optimizer.errors import SearchInvalid
from optimizer.harness import Harness
from optimizer.operators.ablation import ablations
from optimizer.operators.actions import error_of
from optimizer.operators.checklist import checklists
from optimizer.operators.contrast import lessons_as_bullets, skill_from_contrasts
from optimizer.operators.demonstrations import from_references, from_successes, nearest_pool
from optimizer.operators.evidence import Evidence, Trace
from optimizer.operators.instructions import ACTION_FORMAT, habits, instruction_pool
from optimizer.operators.merge import merged_texts
from optimizer.operators.sampling import sampling_levels

REFERENCES, SUCCESSES = 21, 6
"""Demonstrations that are proposed at most: authors' transcripts, and the agent's own attempts."""

Propose = Callable[[Evidence, Harness, int], list[Edit]]


@dataclass(frozen=True)
class Operator:
    name: str
    about: str
    """One line for people."""
    propose: Propose
    """From the evidence, the seed harness and a seed; the same for the same."""


def propose_offline(
    names: Sequence[str], evidence: Evidence, harness: Harness, seed: int
) -> list[Edit]:
    """What these operators have to say, each edit once, in the order of the names.

    Nothing is linted yet. Supports count distinct tasks; an edit that two operators propose has the
    larger one. Raises SearchInvalid for a name that is not in OFFLINE.
    """
    found: dict[str, Edit] = {}
    for name in names:
        if name not in OFFLINE:
            raise SearchInvalid(f"no operator is called {name!r}; there are {', '.join(OFFLINE)}")
        for proposed in OFFLINE[name].propose(evidence, harness, seed):
            edit = with_whole_anchor(harness, proposed)
            known = found.get(edit.sha256, edit)
            found[edit.sha256] = replace(known, support=max(known.support, edit.support))
    return list(found.values())


# --- one adapter for each operator


def _references(evidence: Evidence, harness: Harness, seed: int) -> list[Edit]:
    edits = from_references(_untold(evidence.references, harness), count=REFERENCES, seed=seed)
    return _wanted_where_it_fails(edits, evidence)


def _successes(evidence: Evidence, harness: Harness, seed: int) -> list[Edit]:
    edits = from_successes(
        _untold(evidence.attempts, harness),
        count=SUCCESSES,
        seed=seed,
        at_least=evidence.success,
    )
    return _wanted_where_it_fails(edits, evidence)


def _untold(traces: Iterable[Trace], harness: Harness) -> list[Trace]:
    """Without the tasks that the seed demonstrates already."""
    told = {item.source for item in harness.demonstrations}
    return [trace for trace in traces if trace.task not in told]


def _wanted_where_it_fails(edits: Sequence[Edit], evidence: Evidence) -> list[Edit]:
    """With the failed tasks of a demonstration's own stratum behind it."""
    stratum = {t.task: t.stratum for t in (*evidence.references, *evidence.attempts)}
    failed = {trace.task for trace in evidence.failed}
    return [
        replace(
            edit,
            support=len(
                set(edit.sources)
                | {task for task in failed if stratum[task] == stratum[edit.sources[0]]}
            ),
        )
        for edit in edits
    ]


def _nearest(evidence: Evidence, harness: Harness, seed: int) -> list[Edit]:
    return nearest_pool(
        _untold(evidence.references, harness),
        _untold(evidence.attempts, harness),
        seed=seed,
        at_least=evidence.success,
    )


def _instructions(evidence: Evidence, harness: Harness, seed: int) -> list[Edit]:
    action_format = evidence.action_format or ACTION_FORMAT
    return instruction_pool(action_format=action_format, support=_n_failed(evidence))


def _habits(evidence: Evidence, harness: Harness, seed: int) -> list[Edit]:
    erred = {t.task for t in evidence.attempts if any(error_of(step) for step in t.moves)}
    return habits(failed=_n_failed(evidence), erred=len(erred))


def _ablation(evidence: Evidence, harness: Harness, seed: int) -> list[Edit]:
    return ablations(harness, support=len({trace.task for trace in evidence.attempts}))


def _merge(evidence: Evidence, harness: Harness, seed: int) -> list[Edit]:
    return merged_texts(evidence.candidates, harness)


def _skill(evidence: Evidence, harness: Harness, seed: int) -> list[Edit]:
    return skill_from_contrasts(evidence, harness)


def _lessons(evidence: Evidence, harness: Harness, seed: int) -> list[Edit]:
    return lessons_as_bullets(evidence)


def _checklist(evidence: Evidence, harness: Harness, seed: int) -> list[Edit]:
    return checklists(evidence)


def _sampling(evidence: Evidence, harness: Harness, seed: int) -> list[Edit]:
    return sampling_levels(harness, evidence.attempts, support=_n_failed(evidence))


def _n_failed(evidence: Evidence) -> int:
    return len({trace.task for trace in evidence.failed})


_LISTED = (
    Operator(
        "demonstrations.reference",
        "Shows the agent transcripts that the authors wrote for train tasks.",
        _references,
    ),
    Operator(
        "demonstrations.success",
        "Shows the agent attempts of its own that scored well.",
        _successes,
    ),
    Operator(
        "demonstrations.nearest",
        "Shows each task the few demonstrations that are worded most like it.",
        _nearest,
    ),
    Operator(
        "instructions",
        "Words the instructions in other ways: rules, a reminder, a concise text.",
        _instructions,
    ),
    Operator(
        "habits",
        "Adds habits one by one: look first, read errors, verify, stay short.",
        _habits,
    ),
    Operator(
        "ablation",
        "Leaves out parts of the seed: paragraphs, demonstrations, skills.",
        _ablation,
    ),
    Operator(
        "merge",
        "Joins two rewrites of one text that could not stand together.",
        _merge,
    ),
    Operator(
        "contrast.skill",
        "Makes a skill of what passed attempts have in common and failed ones lack.",
        _skill,
    ),
    Operator(
        "contrast.lessons",
        "Adds the strongest of these lessons one by one.",
        _lessons,
    ),
    Operator(
        "checklist",
        "Lists criteria that often fail, where the agent may know them (rubric-derived).",
        _checklist,
    ),
    Operator(
        "sampling",
        "Tries other temperatures, top-p and limits of length.",
        _sampling,
    ),
)
OFFLINE: Mapping[str, Operator] = {operator.name: operator for operator in _LISTED}
