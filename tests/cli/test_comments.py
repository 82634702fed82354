"""One comment for a request, renewed in place."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from switchback_cli.main import app, main
from tests.cli.forge import Forge, forge
from tests.cli.recipes import RECIPES, shell_of

NAMES = (
    *("GITHUB_REPOSITORY", "GITHUB_TOKEN", "GITHUB_API_URL", "GITHUB_EVENT_NAME"),
    *("GITHUB_REF_NAME", "CI_PROJECT_ID", "CI_MERGE_REQUEST_IID", "CHANGE_ID"),
)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    with forge() as made:
        yield made


def post(text: str, folder: Path) -> int:
    path = folder / "comment.md"
    path.write_text(text)
    return main(["comment", str(path)])


@pytest.mark.parametrize("kind", ["github", "gitlab", "jenkins"])
def test_the_second_comment_takes_the_place_of_the_first(
    kept: Forge, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in kept.environ(kind).items():
        monkeypatch.setenv(name, value)
    kept.comments += [{"id": n, "body": f"talk {n}"} for n in range(150)]
    assert post("<!-- switchback-gate -->\nfirst\n", tmp_path) == 0
    assert post("<!-- switchback-gate -->\nsecond\n", tmp_path) == 0
    assert post("<!-- switchback-gate invoices -->\nother\n", tmp_path) == 0
    mine = [c["body"] for c in kept.comments if "switchback" in c["body"]]
    assert mine == [
        "<!-- switchback-gate -->\nsecond\n",
        "<!-- switchback-gate invoices -->\nother\n",
    ]
    assert set(kept.secrets) == {"glpat" if kind == "gitlab" else "Bearer ghs"}


def test_what_is_missing_is_named(
    kept: Forge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert post("<!-- switchback-gate -->\n", tmp_path) == 0
    assert "no pull request" in capsys.readouterr().err
    for name, value in kept.environ("github").items():
        monkeypatch.setenv(name, value)
    assert post("no mark\n", tmp_path) == 3
    monkeypatch.delenv("GITHUB_TOKEN")
    assert post("<!-- switchback-gate -->\n", tmp_path) == 3
    assert "GITHUB_TOKEN is not set" in capsys.readouterr().err
    monkeypatch.setenv("GITHUB_TOKEN", "x")
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/other")
    assert post("<!-- switchback-gate -->\n", tmp_path) == 3
    assert "HTTP 404" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_use_options_that_there_are(recipe: str) -> None:
    command = typer.main.get_command(app).commands["gate"]  # type: ignore[attr-defined] # a group
    known = {option for parameter in command.params for option in parameter.opts}
    text = shell_of(recipe).replace("\\\n", " ")
    gate = next(line for line in text.splitlines() if "switchback gate" in line)
    used = {word for word in shlex.split(gate) if word.startswith("--")}
    assert {"--harness", "--baseline", "--markdown"} <= used <= known
    assert "switchback comment" in text
