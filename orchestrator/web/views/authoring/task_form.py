"""The form of one task: what all tasks have, the fields of its kind, its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.http import QueryDict

from orchestrator.environments.authoring.content import content_of, digest_of
from orchestrator.environments.authoring.errors import DraftRefusedError, FieldsRefusedError
from orchestrator.environments.authoring.rows import derived_key
from orchestrator.environments.authoring.task_checks import CHECKS
from orchestrator.environments.kinds import KINDS, Kind
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.models import DraftTask, EnvironmentDraft, Split
from orchestrator.environments.services import NewTask
from orchestrator.web.authoring_forms import (
    TASK_LIMIT_FIELDS,
    Control,
    has_error,
    read,
    show,
    with_errors,
)
from orchestrator.web.views.authoring.drafts import differences

COMMON: tuple[Field, ...] = (
    Field("key", "Key", help="Letters, digits, . _ - Empty: one is made from the content."),
    Field("split", "Split", "choice", choices=tuple(Split.choices), default="train"),
    Field("family", "Group", help="Pages and samplers put tasks of a group together."),
    Field("difficulty", "Difficulty", "number", help="By your own scale; higher is harder."),
)
PROMPT = (
    Field("prompt", "Prompt", "long_text", is_required=True, help="What the agent is asked."),
)
RESET = (
    Field("reset", "Parameters of the reset", "json", help="A JSON object; what chooses the task."),
)
MORE: tuple[Field, ...] = (
    Field("seeds", "Seeds of the reset", help="For the first, second, … rollout: 7, 8, 9."),
    Field(
        "reference",
        "Reference transcript",
        "json",
        help='Train tasks only. Messages: [{"role": "assistant", "content": "…"}]. It solves the '
        "task, and may become a demonstration.",
        is_secret=True,
    ),
)


@dataclass(frozen=True)
class TaskForm:
    common: Sequence[Control]
    prompt: Sequence[Control]
    own: Sequence[Control]
    limits: Sequence[Control]
    more: Sequence[Control]
    seen: str = ""
    """Digest of the task that the form was filled from."""
    is_bound: bool = False
    task: NewTask | None = None
    """What was typed, when all of it fits."""
    problem: str = ""
    """What does not fit and belongs to no control."""
    is_closed: bool = False

    @property
    def more_is_open(self) -> bool:
        return any(c.text or c.error for c in (*self.limits, *self.more))

    @property
    def groups(self) -> dict[str, list[Control]]:
        names = ("common", "prompt", "own", "limits", "more")
        return {name: list(getattr(self, name)) for name in names}

    def differences(self, typed: TaskForm) -> list[dict[str, str]]:
        """Without what is closed in the typed one."""
        if typed.is_closed:
            return differences(self.closed().groups, typed.closed().groups)
        return differences(self.groups, typed.groups)

    def against(self, row: DraftTask | None) -> TaskForm:
        """The same text, to be stored over what is there now."""
        return replace(self, seen=digest_of(content_of(row)) if row else "", task=None)

    def refused(self, refusal: DraftRefusedError) -> TaskForm:
        errors = refusal.errors if isinstance(refusal, FieldsRefusedError) else {}
        known = {c.field.name for group in self.groups.values() for c in group}
        lost = {name: reason for name, reason in errors.items() if name not in known}
        problem = " ".join(lost.values()) if errors else str(refusal)
        return replace(self._with(errors), task=None, problem=problem)

    def _with(self, errors: Mapping[str, str]) -> TaskForm:
        return replace(
            self,
            common=with_errors(self.common, errors),
            prompt=with_errors(self.prompt, errors),
            own=with_errors(self.own, errors),
            limits=with_errors(self.limits, errors),
            more=with_errors(self.more, errors),
        )

    def closed(self) -> TaskForm:
        """Without what solves the task."""
        return replace(
            self,
            own=[],
            more=[c for c in self.more if not c.field.is_secret],
            is_closed=True,
        )


def task_form(draft: EnvironmentDraft, row: DraftTask | None, post: QueryDict | None) -> TaskForm:
    kind = KINDS[draft.environment.kind]
    return _shown(kind, row) if post is None else _read(kind, row, post)


def _asked(kind: Kind) -> Sequence[Field]:
    """A kind that finds its tasks by key needs no parameters."""
    return PROMPT if kind.resets_by_key else (*PROMPT, *RESET)


def _shown(kind: Kind, row: DraftTask | None) -> TaskForm:
    is_new = row is None
    stored: dict[str, Any] = {}
    if row is not None:
        stored = {
            "key": row.key,
            "split": row.split,
            "family": row.family,
            "difficulty": None if row.difficulty is None else _plain(row.difficulty),
            "prompt": row.prompt,
            "seeds": ", ".join(map(str, row.seeds)),
            "reset": row.reset or None,
            "reference": row.reference,
        }
    return TaskForm(
        common=show(COMMON, stored, "c-", is_new=is_new),
        prompt=show(_asked(kind), stored, "c-"),
        own=show(kind.task_fields, row.spec if row else {}, "f-", is_new=is_new),
        limits=show(TASK_LIMIT_FIELDS, row.limits if row else {}, "l-"),
        more=show(MORE, stored, "c-"),
        seen=digest_of(content_of(row)) if row else "",
    )


def _plain(number: float) -> str:
    """The column holds 2.0 where its author wrote 2."""
    return str(int(number)) if number.is_integer() else repr(number)


def _read(kind: Kind, row: DraftTask | None, post: QueryDict) -> TaskForm:
    common, common_controls = read(COMMON, post, "c-")
    prompt, prompt_controls = read(_asked(kind), post, "c-")
    is_closed = row is not None and post.get("closed") == "on"
    if is_closed and row is not None:
        names = {field.name for field in kind.task_fields}
        own = {name: value for name, value in row.spec.items() if name in names}
        own_controls: list[Control] = []
    else:
        own, own_controls = read(kind.task_fields, post, "f-")
    limits, limit_controls = read(TASK_LIMIT_FIELDS, post, "l-")
    more, more_controls = read(MORE, post, "c-")
    form = TaskForm(
        common=common_controls,
        prompt=prompt_controls,
        own=own_controls,
        limits=limit_controls,
        more=more_controls,
        seen=post.get("seen", ""),
        is_bound=True,
        is_closed=is_closed,
    )
    given = {**common, **prompt, **more}
    if "seeds" in given:
        given["seeds"] = [part for part in given["seeds"].replace(",", " ").split() if part]
    checked, errors = _checked(given)
    if errors or has_error(*form.groups.values()):
        return form._with(errors)
    kept = _kept(kind, row)
    spec = {**kept["spec"], **own}
    key = checked.get("key") or derived_key(checked["prompt"], spec)
    reset = checked.get("reset", {})
    if kind.resets_by_key:
        reset = {**kept["reset"], "task": key}
    task = NewTask(
        key=key,
        split=checked.get("split", "train"),
        prompt=checked["prompt"],
        family=checked.get("family", ""),
        difficulty=checked.get("difficulty"),
        reset=reset,
        spec=spec,
        limits={**kept["limits"], **limits},
        seeds=checked.get("seeds", []),
        reference=checked.get("reference"),
    )
    return replace(form, task=task)


def _kept(kind: Kind, row: DraftTask | None) -> dict[str, dict[str, Any]]:
    """What the form does not show and must not lose."""
    if row is None:
        return {"spec": {}, "limits": {}, "reset": {}}
    own = {field.name for field in kind.task_fields}
    limits = {field.name for field in TASK_LIMIT_FIELDS}
    return {
        "spec": {name: value for name, value in row.spec.items() if name not in own},
        "limits": {name: value for name, value in row.limits.items() if name not in limits},
        "reset": dict(row.reset),
    }


_CHECKED = ("key", "split", "family", "seeds", "reset", "reference")


def _checked(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    checked, errors = dict(given), {}
    for name in _CHECKED:
        if name in given:
            try:
                checked[name] = CHECKS[name](given[name])
            except ValueError as exc:
                errors[name] = str(exc)
    return checked, errors
