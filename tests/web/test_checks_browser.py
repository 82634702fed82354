"""Checks and curricula in a real browser: pressed, watched, read; accessible, good on a phone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion
from orchestrator.environments.services import NewTask, create_version
from tests.base import make_people
from tests.browser import sign_in
from tests.doubles.openenv_servers import FaultServer
from tests.live import LiveStack
from tests.web.build import make_environment
from tests.web.test_browser import PHONE, SCHEMES, SETTLED, violations
from tests.web.test_curriculum_page import make_curriculum

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def guess_url() -> Iterator[str]:
    """A server that pays its agents for nothing."""
    with tempfile.TemporaryDirectory(prefix="switchback-env-") as folder:
        server = FaultServer(Path(folder), "guess_env")
        server.spawn()
        yield server.base_url
        server.stop()


@pytest.fixture
def version(live_stack: LiveStack, page: Page, guess_url: str) -> Iterator[EnvironmentVersion]:
    people = make_people()
    sign_in(page, live_stack, people.editor)
    environment = Environment.objects.create(
        project=people.project, slug="guess", name="Guess a word", kind=EnvironmentKind.URL
    )
    yield create_version(
        environment=environment,
        source={"base_url": guess_url},
        settings={"reward_range": [0, 1]},
        tasks=[
            NewTask(
                key="a", split="train", prompt="Guess.", reset={"task": "a", "fault": "pays_noop"}
            )
        ],
    )
    page.goto("about:blank")


def test_a_check_is_started_watched_and_read(
    page: Page, live_stack: LiveStack, version: EnvironmentVersion
) -> None:
    environment = version.environment
    page.goto(
        f"{live_stack.url}/p/{environment.project_id}/environments/{environment.slug}/checks/"
    )
    page.wait_for_selector("html[data-ready]")
    assert not violations(page)
    page.get_by_role("button", name="Check environment").first.click()
    report = page.locator('[data-check="oracle_containment"][data-status]')
    expect(report).to_be_visible(timeout=60_000)
    expect(page.locator("[data-running]")).to_have_count(0, timeout=20_000)
    failed = page.locator('[data-check="canary_floor"]')
    expect(failed).to_contain_text("of the full reward")
    expect(failed).to_contain_text("What to do")
    page.get_by_text("Why, and what was measured").first.click()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.evaluate(SETTLED)
        assert not violations(page), scheme
    page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_curriculum_is_read_and_sorted(
    page: Page, live_stack: LiveStack, version: EnvironmentVersion
) -> None:
    version = make_environment(version.environment.project, tasks=12)
    make_curriculum(version)
    environment = version.environment
    page.goto(
        f"{live_stack.url}/p/{environment.project_id}/environments/{environment.slug}/curriculum/"
    )
    page.wait_for_selector("html[data-ready]")
    page.get_by_role("link", name="Success rate").click()
    expect(page.locator('th[aria-sort="descending"]')).to_contain_text("Success rate")
    page.get_by_role("link", name="by group").click()
    expect(page.get_by_role("rowheader").first).to_contain_text("tasks")
    page.get_by_role("link", name="by task").click()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.evaluate(SETTLED)
        assert not violations(page), scheme
    page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
