"""The Dockerfile: what it copies and runs is there, nobody is root, and `web` has no torch."""

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import dataclass, field

import pytest

from tests.deploy.reading import DEPLOY, ROOT, assert_runs, settings_known


@dataclass
class Stage:
    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [text for name, text in self.steps if name == instruction]


def stages() -> dict[str, Stage]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\\n\s*", "", text)
    found: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    stage = None
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            match = re.fullmatch(r"(\S+) AS (\S+)", rest)
            assert match, line
            stage = Stage(match[2], match[1])
            found[stage.name] = stage
        elif instruction == "ARG" and stage is None:
            name, _, value = rest.partition("=")
            arguments[name] = value
        else:
            assert stage is not None, line
            stage.steps.append((instruction, rest))
    for each in found.values():
        each.base = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], each.base)
    return found


def lineage(name: str) -> list[Stage]:
    """A stage and what it is made from, the first one last."""
    found, all_stages = [], stages()
    while name in all_stages:
        found.append(all_stages[name])
        name = all_stages[name].base
    return found


TARGETS = ("web", "worker", "all")


def test_bases_are_stages_or_pinned_to_a_python_that_we_support() -> None:
    found = stages()
    assert set(TARGETS) < set(found)
    for stage in found.values():
        if stage.base not in found:
            match = re.fullmatch(r"python:3\.(\d+)-slim-\w+", stage.base)
            assert match and int(match[1]) >= 11, stage.base


def test_whatever_is_copied_is_there_and_not_ignored() -> None:
    rules = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    assert rules[0] == "*"
    taken = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    for stage in stages().values():
        for text in stage.all("COPY"):
            words = text.split()
            if words[0].startswith("--from="):
                assert words[0].removeprefix("--from=") in stages()
                continue
            for source in words[:-1]:
                assert (ROOT / source).exists(), source
                assert any(fnmatch.fnmatch(source, rule) for rule in taken), source


def test_every_package_of_the_product_is_in_the_image() -> None:
    """A new top-level package would be missing there, and only there."""
    copied = {text.split()[0] for text in stages()["runtime"].all("COPY")}
    packages = {
        path.parent.name
        for path in ROOT.glob("*/__init__.py")
        if path.parent.name not in {"tests", "benchmarks", "scripts"}
    }
    assert packages <= copied


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_runs_as_nobody_special_and_its_command_exists(target: str) -> None:
    line = lineage(target)
    users = [user for stage in line for user in stage.all("USER")]
    assert users == ["10001:10001"]  # numbers, of the last stage: nothing runs as root after it
    assert line[0].steps[-1][0] == "CMD"
    assert_runs(json.loads(line[0].all("CMD")[0]))
    (check,) = line[0].all("HEALTHCHECK")
    if check != "NONE":
        assert_runs(json.loads(check[check.index("CMD ") + 4 :]))
        assert "/healthz" in check
    assert [entry for stage in line for entry in stage.all("ENTRYPOINT")] == ['["tini", "--"]']


@pytest.mark.parametrize(
    ("target", "has", "has_not"),
    [
        ("web", {"base.txt", "s3.txt"}, {"env.txt", "ml.txt"}),
        ("worker", {"base.txt", "env.txt"}, {"ml.txt"}),
        ("all", {"base.txt", "env.txt", "ml.txt"}, set()),
    ],
)
def test_a_target_has_the_requirements_of_its_processes(
    target: str, has: set[str], has_not: set[str]
) -> None:
    (venv,) = [text.split()[0] for text in stages()[target].all("COPY") if "/opt/venv" in text]
    text = " ".join(
        step for stage in lineage(venv.removeprefix("--from=")) for step in stage.all("RUN")
    )
    assert all(name in text for name in has)
    assert not any(name in text for name in has_not)


def test_variables_are_ones_that_the_product_reads() -> None:
    names = {
        name
        for stage in stages().values()
        for text in stage.all("ENV")
        for name in re.findall(r"(\w+)=", text)
        if name.startswith("SWITCHBACK_")
    }
    assert names == {"SWITCHBACK_DATA"} <= settings_known()
