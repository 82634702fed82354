"""A trace of thousands of events in a real browser: few rows, every event within reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from orchestrator.events.services import NewEvent, append
from orchestrator.runs.models import Rollout
from tests.base import make_people
from tests.browser import settle, sign_in
from tests.live import LiveStack
from tests.web.build import ACTION, make_rollout, make_run, observation, started, tasks_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

N_EVENTS = 2_001


class Traces:
    """A long finished rollout and a running one."""

    def __init__(self, page: Page, stack: LiveStack) -> None:
        self.page, self.stack = page, stack
        people = make_people()
        self.run = make_run(people.project)
        tasks = tasks_of(self.run)
        self.long = make_rollout(self.run, tasks[0])
        self.live = make_rollout(self.run, tasks[1], state="running", answer="")
        items = [started()]
        for step in range(1, (N_EVENTS - 1) // 2 + 1):
            lines = "".join(f"line {i} of step {step}\n" for i in range(1 + step % 60))
            items.append(NewEvent("action", {**ACTION, "step": step}))
            items.append(observation(("env_output", lines), step=step))
        append(stream_id=self.long.stream_id, items=items)
        append(stream_id=self.live.stream_id, items=[started()])
        sign_in(page, stack, people.owner)

    def open(self, rollout: Rollout, more: str = "") -> None:
        path = f"/p/{self.run.project_id}/rollouts/{rollout.pk}/{more}"
        self.page.goto(f"{self.stack.url}{path}")
        self.page.wait_for_selector("html[data-ready]")

    @property
    def rows(self) -> int:
        return self.page.locator("[data-cards] > *, [data-outline] > *").count()


@pytest.fixture
def traces(page: Page, live_stack: LiveStack) -> Iterator[Traces]:
    yield Traces(page, live_stack)
    page.goto("about:blank")


def in_sight(page: Page, selector: str) -> None:
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_be_in_viewport()


def test_every_event_of_a_long_trace_is_within_reach_of_few_rows(traces: Traces) -> None:
    from playwright.sync_api import expect

    page = traces.page
    traces.open(traces.long)
    expect(page.locator("[data-place]")).to_have_text(f"1 of {N_EVENTS:,} events")
    in_sight(page, "#e1")
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    in_sight(page, f"#e{N_EVENTS}")
    assert traces.rows < 200
    # A permalink deep inside, by the address and by the outline.
    traces.open(traces.long, "#e1200")
    expect(page.locator("#e1200")).to_have_class("ev agent current")
    in_sight(page, "#e1200")
    expect(page.locator('.outline [aria-current="true"]')).to_have_attribute("href", "#e1200")
    page.locator('.outline a[href="#e1205"]').click()
    in_sight(page, "#e1205")
    expect(page).to_have_url(f"{page.url.split('#')[0]}#e1205")
    page.keyboard.press("n")
    expect(page.locator("#e1206")).to_be_focused()
    page.go_back()
    expect(page.locator("#e1200")).to_have_class("ev agent current")


def test_what_is_read_stays_where_it_is_while_cards_arrive(traces: Traces) -> None:
    page = traces.page
    traces.open(traces.long, "#e1500")
    in_sight(page, "#e1500")
    page.wait_for_selector("[data-cards]:not(:has(.ghost))")
    top = "document.getElementById('e1500').getBoundingClientRect().top"
    before = page.evaluate(top)
    # Cards above are measured as they come into the window's neighbourhood.
    for by in (-700, -700, 700, 700):
        page.mouse.move(600, 400)
        page.mouse.wheel(0, by)
        page.wait_for_selector("[data-cards]:not(:has(.ghost))")
    page.locator("#e1500").wait_for()
    page.wait_for_function(f"(before) => Math.abs({top} - before) < 4", arg=before)


def test_find_reaches_events_that_are_not_loaded(traces: Traces) -> None:
    from playwright.sync_api import expect

    page = traces.page
    traces.open(traces.long)
    page.keyboard.press("Control+f")
    field = page.get_by_role("searchbox", name="Find in the trace")
    expect(field).to_be_focused()
    field.fill("line 41 of step 9")
    expect(page.locator("[data-find-count]")).to_contain_text("1 of ")
    # The words are in the part of the output that its card leaves out at first.
    hit = page.locator("[data-cards] .ev.current")
    expect(hit).to_contain_text("line 41 of step 9")
    page.wait_for_function("() => CSS.highlights.get('find')?.size > 0")
    first = page.url
    page.keyboard.press("Enter")
    expect(page.locator("[data-find-count]")).to_contain_text("2 of ")
    assert page.url != first
    field.fill("nowhere to be found")
    expect(page.locator("[data-find-count]")).to_have_text("no event")
    page.keyboard.press("Escape")
    expect(field).to_be_hidden()


def test_kinds_raw_and_whole_outputs(traces: Traces) -> None:
    from playwright.sync_api import expect

    page = traces.page
    traces.open(traces.long)
    page.locator("[data-kinds] > summary").click()
    page.get_by_role("checkbox", name="output").check()
    expect(page.locator("[data-place]")).to_contain_text("of 1,000 events")
    expect(page.locator("[data-cards] .ev.agent")).to_have_count(0)
    assert page.url.endswith("?kind=observation")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("[data-cards] .ev.agent")).to_have_count(0)
    page.locator("[data-kinds] > summary").click()
    page.get_by_role("link", name="all", exact=True).click()
    expect(page.locator("[data-place]")).to_contain_text(f"of {N_EVENTS:,} events")
    page.keyboard.press("Escape")
    traces.open(traces.long, "#e101")
    expect(page.locator("#e101")).not_to_contain_text("line 40 of step 50")
    page.get_by_role("button", name="Show all of event 101").click()
    expect(page.locator("#e101")).to_contain_text("line 40 of step 50")
    page.get_by_role("button", name="Raw", exact=True).click()
    expect(page.locator("#e101")).to_contain_text('"exit_status": 0')


def test_the_tail_is_followed_and_left_alone(traces: Traces) -> None:
    from playwright.sync_api import expect

    page, stream = traces.page, traces.live.stream_id
    traces.open(traces.live)
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
    lines = "".join(f"line {i}\n" for i in range(15))
    append(stream_id=stream, items=[observation(("env_output", lines)) for _ in range(40)])
    expect(page.locator("[data-place]")).to_contain_text("of 41 events")
    in_sight(page, "#e1")
    page.get_by_role("button", name="Follow").click()
    in_sight(page, "#e41")
    append(stream_id=stream, items=[observation(("env_output", lines)) for _ in range(5)])
    in_sight(page, "#e46")
    # Whoever scrolls up is left where they are.
    page.mouse.move(600, 400)
    page.mouse.wheel(0, -900)
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    append(stream_id=stream, items=[observation(("env_output", lines)) for _ in range(5)])
    expect(page.locator("[data-place]")).to_contain_text("of 51 events")
    expect(page.locator("#e51")).not_to_be_in_viewport()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_long_trace_is_accessible(traces: Traces, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = traces.page
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type] # a literal of the parameters
    traces.open(traces.long)
    page.keyboard.press("Control+f")
    page.wait_for_selector("[data-cards]:not(:has(.ghost))")
    settle(page)
    found = [
        f"{violation['id']}: {violation['nodes'][0]['html'][:160]}"
        for violation in Axe().run(page).response["violations"]
    ]
    assert not found


def test_a_card_folds_by_button_and_keys_and_stays_folded(traces: Traces) -> None:
    from playwright.sync_api import expect

    page = traces.page
    traces.open(traces.long, "#e3")
    page.wait_for_selector("#e3.current")
    body = page.locator("#e3 pre").first
    page.keyboard.press("ArrowLeft")
    expect(body).to_be_hidden()
    traces.open(traces.long)
    expect(page.locator("#e3 pre").first).to_be_hidden()
    page.get_by_role("button", name="Fold event 3", exact=True).click()
    expect(page.locator("#e3 pre").first).to_be_visible()


def test_t_goes_to_the_outline_and_back(traces: Traces) -> None:
    from playwright.sync_api import expect

    page = traces.page
    traces.open(traces.long, "#e3")
    page.wait_for_selector("#e3.current")
    page.wait_for_selector('.outline [data-seq="3"]:not([data-ghost])')
    page.keyboard.press("t")
    expect(page.locator('.outline [data-seq="3"]')).to_be_focused()
    page.keyboard.press("t")
    expect(page.locator("#e3")).to_be_focused()
    page.keyboard.press("Alt+ArrowDown")
    expect(page.locator("#e4")).to_be_focused()
