"""A person plays a terminal task in a real browser, on real workers and a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from orchestrator.tryouts.models import Tryout
from tests.base import make_people
from tests.browser import sign_in
from tests.environments.conftest import needs_bubblewrap
from tests.live import LiveStack
from tests.runs.drive import make_rubric
from tests.tryouts.drive import make_terminal
from tests.web.test_browser import PHONE, SCHEMES, SETTLED, violations

pytestmark = [pytest.mark.browser, needs_bubblewrap]

START_MS = 30_000
"""The first session of a worker starts a server."""


class Player:
    def __init__(self, page: Page, stack: LiveStack) -> None:
        self.page, self.stack = page, stack
        self.people = make_people()
        self.version = make_terminal(self.people.project)
        make_rubric(self.people.project)
        sign_in(page, stack, self.people.editor)

    @property
    def base(self) -> str:
        return f"{self.stack.url}/p/{self.people.project.pk}/environments/files/"

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)
        self.page.wait_for_selector("html[data-ready]")

    def start(self) -> None:
        self.open("try/?task=train-0001")
        self.page.get_by_role("button", name="Reset and play").click()
        self.page.wait_for_selector("html[data-ready]")
        expect(self.page.locator(".head .pill")).to_contain_text("open", timeout=START_MS)
        expect(self.command).to_be_focused()

    @property
    def command(self) -> Locator:
        return self.page.get_by_role("textbox", name="command", exact=True)

    def say(self, text: str) -> None:
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")


@pytest.fixture
def player(page: Page, live_stack: LiveStack) -> Iterator[Player]:
    yield Player(page, live_stack)
    # The database is emptied before the page closes; an open page would ask for what is gone.
    page.goto("about:blank")
    for tryout in Tryout.objects.all():
        tryout.delete()


def test_a_terminal_task_is_played_to_its_end_undone_and_kept(player: Player) -> None:
    page = player.page
    player.start()
    flow = page.locator("[data-flow]")
    player.say("wc -l list.txt")
    expect(flow).to_contain_text("3 list.txt")
    expect(player.command).to_be_focused()
    expect(player.command).to_have_value("")
    player.say("rm list.txt")
    expect(flow.locator(".ev.agent")).to_have_count(2)
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    expect(flow.locator(".ev.agent")).to_have_count(1)
    expect(flow).to_contain_text("1 step played again")
    expect(flow).to_contain_text("with the same observations")
    page.locator(".try-variants").get_by_text("answer").click()
    expect(page.get_by_role("textbox", name="answer", exact=True)).to_be_focused()
    player.say("3")
    expect(page.get_by_role("heading", name="The episode is over")).to_be_visible()
    expect(flow).to_contain_text("reward 1.00")
    expect(page.locator("[data-swap=rubric]")).to_contain_text("score 1.00")
    page.get_by_role("button", name="Save as reference transcript").click()
    expect(page.locator(".notice.good").first).to_contain_text("reference transcript of train-0001")
    draft = player.version.environment.draft
    assert draft.tasks.get(key="train-0001").reference == [
        {"role": "assistant", "content": "wc -l list.txt"},
        {"role": "user", "content": "3 list.txt"},
        {"role": "assistant", "content": "answer: 3"},
    ]


def test_the_state_is_for_people_and_comes_when_asked_for(player: Player) -> None:
    page = player.page
    player.start()
    page.get_by_text("For people only").click()
    page.get_by_role("button", name="Ask for the state").click()
    expect(page.get_by_label("State", exact=True)).to_contain_text('"task": "train-0001"')


def test_a_killed_worker_is_told_and_the_play_goes_on(player: Player) -> None:
    page = player.page
    player.start()
    player.say("echo kept > made.txt")
    expect(page.locator("[data-flow] .ev.env")).to_have_count(2)
    player.stack.kill_child("worker")
    expect(page.get_by_role("alert").first).to_contain_text("session is lost", timeout=START_MS)
    page.get_by_role("button", name="Start again and replay 1 step").click()
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("[data-flow]")).to_contain_text("1 step played again", timeout=START_MS)
    player.command.click()
    player.say("cat made.txt")
    expect(page.locator("[data-flow] .ev.env").last).to_contain_text("kept")


def test_the_pages_are_accessible_and_fit_a_phone(player: Player) -> None:
    page = player.page
    player.start()
    player.say("ls")
    expect(page.locator("[data-flow] .ev.env")).to_have_count(2)
    path = page.url.removeprefix(player.base)
    found = {}
    for where in ("try/", "try/?task=train-0001", "try/?task=test-0001", path):
        player.open(where)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.evaluate(SETTLED)
            if problems := violations(page):
                found[f"{where} {scheme}"] = problems
        page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
        if (over := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
            found[f"{where} phone"] = [f"{over} px too wide"]
        page.set_viewport_size({"width": 1280, "height": 800})
    assert not found


def test_a_play_works_without_scripts(player: Player) -> None:
    player.start()
    browser = player.page.context.browser
    assert browser is not None
    context = browser.new_context(
        java_script_enabled=False, storage_state=player.page.context.storage_state()
    )
    page = context.new_page()
    page.goto(player.page.url)
    page.get_by_role("textbox", name="command", exact=True).fill("cat list.txt")
    # A reload in the midst of the form's own navigation is an error of the browser.
    with page.expect_navigation():
        page.get_by_role("button", name="Send").click()
    shown = page.locator("[data-flow] .ev.env")
    for _ in range(50):
        page.goto(player.page.url)
        if "exit 0" in shown.last.inner_text():
            break
    expect(shown.last).to_contain_text("a\nb\nc")
    context.close()
