"""Optimise in a browser: its form is sent by keyboard, its page follows it, all can use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Page, Route, expect

from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.events.services import NewEvent, append
from tests.base import make_people
from tests.browser import sign_in
from tests.live import LiveStack
from tests.web.build import make_climb, make_environment, make_rubric
from tests.web.search_rows import make_running_search, make_search
from tests.web.test_browser import PHONE, SETTLED, violations

pytestmark = pytest.mark.browser

Scheme = Literal["light", "dark"]
WIDE = {"width": 1280, "height": 900}


class Desk:
    def __init__(self, page: Page, stack: LiveStack) -> None:
        self.page, self.stack, self.people = page, stack, make_people()
        self.project = self.people.project
        sign_in(page, stack, self.people.editor)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.stack.url}/p/{self.project.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")


@pytest.fixture
def desk(page: Page, live_stack: LiveStack) -> Iterator[Desk]:
    yield Desk(page, live_stack)
    # The database is emptied before the page closes; an open page would ask for what is gone.
    page.goto("about:blank")


def test_the_form_is_filled_in_and_sent_by_keyboard(desk: Desk) -> None:
    make_environment(desk.project, tasks=24)
    make_rubric(desk.project)
    model = ModelEndpoint.objects.create(
        project=desk.project, name="tiny", kind=EndpointKind.LOCAL, model="tiny"
    )
    page = desk.page
    desk.open("optimise/")
    page.keyboard.press("n")
    page.wait_for_url("**/optimise/new/")
    page.wait_for_selector("html[data-ready]")
    for name in ("Environment", "Rubric", "Model"):
        page.get_by_label(name, exact=True).focus()
        page.keyboard.press("ArrowDown")
    forecast = page.locator("[data-forecast]")
    expect(forecast).to_contain_text("you can see ±")
    expect(forecast).to_contain_text("120 to certify")
    pairs = page.get_by_label("Pairs to certify with")
    pairs.focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("40")
    expect(forecast).to_contain_text("80 to certify")
    # What is sent is looked at here: no model answers a search that the stack's worker would begin.
    sent: list[dict[str, list[str]]] = []

    def keep(route: Route) -> None:
        if route.request.method != "POST":
            route.continue_()
            return
        sent.append(parse_qs(route.request.post_data or ""))
        route.fulfill(content_type="text/html", body="<!doctype html><title>sent</title>")

    page.route("**/optimise/new/", keep)
    page.keyboard.press("Enter")
    expect(page).to_have_title("sent")
    (form,) = sent
    assert form["certify_pairs"] == ["40"] and form["model"] == [str(model.pk)]
    assert "forecast" not in form


def test_the_page_follows_its_search(desk: Desk) -> None:
    search = make_running_search(desk.project)
    assert search.stream_id is not None
    page = desk.page
    desk.open(f"optimise/{search.pk}/")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
    phase = page.locator(".phases li.running")
    expect(phase).to_contain_text("46 %")
    said = {"progress": 0.71, "doing": "Screening edits: 9 of 12 rollouts"}
    append(stream_id=search.stream_id, items=[NewEvent("progress", said)])
    expect(phase).to_contain_text("71 %")
    expect(phase).to_contain_text("9 of 12 rollouts")
    append(stream_id=search.stream_id, items=[NewEvent("decision", {"text": "An edit is buried."})])
    expect(page.locator("[data-part=why]")).to_contain_text("An edit is buried.")


@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", PHONE)])
def test_pages_are_accessible_and_fit(desk: Desk, scheme: Scheme, size: dict[str, int]) -> None:
    search, climb = make_search(desk.project), make_climb(desk.project, phase="harness_test")
    here = f"optimise/{search.pk}"
    certificate = search.comparisons.get(split="select").pk
    page = desk.page
    page.set_viewport_size(size)  # type: ignore[arg-type] # a TypedDict
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    found = {}
    for path in (
        "optimise/",
        "optimise/new/",
        f"{here}/",
        f"{here}/proposals/{search.proposals.get(state='failed').pk}/",
        f"{here}/certificates/{certificate}/",
        "ladder/start/",
        f"ladder/{climb.pk}/",
    ):
        desk.open(path)
        page.evaluate(
            "for (const fold of document.querySelectorAll('details.fold')) fold.open = true"
        )
        page.evaluate(SETTLED)
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        problems = violations(page) + ([f"{over} px too wide"] if over > 0 else [])
        if problems:
            found[path] = problems
    assert not found
