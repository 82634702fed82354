"""The recipes of `examples/ci` run: real shell, real command line, real server, a forge of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from orchestrator.environments.models import Environment
from orchestrator.gates.models import Gate
from orchestrator.projects.models import Role
from orchestrator.projects.services import issue_token
from rubrics.models import Rubric
from tests.base import People
from tests.cli.forge import forge
from tests.cli.recipes import FOLDER, RECIPES, steps_of
from tests.live import LiveStack
from tests.runs.drive import make_endpoint, make_rubric
from tests.searches.playing import make_version

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
ROOT = FOLDER.parents[1]
KINDS = dict(zip(RECIPES, ("github", "gitlab", "jenkins"), strict=True))


@dataclass
class Checkout:
    """Of a pull request whose base has an agent already."""

    folder: Path

    def git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.folder, check=True, capture_output=True)

    def write(self, text: str) -> None:
        (self.folder / "agent").mkdir(exist_ok=True)
        (self.folder / "agent" / "instructions.md").write_text(text)

    def make(self, before: str, after: str) -> None:
        self.git("init", "-q", "-b", "topic")
        self.write(before)
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "before")
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        self.write(after)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_posts_one_comment_whatever_comes(
    people: People, live_stack: LiveStack, tmp_path: Path, recipe: str
) -> None:
    version = make_version(people.project, {"select": 8})
    Environment.objects.filter(pk=version.environment_id).update(slug="invoices")
    make_rubric(people.project)
    Rubric.objects.update(name="invoices")
    make_endpoint(people.project, "http://127.0.0.1:9", name="production")
    token = issue_token(
        actor=people.editor, project_id=people.project.pk, name="ci", role=Role.EDITOR
    ).secret
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "switchback"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m switchback_cli "$@"\n')
    command.chmod(0o755)
    checkout = Checkout(tmp_path / "checkout")
    checkout.folder.mkdir()
    checkout.make("Act.\n", "Act.\n")
    with forge() as kept:
        environ = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT),
            "SWITCHBACK_URL": live_stack.url,
            "SWITCHBACK_TOKEN": token,
            **kept.environ(KINDS[recipe]),
            "RUNNER_TEMP": str(tmp_path / "runner"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "BASE_REF": "main",
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
            "CHANGE_TARGET": "main",
            "TITLE": "Say please",
            "CI_MERGE_REQUEST_TITLE": "Say please",
            "CHANGE_TITLE": "Say please",
        }
        # The agent did not change: nothing is run, and this recipe accepts that.
        assert job(recipe, checkout, environ) == 0
        gate = Gate.objects.get()
        assert (gate.verdict, gate.reason, gate.name) == ("inconclusive", "same", "Say please")
        assert gate.source["pull_request"] == "12"
        assert [c["body"] for c in kept.comments] == [comment_of(checkout, tmp_path)]
        # It did, and its environment cannot be reached.
        checkout.write("Act. Please.\n")
        assert job(recipe, checkout, environ) == 3
        assert Gate.objects.order_by("-id")[0].verdict == "infrastructure"
        assert len(kept.comments) == 1
        assert "not decided: infrastructure" in kept.comments[0]["body"]
        case = next(ElementTree.parse(report_of(checkout, tmp_path)).getroot().iter("testcase"))
        assert case.find("error") is not None
        # The token is gone: no gate, and the comment says so.
        assert job(recipe, checkout, {**environ, "SWITCHBACK_TOKEN": "swb_none"}) == 3
        assert Gate.objects.count() == 2
        assert len(kept.comments) == 1 and "HTTP 401" in kept.comments[0]["body"]


def job(recipe: str, checkout: Checkout, environ: dict[str, str]) -> int:
    """Runs its steps as the CI system does: it stops at the first that fails, then the rest."""
    work, always = steps_of(recipe)
    code = bash(work, checkout, environ)
    assert bash(always, checkout, environ) == 0
    return code


def bash(script: str, checkout: Checkout, environ: dict[str, str]) -> int:
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=checkout.folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    print(done.stdout, done.stderr)
    return done.returncode


def report_of(checkout: Checkout, folder: Path) -> Path:
    found = [folder / "runner/gate/junit.xml", checkout.folder / "gate/junit.xml"]
    return next(path for path in found if path.exists())


def comment_of(checkout: Checkout, folder: Path) -> str:
    return report_of(checkout, folder).with_name("comment.md").read_text()
