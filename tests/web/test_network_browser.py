"""The Network page and the marks of isolation in a real browser: accessible, good on a phone."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from orchestrator.environments.models import EgressDecision
from tests.base import make_people
from tests.browser import settle, sign_in
from tests.live import LiveStack
from tests.web.build import make_rollout, make_run, tasks_of

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SIZES = {"wide": (1280, 900), "phone": (390, 844)}
REASON = "Commands run WITHOUT isolation, as SWITCHBACK_UNSANDBOXED=1 asks: bwrap not found."


@pytest.fixture
def opened(page: Page, live_stack: LiveStack) -> Callable[[str], Page]:
    """`opened(name)`: the page `network`, `run`, `runs` or `rollout`, signed in."""
    people = make_people()
    run = make_run(people.project)
    rollout = make_rollout(run, tasks_of(run)[0])
    run.isolation = {"mode": "unsandboxed", "is_weak": True, "reason": REASON}
    run.warnings = [{"code": "check.never", "text": "This version was never checked."}]
    run.save()
    version = run.environment_version
    version.resources = {
        "network": {"mode": "allow-list", "allowed_hosts": ["api.example.org", "*.data.example"]}
    }
    version.save()
    at = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)
    for number in range(60):
        is_allowed = number % 3 == 0
        EgressDecision.objects.create(
            version=version,
            at=at + timedelta(seconds=number),
            host="api.example.org" if is_allowed else f"tracker-{number}.{'long-' * 8}name.net",
            port=443,
            method="CONNECT",
            action="allow" if is_allowed else "deny",
            reason="" if is_allowed else "not on the allow-list",
        )
    sign_in(page, live_stack, people.owner)
    paths = {
        "network": f"environments/{version.environment.slug}/network/",
        "run": f"runs/{run.pk}/",
        "runs": "runs/",
        "rollout": f"rollouts/{rollout.pk}/",
    }

    def open_(name: str) -> Page:
        page.goto(f"{live_stack.url}/p/{people.project.pk}/{paths[name]}")
        page.wait_for_selector("html[data-ready]")
        return page

    return open_


@pytest.mark.parametrize("name", ["network", "run", "runs", "rollout"])
def test_it_is_accessible_and_fits_in_both_schemes(
    name: str, opened: Callable[[str], Page]
) -> None:
    page = opened(name)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for size, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            settle(page)
            found = Axe().run(page)
            assert not found.response["violations"], found.generate_report()
            overflow = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert overflow <= 0, f"{name} is wider than {width} pixels"
            if folder := os.environ.get("SHOTS"):
                page.screenshot(path=f"{folder}/{name}-{scheme}-{size}.png", full_page=True)


def test_the_log_is_filtered_by_keyboard(opened: Callable[[str], Page]) -> None:
    page = opened("network")
    page.get_by_label("Host contains").fill("tracker-1.")
    page.keyboard.press("Enter")
    page.wait_for_url("**host=tracker-1.*")
    assert page.locator("#log tbody tr").count() == 1
    page.get_by_role("link", name="Clear", exact=True).click()
    page.get_by_role("link", name="Older").click()
    page.wait_for_url("**before=*")
    assert page.locator("#log tbody tr").count() == 10
