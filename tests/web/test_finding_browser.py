"""Search and the import page in a real browser: by keys, in both schemes, on a phone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from orchestrator.events.indexing import index_waiting
from orchestrator.events.services import NewEvent, append
from orchestrator.projects.models import Project
from orchestrator.traces.importing import import_file
from tests.base import make_people
from tests.browser import sign_in
from tests.live import LiveStack
from tests.web.build import make_rollout, make_run, started, tasks_of
from tests.web.looks import faults_of

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LINE = {"rollout": "agent-7", "id": "a", "seq": 1, "kind": "turn", "content": "the beacon"}


def fill(project: Project) -> None:
    run = make_run(project)
    rollout = make_rollout(run, tasks_of(run)[0])
    items = [NewEvent("observation", {"text": f"beacon {i} " + "x" * 400}) for i in range(60)]
    append(stream_id=rollout.stream_id, items=[started(), *items])
    lines = [LINE, {**LINE, "content": "y" * 3_000}, {"rollout": "agent-7"}]
    content = "\n".join(map(json.dumps, lines)).encode()
    import_file(project=project, name="events.jsonl", content=content)
    index_waiting()


def test_search_and_imports_look_right_everywhere(page: Page, live_stack: LiveStack) -> None:
    people = make_people()
    fill(people.project)
    sign_in(page, live_stack, people.owner)

    def open_path(path: str) -> None:
        page.goto(f"{live_stack.url}/p/{people.project.pk}/{path}")
        page.wait_for_selector("html[data-ready]")

    paths = ["search/", "search/?q=beacon", "search/?q=nowhere&kind=action", "imports/"]
    assert faults_of(page, open_path, paths) == []


def test_a_word_leads_to_its_event_and_a_file_to_its_trace(
    page: Page, live_stack: LiveStack, tmp_path: Path
) -> None:
    people = make_people()
    fill(people.project)
    sign_in(page, live_stack, people.owner)
    page.goto(f"{live_stack.url}/p/{people.project.pk}/settings/")
    page.wait_for_selector("html[data-ready]")
    page.locator("main").press("/")
    page.wait_for_url("**/search/")
    page.get_by_label("Words").fill('"the beacon"')
    page.keyboard.press("Enter")
    page.wait_for_url("**/search/?q=*")
    expect(page.locator(".hit mark")).to_have_text(["the beacon"])
    page.locator(".hit .main-link").click()
    page.wait_for_selector("#e1.current")
    file = tmp_path / "more.jsonl"
    file.write_text(json.dumps({**LINE, "rollout": "agent-8", "content": "a lighthouse"}))
    page.goto(f"{live_stack.url}/p/{people.project.pk}/imports/")
    page.wait_for_selector("html[data-ready]")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Import", exact=True).click()
    page.wait_for_url("**/rollouts/*/")
    expect(page.locator("[data-cards]")).to_contain_text("a lighthouse")
