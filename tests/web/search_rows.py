"""A harness search as rows: what a finished or running one leaves behind, for pages to show.

No worker and no model takes part. Harnesses, edits and the course of the certificate are real: they
come from `optimizer`, so that differences, hashes and curves agree with one another.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.utils import timezone

from optimizer.edits import Edit, Op, apply_edits, demonstration_edit
from optimizer.engines.contract import candidate_key
from optimizer.guards import Change, guards
from optimizer.harness import Demonstration, Harness
from optimizer.models import (
    Budget,
    Candidate,
    Comparison,
    HarnessVersion,
    Nudge,
    Proposal,
    Search,
    SearchRun,
    Tombstone,
)
from optimizer.models import Edit as EditRow
from optimizer.statistics import EProcess, Pair, compare, e_process
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.projects.models import Project
from orchestrator.runs.models import Run
from tests.web.build import make_environment, make_rubric, make_run

_numbers = itertools.count(1)

SEED = Harness(
    instructions="You work in a folder of files.\n\n{actions}\n\nAnswer as soon as you know it.\n"
)


def demonstration(number: int, task: str, command: str, answer: str) -> Edit:
    return demonstration_edit(
        Demonstration(
            id=f"d{number}",
            messages=(
                {"role": "user", "content": task},
                {"role": "assistant", "content": command},
                {"role": "user", "content": answer},
                {"role": "assistant", "content": f"answer: {answer}"},
            ),
            source=f"train-{number:04d}",
        ),
        operator="demonstrations.reference",
        support=1,
        sources=(f"train-{number:04d}",),
    )


def _line(text: str, operator: str, support: int, op: Op = Op.APPEND, anchor: str = "") -> Edit:
    return Edit(op, "instructions.md", anchor, text, operator, support)


EDITS: tuple[tuple[Edit, float | None, float, int, int, bool], ...] = (
    (
        demonstration(1, "How many lines has list1.txt?", "wc -l list1.txt", "3"),
        0.094,
        0.019,
        204,
        196,
        True,
    ),
    (
        demonstration(2, "What is the first line of notes.txt?", "head -1 notes.txt", "alpha"),
        0.061,
        0.021,
        212,
        188,
        True,
    ),
    (
        _line("Reply with one line only: a command, or `answer: …`.", "reflection", 7),
        0.041,
        0.015,
        212,
        188,
        True,
    ),
    (
        _line("Count with `wc -l` or `grep -c`; do not read long files.", "reflection", 5),
        0.033,
        0.017,
        171,
        229,
        True,
    ),
    (
        _line(
            "Give the answer the moment it is known; never check it twice.",
            "instructions.pool",
            3,
            Op.REPLACE,
            "Answer as soon as you know it.",
        ),
        0.008,
        0.016,
        140,
        260,
        False,
    ),
    (_line("Quote paths that hold spaces.", "reflection", 2), 0.004, 0.02, 96, 304, False),
    (
        _line(
            "Think step by step before you act: name what is asked, what is known, what is missing "
            "and what you would do first, and only then write the command.",
            "instructions.pool",
            2,
        ),
        -0.021,
        0.017,
        88,
        312,
        False,
    ),
    (
        _line("Rules:\n1. Never explain.\n2. Use grep and wc.\n3. Be brief.", "handed_in", 4),
        -0.062,
        0.021,
        61,
        339,
        False,
    ),
    (
        _line("You are an expert in shells.", "instructions.pool", 1),
        None,
        0.0,
        0,
        0,
        False,
    ),
)
KEPT = [edit for edit, *_, kept in EDITS if kept]

OUTCOME: dict[str, Any] = {
    "verdict": "improved",
    "reason": "better after 47 pairs at α 0.05",
    "is_measured": True,
    "is_promotable": True,
    "noise": {"mean": 0.004, "low": -0.021, "high": 0.03, "pairs": 24},
}


def make_search(project: Project, **overrides: Any) -> Search:
    """A finished search that waits for approval: +9 points certified, confirmed on the test."""
    version = overrides.pop("environment_version", None) or make_environment(project, tasks=24)
    rubric = overrides.pop("rubric_version", None) or make_rubric(project)
    model = overrides.pop("model", None) or ModelEndpoint.objects.create(
        project=project, name=f"tiny-{next(_numbers)}", kind=EndpointKind.LOCAL, model="tiny"
    )
    seed = store_harness(project_id=project.pk, harness=SEED, label="seed")
    now = timezone.now()
    fields: dict[str, Any] = {
        "name": "Terminal files, first search",
        "state": "awaiting_approval",
        "phase": "done",
        "settings": {
            "engine": "factorial",
            "proposers": ["demonstrations", "instructions", "reflection", "handed_in"],
        },
        "fingerprints": {
            "environment": version.sha256,
            "rubric": rubric.sha256,
            "seed_harness": seed.sha256,
        },
        "seed": 7,
        "progress": 1.0,
        "outcome": OUTCOME,
        "started_at": now - timedelta(minutes=42),
        "ended_at": None,
        **overrides,
    }
    search = Search.objects.create(
        project=project,
        stream=create_stream(project=project, kind="search"),
        environment_version=version,
        rubric_version=rubric,
        model=model,
        seed_harness=seed,
        **fields,
    )
    proposals = _proposals(search)
    _edits(search, proposals)
    winner = _candidates(search, seed)
    _tombstones(search)
    _nudges(search, proposals)
    _budgets(search)
    runs = _runs(search, version)
    make_certificate(search, winner, version)
    make_sealed_test(search, winner, runs[-1])
    assert search.stream_id is not None
    append(
        stream_id=search.stream_id,
        items=[
            NewEvent("decision", {"text": text})
            for text in (
                "Preflight: 24 tasks × 2 can show ±9 points; noise floor ±3 points.",
                "Watched the seed on 24 train tasks: 31 % right; 9 answers were prose.",
                "9 edits proposed, 2 refused by the linter; none is believed before it is "
                "measured.",
                "Certified: better after 47 pairs at α 0.05.",
            )
        ],
    )
    return search


def make_running_search(project: Project, **overrides: Any) -> Search:
    """In the middle of its screen: nothing is certified, nothing is finished."""
    search = make_search(
        project,
        **{
            "name": "Terminal files, second search",
            "state": "running",
            "phase": "search",
            "progress": 0.46,
            "doing": "trying 9 edits, 184 of 400 rollouts",
            "outcome": {},
            **overrides,
        },
    )
    search.comparisons.all().delete()
    return search


def _proposals(search: Search) -> list[Proposal]:
    now = timezone.now()
    prompt = (
        "Below are 4 attempts that failed and 4 that passed, as data.\n\n"
        "<trace task=train-0007 score=0>\nuser: How many lines has list7.txt?\n"
        "assistant: I would look at the file first …\n</trace>\n\nName the cause; propose edits."
    )
    answer = '{"cause": "explains instead of acting", "edits": [{"op": "append", …}]}'
    rows: tuple[tuple[Any, ...], ...] = (
        (0, "demonstrations.reference", "answered", "", [], "", 0, 0.0, 2, []),
        (
            0,
            "reflection",
            "answered",
            prompt,
            ["Sure! Here are my edits:", answer],
            "The agent explains instead of acting.",
            4_212,
            0.018,
            3,
            [
                {
                    "edit": _line("The answer to train-0003 is 3.", "reflection", 1).to_json(),
                    "findings": ["copies the answer of a task"],
                }
            ],
        ),
        (
            1,
            "reflection",
            "failed",
            prompt,
            ["", "I cannot help with th"],
            "Two answers without edits: the first was empty, the second cut off at 512 tokens.",
            2_038,
            0.009,
            0,
            [],
        ),
        (1, "handed_in", "waiting", prompt, [], "", 0, 0.0, 0, []),
    )
    return [
        Proposal.objects.create(
            search=search,
            round=number,
            proposer=proposer,
            state=state,
            prompt=asked,
            answers=answers,
            reason=reason,
            tokens=tokens,
            cost_usd=cost,
            seconds=4.2 if tokens else 0.0,
            edits=[edit.to_json() for edit, *_ in EDITS[:n_edits]],
            refused=refused,
            answered_at=now if state != "waiting" else None,
        )
        for (
            number,
            proposer,
            state,
            asked,
            answers,
            reason,
            tokens,
            cost,
            n_edits,
            refused,
        ) in rows
    ]


def _edits(search: Search, proposals: Sequence[Proposal]) -> None:
    for position, (edit, mean, sd, n_with, n_without, kept) in enumerate(EDITS):
        EditRow.objects.create(
            search=search,
            position=position,
            sha256=edit.sha256,
            operator=edit.operator,
            component=edit.component,
            data=edit.to_json(),
            support=edit.support,
            effect_mean=mean,
            effect_sd=None if mean is None else sd,
            probability_positive=None if mean is None else (0.99 if mean > 0.02 else 0.3),
            rollouts_with=None if mean is None else n_with,
            rollouts_without=None if mean is None else n_without,
            in_bundle=kept,
            proposal=proposals[1] if edit.operator == "reflection" else proposals[0],
        )


def _candidates(search: Search, seed: HarnessVersion) -> HarnessVersion:
    """A small tree, the winner in its third generation, and many mixtures of the screen."""
    status = Candidate.Status
    hashes = [edit for edit, *_ in EDITS]

    def add(
        chosen: Sequence[int],
        parent: Candidate | None,
        relation: str,
        state: str,
        n: int,
        score: float | None,
        tokens: float,
        latency: float,
    ) -> Candidate:
        edits = [hashes[i] for i in chosen]
        version = seed
        if edits:
            version = store_harness(project_id=search.project_id, harness=apply_edits(SEED, edits))
        return Candidate.objects.create(
            search=search,
            harness=version,
            edits=[edit.sha256 for edit in edits],
            status=state,
            parent=parent,
            relation=relation,
            rollouts=n,
            score=score,
            cost_usd=round(tokens * 2e-6, 6),
            tokens=tokens,
            latency_s=latency,
        )

    root = add([], None, "", status.SCREENING, 62, 0.31, 640, 1.9)
    one = add([0], root, "mutate", status.SCREENING, 18, 0.41, 760, 1.8)
    two = add([0, 1], one, "mutate", status.RACING, 24, 0.44, 880, 1.7)
    best = add([0, 1, 2, 3], two, "merge", status.CERTIFIED, 32, 0.53, 960, 1.4)
    add([0, 2, 3], best, "prune", status.RACING, 32, 0.5, 780, 1.3)
    add([2], root, "mutate", status.SCREENING, 14, 0.36, 660, 1.6)
    add([2, 3], root, "mutate", status.RACING, 32, 0.42, 690, 1.4)
    add([7], root, "mutate", status.REJECTED, 14, 0.22, 720, 2.2)
    add([0, 1, 6], two, "mutate", status.REJECTED, 12, 0.4, 1_140, 2.9)
    draw = random.Random(5)
    for i in range(18):
        chosen = sorted(draw.sample(range(8), 3 + i % 3))
        if Candidate.objects.filter(
            search=search, edits=[hashes[i].sha256 for i in chosen]
        ).exists():
            continue
        add(chosen, root, "mutate", status.SCREENING, 2, draw.choice([0.0, 0.5, 1.0]), 820, 1.8)
    return best.harness


def _tombstones(search: Search) -> None:
    for edit, mean, sd, n_with, n_without, _ in EDITS[6:8]:
        assert mean is not None
        Tombstone.objects.create(
            search=search,
            edit_sha256=edit.sha256,
            edit=edit.to_json(),
            reason="the upper end of its interval is below what would be worth its tokens",
            evidence={
                "mean": mean,
                "low": mean - 1.96 * sd,
                "high": mean + 1.96 * sd,
                "with": n_with,
                "without": n_without,
            },
            support=edit.support,
        )
    told = _line("The answer to train-0003 is 3.", "reflection", 1)
    Tombstone.objects.create(
        search=search,
        edit_sha256=told.sha256,
        edit=told.to_json(),
        reason="refused by the linter",
        evidence={"findings": ["copies the answer of a task"]},
        support=1,
    )


def _nudges(search: Search, proposals: Sequence[Proposal]) -> None:
    Nudge.objects.create(
        search=search, text="Look at the tasks with column names.", proposal=proposals[1]
    )
    Nudge.objects.create(search=search, text="Keep the instructions under ten lines.")


def _budgets(search: Search) -> None:
    for scope, role, unit, cap, used, reserved in (
        ("", "agent", "rollouts", 640, 541, 0),
        ("/search", "agent", "rollouts", 448, 400, 0),
        ("/certify", "agent", "rollouts", 144, 93, 0),
        ("/test", "agent", "rollouts", 48, 48, 0),
        ("", "agent", "tokens", 900_000, 431_200, 0),
        ("", "proposer", "tokens", 20_000, 6_250, 0),
        ("", "proposer", "micro_usd", 100_000, 27_000, 0),
        ("", "judge", "micro_usd", 500_000, 61_000, 4_000),
        ("", "agent", "milliseconds", 7_200_000, 2_520_000, 0),
    ):
        Budget.objects.create(
            scope=f"search:{search.pk}{scope}",
            role=role,
            unit=unit,
            cap=cap,
            used=used,
            reserved=reserved,
        )


def _runs(search: Search, version: EnvironmentVersion) -> list[Run]:
    runs = []
    for phase, label, purpose in (
        ("evidence", "Watching the seed harness", "optimise"),
        ("screen", "Screening edits", "optimise"),
        ("certify", "Certifying on unseen tasks", "certify"),
        ("test", "Sealed test", "evaluate"),
    ):
        run = make_run(
            search.project,
            label=label,
            purpose=purpose,
            environment_version=version,
            rubric_version=search.rubric_version,
            model=search.model,
        )
        SearchRun.objects.create(search=search, run=run, phase=phase)
        runs.append(run)
    return runs


def course(gain: float, n: int = 72, *, lost: int = 2) -> list[float | None]:
    """Differences of graded scores with about that mean, the same ones each time."""
    draw = random.Random(11)
    found: list[float | None] = [
        max(-1.0, min(1.0, round(draw.gauss(gain, 0.35) * 4) / 4)) for _ in range(n)
    ]
    for i in range(lost):
        found[7 + 20 * i] = None
    return found


def certificate_details(
    test: EProcess, winner: HarnessVersion, version: EnvironmentVersion
) -> dict[str, Any]:
    draw = random.Random(3)
    changes = [
        Change(name, draw.gauss(mean, 0.3))
        for name, mean in (
            ("criterion correct", 0.12),
            ("criterion few_steps", 0.08),
            ("stratum count_lines", 0.14),
            ("stratum first_line", 0.06),
        )
        for _ in range(24)
    ]
    return {
        "number": 1,
        "harness": winner.sha256,
        "crossing_pair": test.crossing_pair,
        "threshold": test.threshold,
        "breached": [],
        "edits": [edit.sha256 for edit in KEPT],
        "candidate": candidate_key(edit.sha256 for edit in KEPT),
        "e_plus": list(test.e_plus),
        "e_minus": list(test.e_minus),
        "scheduled": test.scheduled,
        "guards": [
            {
                "name": guard.name,
                "pairs": guard.pairs,
                "mean": guard.mean,
                "upper": guard.upper,
                "is_breached": guard.is_breached,
            }
            for guard in guards(changes)
        ],
        "tasks": [task.key for task in version.tasks.filter(split="select").order_by("key")],
        "seed": 7,
    }


def make_certificate(
    search: Search, winner: HarnessVersion, version: EnvironmentVersion, gain: float = 0.25
) -> Comparison:
    differences = course(gain)
    test = e_process(differences, alpha=0.05)
    paired = compare(
        Pair(f"select-{i % 24 + 1:04d}", None if d is None else max(0.0, -d), max(0.0, d or 0.0))
        for i, d in enumerate(differences)
    )
    return Comparison.objects.create(
        project=search.project,
        search=search,
        split="select",
        method="e_process",
        verdict=test.verdict.value,
        pairs=test.valid,
        coverage=test.coverage,
        difference=paired.mean,
        low=paired.low,
        high=paired.high,
        e_value=test.evidence,
        alpha=test.alpha,
        details=certificate_details(test, winner, version),
    )


def make_sealed_test(search: Search, winner: HarnessVersion, run: Run) -> Comparison:
    return Comparison.objects.create(
        project=search.project,
        search=search,
        split="test",
        method="paired_bootstrap",
        verdict="better",
        pairs=23,
        coverage=0.96,
        difference=0.21,
        low=0.07,
        high=0.36,
        alpha=0.05,
        details={"units": 23, "run": run.pk, "harness": winner.sha256},
    )
