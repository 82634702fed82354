"""Pages of previews, golden cases, back-tests, re-grades and publishing."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from benchmarks.past_rollouts import make_tasks, write_run
from orchestrator.grading.drafts import save_draft, start_draft
from orchestrator.grading.golden import add_typed
from orchestrator.grading.models import GoldenCase, Regrade, RubricDraft
from orchestrator.jobs.execution import run_attempt
from orchestrator.runs.models import Rollout, Run, VerdictRecord
from rubrics.models import Rubric, RubricVersion
from rubrics.types import Transcript
from rubrics.versions import create_rubric_version
from tests.base import People
from tests.doubles.model_server import ScriptedModel
from tests.judging.test_judges import endpoint, says

pytestmark = pytest.mark.django_db(transaction=True)

PAGES = {"rubric_preview", "rubric_golden", "rubric_backtests", "regrade"}
WRITES = {
    *("golden_add", "golden_remove", "backtest_start", "regrade_start"),
    *("run_regrade", "regrade_cancel", "regrade_resume"),
}
"""Compared with all addresses in `test_access`."""
RIGHT: dict[str, Any] = {"id": "right", "kind": "exact"}
FEW: dict[str, Any] = {
    "id": "few",
    "name": "Few steps",
    "kind": "steps",
    "scope": "trajectory",
    "params": {"max": 6, "within": 5},
}
TONE: dict[str, Any] = {"id": "tone", "kind": "judge", "params": {"question": "Is it plain?"}}


class Setting:
    """A rubric with a version, a run of it, and a draft that looks harder at the steps."""

    def __init__(self, people: People, client: Client) -> None:
        self.people, self.client = people, client
        self.rubric = Rubric.objects.create(project=people.project, name="answers")
        self.version: RubricVersion = create_rubric_version(
            rubric=self.rubric, spec={"criteria": [RIGHT, FEW], "pass_threshold": 0.75}
        )
        self.run: Run = write_run(
            rubric_version=self.version, version=make_tasks(people.project), n=12
        )
        self.draft: RubricDraft = start_draft(actor=people.editor, rubric=self.rubric)
        self.write(RIGHT, {**FEW, "params": {"max": 4, "within": 2}})
        client.force_login(people.editor)

    def write(self, *criteria: dict[str, Any]) -> None:
        spec = {"criteria": list(criteria), "pass_threshold": 0.75}
        saved = save_draft(
            actor=self.people.editor, draft=self.draft, spec=spec, revision=self.draft.revision
        )
        self.draft = saved.draft

    def url(self, name: str, /, *args: int, **query: str) -> str:
        asked = "&".join(f"{k}={v}" for k, v in query.items())
        address = reverse(f"web:{name}", args=[self.people.project.pk, *args])
        return f"{address}?{asked}" if asked else address

    def get(self, name: str, /, *args: int, **query: str) -> str:
        answer = self.client.get(self.url(name, *args, **query))
        assert answer.status_code == 200, answer.status_code
        return answer.content.decode()

    def post(self, name: str, /, *args: int, **fields: Any) -> Any:
        return self.client.post(self.url(name, *args), fields, follow=True)

    def work(self) -> Regrade:
        asked = Regrade.objects.order_by("-id").first()
        assert asked is not None and asked.job_id is not None
        run_attempt(asked.job_id)
        return asked


@pytest.fixture
def setting(people: People, client: Client) -> Setting:
    return Setting(people, client)


def test_a_preview_shows_verdicts_beside_the_cited_events(setting: Setting) -> None:
    rollout = Rollout.objects.filter(run=setting.run, score=1.0).first()
    assert rollout is not None
    body = setting.get("rubric_preview", setting.rubric.pk, on=f"r{rollout.pk}")
    assert "Few steps" in body
    assert "its run gave 1.00" in body
    cite = rollout.verdicts.get(criterion="right").cites[0]
    assert f'href="#e{cite}"' in body
    assert '<div class="is-cited">' in body
    part = setting.get("rubric_preview", setting.rubric.pk, part="1", show="failed")
    assert "<html" not in part
    assert "data-choice" in part
    failed = Rollout.objects.filter(run=setting.run, score__lt=0.5)
    assert part.count('value="r') == failed.count()
    nothing = setting.get("rubric_preview", setting.rubric.pk, q="no such task")
    assert "No rollout matches" in nothing


def test_a_preview_of_what_is_unfinished_says_what_is_missing(setting: Setting) -> None:
    setting.write(RIGHT, {"id": "few", "kind": "steps", "scope": "trajectory"})
    body = setting.get("rubric_preview", setting.rubric.pk)
    assert "unfinished" in body
    assert "required" in body


def test_models_are_asked_by_editors_alone_and_by_post(setting: Setting) -> None:
    setting.write(RIGHT, TONE)
    body = setting.get("rubric_preview", setting.rubric.pk)
    assert "Ask the model about 1 criterion" in body
    asked = setting.post("rubric_preview", setting.rubric.pk)
    assert "Settings, Models" in asked.content.decode()
    setting.client.force_login(setting.people.member)
    assert "Ask the model" not in setting.get("rubric_preview", setting.rubric.pk)
    assert setting.post("rubric_preview", setting.rubric.pk).status_code == 403
    assert setting.post("rubric_golden", setting.rubric.pk).status_code == 403


def test_golden_cases_are_written_kept_and_removed(setting: Setting) -> None:
    pk = setting.rubric.pk
    assert "No golden case yet" in setting.get("rubric_golden", pk)
    body = setting.post(
        "golden_add", pk, name="empty answer", expect="fail", answer="", expected="42"
    ).content.decode()
    assert "1 of 1 hold" in body
    rollout = Rollout.objects.filter(run=setting.run, score=1.0).first()
    assert rollout is not None
    setting.post("golden_add", pk, name="kept", expect="pass", rollout=str(rollout.pk))
    kept = GoldenCase.objects.get(name="kept")
    assert kept.rollout == rollout
    refused = setting.post("golden_add", pk, name="kept", expect="pass", answer="mine to keep")
    assert refused.status_code == 422
    assert "kept already" in refused.content.decode()
    assert "mine to keep" in refused.content.decode()
    preview = setting.get("rubric_preview", pk, on=f"g{kept.pk}")
    assert "kept, must pass" in preview
    setting.post("golden_remove", pk, kept.pk)
    assert not GoldenCase.objects.filter(pk=kept.pk).exists()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, "1 to 120"),
        ({"json": "{"}, "not JSON"),
        ({"json": "[]"}, "not a JSON object"),
        ({"json": '{"steps": [{"x": 1}]}'}, "steps[0].x"),
        ({"reward": "2"}, "0 to 1"),
        ({"rollout": "999999"}, "no such rollout"),
        ({"expect": ""}, "choose one"),
    ],
)
def test_a_golden_case_is_refused_with_its_reason(
    setting: Setting, fields: dict[str, str], words: str
) -> None:
    sent = {"name": "n", "expect": "pass", "answer": "x", **fields}
    answer = setting.post("golden_add", setting.rubric.pk, **sent)
    assert answer.status_code == 422
    assert words in answer.content.decode()


def test_a_back_test_from_its_button_to_its_result(setting: Setting) -> None:
    pk = setting.rubric.pk
    assert "Back-test on up to 500" in setting.get("rubric_publish", pk)
    waiting = setting.post("backtest_start", pk, of="rubric", next="publish").content.decode()
    assert "0 of 12 past rollouts graded again" in waiting
    asked = setting.work()
    body = setting.get("rubric_publish", pk)
    assert "This edit flips" in body
    assert "4 of 12" in body
    page = setting.get("regrade", asked.pk)
    assert "keep their stored verdicts" in page
    assert "Read these" in page
    assert "data-ended" in page
    flip = Rollout.objects.filter(run=setting.run, n_steps=5, score=1.0).first()
    assert flip is not None
    assert setting.url("rollout", flip.pk) in page
    assert "back-test of a draft" in setting.get("rubric_backtests", pk)
    # What is written next is not what was tested.
    setting.write(RIGHT)
    assert "This edit flips" not in setting.get("rubric_publish", pk)


def test_a_run_is_graded_again_by_any_version_and_keeps_its_scores(setting: Setting) -> None:
    before = list(Rollout.objects.order_by("pk").values_list("score", flat=True))
    assert setting.url("run_regrade", setting.run.pk) in setting.get("run", setting.run.pk)
    other = create_rubric_version(
        rubric=Rubric.objects.create(project=setting.people.project, name="other"),
        spec={"criteria": [RIGHT]},
    )
    body = setting.get("run_regrade", setting.run.pk)
    assert "other v1" in body
    assert "Retry those" not in body
    setting.post("run_regrade", setting.run.pk, version=str(other.pk), state="scored")
    asked = setting.work()
    page = setting.get("regrade", asked.pk)
    assert "by other v1" in page
    assert "Every criterion was graded again" in page
    assert list(Rollout.objects.order_by("pk").values_list("score", flat=True)) == before
    assert "by other v1" in setting.get("run_regrade", setting.run.pk)
    ids = list(Rollout.objects.values_list("pk", flat=True)[:3])
    assert 'value="choose"' in setting.get("run", setting.run.pk)
    chosen = setting.post("run_regrade", setting.run.pk, what="choose", rollout=ids)
    assert "The 3 ticked rollouts" in chosen.content.decode()
    setting.post("run_regrade", setting.run.pk, version=str(other.pk), rollout=ids)
    assert setting.work().scores.count() == 3
    nothing = setting.post("run_regrade", setting.run.pk, version="0").content.decode()
    assert "Choose a version" in nothing


def test_what_errored_in_a_run_is_offered_again(setting: Setting) -> None:
    VerdictRecord.objects.filter(criterion="few").update(
        state="errored", value=None, reason="no reply"
    )
    body = setting.get("run_regrade", setting.run.pk)
    assert "Retry those 12" in body
    setting.post("run_regrade", setting.run.pk, what="errors")
    asked = setting.work()
    page = setting.get("regrade", asked.pk)
    assert "Only what had errored" in page
    states = {v["state"] for row in asked.scores.all() for v in row.verdicts}
    assert states == {"scored"}


def test_a_regrade_is_cancelled_and_taken_up_again(setting: Setting) -> None:
    setting.post("regrade_start", setting.rubric.pk, version="1", of="rubric")
    asked = Regrade.objects.get()
    assert "Waits for a worker" in setting.get("regrade", asked.pk)
    cancelled = setting.post("regrade_cancel", asked.pk).content.decode()
    assert "Go on with 12" in cancelled
    setting.post("regrade_resume", asked.pk)
    setting.work()
    assert "Go on with" not in setting.get("regrade", asked.pk)


def test_publishing_over_a_golden_case_takes_a_note(setting: Setting) -> None:
    pk = setting.rubric.pk
    add_typed(
        actor=setting.people.editor,
        rubric=setting.rubric,
        name="no answer is fine",
        expect="pass",
        transcript=Transcript(expected="42"),
    )
    body = setting.get("rubric_publish", pk)
    assert "does not hold" in body
    revision = str(setting.draft.revision)
    refused = setting.post("rubric_publish", pk, revision=revision)
    assert refused.status_code == 422
    assert "publish anyway and say why" in refused.content.decode()
    refused = setting.post("rubric_publish", pk, revision=revision, anyway="1")
    assert refused.status_code == 422
    stale = setting.post("rubric_publish", pk, revision="0", anyway="1", note="x")
    assert stale.status_code == 409
    done = setting.post("rubric_publish", pk, revision=revision, anyway="1", note="It may.")
    assert "Version 2 is published" in done.content.decode()
    version = RubricVersion.objects.get(rubric=setting.rubric, number=2)
    assert (version.note, version.failed_golden) == ("It may.", ["no answer is fine"])


def test_strangers_see_nothing_and_viewers_change_nothing(setting: Setting) -> None:
    pk, run = setting.rubric.pk, setting.run.pk
    setting.post("regrade_start", pk, version="1", of="rubric")
    asked = Regrade.objects.get()
    case = add_typed(
        actor=setting.people.editor,
        rubric=setting.rubric,
        name="g",
        expect="pass",
        transcript=Transcript(),
    )
    reads: list[Any] = [("rubric_preview", pk), ("rubric_golden", pk), ("rubric_backtests", pk)]
    reads.append(("regrade", asked.pk))
    writes: list[Any] = [
        ("golden_add", pk),
        ("golden_remove", pk, case.pk),
        ("backtest_start", pk),
        ("regrade_start", pk),
        ("run_regrade", run),
        ("regrade_cancel", asked.pk),
        ("regrade_resume", asked.pk),
    ]
    setting.client.force_login(setting.people.member)
    for name, *args in reads:
        body = setting.get(name, *args)
        for write, *more in writes:
            assert f'action="{setting.url(write, *more)}"' not in body
    for name, *args in writes:
        assert setting.post(name, *args).status_code == 403
    setting.client.force_login(setting.people.stranger)
    for name, *args in [*reads, *writes]:
        method = setting.client.get if (name, *args) in reads else setting.client.post
        assert method(setting.url(name, *args)).status_code == 404
    assert Regrade.objects.count() == 1


def test_what_a_judge_replied_is_shown_word_by_word(setting: Setting) -> None:
    model = ScriptedModel(says(1))
    model.start()
    try:
        endpoint(setting.people.project, model)
        setting.write(RIGHT, TONE)
        body = setting.post("rubric_preview", setting.rubric.pk).content.decode()
    finally:
        model.stop()
    assert "What j1 replied" in body
    assert "seen in [E10]" in body
    assert "What it was asked" in body
    assert "Is it plain?" in body
    assert len(model.asked) == 1
