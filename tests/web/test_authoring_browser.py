"""Writing an environment in a real browser: by keyboard alone, on a phone, with nothing lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from orchestrator.environments.authoring.drafts import start_draft
from orchestrator.environments.authoring.publish import publish
from orchestrator.environments.authoring.tasks import delete_tasks, save_task
from orchestrator.environments.authoring.uploads import preview_upload
from orchestrator.environments.models import (
    EnvironmentDraft,
    EnvironmentVersion,
    SourceRegistration,
    TaskUpload,
)
from orchestrator.events.services import NewEvent, append, create_stream
from tests.base import make_people
from tests.browser import sign_in
from tests.environments.drafting import make_draft, make_task
from tests.environments.test_uploads import table
from tests.live import LiveStack, session_cookie
from tests.web.test_browser import PHONE, SCHEMES, SETTLED, violations

pytestmark = pytest.mark.browser


class Desk:
    """A project with an environment of two versions, a draft with an open upload, and a page."""

    def __init__(self, page: Page, stack: LiveStack) -> None:
        self.people = people = make_people()
        self.page, self.stack, self.project = page, stack, people.project
        draft = make_draft(people, make_task("q1"), make_task("q2", split="test"))
        for _ in range(2):
            version = publish(actor=people.owner, draft=draft, revision=draft.revision).version
            self.environment = version.environment
            draft = start_draft(actor=people.owner, environment=self.environment, version=version)
            save_task(
                actor=people.owner,
                draft=draft,
                task=make_task(f"added-to-{version.number}", prompt="q.txt: <b>first</b> line"),
            )
            delete_tasks(
                actor=people.owner,
                draft=draft,
                keys=["q1"] if version.number == 1 else [f"added-to-{version.number}"],
            )
            draft.refresh_from_db()
        self.draft = draft
        self.upload = preview_upload(
            actor=people.owner, draft=draft, filename="tasks.csv", content=table(60, n_bad=6)
        )
        self.registration = SourceRegistration.objects.create(
            project=people.project,
            stream=create_stream(project=people.project, kind="registration"),
            name="A package",
            kind="package",
            source={"path": "/srv/environment"},
        )
        sign_in(page, stack, people.owner)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.stack.url}/p/{self.project.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")

    @property
    def paths(self) -> list[str]:
        here = f"environments/{self.environment.slug}"
        return [
            "environments/",
            "environments/-/new/",
            "environments/-/new/qa/",
            "environments/-/new/package/",
            f"environments/-/registrations/{self.registration.pk}/",
            f"{here}/",
            f"{here}/compare/",
            f"{here}/draft/",
            f"{here}/draft/settings/",
            f"{here}/draft/tasks/",
            f"{here}/draft/tasks/q2/",
            f"{here}/draft/tasks/q2/?open",
            f"{here}/draft/upload/",
            f"{here}/draft/upload/{self.upload.pk}/",
            f"{here}/draft/publish/",
        ]


@pytest.fixture
def desk(page: Page, live_stack: LiveStack) -> Iterator[Desk]:
    yield Desk(page, live_stack)
    page.goto("about:blank")


def test_axe_finds_nothing_in_either_scheme(desk: Desk) -> None:
    found = {}
    for path in desk.paths:
        desk.open(path)
        for scheme in SCHEMES:
            desk.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            desk.page.evaluate(SETTLED)
            if problems := violations(desk.page):
                found[f"{path} {scheme}"] = problems
    assert not found


def test_a_phone_scrolls_no_page_sideways(desk: Desk) -> None:
    desk.page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
    wide = {}
    for path in desk.paths:
        desk.open(path)
        over = desk.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if over > 0:
            wide[path] = over
    assert not wide


def tab_to(page: Page, name: str, *, limit: int = 60) -> None:
    """Presses Tab until the focus is on the control or link of that name."""
    for _ in range(limit):
        page.keyboard.press("Escape")
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => {
                const e = document.activeElement;
                const label = e.labels?.[0]?.textContent ?? e.textContent ?? "";
                return (e.getAttribute("aria-label") ?? label).trim();
            }"""
        )
        if str(focused).startswith(name):
            return
    raise AssertionError(f"the keyboard does not reach {name}")


def enter(page: Page, heading: str) -> None:
    """Presses Enter and waits for the page that it leads to."""
    page.evaluate("() => { document.documentElement.dataset.before = '' }")
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-ready]:not([data-before])")
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)


