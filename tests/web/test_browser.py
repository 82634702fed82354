"""The pages in a real browser on a real server: no complaint, accessible, live, good on a phone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from playwright.sync_api import Page, expect

from orchestrator.events.services import NewEvent, append
from orchestrator.projects.models import Project
from orchestrator.runs.models import Rollout, Run
from orchestrator.runs.queries import rollout_row, tally
from tests.base import make_people
from tests.browser import settle, sign_in
from tests.live import LiveStack
from tests.web.build import (
    ACTION,
    make_climb,
    make_rollout,
    make_run,
    make_trace,
    make_training_job,
    observation,
    started,
    tasks_of,
)

pytestmark = pytest.mark.browser

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SETTLED = """new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))
    .then(() => Promise.all(document.getAnimations().map(motion => motion.finished)))"""
"""Until a changed scheme is on the screen and nothing moves."""
PHONE = {"width": 390, "height": 844}


class Demo:
    """A project with a climb under way, a run with every state, and a signed-in page."""

    def __init__(self, page: Page, stack: LiveStack) -> None:
        people = make_people()
        self.page, self.stack = page, stack
        self.project: Project = people.project
        self.climb = make_climb(self.project)
        self.job = make_training_job(self.project)
        self.run: Run = make_run(self.project, state="running", ended_at=None)
        tasks = tasks_of(self.run)
        self.rollout: Rollout = make_rollout(self.run, tasks[0])
        make_trace(self.rollout)
        make_rollout(self.run, tasks[1], state="errored", cause="session_lost", message="it broke")
        self.live: Rollout = make_rollout(self.run, tasks[2], state="running", answer="")
        append(stream_id=self.live.stream_id, items=[started()])
        sign_in(page, stack, people.owner)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.stack.url}/p/{self.project.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")

    @property
    def paths(self) -> list[str]:
        environment = self.run.environment_version.environment
        return [
            "",
            "environments/",
            f"environments/{environment.slug}/",
            f"environments/{environment.slug}/checks/",
            f"environments/{environment.slug}/curriculum/",
            f"environments/{environment.slug}/v1/tasks/train-0001/",
            f"environments/{environment.slug}/v1/tasks/test-0001/",
            "runs/",
            f"runs/{self.run.pk}/",
            f"rollouts/{self.rollout.pk}/",
            f"rollouts/{self.live.pk}/",
            "rubrics/",
            f"rubrics/{self.run.rubric_version.rubric_id}/",
            "train/",
            f"train/{self.job.pk}/",
            "ladder/",
            f"ladder/{self.climb.pk}/",
            "settings/",
        ]


@pytest.fixture
def demo(page: Page, live_stack: LiveStack) -> Iterator[Demo]:
    yield Demo(page, live_stack)
    # The database is emptied before the page closes; an open page would ask for what is gone.
    page.goto("about:blank")


def violations(page: Page) -> list[str]:
    settle(page)
    found = Axe().run(page).response["violations"]
    return [
        f"{item['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for item in found
        for node in item["nodes"][:3]
    ]


def test_axe_finds_nothing_in_either_scheme(demo: Demo) -> None:
    found = {}
    for path in demo.paths:
        demo.open(path)
        for scheme in SCHEMES:
            demo.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            demo.page.evaluate(SETTLED)
            if problems := violations(demo.page):
                found[f"{path} {scheme}"] = problems
    assert not found


def test_the_sign_in_page_is_accessible_and_signs_in(page: Page, live_stack: LiveStack) -> None:
    people = make_people()
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{live_stack.url}/accounts/login/")
    assert not violations(page)
    page.get_by_label("User name").fill(people.owner.username)
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("correct username")
    assert page.get_by_label("User name").input_value() == people.owner.username


def test_a_phone_scrolls_no_page_sideways(demo: Demo) -> None:
    demo.page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
    wide = {}
    for path in demo.paths:
        demo.open(path)
        over = demo.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if over > 0:
            wide[path] = over
    assert not wide


def test_the_phone_reaches_every_section(demo: Demo) -> None:
    demo.page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
    demo.open("")
    demo.page.locator("details.more > summary").click()
    demo.page.locator(".sheet").get_by_role("link", name="Rubrics").click()
    expect(demo.page.get_by_role("heading", name="Rubrics")).to_be_visible()


def in_another_process(code: str) -> None:
    """Runs code with Django set up, on the database of the test."""
    from django.db import connection

    environ = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "SWITCHBACK_TEST_DATABASE": str(connection.settings_dict["NAME"]),
    }
    head = "import django; django.setup()\n"
    subprocess.run(
        [sys.executable, "-c", head + code], check=True, cwd=settings.BASE_DIR, env=environ
    )


def test_the_table_follows_a_run_written_by_another_process(demo: Demo) -> None:
    demo.open(f"runs/{demo.run.pk}/")
    expect(demo.page.locator("[data-live]")).to_have_attribute("data-state", "live")
    row = demo.page.locator(f'tr[data-id="{demo.live.pk}"]')
    expect(row).to_contain_text("running")
    in_another_process(
        f"""
