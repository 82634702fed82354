"""An environment as a folder of files, to keep under version control and to pass on.

    environment.yaml    name, kind, about, description, source, settings, resources
    tasks.jsonl         one task a line: key, split, group, difficulty, prompt, limits, seeds,
                        reference, and the fields of the kind
    rubric.json         optional: how rollouts are graded (the form of `rubrics.codec`)
    harness/            optional: what the agent starts with (the form of `optimizer.harness`)

`description` is what the agent is told before its task, `about` what people read. Reading checks
everything and complains of everything at once; storing finds what is there by name and content, so
that loading twice changes nothing.

Tasks with their answers are in the folder: whoever may read it has solved the environment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml
from django.db import transaction
from django.utils.text import slugify

from optimizer.errors import HarnessInvalid
from optimizer.harness import Harness
from optimizer.models import HarnessVersion
from optimizer.store import store_harness
from orchestrator.environments.authoring.export import jsonl_lines
from orchestrator.environments.authoring.rows import read_rows
from orchestrator.environments.authoring.values import check_json
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import Environment, EnvironmentVersion, Task
from orchestrator.environments.resources import Resources
from orchestrator.environments.services import NewTask, create_version
from orchestrator.environments.session import EpisodeSettings
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from rubrics.codec import from_json
from rubrics.errors import RubricInvalid
from rubrics.models import Rubric, RubricVersion
from rubrics.versions import create_rubric_version

CONFIG = "environment.yaml"
TASKS = "tasks.jsonl"
RUBRIC = "rubric.json"
HARNESS = "harness/"
MAX_FILES = 1000
MAX_BYTES = 64 * 2**20
MAX_NAME = 120
MAX_PROBLEMS = 20
"""Complaints that are spelled out; the others are counted."""


class FolderInvalid(ValueError):
    """The folder is no environment; one line for each problem, with its file and line."""

    def __init__(self, *problems: str) -> None:
        shown = list(problems[:MAX_PROBLEMS])
        if len(problems) > MAX_PROBLEMS:
            shown.append(f"and {len(problems) - MAX_PROBLEMS} more")
        super().__init__("\n".join(shown))


@dataclass(frozen=True)
class FolderEnvironment:
    """What a folder says."""

    name: str
    kind: str
    tasks: tuple[NewTask, ...]
    about: str = ""
    description: str = ""
    source: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    rubric: dict[str, Any] | None = None
    harness: Harness | None = None

    @property
    def slug(self) -> str:
        return slugify(self.name)[:60] or "environment"


@dataclass(frozen=True)
class Stored:
    """What became of a folder in a project."""

    version: EnvironmentVersion
    rubric: RubricVersion | None
    harness: HarnessVersion | None


# --- reading -------------------------------------------------------------------------------------


def read_folder(folder: Path) -> FolderEnvironment:
    """`FolderInvalid` with every problem found. Hidden files and caches are left out."""
    if not folder.is_dir():
        raise FolderInvalid(f"{folder}: no such folder")
    files: dict[str, bytes] = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not (name in (CONFIG, TASKS, RUBRIC) or name.startswith(HARNESS)):
            continue
        if path.is_symlink():
            raise FolderInvalid(f"{name}: links are not followed")
        if not path.is_file() or any(part.startswith(".") for part in name.split("/")):
            continue
        size += path.stat().st_size
        if len(files) >= MAX_FILES or size > MAX_BYTES:
            raise FolderInvalid(f"{name}: beyond {MAX_FILES} files or {MAX_BYTES // 2**20} MiB")
        files[name] = path.read_bytes()
    return read_files(files)


def read_files(files: Mapping[str, bytes]) -> FolderEnvironment:
    """The same from contents by path; paths of other files are ignored."""
    if CONFIG not in files:
        raise FolderInvalid(f"{CONFIG}: is missing")
    problems: list[str] = []
    config = _config(files[CONFIG], problems)
    tasks: tuple[NewTask, ...] = ()
    if config.get("kind") in KINDS:
        tasks = _tasks(str(config["kind"]), files.get(TASKS), problems)
    rubric = _rubric(files[RUBRIC], problems) if RUBRIC in files else None
    harness = _harness(files, problems)
    if problems:
        raise FolderInvalid(*problems)
    return FolderEnvironment(**config, tasks=tasks, rubric=rubric, harness=harness)


_TEXTS = ("name", "kind", "about", "description")
_MAPS = ("source", "settings", "resources")


def _config(data: bytes, problems: list[str]) -> dict[str, Any]:
    try:
        values = yaml.safe_load(data.decode("utf-8")) or {}
    except (UnicodeDecodeError, yaml.YAMLError) as exc:
        raise FolderInvalid(f"{CONFIG}: not YAML in UTF-8: {exc}") from exc
    if not isinstance(values, dict):
        raise FolderInvalid(f"{CONFIG}: accepts fields ({', '.join((*_TEXTS, *_MAPS))})")
    found: dict[str, Any] = {}
    for name, value in values.items():
        expected: type = str if name in _TEXTS else dict
        if name not in (*_TEXTS, *_MAPS):
            problems.append(f"{CONFIG}: {name} is unknown; accepts {', '.join((*_TEXTS, *_MAPS))}")
        elif value is not None and not isinstance(value, expected):
            what = "text" if expected is str else "fields"
            problems.append(f"{CONFIG}: {name} accepts {what}")
        elif problem := _why_not_kept(value):
            problems.append(f"{CONFIG}: {name} {problem}")
        elif value is not None:
            found[name] = value.strip() if isinstance(value, str) else value
    if not 1 <= len(found.get("name", "")) <= MAX_NAME:
        problems.append(f"{CONFIG}: name accepts 1 to {MAX_NAME} characters")
    if found.get("kind") not in KINDS:
        problems.append(f"{CONFIG}: kind is {found.get('kind')!r}; accepts {', '.join(KINDS)}")
    else:
        _check_values(found, problems)
    return found


def _why_not_kept(value: object) -> str:
    """Why a database could not give it back; empty if it could. YAML knows dates, NaN, NUL, and
    values that hold themselves.
    """
    try:
        if json.loads(json.dumps(value, allow_nan=False)) != value:
            return "has a name that is no text; write it in quotes"
        check_json(value)
    except TypeError as exc:
        return f"has what JSON does not know ({exc}); write a date in quotes"
    except RecursionError:
        return "is nested too deeply"
    except ValueError as exc:
        return str(exc)
    return ""


def _check_values(found: dict[str, Any], problems: list[str]) -> None:
    known = {item.name for item in fields(EpisodeSettings)}
    if unknown := sorted(set(found.get("settings", {})) - known):
        problems.append(
            f"{CONFIG}: settings: {unknown[0]} is unknown; accepts {', '.join(sorted(known))}"
        )
        return
    checks: dict[str, Callable[[dict[str, Any]], object]] = {
        "source": KINDS[found["kind"]].check_source,
        "resources": Resources.from_json,
        "settings": lambda values: EpisodeSettings(**values),
    }
    for name, check in checks.items():
        try:
            check(found.get(name, {}))
        except (ValueError, TypeError) as exc:
            problems.append(f"{CONFIG}: {name}: {exc}")


def _tasks(kind: str, data: bytes | None, problems: list[str]) -> tuple[NewTask, ...]:
    if data is None:
        problems.append(f"{TASKS}: is missing")
        return ()
    result = read_rows(KINDS[kind], "jsonl", data)
    for error in result.errors:
        where = f"{TASKS}, line {error.line}" if error.line else TASKS
        problems.append(f"{where}: {error.field}: {error.reason}")
    problems += [f"{TASKS}: {name} is no field of a task of kind {kind}" for name in result.unused]
    return tuple(read.task for read in result.tasks)


def _rubric(data: bytes, problems: list[str]) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
        from_json(value)
    except (ValueError, RubricInvalid) as exc:
        problems += [f"{RUBRIC}: {line}" for line in str(exc).splitlines()]
        return None
    return dict(value)


def _harness(files: Mapping[str, bytes], problems: list[str]) -> Harness | None:
    found = {
        path.removeprefix(HARNESS): data for path, data in files.items() if path.startswith(HARNESS)
    }
    if not found:
        return None
    try:
        return Harness.from_components({path: data.decode() for path, data in found.items()})
    except (UnicodeDecodeError, HarnessInvalid) as exc:
        problems.append(f"{HARNESS}: {exc}")
        return None


# --- writing -------------------------------------------------------------------------------------


def files_of(environment: FolderEnvironment) -> dict[str, str]:
    """Texts by path; `read_files` reads the same from them."""
    values = {name: getattr(environment, name) for name in (*_TEXTS, *_MAPS)}
    config = {name: value for name, value in values.items() if value}
    texts = {
        CONFIG: yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=88),
        TASKS: "".join(jsonl_lines(KINDS[environment.kind], environment.tasks)),
    }
    if environment.rubric is not None:
        texts[RUBRIC] = json.dumps(environment.rubric, ensure_ascii=False, indent=2) + "\n"
    if environment.harness is not None:
        texts |= {HARNESS + path: text for path, text in environment.harness.components().items()}
    return texts


def write_folder(environment: FolderEnvironment, folder: Path) -> None:
    """`FolderInvalid` if the folder has files already."""
    if folder.exists() and any(folder.iterdir()):
        raise FolderInvalid(f"{folder}: is not empty")
    for name, text in files_of(environment).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def environment_of(
    version: EnvironmentVersion,
    *,
    rubric: dict[str, Any] | None = None,
    harness: Harness | None = None,
) -> FolderEnvironment:
    """A stored version as a folder would say it."""
    return FolderEnvironment(
        name=version.environment.name,
        kind=version.environment.kind,
        about=version.environment.description,
        description=version.description,
        source=version.source,
        settings=version.settings,
        resources=version.resources,
        tasks=tuple(
            NewTask(
                key=task.key,
                split=task.split,
                prompt=task.prompt,
                family=task.family,
                reset=task.reset,
                spec=task.spec,
                reference=task.reference,
                difficulty=task.difficulty,
                limits=task.limits,
                seeds=task.seeds,
            )
            for task in Task.objects.filter(version=version)
        ),
        rubric=rubric,
        harness=harness,
    )


# --- storing -------------------------------------------------------------------------------------


def store(*, actor: User, project: Project, environment: FolderEnvironment) -> Stored:
    """The environment's version with this content, its rubric's and its harness; new where there is
    none yet.

    `FolderInvalid` if the project has an environment of that name and another kind.
    """
    require(actor, project, Role.EDITOR)
    with transaction.atomic():
        stored, _ = Environment.objects.get_or_create(
            project=project,
            slug=environment.slug,
            defaults={
                "name": environment.name,
                "kind": environment.kind,
                "description": environment.about,
            },
        )
        if stored.kind != environment.kind:
            raise FolderInvalid(
                f"{CONFIG}: the project has an environment {stored.name!r} of kind {stored.kind}; "
                "choose another name"
            )
        if stored.description != environment.about:
            stored.description = environment.about
            stored.save(update_fields=["description"])
        version = create_version(
            environment=stored,
            source=environment.source,
            tasks=environment.tasks,
            settings=environment.settings,
            resources=environment.resources,
            description=environment.description,
            created_by=actor,
        )
        rubric = harness = None
        if environment.rubric is not None:
            named, _ = Rubric.objects.get_or_create(project=project, name=environment.slug)
            rubric = create_rubric_version(rubric=named, spec=environment.rubric)
        if environment.harness is not None:
            harness = store_harness(
                project_id=project.pk, harness=environment.harness, label=environment.slug
            )
    return Stored(version, rubric, harness)
