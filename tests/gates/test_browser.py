"""The pages of gates in a real browser: names and contrast in both schemes, a phone, a refresh."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.base import make_people
from tests.browser import settle, sign_in
from tests.gates.build import make_gate, played, worth
from tests.live import LiveStack
from tests.web.looks import faults_of

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def opener(page: Page, stack: LiveStack) -> Callable[[str], None]:
    def open_path(path: str) -> None:
        page.goto(stack.url + path)
        page.wait_for_selector("html[data-ready]")
        settle(page)

    return open_path


def test_gates_look_right_in_every_state(page: Page, live_stack: LiveStack) -> None:
    people = make_people()
    gates = [
        played(people, worth(0.1, 0.9), name="better"),
        played(people, worth(0.5, 0.52), name="not clear", policy={"rollouts": 96}),
        played(people, lambda harness, rollout: None, name="no scores"),
    ]
    sign_in(page, live_stack, people.editor)
    base = f"/p/{people.project.pk}/gates/"
    paths = [base, *(f"{base}{gate.pk}/" for gate in gates)]
    assert faults_of(page, opener(page, live_stack), paths) == []


def test_a_page_follows_its_gate_to_the_verdict(page: Page, live_stack: LiveStack) -> None:
    """Its environment cannot be reached, and the workers of the stack find that out."""
    people = make_people()
    gate = make_gate(people, tasks=8)
    sign_in(page, live_stack, people.editor)
    opener(page, live_stack)(f"/p/{people.project.pk}/gates/{gate.pk}/")
    expect(page.get_by_text("Nothing is said of the change")).to_be_visible(timeout=120_000)
    expect(page.get_by_role("button", name="Cancel gate")).to_have_count(0)
