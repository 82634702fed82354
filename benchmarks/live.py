"""Event committed by another process → in the browser, at 200 events/s.

A real server, a real headless Chromium on a page of it, single appends. Both ends read the clock
of this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.children import tied
from benchmarks.figures import Figure, percentile
from benchmarks.stack import ROOT, running, use_temporary_data

RATE_HZ = 200.0
COUNT = 2000
BAR_MS = 150.0

_FOLLOW = """
([path]) => new Promise((resolve, reject) => {
  window.arrived = [];
  window.defects = 0;
  const socket = new WebSocket(`ws://${location.host}${path}`);
  socket.onmessage = (message) => {
    const at = (performance.timeOrigin + performance.now()) / 1000;
    for (const event of JSON.parse(message.data).events) {
      if (event.seq !== window.arrived.length + 1) window.defects += 1;
      window.arrived.push([event.seq, at]);
    }
    resolve();
  };
  socket.onopen = () => socket.send(JSON.stringify({after: 0}));
  socket.onerror = () => reject(new Error("the socket was refused"));
})
"""


def run() -> Iterator[Figure]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("live needs a Chromium: apt-get install chromium")
    with use_temporary_data():
        stream_id, cookie = _prepare()
        with running() as up:
            committed, arrived, defects = _measure(chromium, up.url, stream_id, cookie)
    latencies_ms = [
        max(0.0, arrived[seq] - at_s) * 1000 for seq, at_s in committed.items() if seq in arrived
    ]
    rate_hz = len(committed) / (max(committed.values()) - min(committed.values()))
    yield Figure("live.rate_hz", rate_hz, 0.95 * RATE_HZ, is_floor=True)
    yield Figure("live.lost_or_repeated", len(committed) - len(arrived) + defects, 0)
    yield Figure("live.commit_to_browser_p95_ms", percentile(latencies_ms, 0.95), BAR_MS)


def _prepare() -> tuple[int, str]:
    """A stream and the session cookie of a user who may see it."""
    from django.test import Client

    from orchestrator.events.services import create_stream
    from orchestrator.projects.models import User
    from orchestrator.projects.services import create_project

    user = User.objects.create_user("bench")
    stream = create_stream(project=create_project(actor=user, name="Bench"), kind="run")
    client = Client()
    client.force_login(user)
    return stream.pk, client.cookies["sessionid"].value


def _measure(
    chromium: str, url: str, stream_id: int, cookie: str
) -> tuple[dict[int, float], dict[int, float], int]:
    """Commit times and arrival times by sequence, and the number of jumps that the page saw."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        page = browser.new_context().new_page()
        page.context.add_cookies([{"name": "sessionid", "value": cookie, "url": url}])
        page.goto(f"{url}/healthz")
        page.evaluate(_FOLLOW, [f"/ws/streams/{stream_id}/"])
        writer = subprocess.run(
            tied(
                [
                    *(sys.executable, "-m", "benchmarks.live_writer"),
                    *(str(stream_id), str(COUNT), str(RATE_HZ)),
                ]
            ),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        committed = {
            int(seq): float(at_s)
            for seq, at_s in (line.split() for line in writer.stdout.splitlines())
        }
        deadline_s = time.monotonic() + 10
        while page.evaluate("window.arrived.length") < len(committed):
            if time.monotonic() > deadline_s:
                break
            page.wait_for_timeout(100)
        arrived = {int(seq): float(at_s) for seq, at_s in page.evaluate("window.arrived")}
        defects = int(page.evaluate("window.defects"))
        browser.close()
    return committed, arrived, defects
