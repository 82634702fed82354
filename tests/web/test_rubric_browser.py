"""Writing a rubric in a real browser: by keyboard alone, by two at once, with nothing lost."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.grading.drafts import create_rubric, save_draft, start_draft
from orchestrator.grading.models import RubricDraft
from orchestrator.grading.publish import publish
from rubrics.models import Rubric, RubricVersion
from tests.base import make_people
from tests.browser import sign_in
from tests.doubles.model_server import ScriptedModel
from tests.live import LiveStack
from tests.waiting import wait_until
from tests.web.build import make_environment, make_rollout, make_run, make_trace, tasks_of
from tests.web.test_browser import PHONE, SCHEMES, SETTLED, violations

pytestmark = pytest.mark.browser


class Desk:
    """A project with a rubric of one version and a draft of the next, and a signed-in page."""

    def __init__(self, page: Page, stack: LiveStack) -> None:
        self.people = people = make_people()
        self.page, self.stack, self.project = page, stack, people.project
        draft = create_rubric(
            actor=people.owner, project=people.project, name="Answers", template_key="terminal"
        )
        publish(draft=draft, actor=people.owner, revision=0)
        self.rubric: Rubric = draft.rubric
        self.draft = start_draft(actor=people.owner, rubric=self.rubric)
        sign_in(page, stack, people.owner)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.stack.url}/p/{self.project.pk}/{path}")
        self.page.wait_for_selector("html[data-ready]")

    def edit(self) -> None:
        self.open(f"rubrics/{self.rubric.pk}/edit/")

    def stored(self) -> RubricDraft:
        return RubricDraft.objects.get(pk=self.draft.pk)

    def wait_for_ids(self, *ids: str) -> None:
        wait_until(
            lambda: [c["id"] for c in self.stored().spec["criteria"]] == list(ids),
            limit_s=60,
            what=f"the draft has {ids}",
        )

    @property
    def paths(self) -> list[str]:
        here = f"rubrics/{self.rubric.pk}"
        return [
            "rubrics/",
            "rubrics/-/new/",
            f"{here}/",
            f"{here}/edit/",
            f"{here}/versions/",
            f"{here}/json/",
            f"{here}/publish/",
        ]


@pytest.fixture
def desk(page: Page, live_stack: LiveStack) -> Iterator[Desk]:
    yield Desk(page, live_stack)
    page.goto("about:blank")


class Keyboard:
    """Counts what is pressed beside the rubric's own text."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.n_pressed = 0

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
            self.n_pressed += 1

    def write(self, text: str) -> None:
        """The rubric's own text."""
        self.page.keyboard.type(text)


def test_three_criteria_are_written_previewed_and_published_by_few_keys(desk: Desk) -> None:
    page, keys = desk.page, Keyboard(desk.page)
    run = make_run(desk.project)
    make_trace(make_rollout(run, tasks_of(run, "train")[0]))
    desk.open("rubrics/")
    keys.press("n")
    expect(page.get_by_role("heading", name="New rubric", exact=True)).to_be_visible()
    keys.write("Support answers")
    keys.press("Enter")
    page.wait_for_selector("[data-none]:not([hidden])")
    page.wait_for_selector("html[data-ready]")

    keys.press("a", *"exa", "Enter")
    keys.write("Gives the right answer")
    keys.press("Escape", "8")

    keys.press("a", *"judge", "Enter")
    keys.write("Is polite")
    keys.press("Tab", "Tab")
    keys.write("Does the final answer avoid insults?")
    keys.press("Escape")

    keys.press("a", *"pyt", "Enter")
    keys.write("Few steps")
    keys.press("Escape")

    preview = page.locator(".card.preview .preview-line")
    expect(preview).to_have_count(3)
    expect(preview.filter(has_text="Few steps")).to_contain_text("1 steps")

    keys.press("p")
    expect(page.get_by_role("heading", name="Publish Support answers v1")).to_be_visible()
    page.wait_for_selector("html[data-ready]")
    keys.press("Enter")
    expect(page.get_by_text("Version 1 is published and frozen.")).to_be_visible()

    print(f"{keys.n_pressed} keystrokes beside the rubric's own text")
    assert keys.n_pressed <= 40
    version = RubricVersion.objects.get(rubric__name="Support answers")
    criteria = version.spec["criteria"]
    assert [(c["id"], c["kind"]) for c in criteria] == [
        ("gives_the_right_answer", "exact"),
        ("is_polite", "judge"),
        ("few_steps", "python"),
    ]
    assert criteria[0]["weight"] == 8
    assert criteria[1]["params"]["question"] == "Does the final answer avoid insults?"


