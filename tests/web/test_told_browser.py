"""A trace that tells how its agent acts, in a real browser: folded, accessible, good on a phone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from orchestrator.environments.kinds.acting import Tool, ToolInterface
from orchestrator.events.services import NewEvent, append
from orchestrator.runs.acting import functions_of
from tests.base import make_people
from tests.browser import settle, sign_in
from tests.live import LiveStack
from tests.web.build import make_rollout, make_run, observation, started, tasks_of

pytestmark = pytest.mark.browser
ORDER = Tool(
    "order",
    "Order an item.",
    {
        "type": "object",
        "properties": {"item": {"type": "string"}, "count": {"type": "integer", "default": 1}},
        "required": ["item"],
    },
)


@pytest.mark.parametrize("calls", [True, False], ids=["functions", "words"])
def test_a_trace_tells_how_its_agent_acts(page: Page, live_stack: LiveStack, calls: bool) -> None:
    people = make_people()
    run = make_run(people.project, state="running", ended_at=None)
    rollout = make_rollout(run, tasks_of(run)[0])
    interface = ToolInterface([ORDER, Tool("submit", "Ends the episode.")])
    functions = [f.as_json() for f in functions_of(interface)] if calls else []
    told = {"functions": functions, "text": "" if calls else interface.instructions}
    action = {"step": 1, "text": 'order {"item": "pen"}', "form": "call", "tokens": 9}
    append(
        stream_id=rollout.stream_id,
        items=[
            started(),
            NewEvent("told", told),
            NewEvent("action", action),
            observation(("env_output", "ordered")),
        ],
    )
    sign_in(page, live_stack, people.owner)
    page.goto(f"{live_stack.url}/p/{people.project.pk}/rollouts/{rollout.pk}/")
    page.wait_for_selector("html[data-ready]")
    folded = page.locator("details.ev", has_text="How to act")
    expect(folded).to_contain_text("2 functions" if calls else "told in words")
    folded.locator("summary").press("Enter")
    expect(folded.get_by_text("Order an item.")).to_be_visible()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 844})
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width
            if shots := os.environ.get("SHOTS"):
                name = f"told-{'functions' if calls else 'words'}-{scheme}-{width}.png"
                page.screenshot(path=str(Path(shots, name)))
        settle(page)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    # The database is emptied before the page closes; an open page would ask for what is gone.
    page.goto("about:blank")
