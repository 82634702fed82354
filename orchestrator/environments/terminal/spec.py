"""What a task of the kind `terminal` is, checked before anything is served. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, get_args

Split = Literal["train", "select", "test"]
Match = Literal["exact", "number"]
Language = Literal["shell", "python"]

MAX_STEPS = 4
MAX_VERIFIER_S = 50.0
"""A step answers within 60 s unless a version says otherwise, and the verdict belongs to one."""
MAX_FILES = 1000
MAX_FILES_BYTES = 8 * 2**20
ANSWER_FILE = "answer.txt"
"""Where a verifier finds what the agent answered; no file of an author's has this name."""
_MAX_PATH, _MAX_PART = 200, 100


@dataclass(frozen=True)
class TaskSpec:
    """One exercise. What decides the reward stays in the environment's server."""

    key: str
    """`<split>-<index from 1, four digits>` where it comes from the generator."""
    split: Split | Literal[""]
    family: str
    prompt: str
    files: dict[str, str]
    """Path to content; laid out before the agent acts."""
    answer: str = ""
    match: Match = "exact"
    reference: tuple[dict[str, str], ...] = ()
    """Author's transcript after the prompt: messages with `role` and `content`; train only."""
    max_steps: int = MAX_STEPS
    verifier: str = ""
    """Run on a copy of the agent's folder when the episode is over: see `terminal.verifier`."""
    verifier_language: Language = "shell"
    verifier_files: dict[str, str] = field(default_factory=dict)
    """Path to content; never where the agent acts."""
    verifier_timeout_s: float = 10.0

    def as_json(self) -> dict[str, Any]:
        """All that differs from the defaults, and the files."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {**values, "reference": [dict(m) for m in self.reference]}
        kept = {"files"}
        return {n: v for n, v in plain.items() if n in kept or v != _EMPTY[n]}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> TaskSpec:
        """Inverse of `as_json`; fields that are missing or null have their defaults.

        `ValueError` that names the field and the fix.
        """
        if unknown := sorted(set(record) - set(_EMPTY)):
            raise ValueError(f"{unknown[0]}: unknown; known are {', '.join(sorted(_EMPTY))}")
        given = {name: value for name, value in record.items() if value is not None}
        values = {**_EMPTY, **given}
        for name in _TEXTS:
            if not isinstance(values[name], str):
                raise ValueError(f"{name}: a text was expected")
            if name != "prompt" and "\0" in values[name]:
                raise ValueError(f"{name}: has a NUL character")
        for name, choices in _CHOICES.items():
            if values[name] not in choices:
                raise ValueError(f"{name}: one of {', '.join(filter(None, choices))} was expected")
        for name in ("files", "verifier_files"):
            values[name] = _files(name, values[name])
        if ANSWER_FILE in values["verifier_files"]:
            raise ValueError(f"verifier_files: {ANSWER_FILE} is written by the server; rename it")
        values["max_steps"] = int(_number("max_steps", values, 1, 1000, whole=True))
        values["verifier_timeout_s"] = _number("verifier_timeout_s", values, 0.1, MAX_VERIFIER_S)
        try:
            values["reference"] = tuple(dict(m) for m in values["reference"])
        except (TypeError, ValueError) as exc:
            raise ValueError(f"reference: a list of messages was expected: {exc}") from exc
        if not values["answer"].strip() and not values["verifier"].strip():
            raise ValueError("answer: nothing decides the reward; give an answer or a verifier")
        if values["match"] == "number" and values["answer"] and not _is_number(values["answer"]):
            raise ValueError(f"answer: {values['answer']!r:.80} is no number, as match says it is")
        if values["verifier_files"] and not values["verifier"].strip():
            raise ValueError("verifier: missing, although there are verifier_files")
        return cls(**values)

    @property
    def content_hash(self) -> str:
        """Equal for tasks that pose the same question on the same files."""
        payload = json.dumps([self.prompt, self.files, self.answer], sort_keys=True)
        return hashlib.sha256(payload.encode()).hexdigest()


_EMPTY: dict[str, Any] = {
    "key": "",
    "split": "",
    "family": "",
    "prompt": "",
    "files": {},
    "answer": "",
    "match": "exact",
    "reference": [],
    "max_steps": MAX_STEPS,
    "verifier": "",
    "verifier_language": "shell",
    "verifier_files": {},
    "verifier_timeout_s": 10.0,
}
_TEXTS = ("key", "split", "family", "prompt", "answer", "verifier")
_CHOICES: dict[str, tuple[str, ...]] = {
    "split": ("", *get_args(Split)),
    "match": get_args(Match),
    "verifier_language": get_args(Language),
}


def is_correct(task: TaskSpec, answer: str) -> bool:
    """The verdict. Runs of white space count as one blank; numbers compare by value (`07` is 7).

    Nothing else is forgiven: a lenient comparison would reward answers that only contain the right
    one.
    """
    if task.match == "number":
        try:
            return Decimal(answer.strip()) == Decimal(task.answer)
        except InvalidOperation:
            return False
    return " ".join(answer.split()) == " ".join(task.answer.split())


def check_path(path: str) -> None:
    """`ValueError` for a path that is not plain, or that leads out of its folder."""
    parts = path.split("/")
    is_plain = all(part not in ("", ".", "..") and len(part) <= _MAX_PART for part in parts)
    if not is_plain or len(path) > _MAX_PATH or any(ord(c) < 32 or c in "\\\x7f" for c in path):
        raise ValueError(f"{path!r:.80} is not a plain path below the folder (a/b.txt)")
    if any("\ud800" <= c <= "\udfff" for c in path):
        raise ValueError(f"{path!r:.80} is not Unicode text")


def _files(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f'{name}: an object from path to text was expected, {{"a.txt": "…"}}')
    if len(value) > MAX_FILES:
        raise ValueError(f"{name}: {len(value)} files; at most {MAX_FILES}")
    total = 0
    for path, text in value.items():
        if not isinstance(path, str) or not isinstance(text, str):
            raise ValueError(f"{name}: {path!r:.80}: a text was expected")
        try:
            check_path(path)
            total += len(text.encode())
        except UnicodeEncodeError:
            raise ValueError(f"{name}: {path}: is not Unicode text") from None
        except ValueError as exc:
            raise ValueError(f"{name}: {exc}") from exc
    if total > MAX_FILES_BYTES:
        raise ValueError(f"{name}: more than {MAX_FILES_BYTES // 2**20} MiB")
    for path in value:
        folders = path.split("/")[:-1]
        for depth in range(1, len(folders) + 1):
            if "/".join(folders[:depth]) in value:
                raise ValueError(f"{name}: {'/'.join(folders[:depth])!r:.80} is file and folder")
    return dict(value)


def _number(
    name: str, values: Mapping[str, Any], low: float, high: float, *, whole: bool = False
) -> float:
    value = values[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name}: {kind} from {low:g} to {high:g} was expected")
    return float(value)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(Decimal(text.strip()))
    except InvalidOperation:
        return False
