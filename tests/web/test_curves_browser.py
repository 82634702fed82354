"""Interactive charts in a real browser: under the content security policy, in both schemes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.base import make_people
from tests.browser import sign_in
from tests.live import LiveStack
from tests.web.looks import faults_of
from tests.web.training_rows import make_trained_job

pytestmark = pytest.mark.browser

LINES = ".scatterlayer .trace path.js-line"


class Desk:
    """A project with three trained jobs, and a signed-in page."""

    def __init__(self, page: Page, stack: LiveStack, folder: Path) -> None:
        people = make_people()
        self.page, self.stack, self.project = page, stack, people.project
        self.jobs = [
            make_trained_job(people.project, folder / name, name=name, device="", state="completed")
            for name in ("First <job>", "Second", "Third")
        ]
        sign_in(page, stack, people.owner)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.stack.url}/p/{self.project.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")

    def open_drawn(self, path: str) -> None:
        self.open(path)
        if "curves/" in path:
            expect(self.plot("reward")).to_have_attribute("data-state", "drawn")

    def plot(self, key: str) -> Locator:
        return self.page.locator(f"[data-plot={key}]")


@pytest.fixture
def desk(page: Page, live_stack: LiveStack, tmp_path: Path) -> Iterator[Desk]:
    yield Desk(page, live_stack, tmp_path)
    page.goto("about:blank")


def test_curves_are_drawn_in_their_jobs_colours_and_follow_the_choices(desk: Desk) -> None:
    first, second, third = desk.jobs
    desk.open_drawn(f"train/curves/?job={first.pk}&job={second.pk}")
    reward = desk.plot("reward")
    # Two lines; the third job is the crowd: the edges of two bands, and a median.
    expect(reward.locator(LINES)).to_have_count(2 + 5)
    token = f"getComputedStyle(document.body).getPropertyValue('--run-{first.pk % 10}').trim()"
    desk.page.evaluate(
        f"() => {{ window.probe = document.createElement('i'); "
        f"probe.style.color = {token}; document.body.append(probe) }}"
    )
    colour = desk.page.evaluate("() => getComputedStyle(probe).color")
    drawn = reward.locator(LINES).evaluate_all("all => all.map(e => e.style.stroke)")
    assert colour in drawn
    # What had no score is hatched below, and a step without a finite value is a cross.
    expect(reward.locator(".barlayer .point path")).not_to_have_count(0)
    expect(desk.plot("gradient")).to_have_count(1)

    desk.page.get_by_role("checkbox", name="Third").check()
    expect(reward.locator(LINES)).to_have_count(3)
    expect(desk.page).to_have_url(re.compile(rf"job={third.pk}"))
    desk.page.get_by_role("button", name="None").click()
    desk.page.get_by_role("checkbox", name="All others").uncheck()
    expect(reward.get_by_text("Tick a job to see it.")).to_be_visible()

    desk.page.get_by_role("searchbox", name="Find jobs").fill("sec")
    expect(desk.page.get_by_role("checkbox", name="Second")).to_be_visible()
    expect(desk.page.get_by_role("checkbox", name="First")).to_be_hidden()


def test_the_address_brings_the_choices_back(desk: Desk) -> None:
    desk.open_drawn(f"train/curves/?job={desk.jobs[0].pk}&by=time&smooth=0.5&log=&crowd=0")
    expect(desk.plot("reward").locator(LINES)).to_have_count(2)  # measured, faint, and smoothed
    expect(desk.plot("reward").locator(".xtitle")).to_have_text("minutes")
    expect(desk.page.locator("[data-smooth-said]")).to_have_text("0.50")
    # What is measured now and then is not smoothed.
    expect(desk.plot("held_out").locator(LINES)).to_have_count(1)
    expect(desk.page.get_by_role("checkbox", name="Logarithmic")).to_be_checked()


def test_a_gap_is_a_cross_and_a_curve_of_a_job_is_enlarged(desk: Desk) -> None:
    desk.open(f"train/{desk.jobs[0].pk}/")
    desk.page.get_by_role("button", name="Enlarge Gradient norm").click()
    dialog = desk.page.get_by_role("dialog", name="Gradient norm")
    # The fifth step was skipped: the line has two parts.
    expect(dialog.locator(LINES)).to_have_count(2)
    expect(dialog.locator(".scatterlayer .trace.scatter .points path")).not_to_have_count(0)
    expect(dialog.get_by_text("A click on a point")).to_be_visible()
    desk.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_a_server_that_fails_is_said_and_asked_again(desk: Desk) -> None:
    address = re.compile(r"/curves/data/")

    def refuse(route: Route) -> None:
        route.fulfill(status=500, body="")

    desk.page.route(address, refuse)
    desk.open("train/curves/")
    again = desk.plot("reward").get_by_role("button", name="Try again")
    expect(again).to_be_visible()
    desk.page.unroute(address, refuse)
    again.click()
    expect(desk.plot("reward")).to_have_attribute("data-state", "drawn")
    desk.page.complaints.clear()  # type: ignore[attr-defined] # the answers 500


def test_nothing_is_wrong_with_its_looks(desk: Desk) -> None:
    assert not faults_of(desk.page, desk.open_drawn, ["train/curves/"])


def test_the_charts_change_with_the_scheme(desk: Desk) -> None:
    desk.page.emulate_media(color_scheme="light")
    desk.open_drawn("train/curves/")
    tick = desk.plot("reward").locator(".xtick text").first
    before = tick.evaluate("e => e.style.fill")
    desk.page.emulate_media(color_scheme="dark")
    expect(tick).not_to_have_css("fill", before)
