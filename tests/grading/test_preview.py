"""A draft on one transcript, golden cases, and what stands before a version."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from benchmarks.past_rollouts import make_tasks, write_run
from orchestrator.grading.backtest import start_backtest
from orchestrator.grading.drafts import create_rubric, save_draft
from orchestrator.grading.errors import GoldenFailures, GoldenRefused, Stale
from orchestrator.grading.golden import add_from_rollout, add_typed, cases_of, run_golden
from orchestrator.grading.models import RubricDraft
from orchestrator.grading.preview import IN_GROUPS, NOT_ASKED, preview
from orchestrator.grading.publish import backtest_of, publish
from orchestrator.runs.models import Rollout
from rubrics.errors import RubricInvalid
from rubrics.types import State, Step, Transcript
from rubrics.versions import create_rubric_version
from tests.base import People
from tests.environments.conftest import needs_bubblewrap

pytestmark = pytest.mark.django_db(transaction=True)

RIGHT: dict[str, Any] = {"id": "right", "kind": "exact", "params": {"expected": "42"}}
TONE: dict[str, Any] = {"id": "tone", "kind": "judge", "params": {"question": "Is it plain?"}}
GOOD = Transcript(
    steps=(
        Step(1, 3, "ls", command="ls", output="a.txt"),
        Step(2, 5, "answer: 42", answer="42", done=True),
    ),
    answer="42",
)
BAD = Transcript(steps=(Step(1, 3, "answer: 41", answer="41", done=True),), answer="41")


def spec(*criteria: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"criteria": list(criteria), **rest}


def make_draft(people: People, *criteria: dict[str, Any], **rest: Any) -> RubricDraft:
    draft = create_rubric(actor=people.editor, project=people.project, name="answers")
    saved = save_draft(actor=people.editor, draft=draft, spec=spec(*criteria, **rest), revision=0)
    return saved.draft


def test_what_is_finished_is_graded_and_the_rest_says_why_not(people: People) -> None:
    unfinished = {"id": "few", "kind": "steps", "scope": "trajectory"}
    shown = preview(people.project.pk, spec(RIGHT, unfinished, {"id": "x", "kind": ""}), GOOD)
    right, few, unknown = shown.lines
    assert right.verdict is not None
    assert (right.verdict.value, right.passed, right.verdict.cites) == (1.0, True, (5,))
    assert right.took_s is not None
    assert few.verdict is None
    assert [note.field for note in few.problems] == ["params.max"]
    assert unknown.problems
    assert (shown.score, shown.is_passed) == (None, None)
    assert shown.cited == {5}
    whole = preview(people.project.pk, spec(RIGHT), BAD)
    assert whole.score is not None
    assert (whole.score.value, whole.is_passed) == (0.0, False)
    empty = preview(people.project.pk, {"criteria": []}, GOOD)
    assert (empty.lines, empty.score) == ([], None)
    assert empty.problems


def test_gates_hold_in_a_preview_too(people: People) -> None:
    few = {"id": "few", "kind": "steps", "scope": "trajectory", "params": {"max": 4}}
    shown = preview(people.project.pk, spec({**RIGHT, "gate": True}, few, TONE), BAD)
    verdicts = [line.verdict for line in shown.lines]
    assert [v.state for v in verdicts if v] == ["scored", "not_applicable", "not_applicable"]
    assert shown.n_waiting == 0


def test_a_model_is_asked_only_when_somebody_says_so(people: People) -> None:
    shown = preview(people.project.pk, spec(RIGHT, TONE), GOOD)
    tone = shown.lines[1]
    assert tone.verdict is not None
    assert (tone.is_judged, tone.verdict.state, tone.verdict.reason) == (
        True,
        State.PENDING,
        NOT_ASKED,
    )
    assert (shown.n_waiting, tone.took_s) == (1, None)
    assert shown.score is not None
    assert shown.score.state is State.PENDING
    # There is no judge to ask: an error with what to do, never a number.
    asked = preview(people.project.pk, spec(RIGHT, TONE), GOOD, with_judges=True)
    verdict = asked.lines[1].verdict
    assert verdict is not None
    assert (verdict.state, verdict.value) == (State.ERRORED, None)
    assert "Settings, Models" in verdict.reason


@needs_bubblewrap
def test_code_that_fails_is_an_error_beside_the_others(people: People) -> None:
    code = {
        "id": "code",
        "kind": "python",
        "scope": "trajectory",
        "params": {"source": "def grade(trace):\n    return trace['nothing']\n"},
    }
    shown = preview(people.project.pk, spec(RIGHT, code), GOOD)
    right, failed = (line.verdict for line in shown.lines)
    assert right and failed
    assert (right.value, failed.state) == (1.0, State.ERRORED)
    assert "KeyError" in failed.reason


def test_golden_cases_hold_fail_or_cannot_be_told(people: People) -> None:
    draft = make_draft(people, RIGHT, TONE)
    rubric = draft.rubric

    def add(name: str, expect: str, transcript: Transcript, criterion: str = "") -> None:
        add_typed(
            actor=people.editor,
            rubric=rubric,
            name=name,
            expect=expect,
            transcript=transcript,
            criterion=criterion,
        )

    add("right", "pass", GOOD, "right")
    add("wrong", "fail", BAD, "right")
    add("asks too much", "pass", BAD, "right")
    add("of a model", "pass", GOOD, "tone")
    add("of nothing", "pass", GOOD, "gone")
    add("as a whole", "fail", BAD)
    results = run_golden(people.project.pk, draft.spec, cases_of(rubric)).results
    assert [(r.case.name, r.holds) for r in results] == [
        ("right", True),
        ("wrong", True),
        ("asks too much", False),
        ("of a model", None),
        ("of nothing", None),
        ("as a whole", None),
    ]
    assert "no criterion gone" in results[4].why
    (whole,) = run_golden(people.project.pk, spec(RIGHT), cases_of(rubric)[5:]).results
    assert (whole.holds, whole.value) == (True, 0.0)
    assert whole.why.startswith("score 0.00, passes at 1.00. right: ")
    report = run_golden(people.project.pk, spec(RIGHT), cases_of(rubric))
    assert (report.n_held, len(report.failed), report.n_untold) == (3, 1, 2)


def test_a_golden_case_keeps_its_transcript_when_its_rollout_goes(people: People) -> None:
    draft = make_draft(people, RIGHT)
    version = create_rubric_version(rubric=draft.rubric, spec=spec(RIGHT))
    run = write_run(rubric_version=version, version=make_tasks(people.project), n=2)
    rollout = Rollout.objects.filter(run=run).order_by("pk")[1]
    case = add_from_rollout(
        actor=people.editor, rubric=draft.rubric, rollout=rollout, name="r", expect="pass"
    )
    rollout.verdicts.all().delete()
    rollout.delete()
    case.refresh_from_db()
    assert case.rollout is None
    (result,) = run_golden(people.project.pk, draft.spec, [case]).results
    assert result.holds is True


def test_golden_cases_are_refused_with_the_field(people: People) -> None:
    rubric = make_draft(people, RIGHT).rubric

    def add(actor: Any = people.editor, **changes: Any) -> None:
        fields = {"name": "one", "expect": "pass", "transcript": GOOD, **changes}
        add_typed(actor=actor, rubric=rubric, **fields)

    add()
    for changes, words in (
        ({}, "one already"),
        ({"name": "  "}, "1 to 120"),
        ({"expect": "maybe"}, "choose one"),
        ({"transcript": {"stepz": []}}, "transcript.stepz"),
    ):
        with pytest.raises(GoldenRefused, match=words):
            add(**changes)
    with pytest.raises(PermissionDenied):
        add(actor=people.member, name="two")


def test_golden_cases_that_do_not_hold_take_a_yes_with_a_note(people: People) -> None:
    draft = make_draft(people, RIGHT)
    add_typed(actor=people.editor, rubric=draft.rubric, name="odd", expect="pass", transcript=BAD)

    def go(**how: Any) -> Any:
        return publish(draft=draft, actor=people.editor, revision=draft.revision, **how)

    for how in ({}, {"anyway": True}, {"anyway": True, "note": "  "}, {"note": "because"}):
        with pytest.raises(GoldenFailures, match="1 golden case does not hold"):
            go(**how)
    with pytest.raises(Stale):
        publish(draft=draft, actor=people.editor, revision=0, anyway=True, note="x")
    version = go(anyway=True, note="The case is wrong.")
    assert (version.number, version.note) == (1, "The case is wrong.")
    assert (version.failed_golden, version.published_by) == (["odd"], people.editor)
    assert not RubricDraft.objects.filter(pk=draft.pk).exists()


def test_an_unfinished_draft_is_told_as_that_and_not_as_golden(people: People) -> None:
    draft = make_draft(people, {"id": "few", "kind": "steps"})
    add_typed(actor=people.editor, rubric=draft.rubric, name="g", expect="pass", transcript=GOOD)
    with pytest.raises(RubricInvalid):
        publish(draft=draft, actor=people.editor, revision=draft.revision)


def test_a_back_test_counts_only_for_what_the_draft_says_now(people: People) -> None:
    draft = make_draft(people, RIGHT)
    version = create_rubric_version(rubric=draft.rubric, spec=spec(RIGHT))
    write_run(rubric_version=version, version=make_tasks(people.project), n=2)
    asked = start_backtest(actor=people.editor, draft=draft)
    assert backtest_of(draft) == asked
    saved = save_draft(
        actor=people.editor, draft=draft, spec=spec(RIGHT, TONE), revision=draft.revision
    )
    assert backtest_of(saved.draft) is None


def test_what_compares_rollouts_is_left_to_back_tests(people: People) -> None:
    best = {
        "id": "best",
        "kind": "judge_group",
        "scope": "trajectory",
        "params": {"question": "Which is better?"},
    }
    shown = preview(people.project.pk, spec(RIGHT, best), GOOD, with_judges=True)
    line = shown.lines[1]
    assert line.verdict is not None, line.problems
    assert (line.verdict.state, line.verdict.reason) == (State.PENDING, IN_GROUPS)
    assert shown.n_waiting == 0
