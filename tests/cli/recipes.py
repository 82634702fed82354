"""The shell of the recipes in `examples/ci`, as each CI system would run it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "ci"
RECIPES = ("github-actions.yml", "gitlab-ci.yml", "Jenkinsfile")


def steps_of(recipe: str) -> tuple[str, str]:
    """What the job does, and what it does whether that ended well or not; without installing."""
    text = (FOLDER / recipe).read_text(encoding="utf-8")
    if recipe == "Jenkinsfile":
        gate = re.findall(r"sh '''(.*?)'''", text, flags=re.S)
        always = re.findall(r"sh '([^'\n]*switchback comment[^'\n]*)'", text)
        # Groovy reads the text first: a backslash at the end of a line joins it with the next.
        return gate[0].replace("\\\n", " "), always[0]
    made: dict[str, Any] = yaml.safe_load(text)
    if recipe == "gitlab-ci.yml":
        job = made["agent-gate"]
        return "\n".join(job["script"]), "\n".join(job["after_script"])
    steps = [step for step in made["jobs"]["gate"]["steps"] if "run" in step]
    work = [step["run"] for step in steps if "if" not in step and "pip " not in step["run"]]
    always = [step["run"] for step in steps if step.get("if") == "always()"]
    return "\n".join(work), "\n".join(always)


def shell_of(recipe: str) -> str:
    return "\n".join(steps_of(recipe))