def test_axe_finds_nothing_in_either_scheme(desk: Desk) -> None:
    found = {}
    for path in desk.paths:
        desk.open(path)
        for scheme in SCHEMES:
            desk.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            desk.page.evaluate(SETTLED)
            if problems := violations(desk.page):
                found[f"{path} {scheme}"] = problems
    desk.edit()
    desk.page.keyboard.press("a")
    for scheme in SCHEMES:
        desk.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        desk.page.evaluate(SETTLED)
        if problems := violations(desk.page):
            found[f"kinds {scheme}"] = problems
    desk.page.keyboard.type("python")
    desk.page.keyboard.press("Enter")
    expect(desk.page.locator("textarea.code-text")).to_be_visible()
    for scheme in SCHEMES:
        desk.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        desk.page.evaluate(SETTLED)
        if problems := violations(desk.page):
            found[f"code {scheme}"] = problems
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


def test_cards_are_ordered_by_keyboard_and_by_drag(desk: Desk) -> None:
    page = desk.page
    desk.edit()
    expect(page.locator(".crit-open").first).to_be_focused()
    page.keyboard.press("Alt+ArrowDown")
    desk.wait_for_ids("few_steps", "solved", "deletes")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Alt+ArrowUp")
    desk.wait_for_ids("few_steps", "deletes", "solved")
    page.locator("[data-id=solved]").drag_to(
        page.locator("[data-id=few_steps]"), target_position={"x": 40, "y": 3}
    )
    desk.wait_for_ids("solved", "few_steps", "deletes")


def test_a_deleted_criterion_comes_back_by_undo(desk: Desk) -> None:
    page = desk.page
    desk.edit()
    page.keyboard.press("Delete")
    expect(page.get_by_text("The environment accepts the answer is deleted.")).to_be_visible()
    desk.wait_for_ids("few_steps", "deletes")
    page.locator("[data-gone]").get_by_role("button", name="Undo").click()
    desk.wait_for_ids("solved", "few_steps", "deletes")
    page.keyboard.press("Escape")
    page.locator("[data-id=deletes] .crit-open").click()
    page.keyboard.press("d")
    desk.wait_for_ids("solved", "few_steps", "deletes", "deletes_copy")


def test_a_name_changes_and_the_id_of_a_published_criterion_stays(desk: Desk) -> None:
    page = desk.page
    desk.edit()
    page.get_by_label("Name", exact=True).fill("Solved at last")
    page.keyboard.press("Escape")
    wait_until(
        lambda: desk.stored().spec["criteria"][0].get("name") == "Solved at last",
        limit_s=60,
        what="the name is stored",
    )
    assert desk.stored().spec["criteria"][0]["id"] == "solved"
    expect(page.locator("[data-save-state]")).to_contain_text("saved")


def test_what_is_missing_and_what_could_be_better_stand_at_their_fields(desk: Desk) -> None:
    page = desk.page
    desk.edit()
    page.keyboard.press("a")
    page.keyboard.type("judge")
    page.keyboard.press("Enter")
    question = page.get_by_label("Question")
    expect(page.locator(".field", has=question).get_by_text("still needed")).to_be_visible()
    question.fill("Is the answer good and does it name a source?")
    field = page.locator(".field", has=question)
    expect(field.get_by_text("The question asks several things")).to_be_visible()
    expect(field.get_by_text("still needed")).to_have_count(0)
    page.locator("[data-notes]").get_by_role("button").first.click()
    assert page.evaluate("document.activeElement.matches('textarea, input, select, button')")


def test_code_is_indented_coloured_and_completed(desk: Desk) -> None:
    page = desk.page
    desk.edit()
    page.keyboard.press("a")
    page.keyboard.type("python")
    page.keyboard.press("Enter")
    area = page.locator("textarea.code-text")
    area.fill("def grade(trace):")
    area.press("End")
    page.keyboard.press("Enter")
    assert area.input_value() == "def grade(trace):\n    "
    page.keyboard.type("n = len(tra")
    expect(page.get_by_role("option", name='trace["task"]')).to_be_visible()
    page.keyboard.type('ce["st')
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert area.input_value().endswith('n = len(trace["steps"]')
    expect(page.locator(".tok-k").first).to_have_text("def")
    page.keyboard.press("Escape")
    expect(area).not_to_be_focused()


