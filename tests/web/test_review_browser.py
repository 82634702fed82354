"""Reviewing in a real browser: by keyboard alone, on a phone, with nothing lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from orchestrator.review.marks import save_marks
from orchestrator.review.models import Annotation, ReviewItem, ReviewSeat, SeatState
from orchestrator.review.services import add_items, delete_item
from tests.base import make_people
from tests.browser import sign_in
from tests.live import LiveStack
from tests.review.build import GOOD, items_of, make_queue, make_rollouts
from tests.waiting import wait_until
from tests.web.build import make_trace
from tests.web.test_browser import PHONE, SCHEMES, SETTLED, violations

pytestmark = pytest.mark.browser


class Desk:
    """A queue of three items, one of pairs, and an editor's page."""

    def __init__(self, page: Page, stack: LiveStack) -> None:
        self.people = people = make_people()
        self.page, self.stack = page, stack
        self.rollouts = make_rollouts(people.project, 3)
        for rollout in self.rollouts:
            make_trace(rollout)
        self.queue = make_queue(
            people.project,
            people.owner,
            self.rollouts,
            name="Final answers",
            instructions="Judge the last line alone.",
        )
        pairs = make_rollouts(people.project, 2, per_task=2)
        for rollout in pairs:
            make_trace(rollout)
        self.pairs = make_queue(
            people.project, people.owner, pairs, name="Which is better", mode="pairwise"
        )
        sign_in(page, stack, people.editor)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.stack.url}/p/{self.people.project.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def at(self, item: ReviewItem) -> None:
        """Waits until the item's page is here and has its reservation."""
        self.page.wait_for_selector(f"html[data-ready] [data-item='{item.pk}'][data-reserved]")


@pytest.fixture
def desk(page: Page, live_stack: LiveStack) -> Iterator[Desk]:
    yield Desk(page, live_stack)
    page.goto("about:blank")


def test_three_items_are_marked_by_keyboard_alone(desk: Desk) -> None:
    first, second, third = items_of(desk.queue)
    desk.open(f"review/{desk.queue.pk}/")
    desk.press("Enter")
    desk.at(first)
    expect(desk.page.locator("[data-countdown]")).to_contain_text("yours for")
    desk.press("1", "4", "Enter")
    desk.at(second)
    expect(desk.page.locator(".just-done")).to_contain_text("is marked")
    # A value is missing: Enter says which, and stays.
    desk.press("2", "Enter")
    expect(desk.page.locator("[data-missing]")).to_have_text("1 of 2 not marked yet")
    desk.press("m")
    desk.page.keyboard.type("1 word too many, see?")
    desk.press("Escape", "6", "ArrowUp", "1", "Enter")
    desk.at(third)
    desk.press("1", "5", "Enter")
    expect(desk.page.get_by_text("All done")).to_be_visible()
    marks = {
        (mark.item_id, mark.criterion): (mark.value, mark.note)
        for mark in Annotation.objects.filter(user=desk.people.editor)
    }
    assert marks == {
        (first.pk, "correct"): (1.0, ""),
        (first.pk, "tone"): (0.75, ""),
        (second.pk, "correct"): (1.0, ""),
        (second.pk, "tone"): (None, "1 word too many, see?"),
        (third.pk, "correct"): (1.0, ""),
        (third.pk, "tone"): (1.0, ""),
    }


def test_every_other_key_does_what_it_says(desk: Desk) -> None:
    first, second, third = items_of(desk.queue)
    desk.open(f"review/{desk.queue.pk}/items/{first.pk}/")
    desk.at(first)
    desk.press("?")
    expect(desk.page.locator("dialog#keys")).to_contain_text("skip or requeue")
    desk.press("Escape", "n")
    expect(desk.page.locator(".ev.current")).to_have_count(1)
    desk.press("]")
    desk.at(second)
    desk.press("[")
    desk.at(first)
    desk.press("s")
    desk.at(second)
    desk.press("q")
    desk.at(third)
    assert list(ReviewSeat.objects.values_list("item_id", "state")) == [
        (third.pk, SeatState.RESERVED)
    ]


def test_a_pair_is_compared_by_keyboard(desk: Desk) -> None:
    first, second = items_of(desk.pairs)
    desk.open(f"review/{desk.pairs.pk}/")
    desk.press("Enter")
    desk.at(first)
    expect(desk.page.locator(".side")).to_have_count(2)
    desk.press("a", "e", "Enter")
    desk.at(second)
    assert Annotation.objects.get(item=first, criterion="tone").preference == "e"
    expected = "b" if first.is_swapped else "a"
    assert Annotation.objects.get(item=first, criterion="correct").preference == expected


def test_marks_of_an_item_that_is_deleted_meanwhile_are_kept(desk: Desk) -> None:
    first = items_of(desk.queue)[0]
    number = first.pk
    desk.open(f"review/{desk.queue.pk}/items/{first.pk}/")
    desk.at(first)
    desk.press("1", "5")
    delete_item(actor=desk.people.owner, item=first)
    desk.press("Enter")
    expect(desk.page.get_by_text(f"{desk.people.owner.username} deleted this item")).to_be_visible()
    desk.page.get_by_role("button", name="Keep them with the rollout").click()
    desk.page.wait_for_url("**/rollouts/*/")
    assert Annotation.objects.filter(item=None, user=desk.people.editor).count() == 2
    assert not ReviewItem.objects.filter(pk=number).exists()
    # The answer 410 is told on the console.
    desk.page.complaints.clear()  # type: ignore[attr-defined] # set by the fixture


def test_marks_survive_a_closed_page(desk: Desk) -> None:
    first = items_of(desk.queue)[0]
    address = f"review/{desk.queue.pk}/items/{first.pk}/"
    desk.open(address)
    desk.at(first)
    desk.press("2")
    desk.open("review/")
    desk.open(address)
    desk.at(first)
    expect(desk.page.locator("input[name='mark-correct'][value='0']")).to_be_checked()
    desk.press("3", "Enter")
    wait_until(
        lambda: Annotation.objects.filter(item=first).count() == 2, limit_s=60, what="the marks"
    )


def test_rows_of_a_run_are_ticked_into_a_queue(desk: Desk) -> None:
    more = make_rollouts(desk.people.project, 3)
    desk.open(f"runs/{more[0].run_id}/")
    button = desk.page.get_by_role("button", name="Add to review queue")
    expect(button).to_be_disabled()
    desk.press("j", "Space", "j", "j", "Space")
    expect(desk.page.locator("[data-ticked]")).to_have_text("2 ticked")
    desk.page.get_by_label("Review queue").select_option("Final answers")
    button.click()
    expect(desk.page.get_by_text("2 items added")).to_be_visible()
    assert [item.rollout for item in items_of(desk.queue)][3:] == [more[0], more[2]]


def test_a_queue_is_made_from_nothing_with_few_words(desk: Desk) -> None:
    desk.open("review/new/")
    desk.page.keyboard.type("Fresh")
    desk.page.get_by_label("Run", exact=True).select_option(index=1)
    desk.page.get_by_role("button", name="Make the queue").click()
    expect(desk.page.get_by_role("heading", name="Fresh")).to_be_visible()
    expect(desk.page.get_by_text("items added")).to_be_visible()


def paths(desk: Desk) -> list[str]:
    first = items_of(desk.queue)[0]
    third = items_of(desk.queue)[2]
    save_marks(actor=desk.people.editor, item=third, marks=GOOD)
    add_items(desk.queue, make_rollouts(desk.people.project, 1), actor=desk.people.owner)
    gone = items_of(desk.queue)[3]
    number = gone.pk
    delete_item(actor=desk.people.owner, item=gone)
    return [
        "review/",
        "review/new/",
        f"review/{desk.queue.pk}/",
        f"review/{desk.queue.pk}/items/{first.pk}/",
        f"review/{desk.queue.pk}/items/{third.pk}/",
        f"review/{desk.queue.pk}/items/{number}/",
        f"review/{desk.pairs.pk}/items/{items_of(desk.pairs)[0].pk}/",
        f"runs/{desk.rollouts[0].run_id}/",
        f"rollouts/{desk.rollouts[0].pk}/",
    ]


def test_axe_finds_nothing_in_either_scheme(desk: Desk) -> None:
    found = {}
    for path in paths(desk):
        desk.open(path)
        for scheme in SCHEMES:
            desk.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            desk.page.evaluate(SETTLED)
            if problems := violations(desk.page):
                found[f"{path} {scheme}"] = problems
    assert not found
    desk.page.complaints.clear()  # type: ignore[attr-defined] # one page answers 410


def test_a_phone_scrolls_no_page_sideways(desk: Desk) -> None:
    desk.page.set_viewport_size(PHONE)  # type: ignore[arg-type] # a TypedDict
    wide = {}
    for path in paths(desk):
        desk.open(path)
        over = desk.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if over > 0:
            wide[path] = over
    assert not wide
    desk.page.complaints.clear()  # type: ignore[attr-defined] # one page answers 410
