"""Photographs a running server for the README and the docs.

    python scripts/screenshots.py --url http://127.0.0.1:8000 --user admin --password …

Takes the newest completed climb (or the one in progress), its runs and a rollout, in light and dark
and at phone width, and writes `docs/images/<page>-<scheme>.png`. Needs playwright and a Chromium.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, StorageState

ROOT = Path(__file__).resolve().parent.parent
DESKTOP = (1280, 800)
PHONE = (390, 844)
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

Scheme = Literal["light", "dark"]


def main() -> None:
    options = arguments()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        with visitor(browser, "light", DESKTOP, None) as page:
            sign_in(page, options.url, options.user, options.password)
            state = page.context.storage_state()
            pages = places(page)
        for scheme in ("light", "dark"):
            with visitor(browser, scheme, DESKTOP, state) as page:
                for name, address in pages.items():
                    photograph(page, address, out / f"{name}-{scheme}.png")
        with visitor(browser, "light", PHONE, state) as page:
            photograph(page, pages["ladder"], out / "ladder-phone.png")
        browser.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Photograph a running server.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--user", default="admin")
    parser.add_argument(
        "--password",
        default=os.environ.get("SWITCHBACK_PASSWORD", ""),
        help="default: the environment variable SWITCHBACK_PASSWORD",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    return parser.parse_args()


def chromium() -> str:
    named = os.environ.get("SWITCHBACK_CHROMIUM")
    path = named or next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if path is None:
        sys.exit("No Chromium found: install one, or set SWITCHBACK_CHROMIUM to its path.")
    return path


@contextmanager
def visitor(
    browser: Browser, scheme: Scheme, size: tuple[int, int], state: StorageState | None
) -> Iterator[Page]:
    """A page that sees the product in that scheme and size, twice as sharp."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        reduced_motion="reduce",
        device_scale_factor=2,
        storage_state=state,
    )
    yield context.new_page()
    context.close()


def sign_in(page: Page, url: str, user: str, password: str) -> None:
    page.goto(f"{url}/accounts/login/")
    page.get_by_label("User name").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_load_state()
    if not re.search(r"/p/\d+/$", page.url):
        sys.exit("Signing in failed, or the user has no project. Is the password right?")


def places(page: Page) -> dict[str, str]:
    """Name of the picture -> address. The newest completed climb, else the newest."""
    home = page.url
    page.goto(f"{home}ladder/")
    completed = page.locator(".climb-card:has(.pill[data-state=completed])")
    cards = completed if completed.count() else page.locator(".climb-card")
    if not cards.count():
        sys.exit("No climb to photograph: start one with `make demo`.")
    ladder = address_of(page, cards.first.get_attribute("href"))
    page.goto(ladder)
    runs = page.locator("[data-part=runs] a.main-link")
    tested = runs.filter(has_text="Harness, sealed test")
    link = tested.first if tested.count() else runs.first
    run = address_of(page, link.get_attribute("href"))
    page.goto(run)
    solved = page.locator("[data-rows] tbody tr:has(.pill.good) a.main-link")
    rows = solved if solved.count() else page.locator("[data-rows] tbody a.main-link")
    rollout = address_of(page, rows.first.get_attribute("href"))
    pages = {"overview": home, "ladder": ladder, "run": run, "trace": rollout}
    pages["ledger"] = f"{rollout}ledger/"
    pages["training"] = f"{home}train/"
    pages["curves"] = f"{home}train/curves/"
    pages["runs"] = f"{home}runs/"
    pages["rollouts"] = f"{home}rollouts/"
    pages["words"] = f"{home}search/?q=cat"
    page.goto(ladder)
    sides = [
        address_of(page, link.get_attribute("href"))
        for link in page.locator("[data-part=runs] a.main-link")
        .filter(has_text="sealed test")
        .all()
    ]
    numbers = sorted(int(side.rstrip("/").rpartition("/")[2]) for side in sides)
    if len(numbers) > 1:
        pages["compare"] = f"{home}compare/?runs={','.join(map(str, numbers[-2:]))}"
    search = page.get_by_role("link", name="The whole search")
    if search.count():
        pages["search"] = address_of(page, search.first.get_attribute("href"))
    return pages


def address_of(page: Page, href: str | None) -> str:
    assert href is not None, "a link without an address"
    return page.evaluate("href => new URL(href, location.href).href", href)  # type: ignore[no-any-return] # any JSON


def photograph(page: Page, address: str, path: Path) -> None:
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(1500)  # the model server's sign arrives after the first poll
    page.screenshot(path=path)
    print(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


if __name__ == "__main__":
    main()