def test_the_second_of_two_sees_what_differs_and_loses_nothing(desk: Desk) -> None:
    page = desk.page
    desk.edit()
    theirs = desk.stored().spec
    theirs["criteria"][0]["name"] = "Theirs"
    theirs["criteria"][1]["weight"] = 7
    theirs["criteria"].append({"id": "extra", "kind": "exact", "name": "Their new one"})
    save_draft(actor=desk.people.editor, draft=desk.draft, spec=theirs, revision=0)
    page.get_by_label("Name", exact=True).fill("Mine")
    page.keyboard.press("Escape")
    dialog = page.get_by_role("dialog", name="Two of you have written")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_text("both of you changed it")).to_have_count(1)
    expect(dialog.get_by_text("only they changed it")).to_have_count(2)
    expect(dialog.get_by_role("button", name="1 to decide")).to_be_disabled()
    assert not violations(page)
    dialog.get_by_label("Keep mine").first.check()
    dialog.get_by_role("button", name="Store this").click()
    wait_until(lambda: desk.stored().revision == 2, limit_s=60, what="the merged draft is stored")
    spec = desk.stored().spec
    assert [c.get("name") for c in spec["criteria"]] == [
        "Mine",
        "Needs few commands",
        "Deletes files",
        "Their new one",
    ]
    assert spec["criteria"][1]["weight"] == 7
    page.complaints.clear()  # type: ignore[attr-defined] # the answer 409 was asked for


def test_what_cannot_be_stored_is_told_kept_and_stored_later(desk: Desk) -> None:
    page = desk.page
    desk.edit()
    page.route("**/edit/save/", lambda route: route.abort())
    page.get_by_label("Name", exact=True).fill("Kept")
    page.keyboard.press("Escape")
    expect(page.get_by_text("This could not be saved: the server does not answer")).to_be_visible()
    page.unroute("**/edit/save/")
    wait_until(
        lambda: desk.stored().spec["criteria"][0]["name"] == "Kept", limit_s=20, what="stored"
    )
    expect(page.locator("[data-trouble]")).to_be_hidden()
    page.complaints.clear()  # type: ignore[attr-defined] # the refused requests were asked for


def test_a_model_drafts_and_the_author_takes_one(desk: Desk) -> None:
    page = desk.page
    criterion = {"name": "Names Lima", "kind": "contains", "params": {"texts": ["Lima"]}}
    reply = json.dumps({"criteria": [criterion, {**criterion, "name": "Also"}, {"kind": "none"}]})
    make_environment(desk.project)
    with ScriptedModel(lambda asked: reply) as model:
        ModelEndpoint.objects.create(
            project=desk.project,
            name="writer",
            kind=EndpointKind.OPENAI,
            base_url=model.url,
            model=model.name,
        )
        desk.edit()
        page.get_by_role("button", name="Draft criteria").click()
        expect(page.get_by_text("1 left out")).to_be_visible(timeout=20_000)
        assert [c["id"] for c in desk.stored().spec["criteria"]] == [
            "solved",
            "few_steps",
            "deletes",
        ]
        assert not violations(page)
        page.get_by_role("button", name="Take Names Lima").click()
        desk.wait_for_ids("solved", "few_steps", "deletes", "names_lima")
        expect(page.get_by_role("button", name="Take Names Lima")).to_have_count(0)
        page.get_by_role("button", name="Dismiss Also").click()
        expect(page.get_by_text("All suggestions are settled.")).to_be_visible()


def test_a_bad_reply_is_told_and_nothing_is_proposed(desk: Desk) -> None:
    page = desk.page
    make_environment(desk.project)
    with ScriptedModel(lambda asked: "As a model I would rather not.") as model:
        ModelEndpoint.objects.create(
            project=desk.project,
            name="writer",
            kind=EndpointKind.OPENAI,
            base_url=model.url,
            model=model.name,
        )
        desk.edit()
        page.get_by_role("button", name="Draft criteria").click()
        expect(page.get_by_text("No suggestions: The reply is not one JSON")).to_be_visible(
            timeout=20_000
        )
        page.get_by_text("What the model said").click()
        expect(page.get_by_text("As a model I would rather not.")).to_be_visible()
    assert desk.stored().revision == 0
