"""The fault cases of `tests/vectors/openenv_faults.json` through the whole engine.

Each case and variant is a run: a job, admission, a real server, events and rows in the database.
What is looked at is what is stored. F10 calls an episode directly and is in
`tests/environments/test_fault_vectors`; its order of steps is looked at here with two calls of one
turn.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.runs import queries
from orchestrator.runs.models import Rollout
from tests.base import People
from tests.openenv_faults import cases, outcomes
from tests.runs.conftest import MakeServer
from tests.runs.drive import assert_gapless, events
from tests.runs.faults import Outcome, run_case, target_of

pytestmark = pytest.mark.django_db(transaction=True)

ELSEWHERE = {"F10", "F33", "F36"}
"""A direct call; two servers, in `test_admission`; a worker that is killed, in `test_lost_worker`.
"""
QUICK = {"F02", "F07", "F13", "F14", "F15", "F19", "F21", "F24", "F26", "F28", "F31", "F34"}
"""In the default run; the others wait for limits, or for servers of their own."""


def _cases() -> list[Any]:
    return [
        pytest.param(
            case,
            id=name,
            marks=[] if case["id"] in QUICK else [pytest.mark.slow],
        )
        for name, case in cases()
        if case["id"] not in ELSEWHERE
    ]


@pytest.mark.parametrize("case", _cases())
def test_the_rollout_ends_as_the_vectors_say(
    case: dict[str, Any],
    people: People,
    make_server: MakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provoke = case["provoke"]
    with target_of(provoke, make_server, tmp_path) as target:
        if any(e.get("before") == "connect" for e in provoke.get("events", [])):
            assert target.server is not None
            target.server.send(signal.SIGSTOP)
        outcome = run_case(people, provoke, target, tmp_path, monkeypatch)
    address = target.base_url.partition("@")[2].partition("?")[0]
    names = [r["name"] for r in provoke.get("rollouts", [])]
    applies = case["expect"].get("applies_to", "")
    for index, rollout in enumerate(outcome.rollouts):
        if not names or names[index] in applies:
            check_rollout(case, rollout, address)
    check_everywhere(outcome)
    EXTRA.get(case["id"], _nothing)(outcome)


def check_rollout(case: dict[str, Any], rollout: Rollout, address: str = "") -> None:
    """The row says what the vectors say."""
    expect = case["expect"]
    matching = [e for e in outcomes(case) if e["rollout_state"] == rollout.state]
    assert matching, (rollout.state, rollout.cause, rollout.message)
    causes = [e.get("cause") for e in matching if e.get("cause") is not None]
    assert not causes or rollout.cause in causes, rollout.message
    if rollout.state == "scored":
        assert rollout.reward == pytest.approx(expect["reward"], abs=1e-9)
    if matching[0] is not expect:
        return
    for name in expect.get("message_names") or []:
        assert name.replace("<host:port>", address).lower() in rollout.message.lower()
    if expect.get("steps_completed") is not None:
        assert rollout.n_steps == expect["steps_completed"], rollout.message


def check_everywhere(outcome: Outcome) -> None:
    """What holds whatever the fault is."""
    assert outcome.run.has_ended
    for rollout in outcome.rollouts:
        told = events(rollout.stream_id)
        kinds = [event.kind for event in told]
        assert kinds.count("rollout.ended") == 1
        assert kinds[-1] == "rollout.ended"
        assert told[-1].payload["state"] == rollout.state
        if rollout.state != "scored":
            assert (rollout.score, rollout.reward) == (None, None)
            assert rollout.message.endswith("No score.")
            assert "pass" not in rollout.message.split("@")[0]
            assert "secret" not in rollout.message
        if "waiting" in kinds:
            first_answer = kinds.index("action") if "action" in kinds else len(kinds)
            assert "waiting" not in kinds[first_answer:]
        sent = [event.payload["step"] for event in told if event.kind == "action"]
        assert sent == sorted(sent)
        assert sum(len(json.dumps(event.payload)) for event in told) < 2**20
    tally = queries.tally(outcome.run.pk)
    assert tally.scored == sum(r.state == "scored" for r in outcome.rollouts)
    assert_gapless()


# --- what single cases ask for beyond state, cause, reward, message and steps --------------------


def _nothing(outcome: Outcome) -> None:
    """No further demand."""


def steps(outcome: Outcome) -> list[dict[str, Any]]:
    """Answered steps of the first rollout, as its trace has them."""
    told = events(outcome.rollouts[0].stream_id, "observation")
    return [event.payload for event in told if not event.payload.get("refused")]


def actions(outcome: Outcome) -> list[dict[str, Any]]:
    return [event.payload for event in events(outcome.rollouts[0].stream_id, "action")]


def end(outcome: Outcome) -> dict[str, Any]:
    payload: dict[str, Any] = events(outcome.rollouts[0].stream_id)[-1].payload
    return payload


def agent(outcome: Outcome) -> Any:
    return outcome.agents[outcome.rollouts[0].pk]


def _f01(outcome: Outcome) -> None:
    """Step 1 stays visible, and so does the action in flight."""
    assert [step["reward"] for step in steps(outcome)] == [0.25]
    assert actions(outcome)[-1]["step"] == 2
    assert "sleep" in actions(outcome)[-1]["text"] or "exit" in actions(outcome)[-1]["text"]


def _f02(outcome: Outcome) -> None:
    assert 1.0 not in [step["reward"] for step in steps(outcome)]


def _f04(outcome: Outcome) -> None:
    first, second = outcome.rollouts
    assert (first.state, first.cause, first.reward) == ("errored", "step_timeout", None)
    assert events(second.stream_id, "waiting")
    assert second.attempt == 1


def _f05(outcome: Outcome) -> None:
    waited = [r for r in outcome.rollouts if events(r.stream_id, "waiting")]
    assert len(waited) == 2


def _f06(outcome: Outcome) -> None:
    assert events(outcome.rollouts[0].stream_id, "waiting")


def _f07(outcome: Outcome) -> None:
    (action,) = actions(outcome)
    assert len(action["text"]) < 50_000
    assert "17825" in action["text"]


def _f08(outcome: Outcome) -> None:
    (step,) = steps(outcome)
    assert step["truncated"]
    assert step["size_bytes"] > 20_000_000
    assert len(step["sha256"]) == 64
    assert "characters in all" in step["segments"][0]["text"]


def _f14(outcome: Outcome) -> None:
    assert "error" in end(outcome)["raw"]


def _f19(outcome: Outcome) -> None:
    assert "task" in end(outcome)["raw"]
    assert not actions(outcome)


def _f21(outcome: Outcome) -> None:
    told = events(outcome.rollouts[0].stream_id, "observation")
    refused = [e.payload["segments"][0]["text"] for e in told if e.payload.get("refused")]
    assert refused
    assert set(refused) == {"(opp: not allowed)"}
    assert "(opp: not allowed)" in agent(outcome).shown
    for step in steps(outcome):
        assert '"n": 1' in step["segments"][0]["text"]


def _f24(outcome: Outcome) -> None:
    (not_sent,) = events(outcome.rollouts[0].stream_id, "not_sent")
    assert not_sent.payload["actions"] == [{"reward": 1.0, "done": True}]


def _f25(outcome: Outcome) -> None:
    first, second = steps(outcome)
    assert "timeout" in first["tool_error"]
    assert "timeout" in agent(outcome).shown[1]
    assert second["tool_error"] == ""


def _f28(outcome: Outcome) -> None:
    if outcome.rollouts[0].state == "errored":
        assert end(outcome)["claimed_reward"] == 7.5


def _f29(outcome: Outcome) -> None:
    assert len(actions(outcome)) == 5
    scored = outcome.rollouts[0].state == "scored"
    assert end(outcome).get("is_truncated", False) is scored
    if outcome.rollouts[0].reward == -1.0:
        assert "truncation_reward" in outcome.rollouts[0].message


def _f31(outcome: Outcome) -> None:
    first = next(text for text in agent(outcome).shown if "puzzle" in text)
    puzzle = int(first.replace("\\", "").split('"puzzle": ')[1].split(",")[0])
    shown = " ".join(agent(outcome).shown)
    assert puzzle
    assert str(7 * puzzle) not in shown
    assert "metadata" not in shown


def _f32(outcome: Outcome) -> None:
    if outcome.rollouts[0].state == "errored":
        assert end(outcome)["claimed_reward"] == 1.0


def _f35(outcome: Outcome) -> None:
    if outcome.rollouts[0].state == "cancelled":
        assert outcome.run.state == "cancelled"


EXTRA: dict[str, Callable[[Outcome], None]] = {
    "F01": _f01,
    "F02": _f02,
    "F04": _f04,
    "F05": _f05,
    "F06": _f06,
    "F07": _f07,
    "F08": _f08,
    "F14": _f14,
    "F19": _f19,
    "F21": _f21,
    "F24": _f24,
    "F25": _f25,
    "F28": _f28,
    "F29": _f29,
    "F31": _f31,
    "F32": _f32,
    "F35": _f35,
}
