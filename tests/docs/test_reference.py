"""The reference pages name what the code has: nothing is missing, nothing is left over."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class

from orchestrator.agents import errors as model_errors
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.environments.errors import Cause
from orchestrator.environments.session import EpisodeSettings
from orchestrator.runs.queries import Tally
from orchestrator.searches.settings import SearchSettings
from rubrics.kinds import KINDS
from rubrics.types import Criterion
from tests.docs.pages import ROOT, names, read, rows, section
from tests.training.builders import make_step
from training.backends.base import OptimStats, PassStats
from training.behaviour import behaviour_metrics
from training.losses import build_streams
from training.metrics import step_metrics
from training.types import ObjectiveSpec

PACKAGES = ("orchestrator", "rubrics", "optimizer", "training")


@cache
def source_files() -> tuple[Path, ...]:
    return tuple(path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py")))


@cache
def nodes() -> tuple[ast.Call | ast.FunctionDef, ...]:
    """All calls and functions of the code."""
    return tuple(
        node
        for path in source_files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call | ast.FunctionDef)
    )


def calls(function: str) -> Iterator[ast.Call]:
    for node in nodes():
        if isinstance(node, ast.Call) and last_name(node.func) == function:
            yield node


def last_name(node: ast.expr) -> str:
    """`append` of `self.events.append`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def texts(nodes: Iterable[ast.expr | None]) -> set[str]:
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


# --- settings ------------------------------------------------------------------------------------

PAGE = "docs/reference/settings.md"
NAMED_ELSEWHERE = {"SWITCHBACK_CHROMIUM"}
"""Read by tests and `.ci/tools`, not by the product."""


def test_every_environment_variable_is_documented() -> None:
    read_by_code = set(NAMED_ELSEWHERE)
    for path in source_files():
        code = path.read_text(encoding="utf-8")
        read_by_code |= set(re.findall(r"\bSWITCHBACK_[A-Z_]+\b", code))
    settings = ROOT / "orchestrator" / "settings.py"
    getters = r'(?:env_\w+|environ\.get)\(\s*"([A-Z_]+)"'
    read_by_code |= set(re.findall(getters, settings.read_text(encoding="utf-8")))
    documented = {
        row[0].strip("`") for row in rows(section(PAGE, "Environment variables")) if row[0]
    }
    assert documented == read_by_code


@pytest.mark.parametrize(
    ("heading", "settings"),
    [
        ("Settings of a climb", ClimbSettings),
        ("Settings of a search", SearchSettings),
        ("Settings of an environment version", EpisodeSettings),
    ],
)
def test_every_setting_is_documented_with_its_default(heading: str, settings: type[Any]) -> None:
    documented = {row[0].strip("`"): row[1].strip("`") for row in rows(section(PAGE, heading))}
    assert documented == dict(defaults(settings))


