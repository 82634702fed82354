"""What is wrong with how pages look: contrast and names in both schemes, and width on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from playwright.sync_api import Page

from tests.web.test_browser import PHONE, SCHEMES, SETTLED, violations


def faults_of(page: Page, open_path: Callable[[str], object], paths: Iterable[str]) -> list[str]:
    """A line for each fault; `open_path` brings the page to a path and waits until it is ready."""
    paths, found = list(paths), []
    for path in paths:
        open_path(path)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.evaluate(SETTLED)
            if problems := violations(page):
                found.append(f"{path} {scheme}: {problems}")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
    for path in paths:
        open_path(path)
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if over > 0:
            found.append(f"{path} is too wide by {over}")
    return found
