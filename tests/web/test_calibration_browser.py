"""Calibration in a real browser: by keyboard, on a phone, with a worker that finds a question."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from orchestrator.agents.models import ModelEndpoint
from orchestrator.grading.policies import barred
from orchestrator.review.models import Annotation
from rubrics.models import Rubric
from tests.base import People, make_people
from tests.browser import sign_in
from tests.doubles.model_server import Asked, ScriptedModel
from tests.live import LiveStack
from tests.review.labelling import Labelled, answered, judge_criterion, make_rubric
from tests.waiting import wait_until
from tests.web.test_browser import PHONE, SCHEMES, SETTLED, violations

pytestmark = [pytest.mark.browser, pytest.mark.slow]
BETTER = "Does the final answer contain the path of the file that the task names?"


class Desk:
    """A rubric of three criteria: a weak judge, a good one, one without labels."""

    def __init__(self, page: Page, stack: LiveStack) -> None:
        self.page, self.stack = page, stack
        self.people: People = make_people()
        editor, project = self.people.editor, self.people.project
        second = judge_criterion(id="polite", name="Polite", params={"question": "Is it polite?"})
        third = {"id": "short", "name": "Few steps", "kind": "steps", "scope": "trajectory"}
        self.rubric: Rubric = make_rubric(
            project, judge_criterion(), second, {**third, "params": {"max": 4}}
        )
        self.filled = filled = Labelled(self.rubric.versions.get())
        draw = random.Random(3)
        start = timezone.now() - timedelta(days=6)
        for i in range(64):
            is_right = i % 2 == 0
            passes = is_right or draw.random() < (0.2 if i < 40 else 0.8)
            rollout = filled.rollout(float(passes), ended_at=start + timedelta(hours=2 * i))
            answered(rollout, f"{'right' if is_right else 'wrong'} list{i}.txt")
            filled.label(rollout, editor, float(is_right), note="" if is_right else "another file")
        for i in range(36):
            value = float(i % 3 > 0)
            rollout = filled.rollout(value, criterion="polite")
            said = 1 - value if i == 5 else value
            filled.label(rollout, self.people.owner, said, criterion="polite")
        for i in range(6):
            answered(filled.rollout(float(i % 2)), "right list.txt")
        sign_in(page, stack, editor)

    def open(self, path: str = "calibration/") -> None:
        project = self.people.project.pk
        self.page.goto(f"{self.stack.url}/p/{project}/rubrics/{self.rubric.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")

    def looks_good(self) -> None:
        for scheme in SCHEMES:
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            self.page.evaluate(SETTLED)
            assert not violations(self.page), scheme
        self.page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
        assert self.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.fixture
def desk(page: Page, live_stack: LiveStack) -> Iterator[Desk]:
    yield Desk(page, live_stack)
    page.goto("about:blank")


def test_the_page_is_accessible_and_fits_a_phone(desk: Desk) -> None:
    desk.open()
    card = desk.page.locator("#c-names-file")
    expect(card.locator("[data-slot=kappa]")).to_have_text(re.compile(r"0\.\d\d"))
    expect(desk.page.locator("#c-short")).to_contain_text("no labels")
    for fold in desk.page.locator(".calib details > summary").all():
        if fold.locator("xpath=..").get_attribute("open") is None:
            fold.click()
    desk.looks_good()


def test_disagreements_are_walked_and_marked_by_keyboard_alone(desk: Desk) -> None:
    page = desk.page
    desk.open()
    page.locator("#c-names-file").get_by_role("link", name="Next disagreement").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".trace-head")).to_contain_text("disagreement 1 of")
    page.wait_for_selector("html[data-ready]")
    # The event that the verdict cites is marked, and a click on it goes there.
    expect(page.locator("#e2")).to_have_class(re.compile("cited"))
    before = page.locator("aside [data-slot=kappa]").inner_text()
    rollout = int(page.locator("input[name=rollout]").input_value())
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    wait_until(
        lambda: Annotation.objects.filter(rollout=rollout, value=1.0).exists(),
        limit_s=60,
        what="the mark",
    )
    expect(page.locator("aside [data-slot=kappa]")).not_to_have_text(before)
    desk.looks_good()


def test_the_verdict_of_an_unmarked_rollout_is_hidden_until_it_is_marked(desk: Desk) -> None:
    page = desk.page
    desk.open("calibration/names-file/?walk=unlabelled")
    expect(page.locator(".compare")).to_contain_text("Hidden until you have answered")
    first = int(page.locator("input[name=rollout]").input_value())
    page.get_by_text("no", exact=True).click()
    page.get_by_role("button", name="Store", exact=True).click()
    expect(page.locator(".compare .verdict")).to_be_visible()
    assert Annotation.objects.get(rollout=first).value == 0.0
    page.go_back()
    page.go_back()


def test_a_criterion_is_barred_and_its_badge_follows(desk: Desk) -> None:
    page = desk.page
    desk.open()
    card = page.locator("#c-polite")
    expect(card.locator(".pill").first).to_contain_text("κ")
    card.get_by_text("Bar it from being learned from").click()
    card.get_by_label("Why").fill("a judge of manners")
    card.get_by_role("button", name="Bar").click()
    expect(page.locator("#c-polite > .hd")).to_contain_text("barred")
    assert barred(desk.rubric.pk) == {"polite": "a judge of manners"}
    page.get_by_role("link", name="Criteria").click()
    expect(page.locator(".crit", has_text="Polite")).to_contain_text("barred")


def test_a_better_question_is_watched_and_put_into_the_draft(desk: Desk) -> None:
    def script(asked: Asked) -> str:
        if asked.messages[0][1].startswith("You improve"):
            return json.dumps({"question": BETTER, "why": "it took any name"})
        key = re.search(r'"key": "([0-9a-f]{12})"', asked.last)
        assert key is not None
        score = int('"final_answer": "right' in asked.last)
        return json.dumps({"key": key.group(1), "reason": "seen", "score": score})

    page = desk.page
    with ScriptedModel(script) as model:
        ModelEndpoint.objects.create(
            project=desk.people.project,
            name="writer",
            kind="openai",
            base_url=model.url,
            model=model.name,
            is_judge=True,
            price_in_usd_per_mtok=0.5,
        )
        desk.open()
        card = page.locator("#c-names-file")
        card.get_by_text("Ask for a better question").click()
        card.get_by_role("button", name="Ask", exact=True).click()
        expect(card.locator(".calib-align")).to_contain_text(
            re.compile(r"proposed\s*1\.00"), timeout=30_000
        )
    expect(card.locator(".proposal")).to_have_text(BETTER)
    desk.looks_good()
    card.get_by_role("button", name="Put it into the draft").click()
    page.wait_for_url(re.compile("/edit/"))
    assert desk.rubric.draft.spec["criteria"][0]["params"]["question"] == BETTER
    assert desk.rubric.versions.count() == 1