def test_an_environment_is_written_and_published_by_keyboard_alone(desk: Desk) -> None:
    page = desk.page
    desk.open("environments/")
    tab_to(page, "New environment")
    enter(page, "New environment")
    tab_to(page, "Questions and answers")
    enter(page, "New environment")
    tab_to(page, "Name")
    page.keyboard.type("Capitals")
    enter(page, "Capitals")
    tab_to(page, "Add a task")
    enter(page, "New task")
    tab_to(page, "Prompt")
    page.keyboard.type("What is the capital of Peru?")
    tab_to(page, "Answers")
    page.keyboard.type("Lima")
    tab_to(page, "Key")
    page.keyboard.type("peru")
    tab_to(page, "Store")
    enter(page, "peru")
    tab_to(page, "Publish")
    enter(page, "Capitals")
    tab_to(page, "What changed")
    page.keyboard.type("first question")
    enter(page, "Capitals")
    expect(page.get_by_text("Version 1 is published and frozen.")).to_be_visible()
    version = EnvironmentVersion.objects.get(environment__name="Capitals")
    task = version.tasks.get()
    assert (task.key, task.prompt, task.spec["answers"]) == (
        "peru",
        "What is the capital of Peru?",
        ["Lima"],
    )


def test_what_is_not_stored_is_not_lost_by_accident(desk: Desk) -> None:
    page = desk.page
    desk.open(f"environments/{desk.environment.slug}/draft/tasks/")
    page.get_by_label("Prompt").fill("half a thought")
    asked: list[str] = []

    def stay(dialog: object) -> None:
        asked.append(dialog.type)  # type: ignore[attr-defined] # a Dialog
        dialog.dismiss()  # type: ignore[attr-defined] # a Dialog

    page.once("dialog", stay)
    page.get_by_role("link", name="Upload", exact=True).click()
    expect(page.get_by_label("Prompt")).to_have_value("half a thought")
    assert asked == ["beforeunload"]
    page.get_by_label("Key", exact=True).fill("no key!")
    page.get_by_role("button", name="Store", exact=True).click()
    # The form comes back with what was typed, which is still stored nowhere.
    expect(page.get_by_label("Key", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("Prompt")).to_have_value("half a thought")
    page.once("dialog", stay)
    page.get_by_role("link", name="Upload", exact=True).click()
    expect(page.get_by_label("Prompt")).to_have_value("half a thought")
    assert asked == ["beforeunload", "beforeunload"]
    page.complaints.clear()  # type: ignore[attr-defined] # the answer 422 was asked for


def test_tab_indents_code_and_escape_gives_the_keyboard_back(desk: Desk) -> None:
    page = desk.page
    desk.open(f"environments/{desk.environment.slug}/draft/tasks/")
    text = page.get_by_label("Its text").first
    text.focus()
    page.keyboard.type("if x:")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("y")
    assert text.input_value() == "if x:\n  y"
    expect(page.get_by_text("Esc, then Tab leaves").first).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(text).not_to_be_focused()
    text.fill("")


def test_further_files_are_added_and_stored(desk: Desk) -> None:
    page = desk.page
    desk.open(f"environments/{desk.environment.slug}/draft/tasks/")
    page.get_by_label("Prompt").fill("c.txt: first line")
    page.get_by_label("Answer").fill("three")
    files = page.get_by_role("group", name="Files", exact=False).first
    for number, name in enumerate(("a.txt", "b.txt", "c.txt"), start=1):
        if number > 1:
            files.get_by_role("button", name="Add a file").click()
        page.get_by_label(f"Name of file {number}", exact=True).first.fill(name)
        files.get_by_label("Its text").nth(number - 1).fill(name)
    page.get_by_role("textbox", name="Key").fill("three-files")
    page.get_by_role("button", name="Store", exact=True).click()
    expect(page.get_by_text("three-files is stored.")).to_be_visible()
    assert desk.draft.tasks.get(key="three-files").spec["files"] == {
        name: name for name in ("a.txt", "b.txt", "c.txt")
    }


def test_ticked_tasks_are_deleted_and_undone(desk: Desk) -> None:
    page = desk.page
    desk.open(f"environments/{desk.environment.slug}/draft/")
    rows = page.locator("tr[data-row]")
    n = rows.count()
    expect(page.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    page.get_by_label("Tick q2").check()
    expect(page.get_by_text("1 ticked")).to_be_visible()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(rows).to_have_count(n - 1)
    page.get_by_role("button", name="Undo delete of q2").click()
    expect(rows).to_have_count(n)


def test_a_table_is_looked_at_and_taken_in(desk: Desk) -> None:
    page = desk.page
    desk.open(f"environments/{desk.environment.slug}/draft/upload/")
    page.get_by_label("File").set_input_files(
        files={"name": "more.csv", "mimeType": "text/csv", "buffer": table(20, n_bad=2).encode()}
    )
    page.get_by_role("button", name="Look at it").click()
    expect(page.get_by_role("heading", name="Rows left out")).to_be_visible()
    page.get_by_label("Replace all").check()
    page.get_by_role("button", name="Take in 18 tasks").click()
    expect(page.get_by_text("more.csv is in the draft: 18 added")).to_be_visible()
    expect(page.locator("tr[data-row]")).to_have_count(18)


def test_a_registration_is_followed_live(desk: Desk) -> None:
    page, stream = desk.page, desk.registration.stream_id
    desk.open(f"environments/-/registrations/{desk.registration.pk}/")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
    append(stream_id=stream, items=[NewEvent("registration.step", {"text": "installing"})])
    expect(page.get_by_text("installing")).to_be_visible()
    SourceRegistration.objects.filter(pk=desk.registration.pk).update(
        state="failed", message="no openenv.yaml in the folder"
    )
    append(
        stream_id=stream,
        items=[
            NewEvent(
                "registration.ended",
                {"state": "failed", "message": "no", "environment": None, "version": None},
            )
        ],
    )
    expect(page.get_by_text("no openenv.yaml in the folder")).to_be_visible()


def test_without_scripts_a_task_is_written_and_a_table_taken_in(desk: Desk) -> None:
    browser = desk.page.context.browser
    assert browser is not None
    context = browser.new_context(
        java_script_enabled=False, storage_state=desk.page.context.storage_state()
    )
    page = context.new_page()
    here = f"{desk.stack.url}/p/{desk.project.pk}/environments/{desk.environment.slug}/draft"
    page.goto(f"{here}/tasks/")
    page.get_by_label("Prompt").fill("a.txt: first line")
    page.get_by_label("Name of file 1").first.fill("a.txt")
    page.get_by_label("Its text").first.fill("x")
    page.get_by_label("Answer").fill("x")
    page.get_by_role("textbox", name="Key").fill("plain")
    page.get_by_role("button", name="Store", exact=True).click()
    expect(page.get_by_text("plain is stored.")).to_be_visible()
    page.goto(f"{here}/upload/{desk.upload.pk}/")
    page.get_by_role("button", name="Take in 54 tasks").click()
    expect(page.get_by_text("is in the draft")).to_be_visible()
    assert desk.draft.tasks.filter(key="plain").exists()
    context.close()


@pytest.mark.slow
def test_other_pages_answer_while_ten_thousand_rows_are_read(desk: Desk) -> None:
    """The figures are printed; what must hold is that others are served meanwhile."""
    cookies = {"sessionid": session_cookie(desk.people.owner)}
    here = f"/p/{desk.project.pk}/environments/{desk.environment.slug}/draft/upload/"
    with httpx.Client(base_url=desk.stack.url, cookies=cookies, timeout=60) as client:
        page = client.get(here)
        token = page.text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
        content = table(10_000, n_bad=30).encode()
        took: list[float] = []

        def send() -> None:
            began = time.perf_counter()
            answer = client.post(
                here,
                data={"csrfmiddlewaretoken": token},
                files={"file": ("large.csv", content)},
                headers={"Referer": desk.stack.url},
            )
            took.append(time.perf_counter() - began)
            assert answer.status_code == 302

        sender = threading.Thread(target=send)
        sender.start()
        waits = []
        with httpx.Client(base_url=desk.stack.url, cookies=cookies, timeout=60) as other:
            while sender.is_alive():
                began = time.perf_counter()
                assert other.get(f"/p/{desk.project.pk}/runs/").status_code == 200
                waits.append(time.perf_counter() - began)
        sender.join()
    print(f"upload {took[0]:.2f} s, {len(waits)} pages meanwhile, slowest {max(waits):.2f} s")
    assert len(waits) > 3
    assert TaskUpload.objects.get(filename="large.csv").summary["n_bad_rows"] == 30
    assert EnvironmentDraft.objects.get(pk=desk.draft.pk).revision == desk.draft.revision
