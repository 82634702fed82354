"""The files of `deploy/` as data, and what the product has for the names in them."""

from __future__ import annotations

import importlib.util
import json
import lzma
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from django.core.management import get_commands
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
_SCHEMAS = Path(__file__).parent / "schemas"


@cache
def schema(name: str) -> Any:
    return json.loads(lzma.decompress((_SCHEMAS / f"{name}.json.xz").read_bytes()))


def validator(name: str, root: str = "") -> Validator:
    """Of a schema, or of what it defines as `root`. Not checked itself: that takes seconds."""
    found = schema(name)
    if root:
        found = {"$ref": f"#/$defs/{root}", "$defs": found["$defs"]}
    checker = validator_for(found, default=Draft202012Validator)
    return checker(found)


def documents(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def settings_known() -> set[str]:
    """Names of environment variables that the reference of settings tells."""
    text = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    names = set(re.findall(r"^\| `([A-Z][A-Z0-9_]+)`", text, re.MULTILINE))
    return names | {f"{name}_FILE" for name in names}


def assert_runs(command: Sequence[str]) -> None:
    """Whether a command line names programs and modules that there are."""
    words = list(command)
    if words[0] == "sh":
        for part in re.split(r"\|\||;", words[2]):
            inner = part.split()
            if inner and inner[0] in {"exec", "python"}:
                assert_runs([word for word in inner if word != "exec"])
            else:
                assert inner[:1] in ([], ["test"]), part
        return
    assert Path(words[0]).name == "python", words
    if words[1] == "manage.py":
        assert words[2] in get_commands(), words
    elif words[1] == "-m":
        assert importlib.util.find_spec(words[2]) is not None, words
        if words[2] == "celery":
            assert importlib.util.find_spec(words[words.index("-A") + 1]) is not None, words
            assert _queues(words) <= {"default", "rollouts", "gpu"}, words
        if words[2] == "orchestrator.web_process":
            # Read, not imported: importing it begins a web process.
            module, _, name = words[3].partition(":")
            source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()
            assert re.search(rf"^{name} = ", source, re.MULTILINE), words
    else:
        assert words[1] == "-c", words
        compile(words[2], "-c", "exec")


def _queues(words: list[str]) -> set[str]:
    named = words[words.index("-Q") + 1]
    return set() if named.startswith("$") else set(named.split(","))
