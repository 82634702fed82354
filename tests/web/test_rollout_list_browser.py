"""The list of rollouts in a browser: completion, bars, ticks, the drawer and its address."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from orchestrator.projects.models import Project
from orchestrator.runs.models import Run
from tests.base import make_people
from tests.browser import sign_in
from tests.live import LiveStack
from tests.web.build import make_rollout, make_run, make_trace, tasks_of
from tests.web.looks import faults_of

pytestmark = pytest.mark.browser


class Desk:
    """A run with rollouts of every look, and a signed-in page."""

    def __init__(self, page: Page, stack: LiveStack) -> None:
        people = make_people()
        self.page, self.stack = page, stack
        self.project: Project = people.project
        self.run: Run = make_run(self.project)
        tasks = tasks_of(self.run)
        for number, score in enumerate((0.1, 0.6, 1.0)):
            make_trace(make_rollout(self.run, tasks[number], score=score))
        make_rollout(self.run, tasks[0], replicate=1, state="errored", cause="lost", message="gone")
        make_rollout(self.run, tasks[1], replicate=1, state="pending", answer="")
        sign_in(page, stack, people.owner)

    def open(self, path: str = "rollouts/") -> None:
        self.page.goto(f"{self.stack.url}/p/{self.project.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")


@pytest.fixture
def desk(page: Page, live_stack: LiveStack) -> Iterator[Desk]:
    yield Desk(page, live_stack)
    page.goto("about:blank")


def test_axe_finds_nothing_in_either_scheme_and_a_phone_scrolls_no_page_sideways(
    desk: Desk,
) -> None:
    first = desk.run.rollouts.order_by("pk").first()
    assert first is not None
    paths = [
        "rollouts/",
        "rollouts/?q=score+%3C+",
        "rollouts/?q=score+%3E+5",
        f"rollouts/?open={first.pk}",
        f"rollouts/re-grade/?rollout={first.pk}",
        "runs/?q=score+%3E+0",
    ]

    def opened(path: str) -> None:
        desk.open(path)
        if "open=" in path:
            expect(desk.page.locator("#peek .verdict")).to_be_visible()

    assert not faults_of(desk.page, opened, paths)


def test_the_field_completes_fields_and_values(desk: Desk) -> None:
    page = desk.page
    desk.open()
    field = page.get_by_label("Filter", exact=True)
    with page.expect_response(lambda answer: "words.json" in answer.url):
        field.focus()
    field.press_sequentially("stat")
    option = page.get_by_role("option", name="state of the rollout")
    expect(option).to_be_visible()
    field.press("Enter")
    expect(field).to_have_value("state")
    field.press_sequentially(" = err")
    expect(page.get_by_role("option", name="errored")).to_be_visible()
    field.press("Tab")
    expect(field).to_have_value("state = errored")
    expect(page.locator("[data-tinted] .f")).to_have_text("state")
    field.press("Enter")
    expect(page.locator("tr[data-row]")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"q=state\+%3D\+errored"))


def test_what_is_typed_before_the_words_came_is_completed_then(desk: Desk) -> None:
    page = desk.page
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile(r"words\.json"), hold)
    desk.open()
    field = page.get_by_label("Filter", exact=True)
    with page.expect_request(re.compile(r"words\.json")):
        field.focus()
    field.press_sequentially("stat")
    held[0].continue_()
    expect(page.get_by_role("option", name="state of the rollout")).to_be_visible()


def test_a_bar_narrows_and_ticks_lead_to_a_comparison(desk: Desk) -> None:
    page = desk.page
    desk.open()
    expect(page.locator("tr[data-row]")).to_have_count(5)
    page.get_by_role("link", name="score 0.6 to 0.7: 1 rollout").click()
    expect(page.locator("tr[data-row]")).to_have_count(1)
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("tr[data-row]")).to_have_count(5)
    compare = page.get_by_role("button", name="Compare")
    expect(compare).to_be_disabled()
    page.locator("tbody input[type=checkbox]").nth(3).check()
    page.locator("tbody input[type=checkbox]").nth(4).check()
    expect(page.locator("[data-ticked]")).to_have_text("2 ticked")
    expect(page.get_by_role("link", name="CSV")).to_have_attribute(
        "href", re.compile(r"export\.csv\?rollout=\d+&rollout=\d+$")
    )
    compare.click()
    expect(page.get_by_role("heading", name="Step by step")).to_be_visible()


def test_the_drawer_opens_steps_and_closes_with_its_address(desk: Desk) -> None:
    page = desk.page
    desk.open()
    rows = page.locator("tr[data-row]")
    last = rows.nth(4)
    last.locator("a.main-link").click()
    drawer = page.get_by_role("dialog")
    verdicts = drawer.get_by_role("region", name="Verdicts")
    expect(verdicts.get_by_text("The answer is right")).to_be_visible()
    expect(page).to_have_url(re.compile(rf"open={last.get_attribute('data-id')}"))
    drawer.locator("details.peek-event").nth(2).locator("summary").click()
    expect(drawer.locator(".peek-card article.env")).to_contain_text("3 list1.txt")
    drawer.get_by_label("Find in the trace").fill("list1.txt")
    expect(drawer.locator(".is-hit")).to_have_count(3)
    drawer.locator("[data-peek-body]").focus()
    page.keyboard.press("ArrowUp")
    expect(page).to_have_url(re.compile(rf"open={rows.nth(3).get_attribute('data-id')}"))
    expect(rows.nth(3)).to_have_class(re.compile("is-open"))
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(page).not_to_have_url(re.compile("open="))
    page.go_forward()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_role("link", name="Full page").click()
    expect(page).to_have_url(re.compile(r"/rollouts/\d+/$"))


def test_a_view_is_kept_from_the_menu(desk: Desk) -> None:
    page = desk.page
    desk.open("rollouts/?q=score+%3C+0.5")
    page.locator("details.views > summary").click()
    page.get_by_label("Keep this list as").fill("Low ones")
    page.get_by_label("for everybody in the project").check()
    page.get_by_role("button", name="Keep view").click()
    expect(page.get_by_text("The view “Low ones” is kept for everybody")).to_be_visible()
    page.locator("details.views > summary").click()
    page.get_by_role("link", name="Low ones").click()
    expect(page.locator("tr[data-row]")).to_have_count(1)
