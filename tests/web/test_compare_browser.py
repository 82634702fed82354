"""Comparison, report and Overview in a real browser: readable in both schemes and on a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from orchestrator.runs.models import Run
from tests.base import make_people
from tests.browser import sign_in
from tests.live import LiveStack
from tests.web.build import make_climb, make_run, make_training_job
from tests.web.compare_rows import make_compared
from tests.web.looks import faults_of
from tests.web.test_browser import violations

pytestmark = pytest.mark.browser


class Desk:
    """A project with three runs on the same tasks and things that need somebody."""

    def __init__(self, page: Page, stack: LiveStack) -> None:
        self.people = make_people()
        self.page, self.stack, self.project = page, stack, self.people.project
        self.compared = make_compared(self.project, tasks=6)
        self.climb = make_climb(self.project, state="completed")
        make_training_job(self.project, pause_reason="entropy fell below 0.1")
        make_run(self.project, label="Nightly", state="failed", error="No such host.")
        left, right = (run.rollouts.get(task__key="test-0003", replicate=0) for run in self.pair)
        self.difference = f"compare/rollouts/{left.pk}/{right.pk}/"
        sign_in(page, stack, self.people.owner)

    @property
    def pair(self) -> tuple[Run, Run]:
        return self.compared.base, self.compared.better

    def open(self, path: str) -> None:
        self.page.goto(f"{self.stack.url}/p/{self.project.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")

    @property
    def paths(self) -> list[str]:
        query = self.compared.query
        return [
            "",
            "compare/",
            f"compare/{query}",
            f"compare/{query}&layout=grid&words=1&show=errors",
            self.difference,
            f"ladder/{self.climb.pk}/",
        ]


@pytest.fixture
def desk(page: Page, live_stack: LiveStack) -> Iterator[Desk]:
    yield Desk(page, live_stack)
    page.goto("about:blank")


def test_axe_finds_nothing_in_either_scheme_and_a_phone_scrolls_no_page_sideways(
    desk: Desk,
) -> None:
    assert not faults_of(desk.page, desk.open, desk.paths)


def test_runs_are_chosen_compared_and_opened_side_by_side(desk: Desk) -> None:
    page = desk.page
    desk.open("compare/")
    page.get_by_role("checkbox", name="Baseline").check()
    page.get_by_role("checkbox", name="Better harness").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Task by task")).to_be_visible()
    # The choice is sent by itself; the page that comes says how many rows it hides.
    page.get_by_role("checkbox", name="differs only").click()
    expect(page.get_by_text("equal hidden")).to_be_visible()
    page.get_by_role("link", name="worst regression").click()
    expect(page.get_by_role("link", name="worst regression")).to_have_attribute(
        "aria-current", "true"
    )
    page.locator("tr#t-test-0003 a.main-link").click()
    expect(page.get_by_role("heading", name="Step by step")).to_be_visible()
    page.get_by_role("link", name="First divergence").click()
    expect(page.locator("#s2")).to_be_in_viewport()


def test_a_report_opens_by_itself_and_asks_for_nothing(desk: Desk) -> None:
    page = desk.page
    desk.open(f"ladder/{desk.climb.pk}/")
    page.get_by_text("Report", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("link", name="One page, HTML").click()
    html = download.value.path().read_text(encoding="utf-8")
    page.goto("about:blank")
    page.set_content(html)
    expect(page.get_by_role("heading", name="Rungs")).to_be_visible()
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert over <= 0
    assert not violations(page)
