"""What the authoring page of rubrics is told: kinds and their parameters, completions, notes.

All of it is read from the kinds and from what grading hands to an author's function, so that the
page offers what is really there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.grading.diff import RubricDiff, difference
from orchestrator.grading.findings import Note, Reading
from orchestrator.grading.models import RubricDraft, RubricSuggestion
from orchestrator.grading.suggest.services import OPEN_STATES
from rubrics.judge.view import PARTS
from rubrics.kinds import KINDS
from rubrics.kinds.base import Kind, Param
from rubrics.kinds.python import trace_of
from rubrics.types import Aggregation, Scope, Step, Transcript

Json = dict[str, Any]

STARTS: Mapping[str, Mapping[str, Any]] = {
    "python": {
        "source": 'def grade(trace):\n    n = len(trace["steps"])\n'
        '    return {"value": 1.0 if n <= 3 else 0.0, "reason": f"{n} steps"}\n'
    },
}
"""What a new criterion of a kind begins with, where an empty field says too little."""

_ABOUT = {
    'trace["task"]': "the task as the agent read it",
    'trace["labels"]': "what is known of the task, by name",
    'trace["expected"]': "the reference answer, or None",
    'trace["answer"]': "the final answer, or None",
    'trace["reward"]': "what the environment gave, or None",
    'trace["components"]': "scores that the environment reports, by name",
    'trace["state"]': "final state: files and tables",
    'trace["wall_s"]': "seconds that it took, or None",
    'trace["tokens"]': "tokens that it took, or None",
    'trace["cost_usd"]': "US dollars that it cost, or None",
    'trace["steps"]': "the exchanges with the environment, in order",
    'step["command"]': "the command that was run, or None",
    'step["output"]': "what came back",
    'step["seq"]': "number of its event; put it into cites",
    'step["tool"]': "the tool that was called",
    'step["arguments"]': "what it was called with",
}


def kinds() -> list[Json]:
    return [_kind(kind) for kind in KINDS.values()]


def _kind(kind: Kind) -> Json:
    return {
        "name": kind.name,
        "label": kind.name.replace("_", " "),
        "about": kind.about,
        "looks_at": _looks_at(kind),
        "params": [_param(param) for param in kind.params],
        "scopes": [scope.value for scope in kind.scopes],
        "negative": kind.negative,
        "start": STARTS.get(kind.name, {}),
    }


def _looks_at(kind: Kind) -> str:
    if kind.name.startswith("judge"):
        return "a model decides"
    if kind.name == "python":
        return "code decides"
    return {
        Scope.FINAL_ANSWER: "the answer",
        Scope.TRAJECTORY: "the way there",
        Scope.STEP: "each step",
        Scope.ENVIRONMENT_STATE: "the final state",
    }[kind.scopes[0]]


def _param(param: Param) -> Json:
    return {
        "name": param.name,
        "type": param.type.name.lower(),
        "about": param.about,
        "required": param.required,
        "default": list(param.default) if isinstance(param.default, tuple) else param.default,
        "choices": list(param.choices),
        "options": list(PARTS) if param.name == "sees" else [],
    }


def python_completions() -> list[Json]:
    """What an author's function finds in its trace."""
    trace = trace_of(Transcript(steps=(Step(index=1, seq=1, action="", tool="t"),)))
    places = [f'trace["{name}"]' for name in trace]
    places += [f'step["{name}"]' for name in sorted(trace["steps"][0])]
    places += [f'trace["steps"][-1]["{name}"]' for name in ("command", "output")]
    words = [{"text": place, "about": _ABOUT.get(place, "")} for place in places]
    return [
        *words,
        {"text": 'for step in trace["steps"]:', "about": "each exchange"},
        {"text": 'trace["state"]["files"]', "about": "by path: size, sha256, text"},
        {"text": 'trace["state"]["tables"]', "about": "by name: columns, rows"},
        {"text": 'return {"value": 1.0, "reason": "", "cites": []}', "about": "a verdict"},
        {"text": 'return {"not_applicable": ""}', "about": "it does not concern this rollout"},
    ]


def path_completions(answers: Sequence[Any]) -> list[Json]:
    """JSON paths: those of past answers first, then what a path may say."""
    places = list(dict.fromkeys(place for answer in answers for place in _places("$", answer)))
    return [
        *({"text": place, "about": "in a past answer"} for place in places[:60]),
        {"text": "$.name", "about": "a member"},
        {"text": "$.items[0]", "about": "the first of a list"},
        {"text": "$.items[-1]", "about": "the last of a list"},
        {"text": "$.items[*].name", "about": "of each of a list"},
        {"text": "$..name", "about": "at any depth"},
        {"text": "$.items[?@.price > 10]", "about": "those for which something holds"},
    ]


def _places(at: str, value: Any, depth: int = 0) -> Iterator[str]:
    if depth == 4:
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            place = f"{at}.{name}" if str(name).isidentifier() else f"{at}['{name}']"
            yield place
            yield from _places(place, item, depth + 1)
    elif isinstance(value, list) and value:
        yield f"{at}[*]"
        yield from _places(f"{at}[*]", value[0], depth + 1)


def notes(reading: Reading) -> Json:
    return {
        "problems": [_note(note) for note in reading.problems],
        "findings": [_note(note) for note in reading.findings],
    }


def _note(note: Note) -> Json:
    return {
        name: getattr(note, name)
        for name in ("level", "text", "criterion", "group", "field", "code", "fix")
    }


def state_of(draft: RubricDraft, reading: Reading) -> Json:
    """What the page must know after a save, and at its start."""
    base = draft.base.spec if draft.base else {}
    return {
        "revision": draft.revision,
        "saved_at": draft.updated_at.isoformat(),
        "saved_by": draft.updated_by.username if draft.updated_by else "",
        "n_changes": difference(base, draft.spec).n_changes,
        **notes(reading),
    }


def changes(found: RubricDiff) -> list[Json]:
    """Criteria, groups and how the score is made as one list, for merging piece by piece."""
    rows = [
        {
            "part": part,
            "id": item.id,
            "label": item.label,
            "what": item.what.value,
            "fields": _field_changes(item.fields),
        }
        for part, items in (("criteria", found.criteria), ("groups", found.groups))
        for item in items
    ]
    if found.fields:
        rows.append(
            {
                "part": "rubric",
                "id": "",
                "label": "How the score is made",
                "what": "changed",
                "fields": _field_changes(found.fields),
            }
        )
    return rows


def _field_changes(fields: Any) -> list[Json]:
    return [{"name": f.name, "before": f.before, "after": f.after} for f in fields]


def suggestion(row: RubricSuggestion | None) -> Json | None:
    if row is None:
        return None
    return {
        "id": row.pk,
        "state": row.state,
        "is_open": row.state in OPEN_STATES,
        "progress": row.progress or row.get_state_display(),
        "error": row.error,
        "criteria": row.criteria,
        "left_out": row.left_out,
        "raw": row.raw,
        "by": row.endpoint.name if row.endpoint else "a model that was removed",
        "at": row.created_at.isoformat(),
    }


CHOICES: Json = {
    "scopes": [scope.value for scope in Scope],
    "aggregations": [aggregation.value for aggregation in Aggregation],
}
