"""What proxies wrote into their files arrives in the database, once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments import egress
from orchestrator.environments.egress import collect, egress_page
from orchestrator.environments.models import EgressDecision, EgressLog, EnvironmentVersion
from orchestrator.environments.serving import data_folder
from tests.base import People
from tests.web.build import make_environment

pytestmark = pytest.mark.django_db


@pytest.fixture
def version(people: People) -> EnvironmentVersion:
    return make_environment(people.project)


@pytest.fixture
def log(version: EnvironmentVersion) -> Path:
    folder = data_folder() / f"v{version.pk}"
    # Rolled back numbers come again.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder / "decisions.jsonl"


def line(host: str, **fields: Any) -> str:
    record = {"t": 1_700_000_000.5, "host": host, "port": 443, "method": "CONNECT",
              "action": "deny", "reason": "not on the allow-list", **fields}  # fmt: skip
    return json.dumps(record) + "\n"


def hosts(version: EnvironmentVersion) -> list[str]:
    return list(
        EgressDecision.objects.filter(version=version).order_by("pk").values_list("host", flat=True)
    )


def test_without_a_file_there_is_nothing_to_collect(version: EnvironmentVersion) -> None:
    assert collect(version) == 0


def test_only_what_is_new_and_whole_is_stored(version: EnvironmentVersion, log: Path) -> None:
    log.write_text(line("a.example") + line("b.example", action="allow", reason=""))
    assert (collect(version), collect(version)) == (2, 0)
    half = line("c.example")
    with log.open("a") as file:
        file.write(half[:20])
    assert collect(version) == 0
    with log.open("a") as file:
        file.write(half[20:])
    assert collect(version) == 1
    assert hosts(version) == ["a.example", "b.example", "c.example"]
    stored = EgressDecision.objects.get(version=version, host="b.example")
    assert (stored.action, stored.port, stored.at.year) == ("allow", 443, 2023)


def test_several_files_and_one_that_begins_anew(version: EnvironmentVersion, log: Path) -> None:
    log.write_text(line("a.example") + line("b.example"))
    log.with_name("decisions-2.jsonl").write_text(line("z.example"))
    assert collect(version) == 3
    log.write_text(line("new.example"))
    assert collect(version) == 1


def test_foreign_lines_are_left_out(version: EnvironmentVersion, log: Path) -> None:
    log.write_text(
        'garbage\n{"t": "x"}\n[1]\n'
        + line("a" * 300, reason="r" * 500, method="m" * 40, t=1e300)
        + line("a" * 300, reason="r" * 500, method="m" * 40)
    )
    assert collect(version) == 1
    assert hosts(version) == ["a" * 255]


def test_a_reader_that_comes_too_late_stores_nothing_twice(
    version: EnvironmentVersion, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_text(line("a.example"))
    real = egress._row

    def overtaken(version_id: int, text: bytes) -> EgressDecision | None:
        monkeypatch.setattr(egress, "_row", real)
        assert collect(version) == 1
        return real(version_id, text)

    monkeypatch.setattr(egress, "_row", overtaken)
    assert collect(version) == 0
    assert hosts(version) == ["a.example"]
    assert EgressLog.objects.get(version=version).offset_bytes == log.stat().st_size


def test_the_oldest_give_way(
    version: EnvironmentVersion, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "KEPT", 3)
    log.write_text("".join(line(f"h{i}.example") for i in range(5)))
    assert collect(version) == 5
    assert hosts(version) == ["h2.example", "h3.example", "h4.example"]


def test_a_page_filters_and_goes_on(
    version: EnvironmentVersion, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "PAGE", 2)
    log.write_text(
        "".join(line(f"h{i}.example", action="allow" if i % 2 else "deny") for i in range(6))
    )
    collect(version)
    first = egress_page(version.pk)
    assert [d.host for d in first.decisions] == ["h5.example", "h4.example"]
    assert (first.n_allowed, first.n_denied) == (3, 3)
    second = egress_page(version.pk, before=first.before)
    assert [d.host for d in second.decisions] == ["h3.example", "h2.example"]
    assert egress_page(version.pk, action="deny", text="H4").decisions[0].host == "h4.example"
    assert egress_page(version.pk, text="none").before is None
