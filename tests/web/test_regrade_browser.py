"""From a draft's preview to its publication in a browser, and pages on phones and in the dark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from benchmarks.past_rollouts import make_tasks, write_run
from orchestrator.grading.backtest import start_backtest
from orchestrator.grading.drafts import save_draft, start_draft
from orchestrator.grading.golden import add_typed
from orchestrator.grading.models import Regrade
from orchestrator.runs.models import Rollout
from rubrics.models import Rubric, RubricVersion
from rubrics.types import Transcript
from rubrics.versions import create_rubric_version
from tests.base import make_people
from tests.browser import sign_in
from tests.live import LiveStack
from tests.waiting import wait_until
from tests.web.test_browser import PHONE, SCHEMES, SETTLED, violations
from tests.web.test_regrade_pages import FEW, RIGHT

pytestmark = pytest.mark.browser


class Bench:
    """A rubric that has graded a run, a draft of its next version, and a signed-in page."""

    def __init__(self, page: Page, stack: LiveStack) -> None:
        self.people = people = make_people()
        self.page, self.stack, self.project = page, stack, people.project
        self.rubric = Rubric.objects.create(project=people.project, name="answers")
        self.version = create_rubric_version(
            rubric=self.rubric, spec={"criteria": [RIGHT, FEW], "pass_threshold": 0.75}
        )
        tasks = make_tasks(people.project)
        self.run = write_run(rubric_version=self.version, version=tasks, n=24)
        sealed = make_tasks(people.project, 2, split="test")
        write_run(rubric_version=self.version, version=sealed, n=4, errored=frozenset({1}))
        draft = start_draft(actor=people.owner, rubric=self.rubric)
        spec = {
            "criteria": [RIGHT, {**FEW, "params": {"max": 4, "within": 2}}],
            "pass_threshold": 0.75,
        }
        self.draft = save_draft(actor=people.owner, draft=draft, spec=spec, revision=0).draft
        sign_in(page, stack, people.owner)

    def add_golden(self) -> None:
        for name, expect_, transcript in (
            ("right answer", "pass", Transcript(answer="42", expected="42")),
            ("empty answer", "fail", Transcript(answer="", expected="42")),
            ("talks around it", "pass", Transcript(answer="about 42", expected="42")),
        ):
            add_typed(
                actor=self.people.owner,
                rubric=self.rubric,
                name=name,
                expect=expect_,
                transcript=transcript,
                criterion="right",
            )

    def backtest(self) -> Regrade:
        asked = start_backtest(actor=self.people.owner, draft=self.draft)
        wait_until(
            lambda: Regrade.objects.get(pk=asked.pk).state == "completed",
            limit_s=20,
            what="the worker to grade again",
        )
        return asked

    def open(self, path: str) -> None:
        self.page.goto(f"{self.stack.url}/p/{self.project.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")

    def paths(self, asked: Regrade) -> dict[str, str]:
        here = f"rubrics/{self.rubric.pk}"
        return {
            "preview": f"{here}/preview/",
            "golden": f"{here}/golden/",
            "backtests": f"{here}/back-tests/",
            "publish": f"{here}/publish/",
            "edit": f"{here}/edit/",
            "regrade": f"re-grades/{asked.pk}/",
            "run-regrade": f"runs/{self.run.pk}/re-grade/",
        }


@pytest.fixture
def bench(page: Page, live_stack: LiveStack) -> Iterator[Bench]:
    yield Bench(page, live_stack)
    page.goto("about:blank")


def test_a_draft_is_previewed_tested_and_published(bench: Bench) -> None:
    page = bench.page
    bench.add_golden()
    bench.open(f"rubrics/{bench.rubric.pk}/edit/")
    preview = page.locator(".card.preview")
    lines = preview.locator(".preview-line")
    expect(lines).to_have_count(2)
    # Another rollout, and the events that a verdict cites.
    failed = Rollout.objects.filter(run=bench.run, score__lt=0.75).order_by("-pk").first()
    assert failed is not None
    preview.get_by_label("Which rollouts").select_option("passed")
    expect(preview.locator("#preview-on option")).not_to_have_count(0)
    passed = Rollout.objects.filter(run=bench.run, score=1.0, n_steps=5).first()
    assert passed is not None
    preview.get_by_label("Previewed on").select_option(f"r{passed.pk}")
    expect(preview.get_by_role("status")).to_contain_text("fails")
    expect(preview.get_by_role("status")).to_contain_text("its run gave 1.00")
    cite = passed.verdicts.get(criterion="right").cites[0]
    preview.get_by_role("link", name=f"E{cite}", exact=True).first.click()
    expect(preview.locator(f".is-cited #e{cite}")).to_be_visible()
    # What is written is graded as soon as it is stored.
    page.locator(".crit").nth(1).click()
    page.get_by_label("max").fill("9")
    page.get_by_label("within").fill("8")
    expect(preview.get_by_role("status")).to_contain_text("passes")
    page.get_by_label("max").fill("4")
    page.get_by_label("within").fill("2")
    expect(preview.get_by_role("status")).to_contain_text("fails")
    # The dialog: a golden case does not hold; the back-test is followed to its end.
    page.get_by_role("link", name="Publish v2").click()
    page.wait_for_selector("html[data-ready]")
    expect(page.get_by_text("2 of 3 hold")).to_be_visible()
    page.get_by_role("button", name="Back-test on up to 500").click()
    tested = page.locator("[data-part=tested]")
    # A worker of the stack grades; the page follows by itself.
    expect(tested).to_contain_text("This edit flips", timeout=20_000)
    expect(tested.locator(".flip")).to_have_count(10)
    page.get_by_role("button", name="Publish v2").click()
    expect(page.get_by_role("alert")).to_contain_text("1 golden case does not hold")
    page.complaints.clear()  # type: ignore[attr-defined] # the refusal is a 422
    page.get_by_label("Why this version").fill("That case is wrong.")
    page.get_by_label("Publish anyway").check()
    page.get_by_role("button", name="Publish v2").click()
    expect(page.get_by_text("Version 2 is published")).to_be_visible()
    version = RubricVersion.objects.get(rubric=bench.rubric, number=2)
    assert version.failed_golden == ["talks around it"]


def test_a_golden_case_is_kept_from_a_rollout_by_keyboard(bench: Bench) -> None:
    page = bench.page
    bench.open(f"rubrics/{bench.rubric.pk}/preview/")
    name = page.get_by_label("Name")
    name.focus()
    page.keyboard.type("as it was")
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-ready]")
    expect(page.locator(".golden-case")).to_contain_text("as it was")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_pages_are_accessible_and_fit_phones(bench: Bench, scheme: str) -> None:
    page = bench.page
    bench.add_golden()
    paths = bench.paths(bench.backtest())
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    for size in ({"width": 1280, "height": 900}, PHONE):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        for name, path in paths.items():
            bench.open(path)
            if name == "edit":
                expect(page.locator(".preview-line")).to_have_count(2)
            page.evaluate(SETTLED)
            assert violations(page) == [], name
            wide = "document.documentElement.scrollWidth - innerWidth"
            assert page.evaluate(wide) <= 0, name
