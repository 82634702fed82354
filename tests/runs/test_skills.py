"""Skills in real rollouts: loaded when the agent asks, recorded, and never an environment step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from optimizer.harness import Demonstration, Harness, Pick, Picking, Sampling
from optimizer.models import HarnessVersion
from optimizer.skills import Skill
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.runs import engine
from orchestrator.runs.activation import activations, activations_in_run, loads_of
from orchestrator.runs.models import Purpose, Rollout, RolloutState, Run, RunState
from orchestrator.runs.skills import MAX_LOADS
from orchestrator.runs.transcripts import transcript_of
from tests.base import People
from tests.doubles.model_server import Asked, Reply
from tests.environments.conftest import needs_bubblewrap
from tests.runs.conftest import MakeModel
from tests.runs.drive import (
    FINISH,
    act,
    events,
    execute,
    kinds_of,
    make_endpoint,
    make_harness,
    make_run,
    make_version,
    number_of,
    rollouts,
)
from tests.runs.test_function_calls import calls_then, chat, make_tools

pytestmark = pytest.mark.django_db(transaction=True)
SKILLS: dict[str, Any] = {
    "skills": (
        Skill("count-lines", "Counts lines. Use when asked how many.", "Use wc -l.\n"),
        Skill("dates", "Reads dates.", "Dates are ISO.\n"),
    ),
    "files": {"skills/count-lines/references/wc.md": "wc counts.\n"},
}


@pytest.fixture(autouse=True)
def end_servers() -> Iterator[None]:
    yield
    engine.servers.close()


def one_rollout(
    people: People, version: EnvironmentVersion, harness: HarnessVersion, **spec: Any
) -> tuple[Run, Rollout]:
    run = execute(make_run(people.project, version=version, harness=harness, **spec))
    (rollout,) = rollouts(run)
    return run, rollout


def test_a_text_reply_loads_a_skill_and_costs_no_step(
    people: People, fault_url: str, make_model: MakeModel, client: Client
) -> None:
    replies = iter(
        ["load_skill: count-lines", "load_skill: count-lines references/wc.md", act(text="x")]
    )
    model = make_model(lambda asked: next(replies, FINISH))
    version = make_version(people.project, fault_url, tasks=1)
    harness = make_harness(people.project, **SKILLS)
    run, rollout = one_rollout(people, version, harness, model_url=model.url)
    assert (rollout.state, rollout.score, rollout.n_steps) == (RolloutState.SCORED, 1.0, 2)
    assert kinds_of(rollout) == [
        *("rollout.started", "told", "skill.loaded", "skill.loaded"),
        *("action", "observation", "action", "observation", "verdict", "rollout.ended"),
    ]
    first, second = (event.payload for event in events(rollout.stream_id, "skill.loaded"))
    assert (first["name"], first["file"], first["tokens"]) == ("count-lines", "", 24)
    assert (second["file"], second["content"]) == ("wc.md", "wc counts.\n")
    # What was kept is what the model read, in the very prompt that followed.
    assert model.asked[1].messages[-1] == ("user", first["content"])
    assert model.asked[2].messages[-1] == ("user", "wc counts.\n")
    (told,) = events(rollout.stream_id, "told")
    system = model.asked[0].messages[0][1]
    assert system.endswith(
        f"{told.payload['skills']}\n- count-lines: Counts lines. Use when asked how many.\n"
        "- dates: Reads dates."
    )
    # All tokens are paid for; what was loaded is not trained on, and the decision to load is.
    assert rollout.tokens_out == sum(
        event.payload["tokens"] for event in events(rollout.stream_id, "skill.loaded", "action")
    )
    (row,) = rollout.token_rows.all()
    kinds = [kind for kind, count in row.kinds for _ in range(count)]
    text = "".join(chr(i) if i < 0x110000 else "|" for i in row.ids)
    at = text.index("wc counts.")
    assert set(kinds[at : at + 10]) == {"scaffold"}
    at = text.rindex("load_skill: count-lines ref")
    assert set(kinds[at : at + 20]) == {"action"}
    # Grading sees the environment's steps alone, and cites events by their numbers.
    steps = transcript_of(rollout).steps
    observed = [event.seq for event in events(rollout.stream_id, "observation")]
    assert [step.seq for step in steps] == observed
    assert run.warnings[1:] == []
    client.force_login(people.member)
    page = client.get(f"/p/{people.project.pk}/rollouts/{rollout.pk}/").content.decode()
    assert "count-lines" in page
    assert "Use wc -l." in page
    assert "an event that this page cannot draw" not in page


def test_an_unknown_skill_is_answered_with_the_names(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    replies = iter(["load_skill: nobody"])
    model = make_model(lambda asked: next(replies, FINISH))
    version = make_version(people.project, fault_url, tasks=1)
    _, rollout = one_rollout(
        people, version, make_harness(people.project, **SKILLS), model_url=model.url
    )
    assert (rollout.score, rollout.n_steps) == (1.0, 1)
    (refused,) = events(rollout.stream_id, "skill.refused")
    assert refused.payload["name"] == "nobody"
    assert model.asked[1].messages[-1][1] == (
        "(there is no skill 'nobody'. Skills: count-lines, dates)"
    )


def test_an_agent_that_only_reads_ends_with_the_reason(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(lambda asked: "load_skill: dates")
    version = make_version(people.project, fault_url, tasks=1)
    _, rollout = one_rollout(
        people, version, make_harness(people.project, **SKILLS), model_url=model.url
    )
    assert (rollout.state, rollout.cause) == (RolloutState.ERRORED, "action_rejected")
    assert f"skills were asked for {MAX_LOADS} times" in rollout.message
    assert len(events(rollout.stream_id, "skill.loaded")) == MAX_LOADS


@needs_bubblewrap
def test_a_model_that_calls_functions_is_offered_one_beside_the_tools(
    people: People, make_model: MakeModel
) -> None:
    model = make_model(
        calls_then(
            Reply("", calls=[("load_skill", '{"name": "dates"}')]),
            # Beside an action, and after one that ends the episode's turn.
            Reply(
                "Look.",
                calls=[
                    ("load_skill", '{"name": "count-lines", "file": "wc.md"}'),
                    ("price", '{"item": "pen"}'),
                    ("load_skill", '{"name": "nobody"}'),
                ],
            ),
            Reply("", calls=[("submit", '{"answer": 2.5}')]),
        )
    )
    harness = store_harness(project_id=people.project.pk, harness=Harness(**SKILLS))
    _, rollout = one_rollout(
        people, make_tools(people), harness, model=chat(people, model, supports_tools=True)
    )
    assert (rollout.state, rollout.score, rollout.n_steps) == (RolloutState.SCORED, 1.0, 2)
    offered = [tool["function"]["name"] for tool in model.asked[0].body["tools"]]
    assert offered == ["price", "submit", "load_skill"]
    assert "call load_skill" in model.asked[0].messages[0][1]
    assert model.asked[1].messages[-1] == ("tool", "Dates are ISO.")
    answers = [content for role, content in model.asked[2].messages if role == "tool"]
    assert answers[1:] == [
        "wc counts.\n",
        "2.5",
        "(there is no skill 'nobody'. Skills: count-lines, dates)",
    ]
    # The reply is paid for once, with the first thing that it says.
    loaded = [event.payload for event in events(rollout.stream_id, "skill.loaded")]
    (priced, _) = (event.payload for event in events(rollout.stream_id, "action"))
    assert loaded[1]["latency_s"] > 0.0 == priced["latency_s"]
    assert loaded[1]["text"].startswith("Look.\nload_skill ")


def test_activation_is_counted_with_the_scores_beside_it(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    def script(asked: Asked) -> str:
        """Tasks 0 and 1 read a skill, 1 twice; of the others 2 fails."""
        number = number_of(asked)
        n_replies = sum(role == "assistant" for role, _ in asked.messages)
        if n_replies < (1, 2, 0, 0)[number]:
            return "load_skill: dates"
        return act(op="noop", reward=0.0, done=True) if number == 2 else FINISH

    model = make_model(script)
    version = make_version(people.project, fault_url, tasks=4)
    harness = make_harness(people.project, **SKILLS)
    run = execute(make_run(people.project, version=version, harness=harness, model_url=model.url))
    unused, used = activations(harness=harness, run_ids=[run.pk])
    assert (unused.skill, unused.loaded, unused.rollouts) == ("count-lines", 0, 4)
    assert unused.passed_with is None
    assert (used.skill, used.loaded, used.rollouts) == ("dates", 2, 4)
    assert used.passed_with is not None and used.passed_without is not None
    assert (used.passed_with.passed, used.passed_with.scored) == (2, 2)
    assert (used.passed_without.passed, used.passed_without.scored) == (1, 2)
    assert activations(harness=harness) == activations_in_run(run, [harness]) == [unused, used]
    # A harness without skills asks nothing.
    assert activations(harness=make_harness(people.project)) == []
    loads = loads_of(rollout.pk for rollout in rollouts(run))
    assert sorted(loads.values()) == [["dates"], ["dates"]]


def test_a_harness_names_its_model_and_how_it_samples(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    ours, other = make_model(), make_model(name="large")
    make_endpoint(
        people.project,
        other.url,
        name="the large one",
        model="large",
        kind=EndpointKind.OPENAI,
        supports_tools=False,
        price_out_usd_per_mtok=1_000_000.0,
    )
    sampling = Sampling(temperature=0.3, max_tokens=77, stop=("\n",), top_p=0.9)
    harness = make_harness(people.project, model="the large one", sampling=sampling)
    version = make_version(people.project, fault_url, tasks=1)
    run, rollout = one_rollout(people, version, harness, model_url=ours.url)
    assert (rollout.score, ours.asked) == (1.0, [])
    body = other.asked[0].body
    assert (body["temperature"], body["max_tokens"], body["top_p"]) == (0.3, 77, 0.9)
    assert rollout.cost_usd == rollout.tokens_out > 0
    told = [each["text"] for each in run.warnings if each["code"] == "harness.model"]
    assert told == [f"{harness.short} names its model: the large one was asked, not the run's."]
    started = events(rollout.stream_id, "rollout.started")[0].payload
    assert (started["model"], started["weight_version"]) == ("the large one", "large")


def test_a_run_about_weights_asks_its_own_model(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model()
    version = make_version(people.project, fault_url, tasks=1)
    harness = make_harness(people.project, model="another")
    run, rollout = one_rollout(
        people,
        version,
        harness,
        model=make_endpoint(people.project, model.url, name="trained"),
        purpose=Purpose.TRAIN,
    )
    assert rollout.score == 1.0
    (told,) = (each["text"] for each in run.warnings if each["code"] == "harness.model")
    assert told.endswith("this run is about the weights of trained, so that was asked.")


def test_a_model_that_does_not_exist_fails_the_run_with_the_fix(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    version = make_version(people.project, fault_url, tasks=1)
    run = execute(
        make_run(
            people.project,
            version=version,
            harness=make_harness(people.project, model="gone"),
            model=make_endpoint(people.project, make_model().url, name="mine"),
        )
    )
    assert run.state == RunState.FAILED
    assert "model 'gone' is not a model of this project; it has mine." in run.error


def test_what_a_harness_says_in_vain_is_a_warning_of_the_run(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model()
    harness = make_harness(
        people.project,
        tools=({"name": "act", "description": "Move."}, {"name": "price", "description": "Ask."}),
        sampling=Sampling(temperature=0.5, max_tokens=400, stop=("\n",), top_p=0.5),
    )
    version = make_version(people.project, fault_url, tasks=3)
    run = execute(make_run(people.project, version=version, harness=harness, model_url=model.url))
    assert {rollout.score for rollout in rollouts(run)} == {1.0}
    told = [each["text"] for each in run.warnings if each["code"].startswith("harness.")]
    assert sorted(told) == [
        f"{harness.short} describes a tool 'price' in tools.json, which the environment does not "
        "have; nobody was told of it.",
        f"{harness.short} sets sampling.top_p to 0.5; the model server of Switchback samples from "
        "the whole distribution, so it was not applied.",
    ]
    assert "top_p" not in model.asked[0].body


def test_the_nearest_demonstrations_are_told_and_never_the_task_itself(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(lambda asked: FINISH)

    def shown(key: str, task: str, source: str) -> Demonstration:
        messages = ({"role": "user", "content": task}, {"role": "assistant", "content": FINISH})
        return Demonstration(key, messages, source)

    harness = make_harness(
        people.project,
        demonstrations=(
            shown("far", "Count the words of a long novel about whales.", "a"),
            shown("near", "task 7", "b"),
            shown("itself", "TASK  0.", "c"),
            shown("its key", "Task 0, please.", "t0"),
            shown("nearest", "Task 0!", "e"),
        ),
        picking=Picking(Pick.NEAREST, 2),
    )
    version = make_version(people.project, fault_url, tasks=1)
    _, rollout = one_rollout(people, version, harness, model_url=model.url)
    asked = [content for role, content in model.asked[0].messages if role == "user"]
    assert asked[:-1] == ["task 7", "Task 0!"]
    assert asked[-1].startswith("Task 0.\n")
    kept = events(rollout.stream_id, "rollout.started")[0].payload["messages"]
    assert [m["content"] for m in kept if m["role"] == "user"] == asked[:-1]
