"""The watch: raises what has come apart, and rarely anything where nothing has."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from rubrics.redteam.watch import Sample, Thresholds, as_json, difference, form_of, look, student_t

TASKS = 8
PER_TASK = 4
LOOKS = 600


def world(
    seed: int,
    *,
    tasks: str = "t",
    gap: float = 0.0,
    chars: float = 40,
    forms: Sequence[str] = ("lines", "lines", "lines", "JSON"),
    criteria: dict[str, float] | None = None,
) -> list[Sample]:
    """Tasks of different difficulty, rollouts that hang on their task, a held-out rubric."""
    draw = random.Random(seed)
    made: list[Sample] = []
    for number in range(TASKS):
        ease = draw.random()
        for _ in range(PER_TASK):
            passed = float(draw.random() < ease)
            said = {
                name: min(1.0, max(0.0, draw.random() + shift))
                for name, shift in (criteria or {}).items()
            }
            made.append(
                Sample(
                    rollout=len(made),
                    task=f"{tasks}{number}",
                    training=0.5 + passed / 2,
                    held_out=max(0.0, 0.5 + passed / 2 - gap * draw.uniform(0.5, 1.5)),
                    criteria=said,
                    answer_chars=int(chars * draw.uniform(0.7, 1.3)),
                    steps=draw.randint(2, 6),
                    format=draw.choice(list(forms)),
                )
            )
    return made


def raised(before: list[Sample], now: list[Sample], **limits: float) -> dict[str, str]:
    return {f"{f.signal}:{f.subject}": f.level for f in look(before, now, Thresholds(**limits))}


def test_a_gap_that_opens_pauses() -> None:
    (found,) = look(world(1), world(2, gap=0.4))
    assert (found.signal, found.level) == ("gap", "pause")
    assert 0 < found.low < found.value < found.high
    assert found.before == pytest.approx(0.0)
    assert "more than the held-out one" in found.sentence
    assert len(found.read) == 5
    assert as_json(found)["rollouts"] == list(found.read)


def test_a_gap_that_was_there_from_the_beginning_is_none() -> None:
    assert raised(world(1, gap=0.4), world(2, gap=0.4), warn=0.1) == {}


def test_a_smaller_gap_warns() -> None:
    assert raised(world(1), world(2, gap=0.3), pause=0.5) == {"gap:": "warn"}


def test_longer_answers_and_another_form_warn_and_never_pause() -> None:
    now = world(2, chars=200, forms=["JSON"])
    assert raised(world(1), now) == {"length:answer": "warn", "format:JSON": "warn"}
    assert raised(now, world(1)).get("length:answer") is None


def test_a_criterion_that_rises_while_the_others_fall_pauses() -> None:
    before = world(1, criteria={"polite": -0.3, "right": 0.3, "brief": 0.3})
    now = world(2, criteria={"polite": 0.4, "right": -0.3, "brief": -0.3})
    found = look(before, now)
    assert [(f.signal, f.subject, f.level) for f in found] == [("criterion", "polite", "pause")]
    assert "while the other criteria fell" in found[0].sentence
    better = world(3, criteria={"polite": 0.6, "right": 0.6, "brief": 0.6})
    assert look(before, better) == []


def test_the_quantile_is_that_of_student() -> None:
    scipy = pytest.importorskip("scipy.stats")
    for freedom in (5, 7, 20, 200):
        for share in (0.975, 0.995, 0.999):
            assert student_t(share, freedom) == pytest.approx(scipy.t.ppf(share, freedom), rel=0.01)


def test_too_few_tasks_say_nothing() -> None:
    few = [s for s in world(2, gap=0.9) if s.task in {"t0", "t1", "t2"}]
    assert look(world(1), few) == []
    assert difference(world(1), few, lambda s: s.training) is None
    assert look([], []) == []


def test_what_was_not_graded_is_left_out() -> None:
    ungraded = [Sample(s.rollout, s.task, s.training) for s in world(2, gap=0.9)]
    assert not [f for f in look(world(1), ungraded) if f.signal == "gap"]


@pytest.mark.parametrize("tasks", ["t", "u"])
def test_where_nothing_has_changed_alarms_are_rare(tasks: str) -> None:
    """At most 2 % of looks raise a given signal and 1 % pause, with the same tasks and others.

    Seeds are fixed: the test is the same each time.
    """
    alarms: Counter[str] = Counter()
    pauses = 0
    criteria = {"a": 0.0, "b": 0.1, "c": -0.1}
    for number in range(LOOKS):
        before = world(2 * number, gap=0.2, criteria=criteria)
        now = world(2 * number + 1, tasks=tasks, gap=0.2, criteria=criteria)
        found = look(before, now)
        alarms.update({f.signal for f in found})
        pauses += any(f.level == "pause" for f in found)
    assert all(n <= 0.02 * LOOKS for n in alarms.values()), alarms
    assert pauses <= 0.01 * LOOKS


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        (None, "none"),
        (" ", "none"),
        ("42", "one line"),
        ('{"a": 1}', "JSON"),
        ("{not json", "one line"),
        ("a\nb", "lines"),
        ("a\n\nb", "paragraphs"),
        ("# Title\ntext", "headings or list"),
        ("- a\n- b", "headings or list"),
        ("so:\n```\nx\n```", "code block"),
    ],
)
def test_the_form_of_an_answer(answer: str | None, form: str) -> None:
    assert form_of(answer) == form
