"""Rubrics from files and into them: ours, OpenEnv's trees, judge files of Harbor's Reward Kit.

Live OpenEnv rubrics are read in a child process with the interpreter that has their packages: the
author's module is run there, with the rights of whoever asks, and never in this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from django.db import transaction

from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from rubrics.codec import from_json, to_json
from rubrics.errors import RubricInvalid
from rubrics.imports import harbor, harbor_export, openenv, openenv_child
from rubrics.imports.losses import Loss
from rubrics.imports.openenv import Imported
from rubrics.imports.tree import FORMAT
from rubrics.models import Rubric, RubricVersion
from rubrics.types import RubricSpec
from rubrics.versions import create_rubric_version

LIVE_S = 120.0
"""For a live rubric to be read; importing the library takes seconds."""
FILE_BYTES = 5 * 2**20


class Format(StrEnum):
    OURS = "ours"
    OPENENV = "openenv"
    HARBOR = "harbor"


@dataclass(frozen=True)
class Exported:
    files: Mapping[str, str]
    losses: tuple[Loss, ...] = ()


def read_source(
    source: str, form: Format | None = None, *, python: str = sys.executable
) -> Imported:
    """From a file, a folder of judge files, or `module:attribute` of a live OpenEnv rubric.

    `form`: None finds it out. Raises RubricInvalid with every problem.
    """
    path = Path(source).expanduser()
    if not path.exists():
        if form in (None, Format.OPENENV) and ":" in source:
            return openenv.to_spec(read_live(source, python=python))
        raise RubricInvalid(f"{source}: there is no such file")
    if path.is_dir():
        if form in (None, Format.HARBOR):
            return _folder(path)
        raise RubricInvalid(f"{source}: a folder; only judge files of Harbor come in folders")
    text = _text(path)
    if form is Format.HARBOR or (form is None and path.suffix == ".toml"):
        return harbor.to_spec({path.name: text})
    try:
        data = json.loads(text)
    except ValueError as error:
        raise RubricInvalid(f"{path.name}: not JSON: {error}") from error
    is_tree = isinstance(data, Mapping) and data.get("format") == FORMAT
    if form is Format.OPENENV or (form is None and is_tree):
        return openenv.to_spec(data)
    return Imported(from_json(data))


def read_live(source: str, *, python: str = sys.executable) -> dict[str, Any]:
    """The tree of `module:attribute`, found from the current folder. Raises RubricInvalid."""
    asked = [python, str(openenv_child.__file__), source]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=LIVE_S)
        found = json.loads(answer.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        raise RubricInvalid(f"{source}: not read within {LIVE_S:g} s") from None
    except OSError as error:
        raise RubricInvalid(f"{source}: {python} cannot be started: {error}") from error
    except (ValueError, IndexError) as error:
        said = answer.stderr.strip().rpartition("\n")[2]
        raise RubricInvalid(f"{source}: {said or 'no answer of its process'}") from error
    if "failed" in found:
        raise RubricInvalid(f"{source}: {found['failed']}")
    return dict(found)


def store(*, actor: User, project: Project, name: str, spec: RubricSpec) -> RubricVersion:
    """A version of the project's rubric of that name, which is made where there is none."""
    require(actor, project.pk, Role.EDITOR)
    with transaction.atomic():
        rubric, _ = Rubric.objects.get_or_create(project=project, name=name)
        return create_rubric_version(rubric=rubric, spec=to_json(spec))


def export(version: RubricVersion, form: Format) -> Exported:
    """Texts by file name; none where nothing of the rubric has that form."""
    spec = from_json(version.spec)
    if form is Format.HARBOR:
        return Exported(*harbor_export.from_spec(spec))
    if form is Format.OPENENV:
        tree, losses = openenv.from_spec(spec)
        return Exported({} if tree is None else {"rubric.json": _json(tree)}, losses)
    return Exported({"rubric.json": _json(version.spec)})


def _folder(path: Path) -> Imported:
    """Judge files of one folder; everything else in it is told."""
    texts, losses = {}, []
    for item in sorted(path.iterdir()):
        if item.suffix == ".toml" and item.is_file() and _is_judge_file(text := _text(item)):
            texts[item.name] = text
        elif not item.name.startswith("."):
            kind = "a folder" if item.is_dir() else "no judge file"
            losses.append(Loss(item.name, f"not carried over: {kind}"))
    imported = harbor.to_spec(texts)
    return Imported(imported.spec, (*losses, *imported.losses), imported.notes)


def _is_judge_file(text: str) -> bool:
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return True  # its reader says what is wrong
    return bool({"criterion", "reward", "scoring"} & set(found))


def _text(path: Path) -> str:
    size = path.stat().st_size
    if size > FILE_BYTES:
        raise RubricInvalid(f"{path.name}: {size} bytes; accepts {FILE_BYTES // 2**20} MiB")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RubricInvalid(f"{path.name}: not UTF-8: {error}") from error


def _json(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
