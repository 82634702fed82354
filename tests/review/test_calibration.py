"""Which labels say something of a criterion, and what: from rows to numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import krippendorff
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.proportion import proportion_confint

from orchestrator.events.services import create_stream
from orchestrator.grading.models import Regrade, RegradedScore
from orchestrator.grading.policies import Bar
from orchestrator.review.badges import badge_of, badges_of, is_suggested
from orchestrator.review.calibration import Calibration, Unused
from orchestrator.review.calibration_criteria import calls_of, judge_of
from orchestrator.review.calibration_labels import label
from orchestrator.review.calibration_queries import calibrations, unlabelled, wordings
from orchestrator.review.errors import ReviewRefused
from orchestrator.review.models import Annotation, ReviewItem
from orchestrator.review.services import QueueSpec, add_items, create_queue
from orchestrator.runs.models import Rollout
from rubrics.models import Rubric, RubricVersion
from tests.base import People
from tests.review.labelling import (
    QUESTION,
    Labelled,
    add_version,
    detail,
    judge_criterion,
    make_rubric,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def rubric(people: People) -> Rubric:
    return make_rubric(people.project)


@pytest.fixture
def filled(rubric: Rubric) -> Labelled:
    return Labelled(rubric.versions.get())


def only(rubric: Rubric, version: RubricVersion | None = None) -> Calibration:
    version = version or rubric.versions.latest("number")
    (found,) = calibrations(rubric, version)["names-file"]
    return found


def test_the_numbers_are_those_of_other_libraries(people: People, filled: Labelled) -> None:
    filled.many(people.editor, tp=20, fn=3, fp=5, tn=12)
    for _ in range(40):
        filled.rollout(1.0)  # judged, never labelled
    found = only(filled.version.rubric)
    person = [1] * 23 + [0] * 17
    judge = [1] * 20 + [0] * 3 + [1] * 5 + [0] * 12
    agreement = found.agreement
    assert agreement.kappa == found.kappa == pytest.approx(cohen_kappa_score(person, judge))
    rate = agreement.confusion.true_positive_rate
    assert (rate.low, rate.high) == pytest.approx(proportion_confint(20, 23, method="wilson"))
    rate = agreement.confusion.true_negative_rate
    assert (rate.low, rate.high) == pytest.approx(proportion_confint(12, 17, method="wilson"))
    assert (agreement.judged.n_passed, agreement.judged.n) == (65, 80)
    assert agreement.corrected == pytest.approx((65 / 80 + 12 / 17 - 1) / (20 / 23 + 12 / 17 - 1))
    assert agreement.kappa_interval is not None and agreement.corrected_interval is not None
    assert (found.n_labels, found.n_used, found.unused) == (40, 40, {})
    assert found.sources == {"runs under v1": 40}
    assert len(found.disagreements) == 8


def test_every_label_that_is_not_used_has_its_reason(people: People, filled: Labelled) -> None:
    rubric, user = filled.version.rubric, people.editor
    filled.label(filled.rollout(1.0), user, 1.0)
    filled.label(filled.rollout(state="errored"), user)
    filled.label(filled.rollout(state="errored", verdict={"calls": [{"failed": "429"}]}), user)
    filled.label(filled.rollout(state="not_applicable"), user)
    filled.label(filled.rollout(1.0), user, None)
    filled.label(filled.rollout(1.0), user, None, state="pair", preference="a")
    filled.label(filled.rollout(1.0, is_replaced=True), user)
    divided = filled.rollout(1.0)
    filled.label(divided, user, 1.0)
    filled.label(divided, people.owner, 0.0)
    # Graded by other words, and by no criterion of that id at all.
    worded = judge_criterion(params={"question": "Is it named?"})
    other = Labelled(add_version(rubric, worded))
    filled.label(other.rollout(1.0), user)
    found = only(rubric, rubric.versions.get(number=1))
    assert found.n_used == 1
    assert found.unused == {
        Unused.ERRORED: 2,
        Unused.VERDICT_NA: 1,
        Unused.PERSON_NA: 1,
        Unused.PAIRWISE: 1,
        Unused.REPLACED: 1,
        Unused.DIVIDED: 2,
        Unused.NO_VERDICT: 1,
    }
    assert found.n_used + sum(found.unused.values()) == found.n_labels


def test_labels_outlive_better_words_and_not_another_scale(
    people: People, filled: Labelled
) -> None:
    rubric = filled.version.rubric
    first = filled.rollout(1.0)
    filled.label(first, people.editor, 1.0)
    worded = add_version(rubric, judge_criterion(params={"question": "Is the file named?"}))
    regraded(worded, first, value=0.0)
    found = only(rubric)
    assert (found.n, found.n_earlier_wording) == (1, 1)
    assert [pair.agrees for pair in found.pairs] == [False]
    scale = {"question": QUESTION, "scale": "scale", "min": 1, "max": 5}
    scaled = add_version(rubric, judge_criterion(params=scale))
    regraded(scaled, first, value=0.5)
    assert only(rubric).unused == {Unused.OTHER_SCALE: 1}


def regraded(
    version: RubricVersion, rollout: Rollout, *, value: float, model: str = "j1"
) -> Regrade:
    project = version.rubric.project
    regrade = Regrade.objects.create(
        project=project,
        rubric=version.rubric,
        version=version,
        spec=version.spec,
        purpose="regrade",
        state="completed",
        stream=create_stream(project=project, kind="regrade"),
        ended_at=timezone.now(),
    )
    RegradedScore.objects.create(
        regrade=regrade,
        rollout=rollout,
        state="scored",
        score=value,
        verdicts=[
            {
                "criterion": "names-file",
                "name": "x",
                "state": "scored",
                "value": value,
                "reason": "seen",
                "cites": [],
                "detail": detail(model),
            }
        ],
    )
    return regrade


def test_a_regrade_stands_in_where_the_run_used_other_words_and_is_named(
    people: People, filled: Labelled
) -> None:
    rubric = filled.version.rubric
    rollout = filled.rollout(1.0)
    filled.label(rollout, people.editor, 0.0)
    second = add_version(rubric, judge_criterion(params={"question": "Is the file named?"}))
    assert only(rubric).unused == {Unused.NO_VERDICT: 1}
    regraded(second, rollout, value=1.0)
    newest = regraded(second, rollout, value=0.0)
    found = only(rubric)
    assert found.sources == {f"re-grade {newest.pk}, v2": 1}
    assert found.pairs[0].agrees
    # Under the first version the run's own verdict counts.
    assert only(rubric, filled.version).sources == {"runs under v1": 1}


def test_weights_and_names_change_no_verdict(people: People, filled: Labelled) -> None:
    filled.label(filled.rollout(1.0), people.editor, 1.0)
    add_version(filled.version.rubric, judge_criterion(name="Another name", weight=7))
    assert only(filled.version.rubric).sources == {"runs under v1": 1}


def test_each_judge_is_measured_by_itself(people: People, filled: Labelled) -> None:
    for i in range(6):
        filled.label(filled.rollout(float(i % 2), model="good"), people.editor, float(i % 2))
    for i in range(4):
        filled.label(filled.rollout(float(i % 2), model="bad"), people.editor, float(1 - i % 2))
    found = calibrations(filled.version.rubric, filled.version)["names-file"]
    assert [(c.judge, c.n, c.kappa) for c in found] == [("good", 6, 1.0), ("bad", 4, -1.0)]
    assert found[0].unused == {Unused.OTHER_JUDGE: 4}
    assert [c.judged.n for c in found] == [6, 4]


def test_people_among_themselves_and_with_the_judge(people: People, filled: Labelled) -> None:
    said = [(1, 1, 1), (1, 1, 0), (0, 0, 0), (1, 0, 1), (0, 0, 0), (1, 1, 1), (0, 1, 1)]
    third = people.owner
    for a, b, judge in said:
        rollout = filled.rollout(float(judge))
        filled.label(rollout, people.editor, float(a))
        filled.label(rollout, third, float(b))
    found = only(filled.version.rubric)
    alpha, _, n = found.people_alpha
    ours = [[a for a, _, _ in said], [b for _, b, _ in said]]
    assert n == 7
    assert alpha == pytest.approx(krippendorff.alpha(ours, level_of_measurement="nominal"))
    # Two of them are divided; the judge cannot be right or wrong there.
    assert (found.n, found.unused) == (5, {Unused.DIVIDED: 4})
    joined = [(a, b, j) for a, b, j in said if a == b]
    alpha, _, n = found.alpha
    assert n == 5
    assert alpha == pytest.approx(
        krippendorff.alpha(list(zip(*joined, strict=True)), level_of_measurement="nominal")
    )


def test_the_majority_speaks_and_the_newest_mark_of_a_person(
    people: People, filled: Labelled
) -> None:
    rollout = filled.rollout(1.0)
    now = timezone.now()
    for user, value in ((people.owner, 1.0), (people.member, 1.0), (people.editor, 0.0)):
        filled.label(rollout, user, value, at=now)
    found = only(filled.version.rubric)
    assert found.pairs[0].person
    assert len(found.pairs[0].labels) == 3
    # The owner marks it again, in a queue.
    item = make_item(people, filled, rollout)
    filled.label(rollout, people.owner, 0.0, item=item, at=now + timedelta(minutes=1))
    found = only(filled.version.rubric)
    assert not found.pairs[0].person
    assert found.unused == {Unused.LATER_MARK: 1}


def make_item(people: People, filled: Labelled, rollout: Rollout) -> ReviewItem:
    queue = create_queue(
        actor=people.editor,
        project=people.project,
        spec=QueueSpec(name="q", rubric_version=filled.version),
    )
    add_items(queue, [rollout], actor=people.editor)
    return queue.items.get()


def test_a_negative_criterion_is_good_when_low(people: People) -> None:
    rubric = make_rubric(people.project, judge_criterion(negative=True), name="negative")
    filled = Labelled(rubric.versions.get())
    filled.label(filled.rollout(0.0), people.editor, 0.0)
    filled.label(filled.rollout(1.0), people.editor, 0.0)
    confusion = only(rubric).agreement.confusion
    assert (confusion.true_positive, confusion.false_negative) == (1, 1)


def test_members_of_a_panel_are_measured_each(people: People) -> None:
    params = {"question": QUESTION, "models": ["a", "b"], "vote": "any"}
    rubric = make_rubric(people.project, judge_criterion(kind="judge_panel", params=params))
    filled = Labelled(rubric.versions.get())
    for i in range(12):
        truth = float(i % 2)
        votes = detail("a", "b", values=[truth, 1.0 - truth]) | {"spread": 1.0}
        filled.label(filled.rollout(1.0, verdict=votes), people.editor, truth)
    found = only(rubric)
    assert found.judge == "a + b"
    assert [(m.model, m.agreement.kappa) for m in found.members] == [("a", 1.0), ("b", -1.0)]
    assert found.unsteady == (12, 12)


def test_drift_is_seen_over_time_and_versions(people: People, filled: Labelled) -> None:
    start = timezone.now() - timedelta(days=9)
    for i in range(60):
        truth = float(i % 2)
        said = truth if i < 40 else 1.0
        rollout = filled.rollout(said, ended_at=start + timedelta(hours=i))
        filled.label(rollout, people.editor, truth)
    found = only(filled.version.rubric)
    assert [window.n for window in found.windows] == [20, 20, 20]
    assert found.change is not None
    assert found.change.is_certain and found.change.is_worse
    assert [window.versions for window in found.versions] == [("v1",)]


def test_a_badge_says_what_to_believe_and_bars_nothing(people: People, filled: Labelled) -> None:
    rubric = filled.version.rubric
    bar = Bar(kappa=0.6, min_labels=10)
    assert badges_of(rubric, filled.version)["names-file"].text == "no labels"
    filled.many(people.editor, tp=5, tn=4)
    found = only(rubric)
    assert badge_of(found, bar, None).text == "9 of 10 labels"
    filled.many(people.editor, fp=6)
    found = only(rubric)
    assert badge_of(found, bar, None).state == "weak"
    assert is_suggested(found, bar, None)
    assert not is_suggested(found, bar, "known")
    assert badge_of(found, bar, "known").state == "barred"
    assert badge_of(found, Bar(0.2, 10), None).state == "good"
    # Looking bars nothing.
    assert not rubric.criterion_policies.exists()


def test_one_sided_labels_are_no_agreement(people: People, filled: Labelled) -> None:
    filled.many(people.editor, tp=30)
    badge = badges_of(filled.version.rubric, filled.version)["names-file"]
    assert (badge.state, badge.text) == ("few", "one-sided labels")


def test_the_number_of_queries_does_not_grow(people: People) -> None:
    criteria = [judge_criterion(id=f"c{i}") for i in range(6)]
    rubric = make_rubric(people.project, *criteria)
    filled = Labelled(rubric.versions.get())

    def counted() -> int:
        with CaptureQueriesContext(connection) as captured:
            calibrations(rubric, filled.version)
        return len(captured)

    def add(n: int) -> None:
        for i in range(n):
            rollout = filled.rollout(1.0, criterion=f"c{i % 6}")
            filled.label(rollout, people.editor, criterion=f"c{i % 6}")

    add(1)
    assert counted() == 5
    add(12)
    assert counted() == 5


def test_what_to_label_next_has_both_verdicts_and_nothing_twice(
    people: People, filled: Labelled
) -> None:
    rubric = filled.version.rubric
    passed = [filled.rollout(1.0) for _ in range(10)]
    failed = [filled.rollout(0.0) for _ in range(3)]
    filled.rollout(state="errored")
    filled.label(passed[0], people.editor)
    make_item(people, filled, failed[0])
    chosen = unlabelled(rubric, filled.version, "names-file", 6)
    assert [rollout.pk for rollout in chosen] == [
        passed[9].pk,
        failed[2].pk,
        passed[8].pk,
        failed[1].pk,
        passed[7].pk,
        passed[6].pk,
    ]


def test_a_label_is_given_changed_and_refused(people: People, filled: Labelled) -> None:
    rollout = filled.rollout(1.0)
    given: dict[str, Any] = {
        "actor": people.editor,
        "rollout": rollout,
        "version": filled.version,
        "criterion": "names-file",
    }
    first = label(**given, said="0", note=" why ")
    assert (first.value, first.note, first.item) == (0.0, "why", None)
    again = label(**given, said="na")
    assert (again.pk, again.state, again.value) == (first.pk, "not_applicable", None)
    assert Annotation.objects.count() == 1
    with pytest.raises(ReviewRefused, match="accepts yes, no"):
        label(**given, said="7")
    with pytest.raises(ReviewRefused, match="no criterion"):
        label(**{**given, "criterion": "other"}, said="1")


def test_wordings_are_measured_on_the_same_labels(people: People, filled: Labelled) -> None:
    rubric = filled.version.rubric
    rollouts = [filled.rollout(1.0) for _ in range(4)]
    for i, rollout in enumerate(rollouts):
        filled.label(rollout, people.editor, float(i % 2))
    assert wordings(rubric, [filled.version]) == {}
    second = add_version(rubric, judge_criterion(params={"question": "Is the file named?"}))
    third = add_version(
        rubric, judge_criterion(params={"question": "Is the file named?"}, weight=3)
    )
    for i, rollout in enumerate(rollouts):
        regraded(second, rollout, value=float(i % 2))
    newest, oldest = wordings(rubric, [third, second, filled.version])["names-file"]
    assert (newest.versions, newest.question, newest.kappa) == (
        "v2 to v3",
        "Is the file named?",
        1.0,
    )
    assert (oldest.versions, oldest.kappa, oldest.confusion.n) == ("v1", 0.0, 4)


def test_a_judge_of_groups_is_named_through_its_pairs() -> None:
    pair = {"pair": [{"call": 7, "model": "a"}, {"call": 8, "model": "a"}], "value": 1.0}
    assert judge_of({"method": "pairwise", "calls": [pair]}) == "a"
    assert calls_of({"steps": [{"seq": 3, "calls": [pair]}]}) == [7, 8]
    assert judge_of({"calls": [{"failed": "429"}]}) == judge_of({}) == "code"
