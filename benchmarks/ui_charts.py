"""A thousand trainings of two thousand steps over each other, in a real Chromium: a part of `ui`.

The curves are written as they lie beside their jobs once each attempt has ended; one job has its
events as well, and packing those is measured by itself. What is measured is a first visit to the
page: ten lines in full and 990 as a crowd.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Figure, percentile
from benchmarks.stack import running

if TYPE_CHECKING:
    from orchestrator.projects.models import Project

JOBS = 1_000
STEPS = 2_000
FIRST_PAINT_MS = 2_000.0
KEYS = ("reward", "held_out", "zero_advantage", "truncated", "pool_ce", "surprise")
"""What a first screen shows, and what scrolls in next."""
_DRAWN = """(keys) => keys.every((key) =>
  document.querySelector(`[data-plot=${key}]`)?.dataset.state === "drawn"
  && document.querySelector(`[data-plot=${key}] .scatterlayer path`))"""
_TASKS = """() => {
  window.tasks = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.tasks.push(entry.duration);
  }).observe({ type: "longtask", buffered: true });
}"""


def write_trainings(project: Project, *, jobs: int = JOBS, steps: int = STEPS) -> list[Any]:
    """Seeded: the same each time."""
    from orchestrator.events.models import Stream
    from orchestrator.trainings.curves import COARSE_POINTS
    from training.curves import packed
    from training.models import TrainingCurve, TrainingJob
    from training.thinning import thinned

    chance = random.Random(0)
    streams = Stream.objects.bulk_create(
        Stream(project=project, kind="training_job", last_seq=0) for _ in range(jobs)
    )
    made = TrainingJob.objects.bulk_create(
        TrainingJob(
            project=project,
            stream=stream,
            name=f"Training {i}",
            origin="own",
            folder=f"training/{i}",
            manifest={"objective": {"lambda_env": 0.05 * (i % 4)}, "seed": i},
            manifest_sha256="5e" * 32,
            state="completed",
            step=steps,
            total_steps=steps,
        )
        for i, stream in enumerate(streams)
    )
    for job in made:
        curves = []
        level, drift = chance.random() * 0.3, chance.random() * 0.6
        for key in (*KEYS, "at"):
            every = steps // 40 if key in ("held_out", "pool_ce") else 1
            pairs: list[tuple[int, float | None]] = [
                (
                    step,
                    None
                    if chance.random() < 0.0005
                    else 40.0 * step
                    if key == "at"
                    else level + drift * step / steps + 0.05 * math.sin(step / 9 + level),
                )
                for step in range(1, steps + 1, every)
            ]
            coarse = packed(thinned(pairs, COARSE_POINTS))
            curves.append(
                TrainingCurve(training_job=job, key=key, data=packed(pairs), coarse=coarse)
            )
        TrainingCurve.objects.bulk_create(curves)
    return made


def charts(project: Project, cookie: str, repeats: int) -> Iterator[Figure]:
    """Needs Django and a data folder of its own."""
    from benchmarks.ui import browsing

    jobs = write_trainings(project)
    yield Figure("ui.charts.packing_a_job_of_2000_steps_ms", _packing_ms(jobs[0]), None)
    path = f"/p/{project.pk}/train/curves/"
    first_ms, screen_ms, tasks_ms, answers_ms, sizes = [], [], [], [], []
    with running() as up:
        with browsing(up.url, cookie) as page:
            page.goto(up.url + path)  # The server's first answer compiles its templates.
            page.wait_for_function(_DRAWN, arg=["reward"])
        for _ in range(repeats):
            with browsing(up.url, cookie) as page:
                page.add_init_script(f"({_TASKS})()")
                page.goto(up.url + path, wait_until="commit")
                page.wait_for_function(_DRAWN, arg=["reward"], polling="raf")
                first_ms.append(float(page.evaluate("performance.now()")))
                page.wait_for_function(_DRAWN, arg=list(KEYS[:4]), polling="raf")
                screen_ms.append(float(page.evaluate("performance.now()")))
                tasks_ms.append(max(page.evaluate("window.tasks"), default=0.0))
                entries = page.evaluate(
                    """() => performance.getEntriesByType("resource")
                      .filter((each) => each.name.includes("/curves/data/"))
                      .map((each) => [each.duration, each.decodedBodySize])"""
                )
                answers_ms += [float(each[0]) for each in entries]
                sizes += [float(each[1]) for each in entries]
    yield Figure("ui.charts.first_paint_worst_ms", max(first_ms), FIRST_PAINT_MS)
    yield Figure("ui.charts.whole_screen_worst_ms", max(screen_ms), None)
    yield Figure("ui.charts.longest_task_ms", max(tasks_ms), None)
    yield Figure("ui.charts.answer_p95_ms", percentile(answers_ms, 0.95), None)
    yield Figure("ui.charts.answer_bytes", max(sizes), None)


def _packing_ms(job: Any) -> float:
    from orchestrator.events.services import NewEvent, append
    from orchestrator.trainings.curves import pack
    from training.models import TrainingJob

    metrics = {
        "reward_mean": 0.5,
        "reward_n": 9,
        "groups": 3,
        "groups_without_spread": 1,
        "rollouts": 9,
        "rollouts_truncated": 1,
        "world_ce_selected_per_token": 1.25,
        "kl_k3": 0.001,
        "entropy_sampled": 0.9,
        "grad_norm": 0.8,
        "tokens_per_s": 75.0,
        "rss_mb": 800.0,
    }
    items = [NewEvent("train.step", {"step": step, **metrics}) for step in range(1, STEPS + 1)]
    for start in range(0, STEPS, 500):
        append(stream_id=job.stream_id, items=items[start : start + 500])
    job = TrainingJob.objects.select_related("stream").get(pk=job.pk)
    started_s = time.perf_counter()
    pack(job)
    return (time.perf_counter() - started_s) * 1000
