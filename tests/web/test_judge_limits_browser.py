"""The caps of judges on the page of models, in a real browser: by keyboard, and good to look at."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from orchestrator.judging.models import JudgeLimits
from tests.base import make_people
from tests.browser import sign_in
from tests.live import LiveStack
from tests.web.test_redteam_browser import looks_good

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_caps_are_set_by_keyboard_and_shown(page: Page, live_stack: LiveStack) -> None:
    people = make_people()
    sign_in(page, live_stack, people.owner)
    page.goto(f"{live_stack.url}/p/{people.project.pk}/settings/models/")
    page.wait_for_selector("html[data-ready]")
    page.get_by_label("Tokens a day").focus()
    page.keyboard.type("250000")
    page.keyboard.press("Enter")
    expect(page.get_by_text("The caps hold for what judges are asked from now on.")).to_be_visible()
    page.wait_for_selector("html[data-ready]")
    assert JudgeLimits.objects.get().tokens_per_day == 250_000
    looks_good(page, "models")
    page.goto("about:blank")
