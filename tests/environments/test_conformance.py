"""Each grader on a real server: one environment that it passes, one that it does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.conformance import capacity, starting
from orchestrator.environments.conformance.catalogue import CATALOGUE
from orchestrator.environments.conformance.finding import Finding, Status
from orchestrator.environments.conformance.graders import GRADERS
from orchestrator.environments.conformance.running import grade
from orchestrator.environments.conformance.subject import Exercise, Secret, Subject
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import CheckStatus
from orchestrator.environments.session import EpisodeSettings
from tests.doubles.openenv_servers import FaultServer, raw_server
from tests.environments.conftest import ServerFactory, needs_bubblewrap

SETTINGS = EpisodeSettings(
    connect_timeout_s=20, reset_timeout_s=20, step_timeout_s=20, slot_wait_s=2, reward_range=(0, 1)
)
WORDS = {"a": "orchid-garden", "b": "basalt-column"}
NUMBERS = {"a": "4", "b": "7"}


def exercises(fault: str = "", **changes: Any) -> tuple[Exercise, ...]:
    """Both tasks of `guess_env`, with this fault."""
    secrets = NUMBERS if fault == "number_in_state" else WORDS
    return tuple(
        replace(
            Exercise(
                key=key,
                prompt="Guess the word.",
                reset={"task": key, **({"fault": fault} if fault else {})},
                secrets=(Secret("spec.answer", secrets[key]),),
                reference=(json.dumps({"guess": secrets[key]}),),
                settings=SETTINGS,
            ),
            **changes,
        )
        for key in WORDS
    )


def subject_on(server: FaultServer, fault: str = "", **changes: Any) -> Subject:
    return Subject(server.base_url, KINDS["url"], exercises(fault, **changes), capacity=8)


Check = Callable[..., Any]


@pytest.fixture
def check(shared_server: ServerFactory) -> Check:
    """`await check(id, fault, …)`: the finding on `guess_env` with that fault."""

    async def run(check_id: str, fault: str = "", **changes: Any) -> Finding:
        server = shared_server("guess_env")
        await server.ready()
        graded = await grade(GRADERS[check_id], subject_on(server, fault, **changes))
        return graded.finding

    return run


def test_each_check_is_described_once_and_graded() -> None:
    assert list(CATALOGUE) == list(GRADERS)
    assert {str(s) for s in Status} == set(CheckStatus.values)
    for entry in CATALOGUE.values():
        assert entry.title and entry.meaning and entry.remediation


@pytest.mark.parametrize("check_id", list(GRADERS))
async def test_a_sound_environment_fails_nothing(check: Check, check_id: str) -> None:
    finding = await check(check_id)
    expected = {"oracle_containment": "skip"}.get(check_id, "pass")
    assert (finding.status, finding.evidence) == (expected, finding.evidence)


FAULTS = [
    ("state_contract", "no_state", "fail", "there is no state"),
    ("state_contract", "no_count", "warn", "stays at 0"),
    ("error_answers", "traceback", "warn", "even a valid action is refused"),
    ("seed_control", "random", "fail", "random"),
    ("episode_determinism", "flaky", "fail", "rewards"),
    ("episode_isolation", "shared", "fail", "neighbour"),
    ("reward_well_formed", "out_of_range", "fail", "5"),
    ("reward_well_formed", "nan", "fail", "without a number"),
    ("reward_well_formed", "endless", "warn", "No episode came to its end"),
    ("reset_reward", "reset_reward", "warn", "0.5"),
    ("no_solution_leakage", "observation", "fail", "observation.text; agents see it"),
    ("no_solution_leakage", "metadata", "fail", "metadata.debug.word"),
    ("no_solution_leakage", "state", "fail", "state.board.word"),
    ("no_solution_leakage", "number_in_state", "fail", "state.game.n"),
    ("no_solution_leakage", "named", "warn", "solution_hash"),
    ("canary_floor", "pays_noop", "fail", "100% of the full reward"),
    ("canary_floor", "pays_some", "fail", "20%"),
    ("oracle_max", "never_right", "fail", "0.5 of 1"),
    ("oracle_max", "endless", "fail", "does not end"),
]


@pytest.mark.parametrize(("check_id", "fault", "status", "says"), FAULTS)
async def test_a_bad_environment_is_found(
    check: Check, check_id: str, fault: str, status: str, says: str
) -> None:
    finding = await check(check_id, fault)
    assert finding.status == status, finding
    assert says in finding.evidence


async def test_no_answer_is_ever_quoted(check: Check) -> None:
    for fault in ("observation", "metadata", "state"):
        finding = await check("no_solution_leakage", fault)
        assert WORDS["a"] not in json.dumps([finding.evidence, dict(finding.measured)])
        assert "13 characters" in finding.evidence


async def test_a_number_in_the_state_wins_though_nobody_declared_it(check: Check) -> None:
    finding = await check("no_solution_leakage", "number_in_state", secrets=(), reference=())
    assert finding.status == "fail"
    assert finding.measured["path"] == "state.game.n"


async def test_answers_that_a_kind_keeps_stand_in_for_a_transcript(check: Check) -> None:
    finding = await check("oracle_max", reference=())
    assert (finding.status, len(finding.measured["scores"])) == ("pass", 2)
    assert (await check("oracle_max", reference=(), secrets=())).status == "skip"


async def test_a_slow_reset_warns(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "SLOW_RESET_S", 0.2)
    finding = await check("reset_time", reset={"fault": "slow", "secs": 0.3})
    assert finding.status == "warn"
    assert finding.measured["median_s"] >= 0.3


async def test_a_server_without_a_schema_warns() -> None:
    async with raw_server([]) as base_url:
        subject = Subject(base_url, KINDS["url"], exercises())
        assert (await grade(GRADERS["action_schema"], subject)).finding.status == "warn"


async def test_no_server_is_a_failed_start(tmp_path: Path) -> None:
    subject = Subject(f"unix://{tmp_path}/none.sock", KINDS["url"], exercises())
    finding = (await grade(GRADERS["startup"], subject)).finding
    assert finding.status == "fail"
    assert "env_unreachable" in finding.evidence


async def test_answers_that_end_the_session_are_not_clean() -> None:
    reset = {"type": "observation", "data": {"observation": {}, "reward": None, "done": False}}
    async with raw_server([json.dumps(reset), "$close"]) as base_url:
        subject = Subject(base_url, KINDS["url"], exercises())
        finding = (await grade(GRADERS["error_answers"], subject)).finding
    assert finding.status == "fail"
    assert "the episode is lost" in finding.evidence


async def test_fewer_slots_than_declared_are_found(own_server: ServerFactory) -> None:
    server = own_server("guess_env", {"MAX_CONCURRENT_ENVS": "3"})
    await server.ready()
    subject = subject_on(server)
    finding = (await grade(GRADERS["concurrent_sessions"], subject)).finding
    assert finding.status == "fail"
    assert (finding.measured["open"], finding.measured["declared"]) == (3, 8)
    true = (await grade(GRADERS["concurrent_sessions"], replace(subject, capacity=3))).finding
    assert (true.status, true.measured["refusal"]) == ("pass", "CAPACITY_REACHED")
    shared = replace(subject, capacity=None, is_shared=True)
    assert (await grade(GRADERS["slot_release"], shared)).finding.status == "skip"


async def test_a_single_slot_has_no_neighbours(own_server: ServerFactory) -> None:
    server = own_server("guess_env", {"MAX_CONCURRENT_ENVS": "1"})
    await server.ready()
    subject = replace(subject_on(server), capacity=None)
    assert (await grade(GRADERS["episode_isolation"], subject)).finding.status == "skip"
    found = (await grade(GRADERS["concurrent_sessions"], subject)).finding
    assert (found.status, found.measured["open"]) == ("warn", 1)


async def test_a_file_that_decides_the_reward_is_found(
    own_server: ServerFactory, tmp_path: Path
) -> None:
    server = own_server("fault_env", {"FAULT_WORKDIR": str(tmp_path)})
    await server.ready()
    exercise = Exercise("default", "Act.", settings=SETTINGS)
    subject = Subject(server.base_url, KINDS["url"], (exercise,), capacity=8)
    finding = (await grade(GRADERS["oracle_containment"], subject)).finding
    assert finding.status == "fail", finding
    assert "a wrong answer earned 1" in finding.evidence


@needs_bubblewrap
async def test_a_shell_beside_the_verifier_is_found(
    own_server: ServerFactory, tmp_path: Path
) -> None:
    """All episodes share the folder that holds the verifier."""
    server = own_server("shell_env", {"SHELL_WORKDIR": str(tmp_path)})
    await server.ready()
    subject = Subject(
        server.base_url, KINDS["url"], (Exercise("default", "Act.", settings=SETTINGS),), capacity=8
    )
    forged = (await grade(GRADERS["oracle_containment"], subject)).finding
    assert forged.status == "fail", forged
    shared = (await grade(GRADERS["episode_isolation"], subject)).finding
    assert shared.status == "fail", shared
    assert "seen by its neighbour in output" in shared.evidence
    assert not list(tmp_path.glob("note-*")), "the marker is removed"


async def test_slots_that_do_not_come_back_are_found(
    own_server: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "RELEASE_LIMIT_S", 0.5)
    server = own_server("guess_env", {"MAX_CONCURRENT_ENVS": "2"})
    await server.ready()
    subject = replace(subject_on(server, "hang"), capacity=2)
    finding = (await grade(GRADERS["slot_release"], subject)).finding
    assert finding.status == "fail", finding
    assert "of 2 abandoned slots came back" in finding.evidence


async def test_a_grader_that_breaks_or_hangs_is_its_own_finding(check: Check) -> None:
    subject = Subject("unix:///none", KINDS["url"], exercises())

    async def breaks(subject: Subject) -> Finding:
        raise KeyError("oops")

    async def hangs(subject: Subject) -> Finding:
        await asyncio.Event().wait()
        raise AssertionError

    broken = (await grade(breaks, subject)).finding
    assert (broken.status, "KeyError" in broken.evidence) == ("error", True)
    hung = (await grade(hangs, subject, deadline_s=0.05)).finding
    assert (hung.status, "0.05 s" in hung.evidence) == ("error", True)


async def test_whoever_watches_can_end_a_grader() -> None:
    async def hangs(subject: Subject) -> Finding:
        await asyncio.Event().wait()
        raise AssertionError

    def stop() -> None:
        raise InterruptedError

    subject = Subject("unix:///none", KINDS["url"], exercises())
    with pytest.raises(InterruptedError):
        await grade(hangs, subject, watch=stop)
