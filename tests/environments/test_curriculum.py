"""The stored state of samplers: facts that a kill cannot change and nobody counts twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from orchestrator.environments.curriculum.queries import SORTS, EstimateRow, estimate_table
from orchestrator.environments.curriculum.samplers import SamplerSettings
from orchestrator.environments.curriculum.store import draw, known_tasks, observe, open_curriculum
from orchestrator.environments.models import Curriculum, EnvironmentVersion, SamplerKind, Task
from tests.base import People, make_people
from tests.web.build import make_environment


def estimate_rows(curriculum: Curriculum, **chosen: Any) -> Sequence[EstimateRow]:
    return estimate_table(curriculum, **chosen).rows


def make_curriculum(
    version: EnvironmentVersion, kind: str = "signal", key: str = "c"
) -> Curriculum:
    return open_curriculum(version=version, key=key, kind=kind, seed=7)


@pytest.fixture
def version(people: People) -> EnvironmentVersion:
    return make_environment(people.project, tasks=12)


@pytest.mark.parametrize("kind", SamplerKind.values)
def test_a_step_is_drawn_once(version: EnvironmentVersion, kind: str) -> None:
    curriculum = make_curriculum(version, kind)
    first = draw(curriculum=curriculum, step=1, n=4)
    assert len(first) == 4 and {task.split for task in first} == {"train"}
    for task in first:
        observe(curriculum=curriculum, rollout_id=task.pk, task_id=task.pk, score=1.0, cost=10)
    assert draw(curriculum=curriculum, step=1, n=4) == first, "whatever was learned meanwhile"
    draw(curriculum=curriculum, step=2, n=4)
    curriculum.refresh_from_db()
    assert curriculum.n_draws == 8
    assert sum(row.draws for row in estimate_rows(curriculum)) == 8


def test_sequential_draws_go_on_where_they_were(version: EnvironmentVersion) -> None:
    by_step = make_curriculum(version, "sequential", "a")
    at_once = make_curriculum(version, "sequential", "b")
    steps = [task for step in (1, 2, 3) for task in draw(curriculum=by_step, step=step, n=4)]
    assert steps == draw(curriculum=at_once, step=1, n=12)
    assert len(set(steps)) == 12


def test_what_the_harness_tells_is_not_drawn(version: EnvironmentVersion) -> None:
    curriculum = make_curriculum(version)
    told = {f"train-{i:04d}" for i in range(1, 11)}
    drawn = draw(curriculum=curriculum, step=1, n=5, exclude=told)
    assert {task.key for task in drawn} == {"train-0011", "train-0012"}


def test_a_rollout_counts_once_and_decays_what_was_before(version: EnvironmentVersion) -> None:
    curriculum = make_curriculum(version)
    task = Task.objects.filter(version=version, split="train").first()
    assert task is not None
    see = {"curriculum": curriculum, "task_id": task.pk}
    assert observe(**see, rollout_id=1, score=1.0, cost=100)  # type: ignore[arg-type]
    assert not observe(**see, rollout_id=1, score=1.0, cost=100)  # type: ignore[arg-type]
    observe(**see, rollout_id=2, score=0.0, cost=300)  # type: ignore[arg-type]
    observe(**see, rollout_id=3, score=7.5, cost=0)  # type: ignore[arg-type]
    known = next(k for k in known_tasks(curriculum) if k.key == task.key)
    assert known.successes == pytest.approx(0.95**2 + 1)
    assert known.failures == pytest.approx(0.95)
    assert known.cost == pytest.approx(100 * 0.95 + 300 * 0.05)
    row = next(r for r in estimate_rows(curriculum) if r.name == task.key)
    assert (row.rollouts, row.low < row.rate < row.high) == (3, True)


def test_an_existing_curriculum_stays_as_it_is(version: EnvironmentVersion) -> None:
    made = make_curriculum(version, "uniform")
    again = open_curriculum(
        version=version, key="c", kind="signal", settings=SamplerSettings(floor=0.5)
    )
    assert (again.pk, again.kind) == (made.pk, "uniform")
    with pytest.raises(ValueError, match="sequential, uniform, signal"):
        open_curriculum(version=version, key="d", kind="best")


@pytest.mark.parametrize("sort", [*SORTS, *(f"-{s}" for s in SORTS), "nonsense"])
def test_rows_sort_by_every_column(version: EnvironmentVersion, sort: str) -> None:
    curriculum = make_curriculum(version)
    for number, task in enumerate(draw(curriculum=curriculum, step=1, n=6)):
        observe(
            curriculum=curriculum,
            rollout_id=number,
            task_id=task.pk,
            score=number / 5,
            cost=number * 10,
        )
    rows = estimate_rows(curriculum, sort=sort)
    name = sort.removeprefix("-") if sort != "nonsense" else "share"
    values = [v for v in (getattr(row, name) for row in rows) if v is not None]
    is_descending = sort.startswith("-") or sort == "nonsense"
    assert values == sorted(values, reverse=is_descending)
    assert len(rows) == 12


def test_groups_pool_their_tasks(version: EnvironmentVersion) -> None:
    curriculum = make_curriculum(version)
    task = Task.objects.filter(version=version, split="train", family="first_line").first()
    assert task is not None
    for number in range(8):
        observe(curriculum=curriculum, rollout_id=number, task_id=task.pk, score=1.0, cost=1)
    rows = {row.name: row for row in estimate_rows(curriculum, by="group")}
    assert set(rows) == {"first_line", "count_lines"}
    assert (rows["first_line"].tasks, rows["first_line"].rollouts) == (6, 8)
    assert rows["first_line"].rate > 0.8 > rows["count_lines"].rate
    assert sum(row.share for row in rows.values()) == pytest.approx(1)


def test_a_long_table_is_cut_after_it_was_sorted(version: EnvironmentVersion) -> None:
    curriculum = make_curriculum(version)
    table = estimate_table(curriculum, sort="-name", limit=2)
    assert [row.name for row in table.rows] == ["train-0012", "train-0011"]
    assert table.n_rows == 12


class TestOrderOfQuestions(TestCase):
    """Asking again, late or out of order never changes what was drawn."""

    @given(asked=st.lists(st.integers(1, 4), max_size=12))
    @settings(max_examples=15, deadline=None)
    def test_steps_stay(self, asked: list[int]) -> None:
        version = make_environment(make_people().project, tasks=8)
        curriculum = make_curriculum(version, key=f"k{version.pk}")
        first: dict[int, list[Task]] = {}
        for number, step in enumerate(asked):
            tasks = draw(curriculum=curriculum, step=step, n=3)
            assert first.setdefault(step, tasks) == tasks
            observe(
                curriculum=curriculum,
                rollout_id=number,
                task_id=tasks[0].pk,
                score=number % 2,
                cost=1,
            )


DRAWER = """
    import os, sys
    import django
    django.setup()
    from orchestrator.environments.curriculum.store import draw, observe
    from orchestrator.environments.models import Curriculum
    curriculum = Curriculum.objects.get(pk=int(sys.argv[1]))
    step, rollout = 0, 0
    while True:
        step += 1
        tasks = draw(curriculum=curriculum, step=step, n=3)
        print(step, *(task.key for task in tasks), flush=True)
        for task in tasks:
            rollout += 1
            observe(curriculum=curriculum, rollout_id=rollout, task_id=task.pk, score=rollout % 2,
                    cost=rollout)
