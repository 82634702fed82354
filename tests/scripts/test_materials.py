"""The bill of materials and what an audit says, without the tools that need a network."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts import audit, sbom
from scripts.audit import Found

ROOT = Path(__file__).resolve().parents[2]


def test_every_pin_of_the_product_is_named_once() -> None:
    lines = sbom.pins().splitlines()
    assert len(lines) == len(set(lines))
    names = [line.partition("==")[0] for line in lines]
    assert {"django", "torch", "openenv"} <= {name.lower() for name in names}
    assert all(re.fullmatch(r"[\w.\-\[\],]+==[^\s]+", line) for line in lines)


def test_every_file_from_elsewhere_is_in_the_bill() -> None:
    text = (ROOT / "static/vendor/vendor.toml").read_text()
    components = sbom.vendored(text)
    hashes = {
        part["hashes"][0]["content"] for component in components for part in component["components"]
    }
    assert hashes == set(re.findall(r'sha256 = "([0-9a-f]{64})"', text))
    assert json.dumps(components) == json.dumps(sbom.vendored(text))


@pytest.mark.parametrize(
    ("found", "offline", "code", "words"),
    [
        (Found(audited=3), False, 0, "3 packages, no known weakness"),
        (Found(audited=3, unknown=1), False, 0, "1 are not known"),
        (Found(unknown=4), False, 2, "nothing was audited"),
        (Found(unknown=4), True, 0, "nothing was audited"),
        (Found(audited=3, weak=["x 1: PYSEC-1"]), True, 1, "PYSEC-1"),
    ],
)
def test_an_audit_that_read_nothing_is_no_success(
    found: Found, offline: bool, code: int, words: str
) -> None:
    given, said = audit.verdict(found, may_be_offline=offline)
    assert given == code
    assert words in said


def test_what_pip_audit_says_is_read() -> None:
    report: dict[str, Any] = {
        "dependencies": [
            {"name": "a", "version": "1", "vulns": []},
            {"name": "b", "skip_reason": "not found on PyPI"},
            {
                "name": "c",
                "version": "2",
                "vulns": [{"id": "PYSEC-9", "fix_versions": ["2.1"], "aliases": []}],
            },
        ]
    }
    found = audit.read(report)
    assert (found.audited, found.unknown) == (2, 1)
    assert found.weak == ["c 2: PYSEC-9, mended in 2.1"]