from orchestrator.events.services import NewEvent, append
from orchestrator.runs.models import Rollout
from orchestrator.runs.queries import rollout_row
Rollout.objects.filter(pk={demo.live.pk}).update(state="scored", score=0.25, answer="seven")
row = rollout_row(Rollout.objects.select_related("task", "harness").get(pk={demo.live.pk}))
append(stream_id={demo.run.stream_id}, items=[NewEvent("rollout", row)])
"""
    )
    expect(row).to_contain_text("scored")
    expect(row).to_contain_text("0.25")
    expect(row).to_contain_text("seven")


def test_a_rollout_that_is_new_gets_a_row(demo: Demo) -> None:
    demo.open(f"runs/{demo.run.pk}/")
    expect(demo.page.locator("[data-live]")).to_have_attribute("data-state", "live")
    fresh = make_rollout(demo.run, tasks_of(demo.run)[0], replicate=9, state="running", answer="")
    append(
        stream_id=demo.run.stream_id,
        items=[
            NewEvent("rollout", rollout_row(fresh)),
            NewEvent("tally", {**vars(tally(demo.run.pk))}),
        ],
    )
    row = demo.page.locator(f'tr[data-id="{fresh.pk}"]')
    expect(row).to_contain_text("#9")
    row.get_by_role("link").click()
    expect(demo.page).to_have_url(f"{demo.stack.url}/p/{demo.project.pk}/rollouts/{fresh.pk}/")


def test_filter_and_sort_live_in_the_address(demo: Demo) -> None:
    demo.open(f"runs/{demo.run.pk}/")
    rows = demo.page.locator("[data-rows] tbody tr:visible")
    expect(rows).to_have_count(3)
    demo.page.locator('[data-states] [data-state="errored"]').click()
    expect(rows).to_have_count(1)
    demo.page.reload()
    demo.page.wait_for_selector("html[data-ready]")
    expect(rows).to_have_count(1)
    demo.page.keyboard.press("/")
    demo.page.keyboard.type("nothing like this")
    expect(demo.page.get_by_text("No rollout matches this filter")).to_be_visible()
    demo.page.get_by_role("button", name="Clear the filter").click()
    expect(rows).to_have_count(3)
    demo.page.get_by_role("button", name="Score", exact=True).click()
    demo.page.get_by_role("button", name="Score", exact=True).click()
    expect(demo.page.locator('th[data-key="score"]')).to_have_attribute("aria-sort", "descending")
    expect(rows.first).to_contain_text("1.00")


def test_a_trace_grows_and_a_restart_folds_what_was(demo: Demo) -> None:
    demo.open(f"rollouts/{demo.live.pk}/")
    expect(demo.page.locator("[data-live]")).to_have_attribute("data-state", "live")
    append(stream_id=demo.live.stream_id, items=[NewEvent("action", ACTION)])
    append(stream_id=demo.live.stream_id, items=[observation(("env_output", "3 list1.txt"))])
    expect(demo.page.locator("#e3")).to_contain_text("3 list1.txt")
    expect(demo.page.locator(".outline")).to_contain_text("wc -l list1.txt")
    append(
        stream_id=demo.live.stream_id,
        items=[NewEvent("rollout.restarted", {"attempt": 2, "reason": "the worker was killed"})],
    )
    append(stream_id=demo.live.stream_id, items=[started(2)])
    expect(demo.page.locator("#e5")).to_be_visible()
    expect(demo.page.locator(".ev.cutoff")).to_contain_text("the worker was killed")
    expect(demo.page.locator("[data-cards] [data-seq]")).to_have_count(2)
    demo.page.get_by_role("link", name="show it").click()
    expect(demo.page.locator("[data-cards] [data-seq]")).to_have_count(5)


def test_keys_walk_the_events_of_a_trace(demo: Demo) -> None:
    demo.open(f"rollouts/{demo.rollout.pk}/")
    for _ in range(3):
        demo.page.keyboard.press("n")
    expect(demo.page).to_have_url(
        f"{demo.stack.url}/p/{demo.project.pk}/rollouts/{demo.rollout.pk}/#e3"
    )
    expect(demo.page.locator("#e3")).to_be_focused()
    demo.page.keyboard.press("p")
    expect(demo.page.locator('.outline [aria-current="true"]')).to_have_attribute("href", "#e2")
    demo.page.keyboard.press("]")
    expect(demo.page).not_to_have_url(
        f"{demo.stack.url}/p/{demo.project.pk}/rollouts/{demo.rollout.pk}/"
    )
    demo.page.keyboard.press("?")
    expect(demo.page.get_by_role("dialog")).to_contain_text("previous, next rollout")
    demo.page.keyboard.press("Escape")


def test_the_ladder_moves_without_a_reload(demo: Demo) -> None:
    demo.open(f"ladder/{demo.climb.pk}/")
    expect(demo.page.locator("[data-live]")).to_have_attribute("data-state", "live")
    demo.page.evaluate("window.here = true")
    append(
        stream_id=demo.climb.stream_id,
        items=[
            NewEvent(
                "progress", {"rung": 2, "progress": 0.8, "doing": "Sealed test: 40 of 60 rollouts"}
            )
        ],
    )
    expect(demo.page.locator('.steps [data-rung="2"]')).to_contain_text("Sealed test: 40 of 60")
    expect(demo.page.locator('.steps [data-rung="2"]')).to_contain_text("80 %")
    demo.climb.rungs.filter(index=2).update(
        state="done", verdict="inconclusive", score=0.81, score_low=0.7, score_high=0.9, n_scored=60
    )
    append(
        stream_id=demo.climb.stream_id,
        items=[
            NewEvent("decision", {"text": "The test is too small."}),
            NewEvent("rung", {"index": 2}),
        ],
    )
    expect(demo.page.locator(".say")).to_contain_text("The test is too small.")
    expect(demo.page.locator(".climb-fig.wide")).to_contain_text("0.81")
    assert demo.page.evaluate("window.here") is True


def test_a_certificate_opens_in_a_dialog_and_closes_by_escape(demo: Demo) -> None:
    demo.open(f"ladder/{demo.climb.pk}/")
    demo.page.locator("[data-sheet]").first.click()
    expect(demo.page.get_by_role("dialog")).to_contain_text('"split": "test"')
    demo.page.keyboard.press("Escape")
    expect(demo.page.get_by_role("dialog")).to_have_count(0)


def test_paused_means_that_nothing_moves_until_it_goes_on(demo: Demo) -> None:
    demo.open(f"ladder/{demo.climb.pk}/")
    live = demo.page.locator("[data-live]")
    expect(live).to_have_attribute("data-state", "live")
    live.click()
    expect(live).to_have_attribute("data-state", "paused")
    append(
        stream_id=demo.climb.stream_id,
        items=[NewEvent("progress", {"rung": 2, "progress": 0.9, "doing": "later"})],
    )
    demo.page.wait_for_timeout(400)
    expect(demo.page.locator('.steps [data-rung="2"]')).not_to_contain_text("later")
    live.click()
    expect(demo.page.locator('.steps [data-rung="2"]')).to_contain_text("later")


def test_the_scheme_is_remembered_and_rendered_by_the_server(demo: Demo) -> None:
    demo.open("")
    demo.page.locator(".rail > .foot").get_by_role("button", name="Dark").click()
    expect(demo.page.locator("html")).to_have_attribute("data-theme", "dark")
    demo.page.reload()
    expect(demo.page.locator("html")).to_have_attribute("data-theme", "dark")
    demo.page.locator(".rail > .foot").get_by_role("button", name="As the system").click()
    demo.page.reload()
    assert demo.page.locator("html").get_attribute("data-theme") is None


def test_without_scripts_the_pages_still_read_and_write(demo: Demo) -> None:
    browser = demo.page.context.browser
    assert browser is not None
    context = browser.new_context(
        java_script_enabled=False, storage_state=demo.page.context.storage_state()
    )
    page = context.new_page()
    page.goto(f"{demo.stack.url}/p/{demo.project.pk}/rollouts/{demo.rollout.pk}/")
    expect(page.locator("#e3")).to_contain_text("3 list1.txt")
    expect(page.locator("#panel-facts")).to_be_visible()
    page.goto(f"{demo.stack.url}/p/{demo.project.pk}/ladder/{demo.climb.pk}/")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".head .pill")).to_contain_text("paused")
    context.close()


def test_a_restart_of_the_server_loses_and_repeats_nothing(demo: Demo) -> None:
    page, stack = demo.page, demo.stack
    stream = demo.live.stream_id
    demo.open(f"rollouts/{demo.live.pk}/")
    live = demo.page.locator("[data-live]")
    expect(live).to_have_attribute("data-state", "live")
    append(stream_id=stream, items=[NewEvent("action", ACTION)])
    expect(demo.page.locator("#e2")).to_be_visible()
    stack.discard()
    expect(live).to_have_attribute("data-state", "reconnecting")
    append(stream_id=stream, items=[observation(("env_output", "one")) for _ in range(5)])
    stack.start()
    append(stream_id=stream, items=[NewEvent("action", {**ACTION, "step": 2}) for _ in range(5)])
    expect(live).to_have_attribute("data-state", "live", timeout=20_000)
    expect(demo.page.locator("[data-cards] [data-seq]")).to_have_count(12)
    seqs = demo.page.eval_on_selector_all(
        "[data-cards] [data-seq]", "cards => cards.map(card => Number(card.dataset.seq))"
    )
    assert seqs == list(range(1, 13))
    page.goto("about:blank")
    page.complaints.clear()  # type: ignore[attr-defined] # refused connections were asked for
