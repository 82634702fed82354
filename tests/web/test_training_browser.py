"""The pages of Train in a real browser: readable in both schemes and on a phone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from orchestrator.trainings.folders import adapter_folder
from tests.base import make_people
from tests.browser import sign_in
from tests.live import LiveStack
from tests.web.test_browser import PHONE, SCHEMES, SETTLED, violations
from tests.web.training_rows import make_sweep, make_trained_job

pytestmark = pytest.mark.browser


class Desk:
    """A project with a trained job and a sweep that waits, and a signed-in page."""

    def __init__(self, page: Page, stack: LiveStack, folder: Path) -> None:
        people = make_people()
        self.page, self.stack, self.project = page, stack, people.project
        self.job = make_trained_job(people.project, folder)
        adapter_folder(self.job.checkpoints.get(step=8)).mkdir(parents=True)
        self.sweep = make_sweep(people)
        sign_in(page, stack, people.owner)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.stack.url}/p/{self.project.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")

    @property
    def paths(self) -> dict[str, str]:
        return {
            "train": "train/",
            "new": "train/new/",
            "job": f"train/{self.job.pk}/",
            "step": f"train/{self.job.pk}/steps/3/",
            "group": f"train/{self.job.pk}/steps/2/groups/train-0001/",
            "sweep": f"train/sweeps/{self.sweep.pk}/",
        }


@pytest.fixture
def desk(page: Page, live_stack: LiveStack, tmp_path: Path) -> Iterator[Desk]:
    yield Desk(page, live_stack, tmp_path)
    page.goto("about:blank")


def test_axe_finds_nothing_in_either_scheme_and_a_phone_scrolls_no_page_sideways(
    desk: Desk,
) -> None:
    found: dict[str, object] = {}
    pictures = os.environ.get("SWITCHBACK_PICTURES")  # a folder, for whoever wants to look
    for name, path in desk.paths.items():
        desk.open(path)
        for scheme in SCHEMES:
            desk.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            desk.page.evaluate(SETTLED)
            if problems := violations(desk.page):
                found[f"{path} {scheme}"] = problems
            if pictures:
                desk.page.screenshot(path=f"{pictures}/{name}-{scheme}.png", full_page=True)
        before = desk.page.viewport_size
        desk.page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
        over = desk.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if over > 0:
            found[f"{path} at phone width"] = over
        if pictures:
            desk.page.screenshot(path=f"{pictures}/{name}-phone.png", full_page=True)
        assert before is not None
        desk.page.set_viewport_size(before)
    assert not found


def test_a_point_on_a_curve_leads_to_its_rollouts_and_on_to_a_group(desk: Desk) -> None:
    desk.open(desk.paths["job"])
    desk.page.locator(".metric.red, .metric").first.locator("a .hit").nth(2).click()
    expect(desk.page.get_by_role("heading", level=1)).to_have_text("Step 3")
    desk.page.get_by_role("link", name="train-0001").click()
    expect(desk.page.get_by_text("rewards differ")).to_be_visible()
    expect(desk.page.locator("tr.diverges")).to_have_count(1)
