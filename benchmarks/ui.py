"""Screens in a real Chromium, against the product's bars: long traces, the live tail,
the charts of many trainings, and lists of 100,000 rollouts.

`--only trace` (or live, charts, lists) takes one part; `--seconds N` is how long the live tail is
written (default 20), `--repeats N` how often a trace is opened (default 3: the worst counts),
`--rollouts N` how long the lists are.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.children import tied
from benchmarks.figures import Figure, percentile
from benchmarks.stack import ROOT, Up, running, use_temporary_data
from benchmarks.ui_proxy import Proxy

if TYPE_CHECKING:
    from playwright.sync_api import Page

SKELETON_MS = 1_500.0
FIRST_BYTES = 300_000.0
TASK_MS = 200.0
ROWS = 500.0
LIVE_MS = 500.0
RATE_HZ = 50.0
CUTS = 3
PARTS = ("trace", "live", "charts", "lists")
VIEW = {"width": 1280, "height": 800}

_TASKS = """() => {
  window.tasks = [];
  window.rows = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.tasks.push(entry.duration);
  }).observe({ type: "longtask", buffered: false });
  const count = () => {
    const rows = document.querySelectorAll("[data-cards] > *, [data-outline] > *").length;
    window.rows = Math.max(window.rows, rows);
    requestAnimationFrame(count);
  };
  count();
}"""
_SKELETON = """() => document.documentElement.dataset.ready !== undefined
  && document.querySelectorAll("[data-cards] .slot .ev").length > 0
  && document.querySelectorAll("[data-outline] a").length > 10"""
_ARRIVALS = """() => {
  window.arrived = new Map();
  window.defects = 0;
  const look = () => {
    const now = (performance.timeOrigin + performance.now()) / 1000;
    let last = 0;
    for (const slot of document.querySelectorAll("[data-cards] > [data-slot]")) {
      const seq = Number(slot.dataset.slot);
      if (seq <= last) window.defects += 1;
      last = seq;
      if (!window.arrived.has(seq)) window.arrived.set(seq, now);
    }
  };
  new MutationObserver(look).observe(document.querySelector("[data-cards]"), { childList: true });
}"""


def run(options: Sequence[str] = ()) -> Iterator[Figure]:
    parser = argparse.ArgumentParser(prog="ui")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rollouts", type=int, default=100_000)
    chosen = parser.parse_args(list(options))
    parts = chosen.only or PARTS
    yield Figure("ui.load_of_the_machine", os.getloadavg()[0], None)
    yield from _traces(chosen, parts)


def _traces(chosen: argparse.Namespace, parts: Sequence[str]) -> Iterator[Figure]:
    with use_temporary_data():
        from benchmarks.ui_traces import write_long_rollout
        from orchestrator.projects.models import User
        from orchestrator.projects.services import create_project

        user = User.objects.create_user("bench")
        project = create_project(actor=user, name="Bench")
        cookie = cookie_of(user)
        long = write_long_rollout(project) if "trace" in parts else None
        live = write_long_rollout(project, n_events=500, seed=1, state="running")
        place = f"/p/{project.pk}/rollouts/"
        with running() as up:
            if long is not None:
                yield from _open_and_scroll(up, cookie, f"{place}{long.pk}/", chosen.repeats)
            if "live" in parts:
                yield from _live(up, cookie, f"{place}{live.pk}/", live.stream_id, chosen.seconds)
        if "charts" in parts:
            from benchmarks.ui_charts import charts

            yield from charts(project, cookie, chosen.repeats)
        if "lists" in parts:
            from benchmarks.ui_lists import lists

            yield from lists(user, cookie, n_rollouts=chosen.rollouts)


def cookie_of(user: Any) -> str:
    from django.test import Client

    client = Client()
    client.force_login(user)
    return client.cookies["sessionid"].value


@contextmanager
def browsing(url: str, cookie: str) -> Iterator[Page]:
    """A signed-in page of a headless Chromium."""
    import shutil

    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("ui needs a Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        page = browser.new_context(viewport=VIEW).new_page()  # type: ignore[arg-type] # a literal
        page.context.add_cookies([{"name": "sessionid", "value": cookie, "url": url}])
        yield page
        browser.close()


def _open_and_scroll(up: Up, cookie: str, path: str, repeats: int) -> Iterator[Figure]:
    skeleton_ms, first_bytes, tasks_ms, rows, find_ms, jump_ms = [], [], [], [], [], []
    with browsing(up.url, cookie) as page:
        page.goto(up.url + path)  # The server's first answer compiles its templates.
    for _ in range(repeats):
        with browsing(up.url, cookie) as page:
            answer = page.goto(up.url + path, wait_until="commit")
            page.wait_for_function(_SKELETON, polling="raf")
            skeleton_ms.append(float(page.evaluate("performance.now()")))
            assert answer is not None
            first_bytes.append(len(answer.body()))
            page.evaluate(_TASKS)
            page.mouse.move(640, 400)
            for _ in range(150):
                page.mouse.wheel(0, 1_500)
                page.wait_for_timeout(16)
            for share in (0.2, 0.9, 0.5, 0.99, 0.1):
                height = "document.documentElement.scrollHeight"
                page.evaluate(f"scrollTo(0, {share} * {height})")
                page.wait_for_timeout(150)
            page.wait_for_function("() => !document.querySelector('[data-cards] .ghost')")
            tasks_ms.append(max(page.evaluate("window.tasks"), default=0.0))
            rows.append(float(page.evaluate("window.rows")))
            find_ms.append(_find(page))
            jump_ms.append(_jump(page))
    yield Figure("ui.trace.skeleton_worst_ms", max(skeleton_ms), SKELETON_MS)
    yield Figure("ui.trace.first_response_bytes", max(first_bytes), FIRST_BYTES)
    yield Figure("ui.trace.longest_task_while_scrolling_ms", max(tasks_ms), TASK_MS)
    yield Figure("ui.trace.most_rows_in_the_page", max(rows), ROWS)
    yield Figure("ui.trace.find_worst_ms", max(find_ms), None)
    yield Figure("ui.trace.jump_to_a_deep_event_worst_ms", max(jump_ms), None)


def _find(page: Page) -> float:
    """From the last key of a phrase to its card, marked."""
    from benchmarks.ui_traces import NEEDLE

    page.keyboard.press("Control+f")
    page.keyboard.insert_text(NEEDLE)
    started_s = time.monotonic()
    page.wait_for_function("() => CSS.highlights.get('find')?.size > 0", polling="raf")
    page.keyboard.press("Escape")
    return (time.monotonic() - started_s) * 1000


def _jump(page: Page) -> float:
    started_s = time.monotonic()
    page.evaluate("location.hash = '#e12345'")
    page.wait_for_selector("#e12345.current")
    return (time.monotonic() - started_s) * 1000


def _live(up: Up, cookie: str, path: str, stream_id: int, seconds: float) -> Iterator[Figure]:
    """Events of another process, while the connections are cut now and then."""
    proxy = Proxy(urlsplit(up.url).port or 80)
    count = int(seconds * RATE_HZ)
    with browsing(proxy.url, cookie) as page:
        page.goto(proxy.url + path)
        page.wait_for_selector('[data-live][data-state="live"]')
        page.get_by_role("button", name="Follow").click()
        page.wait_for_selector("#e500")
        page.evaluate(_ARRIVALS)
        command = [sys.executable, "-m", "benchmarks.live_writer", str(stream_id), str(count)]
        writer = subprocess.Popen(
            tied([*command, str(RATE_HZ)]), cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        cuts_s: list[float] = []
        for _ in range(CUTS):
            page.wait_for_timeout(1000 * seconds / (CUTS + 1))
            proxy.cut()
            cuts_s.append(time.time())
        out, _ = writer.communicate(timeout=10 * seconds + 60)
        deadline_s = time.monotonic() + 10
        while page.evaluate("Math.max(0, ...window.arrived.keys())") < 500 + count:
            if time.monotonic() > deadline_s:
                break
            page.wait_for_timeout(100)
        arrived = {int(seq): at for seq, at in page.evaluate("[...window.arrived]")}
        defects = int(page.evaluate("window.defects"))
        held = page.locator("[data-place]").inner_text().split(" of ")[1].split()[0]
    committed = {int(a): float(b) for a, b in (line.split() for line in out.splitlines())}
    quiet = [
        max(0.0, arrived[seq] - at_s) * 1000
        for seq, at_s in committed.items()
        if seq in arrived and not any(cut_s - 0.5 < at_s < cut_s + 3 for cut_s in cuts_s)
    ]
    yield Figure("ui.live.commit_to_screen_p95_ms", percentile(quiet, 0.95), LIVE_MS)
    yield Figure("ui.live.repeated_or_reordered", defects, 0)
    yield Figure("ui.live.lost", 500 + count - int(held.replace(",", "")), 0)
    yield Figure("ui.live.drawn_in_passing", len(arrived), None)
