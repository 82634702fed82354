"""`manage.py up` to the first page, and how much memory a web process takes."""

from __future__ import annotations

from collections.abc import Iterator

import psutil

from benchmarks.figures import Figure
from benchmarks.stack import running, use_temporary_data

FIRST_PAGE_BAR_S = 5.0
WEB_BAR_MB = 250.0


def run() -> Iterator[Figure]:
    with use_temporary_data(), running(page="/accounts/login/") as up:
        yield Figure("startup.first_page_s", up.first_page_s, FIRST_PAGE_BAR_S)
        # One page may have come from any of them; the largest is what a machine must have room for.
        web_bytes = [
            child.memory_info().rss
            for child in psutil.Process(up.pid).children()
            if "orchestrator.asgi:application" in child.cmdline()
        ]
        yield Figure("startup.web_rss_mb", max(web_bytes) / 1e6, WEB_BAR_MB)
