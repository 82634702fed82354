"""The pages of harnesses in a real browser: readable in both schemes and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from optimizer.harness import save_folder
from optimizer.models import HarnessVersion
from optimizer.store import load_harness
from tests.base import make_people
from tests.browser import sign_in
from tests.live import LiveStack
from tests.web.harness_rows import BETTER, FULL, make_shelf
from tests.web.looks import faults_of

pytestmark = pytest.mark.browser


class Desk:
    """A project with a library, and a signed-in page."""

    def __init__(self, page: Page, stack: LiveStack) -> None:
        self.people = make_people()
        self.page, self.stack, self.project = page, stack, self.people.project
        self.shelf = make_shelf(self.people)
        sign_in(page, stack, self.people.owner)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.stack.url}/p/{self.project.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")

    @property
    def paths(self) -> list[str]:
        seed, full = self.shelf.seed.pk, self.shelf.full.pk
        return [
            "harnesses/",
            f"harnesses/{full}/",
            f"harnesses/{seed}/diff/{full}/",
            f"harnesses/{full}/edit/?file=skills/count-lines/SKILL.md",
            "harnesses/import/",
            "harnesses/releases/",
            f"runs/{self.shelf.run.pk}/",
        ]


@pytest.fixture
def desk(page: Page, live_stack: LiveStack) -> Iterator[Desk]:
    yield Desk(page, live_stack)
    page.goto("about:blank")


def test_axe_finds_nothing_in_either_scheme_and_a_phone_scrolls_no_page_sideways(
    desk: Desk,
) -> None:
    assert not faults_of(desk.page, desk.open, desk.paths)


def test_a_text_is_changed_looked_at_and_saved(desk: Desk) -> None:
    page = desk.page
    desk.open(f"harnesses/{desk.shelf.seed.pk}/")
    page.get_by_role("link", name="Edit the instructions").click()
    page.get_by_label("Text", exact=True).fill(BETTER)
    page.get_by_role("button", name="Show what changes").click()
    expect(page.locator(".hdiff ins").filter(has_text="List the files")).to_be_visible()
    page.get_by_role("button", name="Save as a new harness").click()
    expect(page.get_by_text("Saved as")).to_be_visible()
    expect(page.get_by_text("Never open a file with an editor.")).to_be_visible()
    newest = HarnessVersion.objects.filter(project=desk.project).latest("pk")
    assert load_harness(newest).instructions == BETTER


def test_a_folder_is_chosen_and_imported(desk: Desk, tmp_path: Path) -> None:
    page = desk.page
    save_folder(FULL, tmp_path / "mine")
    (tmp_path / "mine" / "instructions.md").write_text("From a folder.\n")
    desk.open("harnesses/import/")
    page.get_by_label("or a folder").set_input_files(tmp_path / "mine")
    expect(page.get_by_text(f"{len(FULL.components())} files chosen")).to_be_visible()
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("From a folder.")).to_be_visible()
    newest = HarnessVersion.objects.filter(project=desk.project).latest("pk")
    assert [skill.name for skill in load_harness(newest).skills] == ["count-lines", "dates"]
