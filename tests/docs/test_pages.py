"""Links lead somewhere, and the list of dependencies is the list of what is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.pages import ROOT, links, names, section

PAGES = [
    "README.md",
    "CHANGELOG.md",
    *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")),
]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file(page: str) -> None:
    for link in links(page):
        target = (ROOT / page).parent / link.split("#")[0]
        assert target.exists(), link


@pytest.mark.parametrize("page", PAGES)
def test_every_path_in_code_quotes_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:orchestrator|rubrics|optimizer|training|tests)/[\w./]+)`", text)
    examples = {"orchestrator/environments/guess/"}
    for path in set(paths) - examples:
        assert (ROOT / path).exists(), path


def asked_for(source: Path) -> set[str]:
    lines = (line.split("#")[0].strip() for line in source.read_text(encoding="utf-8").splitlines())
    return {canonicalize_name(Requirement(line).name) for line in lines if line}


@pytest.mark.parametrize(
    "source", sorted((ROOT / "requirements").glob("*.in")), ids=lambda p: p.stem
)
def test_every_direct_dependency_has_its_reason(source: Path) -> None:
    listed = names(section("docs/dependencies.md", source.stem))
    assert {canonicalize_name(name) for name in listed} == asked_for(source)
