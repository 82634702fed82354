"""Forms made from the fields of a kind: what a control shows, and what was typed into it.

The same few types make the forms of sources, tasks, limits and resources of every kind, and the
same functions read a form and a cell of an upload (`environments.authoring.values`). What does not
fit is shown beside its control with the text as it was typed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from orchestrator.environments.authoring import values
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.resources import Resources
from orchestrator.environments.session import EpisodeSettings

CODE_TYPES = ("sql", "python", "shell", "json")
MAX_FILES = 200

_EPISODE, _SERVER = EpisodeSettings(), Resources()


def _usually(value: object) -> str:
    return f"Empty: {value:g}." if isinstance(value, float) else f"Empty: {value}."


EPISODE_FIELDS: tuple[Field, ...] = (
    Field("max_steps", "Steps at most", "integer", help="Empty: what the harness says."),
    Field(
        "step_timeout_s",
        "Longest step, seconds",
        "number",
        help=_usually(_EPISODE.step_timeout_s),
    ),
    Field(
        "reset_timeout_s",
        "Longest reset, seconds",
        "number",
        help=_usually(_EPISODE.reset_timeout_s),
    ),
    Field(
        "slot_wait_s",
        "Longest wait for a place, seconds",
        "number",
        help=_usually(_EPISODE.slot_wait_s),
    ),
    Field(
        "reward_aggregate",
        "Score of an episode",
        "choice",
        choices=(("last", "reward of its last step"), ("sum", "sum of its rewards")),
        default=_EPISODE.reward_aggregate,
    ),
    Field("reward_low", "Least reward", "number", help="With the next: all else is no score."),
    Field("reward_high", "Greatest reward", "number"),
)
TASK_LIMIT_FIELDS = EPISODE_FIELDS[:3]
RESOURCE_FIELDS: tuple[Field, ...] = (
    Field("slots", "Episodes at a time", "integer", help="Empty: what its kind allows."),
    Field("max_servers", "Servers at most", "integer", help=_usually(_SERVER.max_servers)),
    Field("memory_mb", "Memory, MiB", "integer", help=_usually(_SERVER.memory_mb)),
    Field("cpus", "Processor cores", "number", help=_usually(_SERVER.cpus)),
    Field("processes", "Processes at most", "integer", help=_usually(_SERVER.processes)),
    Field("disk_mb", "Disk, MiB", "integer", help=_usually(_SERVER.disk_mb)),
)
NETWORK_FIELDS: tuple[Field, ...] = (
    Field(
        "mode",
        "Network",
        "choice",
        choices=(
            ("none", "none"),
            ("allow-list", "only the hosts below"),
            ("open", "open (weak isolation)"),
        ),
        default="none",
    ),
    Field(
        "allowed_hosts",
        "Hosts that it may reach",
        "text_list",
        help="One a line: api.example.org, or *.example.org for all names below it.",
    ),
)


@dataclass(frozen=True)
class Control:
    """A field as a control of a form."""

    field: Field
    name: str
    text: str = ""
    error: str = ""
    files: Sequence[tuple[str, str]] = ()
    """(path, text), for `files`."""

    @property
    def id(self) -> str:
        return f"id_{self.name}"

    @property
    def widget(self) -> str:
        if self.field.type in ("text", "integer", "number"):
            return "line"
        if self.field.type in ("choice", "flag", "files"):
            return self.field.type
        return "code" if self.field.type in CODE_TYPES else "area"

    @property
    def input_mode(self) -> str:
        return {"integer": "numeric", "number": "decimal"}.get(self.field.type, "text")

    @property
    def rows(self) -> int:
        least = {"text_list": 2, "json": 3}.get(self.field.type, 4)
        return min(24, max(least, self.text.count("\n") + 2))

    @property
    def has_blank(self) -> bool:
        """A choice that may be left open."""
        return self.field.default is None

    @property
    def is_checked(self) -> bool:
        return self.text == "true"

    @property
    def file_rows(self) -> list[tuple[int, str, str]]:
        """Numbered files, and a free row after them."""
        return [(n, path, text) for n, (path, text) in enumerate([*self.files, ("", "")])]


def show(
    fields: Sequence[Field], stored: Mapping[str, Any], prefix: str, *, is_new: bool = False
) -> list[Control]:
    """Controls for stored values; defaults stand in the form of something new."""
    controls = []
    for field in fields:
        value = stored.get(field.name, field.default if is_new else None)
        controls.append(_control(field, prefix + field.name, value))
    return controls


def _control(field: Field, name: str, value: Any) -> Control:
    if field.type == "files" and isinstance(value, dict):
        files = [(path, text) for path, text in value.items() if isinstance(text, str)]
        return Control(field, name, files=files)
    return Control(field, name, values.to_text(field, value))


def read(
    fields: Sequence[Field], post: QueryDict, prefix: str, *, is_complete: bool = True
) -> tuple[dict[str, Any], list[Control]]:
    """What was typed, as values; and the controls, those that do not fit with their error.

    `is_complete`: required fields must be there.
    """
    found: dict[str, Any] = {}
    controls = []
    for field in fields:
        name = prefix + field.name
        if field.type == "files":
            control, value = _read_files(field, name, post)
        elif field.type == "flag":
            value = post.get(name) == "true"
            control = Control(field, name, "true" if value else "")
        else:
            control, value = _read_text(field, name, post)
        if not control.error and is_complete and field.is_required and value in (None, {}, []):
            control = Control(field, name, control.text, "is missing", control.files)
        controls.append(control)
        if value not in (None, {}) and not control.error:
            found[field.name] = value
    return found, controls


def _read_text(field: Field, name: str, post: QueryDict) -> tuple[Control, Any]:
    # A form sends line ends as two characters; what was stored had one.
    text = post.get(name, "").replace("\r\n", "\n")
    if not text.strip():
        return Control(field, name, text), None
    try:
        return Control(field, name, text), values.from_text(field, text)
    except ValueError as exc:
        return Control(field, name, text, str(exc)), None


def _read_files(field: Field, name: str, post: QueryDict) -> tuple[Control, Any]:
    paths = post.getlist(f"{name}-path")[:MAX_FILES]
    texts = [text.replace("\r\n", "\n") for text in post.getlist(f"{name}-text")[:MAX_FILES]]
    texts += [""] * (len(paths) - len(texts))
    files = [(path.strip(), text) for path, text in zip(paths, texts, strict=False)]
    files = [(path, text) for path, text in files if path or text]
    error = ""
    names = [path for path, _ in files]
    if "" in names:
        error = "has a file without a name"
    elif len(set(names)) < len(names):
        error = "has two files of the same name"
    else:
        try:
            values.check_json(dict(files))
        except ValueError as exc:
            error = str(exc)
    return Control(field, name, error=error, files=files), dict(files)


def has_error(*groups: Sequence[Control]) -> bool:
    return any(control.error for group in groups for control in group)


def with_errors(controls: Sequence[Control], errors: Mapping[str, str]) -> list[Control]:
    """Errors by field name put beside their controls."""
    return [
        Control(c.field, c.name, c.text, errors.get(c.field.name, c.error), c.files)
        for c in controls
    ]


# --- limits, as they are stored ------------------------------------------------------------------


def shown_episode(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings as the controls have them."""
    low, high = settings.get("reward_range") or (None, None)
    return {**settings, "reward_low": low, "reward_high": high}


def episode_of(values_: Mapping[str, Any]) -> dict[str, Any]:
    """What the controls say, in the shape of `EpisodeSettings`; defaults are left out."""
    settings = dict(values_)
    bounds = [settings.pop("reward_low", None), settings.pop("reward_high", None)]
    if bounds != [None, None]:
        settings["reward_range"] = bounds
    if settings.get("reward_aggregate") == _EPISODE.reward_aggregate:
        del settings["reward_aggregate"]
    return settings


def resources_of(numbers: Mapping[str, Any], network: Mapping[str, Any]) -> dict[str, Any]:
    """What two groups of controls say, in the shape of `Resources.from_json`."""
    resources = dict(numbers)
    if network.get("mode", "none") != "none" or network.get("allowed_hosts"):
        resources["network"] = {
            "mode": network.get("mode", "none"),
            "allowed_hosts": network.get("allowed_hosts", []),
        }
    return resources
