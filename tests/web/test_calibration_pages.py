"""The calibration pages: what they say, who may do what, and what a label moves."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.agents.models import ModelEndpoint
from orchestrator.grading.models import Alignment
from orchestrator.grading.policies import bar_of, barred
from orchestrator.judging.models import JudgeCall
from orchestrator.projects.models import User
from orchestrator.review.models import Annotation, ReviewQueue
from orchestrator.runs.models import VerdictRecord
from rubrics.models import Rubric
from tests.base import People
from tests.review.labelling import Labelled, answered, judge_criterion, make_rubric

pytestmark = pytest.mark.django_db


@pytest.fixture
def rubric(people: People) -> Rubric:
    return make_rubric(people.project)


@pytest.fixture
def filled(rubric: Rubric) -> Labelled:
    return Labelled(rubric.versions.get())


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def address(rubric: Rubric, name: str = "rubric_calibration", *rest: object) -> str:
    return reverse(f"web:{name}", args=[rubric.project_id, rubric.pk, *rest])


def text_of(client: Client, url: str, status: int = 200) -> str:
    answer = client.get(url)
    assert answer.status_code == status
    return re.sub(r"\s+", " ", answer.content.decode())


def test_without_labels_it_says_how_to_get_some(people: People, rubric: Rubric) -> None:
    html = text_of(client_of(people.editor), address(rubric))
    assert "No labels yet" in html
    assert "Label a rollout" in html
    assert "no labels" in html
    assert "NaN" not in html and "None" not in html


def test_a_rubric_without_a_version_leads_to_its_draft(people: People) -> None:
    rubric = Rubric.objects.create(project=people.project, name="new")
    html = text_of(client_of(people.editor), address(rubric))
    assert "No version yet" in html


def test_a_weak_criterion_is_suggested_and_why_labels_are_not_used(
    people: People, filled: Labelled
) -> None:
    filled.many(people.editor, tp=10, fn=8, fp=9, tn=8)
    filled.label(filled.rollout(state="errored"), people.editor)
    html = text_of(client_of(people.editor), address(filled.version.rubric))
    assert "below the project" in html
    assert "35 of 36 labels usable" in html
    assert "1 meet an errored verdict" in html
    assert "Next disagreement" in html
    assert "weak, κ 0.03" in html
    assert barred(filled.version.rubric_id) == {}


def test_an_editor_bars_and_allows_and_a_viewer_sees_it(people: People, filled: Labelled) -> None:
    rubric = filled.version.rubric
    url = address(rubric, "calibration_policy")
    sent = {"criterion": "names-file", "do": "bar", "reason": "κ 0.1 of 40"}
    assert client_of(people.member).post(url, sent).status_code == 403
    assert client_of(people.stranger).post(url, sent).status_code == 404
    assert client_of(people.editor).post(url, sent).status_code == 302
    assert barred(rubric.pk) == {"names-file": "κ 0.1 of 40"}
    viewer = client_of(people.member)
    assert "κ 0.1 of 40" in text_of(viewer, address(rubric))
    # The badge stands beside the criterion on its own page too.
    assert "barred" in text_of(viewer, reverse("web:rubric", args=[rubric.project_id, rubric.pk]))
    client_of(people.editor).post(url, {**sent, "do": "allow", "reason": "asked better"})
    assert barred(rubric.pk) == {}
    html = text_of(client_of(people.editor), address(rubric))
    assert "asked better" in html
    client_of(people.editor).post(url, {**sent, "reason": ""})
    assert barred(rubric.pk) == {}


def test_the_bar_is_stored_and_refused_with_the_limit(people: People, rubric: Rubric) -> None:
    url = address(rubric, "calibration_bar")
    editor = client_of(people.editor)
    editor.post(url, {"kappa": "0.7", "min_labels": "40"})
    assert (bar_of(people.project.pk).kappa, bar_of(people.project.pk).min_labels) == (0.7, 40)
    for kappa, least in (("x", "30"), ("nan", "30"), ("0.5", "1e30"), ("2", "30")):
        answer = editor.post(url, {"kappa": kappa, "min_labels": least}, follow=True)
        assert "notice bad" in answer.content.decode()
    assert bar_of(people.project.pk).kappa == 0.7
    assert client_of(people.member).post(url, {"kappa": "0.1"}).status_code == 403


def test_rollouts_go_into_a_queue_that_is_made_or_chosen(people: People, filled: Labelled) -> None:
    rubric = filled.version.rubric
    for i in range(30):
        filled.rollout(float(i % 2))
    url = address(rubric, "calibration_enqueue")
    editor = client_of(people.editor)
    editor.post(url, {"criterion": "names-file", "version": "1", "n": "8", "queue": ""})
    queue = ReviewQueue.objects.get()
    assert (queue.items.count(), queue.criteria) == (8, ["names-file"])
    sent = {"criterion": "names-file", "version": "1", "n": "4", "queue": queue.pk}
    editor.post(url, sent)
    assert queue.items.count() == 12
    answer = editor.post(url, {**sent, "n": "0"}, follow=True)
    assert "from 1 to 500" in answer.content.decode()
    assert client_of(people.member).post(url, sent).status_code == 403


def test_the_verdict_is_hidden_until_the_person_has_answered(
    people: People, filled: Labelled
) -> None:
    rubric = filled.version.rubric
    rollout = answered(filled.rollout(1.0), "list1.txt")
    call = JudgeCall.objects.create(
        project=people.project,
        key="k",
        criterion="names-file",
        request={},
        replies=[{"text": "RAW <b>1</b>", "problem": ""}],
        state="scored",
        value=1.0,
    )
    record = VerdictRecord.objects.get(rollout=rollout)
    record.detail = {"calls": [{"call": call.pk, "model": "j1", "value": 1.0}]}
    record.reason = "[E2] <i>says</i> so"
    record.save()
    editor = client_of(people.editor)
    url = address(rubric, "calibration_compare", "names-file")
    html = text_of(editor, f"{url}?walk=unlabelled")
    assert "list1.txt" in html
    assert "Hidden until you have answered" in html
    assert "says" not in html and "RAW" not in html
    shown = text_of(editor, f"{url}?rollout={rollout.pk}&show")
    assert '<a class="link mono" href="#e2">[E2]</a> &lt;i&gt;says' in shown
    assert "RAW &lt;b&gt;" in shown
    answer = editor.post(
        address(rubric, "calibration_label", "names-file"),
        {"version": "1", "rollout": rollout.pk, "said": "0", "note": "no path", "judge": "j1"},
        follow=True,
    )
    html = answer.content.decode()
    assert "disagrees" in html
    assert "RAW" in html
    mark = Annotation.objects.get()
    assert (mark.value, mark.note, mark.user) == (0.0, "no path", people.editor)
    # It is a disagreement now, and the agreement has moved.
    html = text_of(editor, url)
    assert "disagreement 1 of 1" in html
    assert "1 of 1" in html


def test_another_persons_mark_is_not_shown_before_ones_own(
    people: People, filled: Labelled
) -> None:
    rollout = filled.rollout(0.0)
    filled.label(rollout, people.owner, 1.0, note="plain to see")
    url = address(filled.version.rubric, "calibration_compare", "names-file")
    html = text_of(client_of(people.editor), url)
    assert "plain to see" not in html
    assert "1 other marked it" in html
    assert "plain to see" in text_of(client_of(people.owner), url)


def test_who_may_label_and_what_does_not_exist(people: People, filled: Labelled) -> None:
    rubric = filled.version.rubric
    rollout = filled.rollout(1.0)
    url = address(rubric, "calibration_label", "names-file")
    sent = {"version": "1", "rollout": rollout.pk, "said": "1"}
    assert client_of(people.member).post(url, sent).status_code == 403
    assert client_of(people.stranger).post(url, sent).status_code == 404
    editor = client_of(people.editor)
    assert editor.post(url, {**sent, "rollout": "99999"}).status_code == 404
    assert editor.get(address(rubric, "calibration_compare", "nobody")).status_code == 404
    compare = address(rubric, "calibration_compare", "names-file")
    assert editor.get(f"{compare}?rollout=99999").status_code == 404
    assert client_of(people.stranger).get(compare).status_code == 404
    assert not Annotation.objects.exists()


def test_nothing_left_leads_back(people: People, rubric: Rubric) -> None:
    html = text_of(client_of(people.editor), address(rubric, "calibration_compare", "names-file"))
    assert "Nothing left to label" in html
    assert "Back to calibration" in html


def test_a_typed_scale_takes_a_number(people: People) -> None:
    params = {"question": "How close?", "scale": "scale", "min": 0, "max": 100}
    rubric = make_rubric(people.project, judge_criterion(params=params), name="typed")
    rollout = Labelled(rubric.versions.get()).rollout(0.5)
    url = address(rubric, "calibration_label", "names-file")
    client_of(people.editor).post(
        url, {"version": "1", "rollout": rollout.pk, "typed": "25", "next": "1"}
    )
    assert Annotation.objects.get().value == 0.25


def test_a_better_question_is_asked_for_shown_and_refused(people: People, filled: Labelled) -> None:
    rubric = filled.version.rubric
    row = ModelEndpoint.objects.create(
        project=people.project, name="writer", kind="openai", base_url="http://x", model="m"
    )
    sent = {"criterion": "names-file", "version": "1", "endpoint": row.pk, "max_cost_usd": "0.5"}
    url = address(rubric, "alignment_start")
    editor = client_of(people.editor)
    answer = editor.post(url, sent, follow=True)
    assert "needs 2 disagreements" in answer.content.decode()
    filled.many(people.editor, tp=20, fn=6, fp=10, tn=20)
    editor.post(url, sent)
    made = Alignment.objects.get()
    assert (made.state, made.max_cost_usd, made.asked_by) == ("queued", 0.5, people.editor)
    html = text_of(editor, address(rubric))
    assert "Waits for a worker" in html
    side = {"kappa": 0.9, "low": 0.8, "high": 1.0, "tpr": 1.0, "tnr": 0.9}
    Alignment.objects.update(
        state="completed",
        proposals=[
            {"question": "Is it?", "rejected": "the linter", "raw": ""},
            {"question": "Is <b>the path</b> there?", "rejected": "", "raw": ""},
        ],
        result={
            "verdict": "better",
            "n": 28,
            "n_without_verdict": 0,
            "only_before": 1,
            "only_after": 9,
            "p_value": 0.02,
            "before": {**side, "kappa": 0.4},
            "after": side,
        },
    )
    html = text_of(editor, address(rubric))
    assert "Is &lt;b&gt;the path&lt;/b&gt; there?" in html
    assert "better on the labels kept apart" in html
    assert "Proposal 1 was not tested: the linter" in html
    take = address(rubric, "alignment_take", made.pk)
    assert client_of(people.member).post(take).status_code == 403
    answer = editor.post(take)
    assert answer["Location"].endswith("/edit/")
    assert rubric.draft.spec["criteria"][0]["params"]["question"] == "Is <b>the path</b> there?"
    assert rubric.versions.count() == 1
    assert client_of(people.stranger).post(take).status_code == 404
    cancel = address(rubric, "alignment_cancel", made.pk)
    assert client_of(people.member).post(cancel).status_code == 403
    assert editor.post(cancel).status_code == 302


def test_a_run_shows_each_criterion_with_its_badge(people: People, filled: Labelled) -> None:
    filled.many(people.editor, tp=20, fn=2, fp=2, tn=20)
    filled.rollout(state="errored")
    url = reverse("web:run", args=[people.project.pk, filled.run.pk])
    html = text_of(client_of(people.member), url)
    assert "Names the file" in html
    assert "κ 0.82" in html
    assert "n 44" in html and "1 errored" in html
