"""Part of `ui`: the list of rollouts at 100,000 rollouts and 1,000,000 events.

Whole answers of a real server, one request at a time, and the queries of each page counted in this
process. `p95` is over all repeats of all pages; each page is told too.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from benchmarks.figures import Figure, percentile
from benchmarks.stack import Up, running

if TYPE_CHECKING:
    from orchestrator.projects.models import User

RARE, COMMON = "zyzzyva", "segment"
"""In one of 10,000 observations, and in every second one."""
N_ROLLOUTS = 100_000
LIST_MS = 300.0
TEXT_MS = 1_000.0
QUERIES = 8
REPEATS = 20
DEEP = 200
"""Page number that is reached by turning pages."""
LISTS: Mapping[str, Mapping[str, str]] = {
    "usual": {},
    "score": {"q": "score < 0.5"},
    "state_and_split": {"q": "state = errored and split = test"},
    "verdict": {"q": "verdict.tidy < 0.2", "col": "verdict.tidy,verdict.correct,score"},
    "nested": {"q": "sampling.temperature > 0.5 and task ~ train"},
    "by_score": {"sort": "-score"},
    "by_cost": {"sort": "-cost"},
}
TEXTS: Mapping[str, Mapping[str, str]] = {
    "rare": {"q": RARE},
    "common": {"q": COMMON},
    "no_hit": {"q": "nowhereatall"},
    "phrase": {"q": '"grep rn"'},
    "rare_and_score": {"q": f"{RARE} score < 0.5"},
}


def lists(user: User, cookie: str, *, n_rollouts: int = N_ROLLOUTS) -> Iterator[Figure]:
    """In the data folder that this process uses already."""
    from benchmarks.dataset import write_large_project
    from orchestrator.projects.services import create_project

    project = create_project(actor=user, name="Large")
    started_s = time.monotonic()
    write_large_project(project, n_rollouts=n_rollouts)
    yield Figure("ui.lists.seconds_to_write_the_data", time.monotonic() - started_s, None)
    with running() as up:
        yield from measured(up, cookie, project.pk)


def measured(up: Up, cookie: str, project_id: int, repeats: int = REPEATS) -> Iterator[Figure]:
    place = f"/p/{project_id}/rollouts/"
    pages = {name: f"{place}?{urlencode(query)}" for name, query in LISTS.items()}
    pages[f"page_{DEEP}"] = f"{place}?{urlencode({'after': _deep_cursor(project_id)})}"
    yield from _timed(up, cookie, "lists", pages, repeats, LIST_MS)
    texts = {name: f"{place}?{urlencode(query)}" for name, query in TEXTS.items()}
    yield from _timed(up, cookie, "text", texts, repeats, TEXT_MS)
    most = max(_queries(cookie, url) for url in [*pages.values(), *texts.values()])
    yield Figure("ui.lists.most_queries", most, QUERIES)


def _timed(
    up: Up, cookie: str, name: str, pages: Mapping[str, str], repeats: int, bar_ms: float
) -> Iterator[Figure]:
    every: list[float] = []
    for page, url in pages.items():
        _fetch_ms(up, cookie, url)  # The first answer compiles templates and fills caches.
        took_ms = [_fetch_ms(up, cookie, url) for _ in range(repeats)]
        every += took_ms
        yield Figure(f"ui.{name}.{page}_p95_ms", percentile(took_ms, 0.95), None)
    yield Figure(f"ui.{name}.p95_ms", percentile(every, 0.95), bar_ms)


def _fetch_ms(up: Up, cookie: str, url: str) -> float:
    """From the request to the last byte; AssertionError unless it is the page."""
    host = urlsplit(up.url).netloc
    started_s = time.perf_counter()
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", url, headers={"Cookie": f"sessionid={cookie}"})
    answer = connection.getresponse()
    body = answer.read()
    took_ms = (time.perf_counter() - started_s) * 1000
    connection.close()
    assert answer.status == 200, f"{url} answered {answer.status}"
    assert b'data-module="list"' in body
    return took_ms


def _deep_cursor(project_id: int) -> str:
    from orchestrator.runs.rollout_list import list_rollouts, rollouts_matching

    query = rollouts_matching(project_id, "", in_order=True)
    after = ""
    for _ in range(DEEP - 1):
        after = list_rollouts(query, after=after).after or after
    return after


def _queries(cookie: str, url: str) -> int:
    from django.conf import settings
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    client.cookies["sessionid"] = cookie
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    return len(captured)
