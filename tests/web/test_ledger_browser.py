"""The ledger in a real browser: readable in both schemes and on a phone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from orchestrator.runs.models import TokenRow
from orchestrator.trainings import lens
from tests.base import make_people
from tests.browser import settle, sign_in
from tests.live import LiveStack
from tests.web.test_browser import PHONE, SCHEMES, violations
from tests.web.training_rows import make_trained_job
from training.models import Checkpoint, TrainingRun

pytestmark = pytest.mark.browser

PIECES = ["<|im_start|>", "user", "\n", "wc", " -l", "3", " list", "1", ".txt", "\n"]


def test_the_ledger_is_readable_and_frames_what_became_predictable(
    page: Page, live_stack: LiveStack, tmp_path: Path, settings: Any
) -> None:
    settings.DATA_DIR = live_stack.data
    people = make_people()
    job = make_trained_job(people.project, tmp_path / "job")
    for step in (0, 4):
        (tmp_path / "job" / "publish" / f"v{step:04d}").mkdir(parents=True)
        Checkpoint.objects.get_or_create(training_job=job, step=step)
    first, second = (Checkpoint.objects.get(training_job=job, step=step) for step in (0, 4))
    rollout = TrainingRun.objects.get(training_job=job, kind="step", step=2).run.rollouts.all()[0]
    kinds = [["context", 3], ["action", 2], ["env_output", 5]]
    ids = list(range(10))
    TokenRow.objects.create(rollout=rollout, index=0, ids=ids, kinds=kinds, logprobs=[-0.2, -1.0])
    for checkpoint, surprise in ((first, -2.0), (second, -0.25)):
        told = {"index": 0, "logprobs": [None, *[surprise] * 9], "pieces": PIECES}
        out = lens.result_file(rollout, checkpoint)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"rows": [told]}))
    sign_in(page, live_stack, people.owner)
    address = f"{live_stack.url}/p/{people.project.pk}/rollouts/{rollout.pk}/ledger/"
    asked = f"{address}?before={first.pk}&after={second.pk}"
    found: dict[str, object] = {}
    page.goto(asked)
    page.wait_for_selector("html[data-ready]")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        settle(page)
        if problems := violations(page):
            found[scheme] = problems
    expect(page.locator(".ledger-line .learned")).to_have_count(5)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert not found
    assert over <= 0
    page.goto("about:blank")
