"""A headless Chromium against a live stack. A page fails its test on any console error.

`page` is a Playwright page; `sign_in(page, live_stack, user)` gives it a session. Mark the test
with `browser`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from orchestrator.projects.models import User
from tests.live import LiveStack, session_cookie
from tests.machine import need_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE_MS = 30_000
"""For what a page is to show: two busy cores run the server, its workers and the browser."""
LAUNCH_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser per module: while Playwright runs it holds this thread's event loop, and any
    asynchronous test that came after it in the session would fail.
    """
    path = need_chromium()
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=LAUNCH_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a fresh context. Console errors (the CSP reports there), exceptions and requests
    to other machines fail the test; `page.complaints.clear()` forgives what a test provokes."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    complaints: list[str] = []
    page.complaints = complaints  # type: ignore[attr-defined] # for tests that provoke errors
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if _is_local(request.url)
            else complaints.append(f"left the machine: {request.url}")
        ),
    )
    yield page
    context.close()
    assert not complaints, f"the browser complained: {complaints}"


def sign_in(page: Page, stack: LiveStack, user: User) -> None:
    page.context.add_cookies(
        [{"name": "sessionid", "value": session_cookie(user), "url": stack.url}]
    )


def _is_local(url: str) -> bool:
    return url.startswith(
        ("http://127.0.0.1", "http://localhost", "ws://127.0.0.1", "data:", "blob:")
    )


def settle(page: Page) -> None:
    """What moves or fades is at its end: contrasts half-way are nobody's to judge."""
    page.evaluate(
        """for (const each of document.getAnimations())
             try { each.finish() } catch { each.cancel() }"""
    )