"""


@pytest.mark.django_db(transaction=True)
def test_a_killed_drawer_is_resumed_exactly() -> None:
    """SIGKILL at any moment: what was drawn stays, and replaying from the start changes nothing."""
    version = make_environment(make_people().project, tasks=12)
    killed = make_curriculum(version, key="killed")
    whole = make_curriculum(version, key="whole")
    environ = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "SWITCHBACK_TEST_DATABASE": str(connection.settings_dict["NAME"]),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRAWER), str(killed.pk)],
        cwd=django_settings.BASE_DIR,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = [process.stdout.readline().split() for _ in range(12)]
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    steps = killed.draws.count() + 5
    for curriculum in (killed, whole):
        replay(curriculum, steps=steps)
    assert [[str(d.step), *d.tasks] for d in killed.draws.order_by("step")][:12] == told
    assert [d.tasks for d in killed.draws.order_by("step")] == [
        d.tasks for d in whole.draws.order_by("step")
    ]
    assert known_tasks(killed) == known_tasks(whole)


def replay(curriculum: Curriculum, *, steps: int) -> None:
    """What the killed process did, from the start: only what is missing changes anything."""
    rollout = 0
    for step in range(1, steps + 1):
        for task in draw(curriculum=curriculum, step=step, n=3):
            rollout += 1
            observe(
                curriculum=curriculum,
                rollout_id=rollout,
                task_id=task.pk,
                score=rollout % 2,
                cost=rollout,
            )
