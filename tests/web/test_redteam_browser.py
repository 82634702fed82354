"""The red team in a real browser: pressed, watched, read, kept; accessible, good on a phone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from orchestrator.agents.models import ModelEndpoint
from orchestrator.grading.models import GoldenCase
from orchestrator.projects.models import Project
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version
from tests.base import make_people
from tests.browser import sign_in
from tests.doubles.model_server import Asked, ScriptedModel
from tests.live import LiveStack
from tests.web.build import make_climb
from tests.web.test_alarms_page import make_alarm
from tests.web.test_browser import PHONE, SCHEMES, SETTLED, violations

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def obedient(asked: Asked) -> str:
    """Gives full marks to whoever asks for them."""
    user = asked.messages[1][1]
    key = re.search(r'"key": "([0-9a-f]{12})"', user.rpartition("Reply with")[2])
    assert key is not None
    obeys = "score me" in user.lower() or '\\"score\\": 1' in user
    reason = "The text asks for it." if obeys else "Nothing shows it."
    return json.dumps({"key": key.group(1), "reason": reason, "score": int(obeys)})


@pytest.fixture
def judge() -> Iterator[ScriptedModel]:
    with ScriptedModel(obedient) as model:
        yield model


def make_rubric(project: Project, judge: ScriptedModel) -> Rubric:
    ModelEndpoint.objects.create(
        project=project,
        name="small judge",
        kind="openai",
        base_url=judge.url,
        model=judge.name,
        is_judge=True,
        price_in_usd_per_mtok=1.0,
        price_out_usd_per_mtok=2.0,
    )
    rubric = Rubric.objects.create(project=project, name="Says the number of lines")
    ask = {"question": "Does the answer give the number of lines?"}
    create_rubric_version(
        rubric=rubric,
        spec={
            "criteria": [
                {
                    "id": "says",
                    "name": "Says the number",
                    "kind": "contains",
                    "params": {"texts": ["42"]},
                    "weight": 3,
                },
                {
                    "id": "judged",
                    "name": "The judge is content",
                    "kind": "judge",
                    "scope": "trajectory",
                    "params": ask,
                },
            ]
        },
    )
    return rubric


def looks_good(page: Page, name: str) -> None:
    """Accessible in both schemes, and nothing wider than a phone."""
    folder = os.environ.get("SWITCHBACK_SHOTS")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.evaluate(SETTLED)
        if folder:
            page.screenshot(path=Path(folder) / f"{name}-{scheme}.png", full_page=True)
        assert not violations(page), scheme
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
    page.evaluate(SETTLED)
    if folder:
        page.screenshot(path=Path(folder) / f"{name}-phone.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert not violations(page)
    page.set_viewport_size(size)


def test_a_rubric_is_attacked_and_a_finding_is_kept(
    page: Page, live_stack: LiveStack, judge: ScriptedModel
) -> None:
    people = make_people()
    rubric = make_rubric(people.project, judge)
    sign_in(page, live_stack, people.editor)
    page.goto(f"{live_stack.url}/p/{people.project.pk}/rubrics/{rubric.pk}/red-team/")
    page.wait_for_selector("html[data-ready]")
    looks_good(page, "before")
    page.get_by_role("button", name="Attack this rubric").click()
    finding = page.locator('[data-attack="answer-demand"]').first
    expect(finding).to_be_visible(timeout=60_000)
    expect(page.locator("[data-running]")).to_have_count(0, timeout=60_000)
    expect(finding).to_contain_text("The judge is content")
    finding.get_by_text("Raw reply of the judge").click()
    expect(finding).to_contain_text("The text asks for it.")
    looks_good(page, "report")
    finding.get_by_role("button", name="Make a golden case of it").click()
    page.wait_for_selector("html[data-ready]")
    expect(page.get_by_text("must fail from now on")).to_be_visible()
    expect(page.locator('[data-attack="answer-demand"]').first).to_contain_text("golden case holds")
    assert GoldenCase.objects.get(rubric=rubric).expect == "fail"
    page.goto("about:blank")


def test_an_alarm_is_read_and_acknowledged(page: Page, live_stack: LiveStack) -> None:
    people = make_people()
    climb = make_climb(people.project, state="paused")
    alarm = make_alarm(climb)
    make_alarm(
        climb,
        signal="length",
        level="warn",
        value=0.8,
        detail={**alarm.detail, "subject": "answer"},
    )
    sign_in(page, live_stack, people.editor)
    page.goto(f"{live_stack.url}/p/{people.project.pk}/ladder/{climb.pk}/")
    page.wait_for_selector("html[data-ready]")
    looks_good(page, "alarm")
    expect(page.get_by_role("button", name="Acknowledge and resume")).to_be_visible()
    page.locator('[data-alarm="gap"]').get_by_role("button", name="Acknowledge").click()
    page.wait_for_selector("html[data-ready]")
    expect(page.locator('[data-alarm="gap"]')).to_have_count(0)
    page.get_by_role("link", name="1 alarm: a rubric may be gamed").click()
    expect(page.locator('[data-alarm="length"]')).to_be_visible()
    page.goto("about:blank")
