from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from orchestrator.projects.models import Project
from orchestrator.traces.models import OutsideEvent
from tests.base import make_project

pytestmark = pytest.mark.django_db
EVENT = {"rollout": "r1", "id": "a", "seq": 1, "kind": "turn", "name": "n", "content": "one two"}


def run(name: str, path: Path, *args: Any) -> str:
    out = io.StringIO()
    call_command(name, str(path), *args, stdout=out)
    return out.getvalue()


def test_a_file_is_checked_and_nothing_stays(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    expect = {
        "ingest": {"accepted": 1},
        "read_back": "exact",
        "page": {"text_has": ["one two"]},
        "search": [{"q": "two", "hits": 1}],
    }
    path.write_text(json.dumps({"id": "plain", "event": EVENT, "expect": expect}) + "\n")
    assert "1 of 1 traces are as expected" in run("check_traces", path)
    assert (Project.objects.count(), OutsideEvent.objects.count()) == (0, 0)
    wrong = {**expect, "search": [{"q": "three", "hits": 1}], "order": ["b"]}
    path.write_text(json.dumps({"id": "wrong", "event": EVENT, "expect": wrong}) + "\n")
    with pytest.raises(CommandError, match="1 traces are not as expected"):
        run("check_traces", path)


def test_a_file_is_imported_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(f"{json.dumps(EVENT)}\n\nnope\n")
    project = str(make_project().pk)
    first = run("import_traces", path, "--project", project)
    assert "line 3: bad_json" in first
    assert "1 accepted, 0 known, 1 refused" in first
    assert "0 accepted, 1 known" in run("import_traces", path, "--project", project)