def defaults(settings: type[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for item in fields(settings):
        value = default(item)
        if is_dataclass(value):
            yield from defaults(type(value), f"{item.name}.")
        else:
            # As a person writes it: no float in the style 1e-4, nothing where there is none.
            text = f"{value:.4f}".rstrip("0") if value == 1e-4 else str(value)
            if isinstance(value, tuple):
                text = ", ".join(map(str, value))
            yield f"{prefix}{item.name}", "" if value in (None, {}, ()) else text


def default(item: Field[Any]) -> Any:
    return item.default_factory() if item.default_factory is not MISSING else item.default


# --- commands ------------------------------------------------------------------------------------


def test_every_make_target_is_documented() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", read("Makefile"), flags=re.MULTILINE))
    assert names(section("docs/reference/commands.md", "make")) == targets


def test_every_make_variable_is_documented() -> None:
    used = set(re.findall(r"\$\((?:if \$\()?([A-Z]+)[),]", read("Makefile")))
    used -= {"SHELL", "VENV", "PY", "PIP", "PYTEST"}
    used -= {"MAKECMDGOALS", "MAKE"}
    used -= {"AUDIT", "RIVALS", "TRL"}  # folders
    used |= {"PYTHON"}  # read by the shell
    for name in used:
        assert f"`{name}=" in read("docs/reference/commands.md"), name


def test_every_command_and_option_is_documented() -> None:
    text = section("docs/reference/commands.md", "manage.py")
    ours = {name: app for name, app in get_commands().items() if app.startswith("orchestrator")}
    plain = load_command_class("django.core", "shell").create_parser("manage.py", "shell")
    shared = {text for action in plain._actions for text in action.option_strings}
    shared |= {"--skip-checks"}  # there where system checks run
    options = set()
    for name, app in ours.items():
        parser = load_command_class(app, name).create_parser("manage.py", name)
        own = {text for action in parser._actions for text in action.option_strings}
        options |= {(name, option) for option in own - shared}
    documented = {
        (command, option)
        for row in rows(text)
        if row[0].startswith("`--")
        for command in re.findall(r"`([a-z_]+)`", row[1])
        for option in re.findall(r"`([^`]+)`", row[0])
    }
    assert {name for name in names(text) if not name.startswith("--")} == set(ours)
    assert documented == options


def test_every_documented_module_can_be_run() -> None:
    modules = names(section("docs/reference/commands.md", "Modules"))
    runnable = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in source_files()
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    }
    # Started by other code alone.
    runnable -= {
        "orchestrator.environments.launch",
        "orchestrator.environments.packages.serve",
        "orchestrator.environments.servers.aca_child",
        "orchestrator.environments.sql.postgres_runner",
        "orchestrator.environments.sql.runner",
        "orchestrator.judging.code_server",
    }
    assert modules == runnable | {"benchmarks"}


# --- checks --------------------------------------------------------------------------------------


def test_every_system_check_is_documented() -> None:
    found = {
        text
        for function in ("Error", "Warning", "Critical", "Info")
        for call in calls(function)
        for text in texts(keyword.value for keyword in call.keywords if keyword.arg == "id")
    }
    assert found
    assert names(read("docs/reference/checks.md")) == found


# --- events --------------------------------------------------------------------------------------

EVENTS = "docs/reference/events.md"
STREAMS = (
    "Run",
    "Rollout",
    "Re-grade",
    "Registration of a source",
    "Tryout",
    "Climb",
    "Gate",
    "Search",
    "Training",
)
"""A kind that several of them have is documented with the fields of all."""


def payloads() -> dict[str, set[str] | None]:
    """Kind to the fields that the code writes; None where they are not written out at the call."""
    found: dict[str, set[str] | None] = {}
    for call in calls("NewEvent"):
        kind, payload = (call.args + [keyword.value for keyword in call.keywords])[:2]
        for text in texts([kind]):
            keys = fields_of(payload)
            found[text] = keys | (found.get(text) or set()) if keys is not None else None
    return found


def fields_of(payload: ast.expr) -> set[str] | None:
    if isinstance(payload, ast.Dict):
        return texts(payload.keys)
    if isinstance(payload, ast.Call):
        name = last_name(payload.func)
        functions = [
            node for node in nodes() if isinstance(node, ast.FunctionDef) and node.name == name
        ]
        returned = [
            node.value
            for function in functions
            for node in ast.walk(function)
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict)
        ]
        if len(returned) == 1:
            return texts(returned[0].keys)
    return None


def documented_events() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for heading in STREAMS:
        for row in rows(section(EVENTS, heading)):
            for kind in re.findall(r"`([^`]+)`", row[0]):
                found[kind] |= set(re.findall(r"`([^`]+)`", row[1]))
    return dict(found)


def test_every_event_kind_is_documented_with_its_fields() -> None:
    documented, written = documented_events(), payloads()
    assert documented.keys() == written.keys()
    known = {kind: keys for kind, keys in written.items() if keys is not None}
    assert {"action", "observation", "rung", "rollout"} <= known.keys()
    assert {kind: documented[kind] for kind in known} == known
    assert documented["tally"] == {item.name for item in fields(Tally)}


def test_every_training_metric_is_documented() -> None:
    sample = make_step()
    spec = ObjectiveSpec()
    metrics = step_metrics(
        rows=sample,
        streams=build_streams(sample, spec),
        spec=spec,
        learning_rate=1e-4,
        passes=PassStats(1.0, 1.0, 1.0, (0.1,), (1.0,), 1.0, 1, 10, 10, 1, 1.0),
        optim=OptimStats(1.0, False, 0),
    )
    measured = {*metrics, *behaviour_metrics(sample), "rss_mb", "staleness_max"}
    assert names(section(EVENTS, "Training job")) == measured


def test_every_kind_of_the_trainers_log_is_documented() -> None:
    kinds = set()
    for call in calls("append"):
        if isinstance(call.func, ast.Attribute) and last_name(call.func.value) == "events":
            kinds |= texts(call.args[:1])
    assert kinds
    prose = section(EVENTS, "Training job").split("The metrics")[0]
    for kind in kinds:
        assert f"`{kind}`" in prose


def test_every_cause_is_documented() -> None:
    prose = section(EVENTS, "Rollout")
    causes = {cause.value for cause in Cause}
    causes |= set(re.findall(r"(?:model|context)_[a-z_]+", model_errors.ModelError.__doc__ or ""))
    for call in (*calls("record_failure"), *calls("_record_failure")):
        causes |= texts(call.args)
    assert {"internal", "model_timeout"} <= causes
    for cause in causes:
        assert f"`{cause}`" in prose, cause


# --- rubrics -------------------------------------------------------------------------------------


def test_every_criterion_kind_and_field_is_documented() -> None:
    page = "docs/how-to/add-a-criterion.md"
    tables = rows(section(page, "To a rubric"))
    documented = {row[0].strip("`"): row for row in tables}
    assert documented.keys() == {item.name for item in fields(Criterion)} | set(KINDS)
    for kind in KINDS.values():
        listed = set(re.findall(r"`([^`]+)`", documented[kind.name][2]))
        assert listed == {param.name for param in kind.params}, kind.name
