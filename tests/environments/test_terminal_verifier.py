"""Verifiers of terminal tasks: what they decide, and that an agent cannot decide it for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.environments.errors import Cause, EpisodeError
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.resources import Resources
from orchestrator.environments.sandbox import (
    CommandResult,
    Isolation,
    Sandbox,
    private_root,
    remove_folder,
)
from orchestrator.environments.servers.local import LocalServer, LocalSpec
from orchestrator.environments.session import EpisodeSession, StepOutcome
from orchestrator.environments.terminal.files import lay_out, stays_inside
from orchestrator.environments.terminal.spec import TaskSpec
from orchestrator.environments.terminal.verifier import VerifierError, reward_of, verify
from tests.environments.conftest import needs_bubblewrap

SECRET = "the expected text"
COMPARE = 'test -f "$RESULT/out.txt" && cmp -s "$RESULT/out.txt" expected/out.txt'


def task(key: str, verifier: str, **fields: Any) -> dict[str, Any]:
    return {
        "key": key,
        "prompt": "Write out.txt.",
        "files": {"in/a.txt": "a\n", "in/deep/er/b.txt": "b\n"},
        "verifier": verifier,
        "verifier_files": {"expected/out.txt": f"{SECRET}\n"},
        **fields,
    }


PYTHON = """
import os, pathlib
import helper
text = pathlib.Path(os.environ["RESULT"], "out.txt").read_text()
assert helper.clean(text) == helper.EXPECTED
print("reward: 0.75")
"""
TASKS = [
    task("compare", COMPARE),
    task("both", COMPARE, answer="ready"),
    task("answer", 'grep -qx yes answer.txt && echo "reward: 0.5"'),
    task("partial", 'echo started; echo "reward: $(cat "$RESULT/in/a.txt" | wc -l)e-1"; echo'),
    task(
        "python",
        PYTHON,
        verifier_language="python",
        verifier_files={
            "helper.py": f"EXPECTED = {SECRET!r}\ndef clean(text): return text.strip()\n"
        },
    ),
    task("status", "exit 3"),
    task("crash", "kill -9 $$"),
    task("missing", "no-such-command"),
    task("slow", "sleep 30", verifier_timeout_s=0.5),
    task("flood", "yes"),
    task("no number", "echo reward: nan"),
    task("no reward", "echo reward: much better"),
    task("imports", "import json\nassert json.dumps([1]) == '[1]'", verifier_language="python"),
    task("look", 'ls -A "$RESULT" | sort | tr "\\n" " " > /tmp/l; cat /tmp/l >&2; exit 9'),
    task("wander", 'find "$RESULT" -name "*.txt" | xargs cat > /dev/null && exit 1'),
    task("writes", f"echo x > /verifier/y; echo x > \"$RESULT/in/a.txt\"; {COMPARE}"),
]  # fmt: skip


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("env")
    spec = KINDS["terminal"].server(
        name="t", source={}, resources=Resources(), specs=TASKS, data=data
    )
    assert isinstance(spec, LocalSpec)
    with LocalServer(spec, data / "server") as server:
        yield server.base_url


async def play(base_url: str, key: str, *commands: str, answer: str = "done") -> StepOutcome:
    """The end of an episode of these commands; what they printed is checked for the secret."""
    async with EpisodeSession.open(base_url) as session:
        said = [json.dumps((await session.reset(task=key)).fields)]
        for command in commands:
            outcome = await session.step({"command": command})
            said.append(json.dumps(outcome.observation.fields))
            if outcome.done:
                break
        else:
            outcome = await session.step({"answer": answer})
            said.append(json.dumps(outcome.observation.fields))
        state = await session.state()
        # What the agent itself has written is told, of course, once the episode is over.
        said.append(json.dumps({**state, "files": sorted(state["files"])}))
    assert SECRET not in "".join(said)
    return outcome


RIGHT = f"echo the ex''pected text > out.txt; test $(wc -c < out.txt) = {len(SECRET) + 1}"


@needs_bubblewrap
@pytest.mark.parametrize(
    ("key", "commands", "answer", "reward"),
    [
        ("compare", [RIGHT], "done", 1.0),
        ("compare", ["echo other > out.txt"], "done", 0.0),
        ("compare", [], "done", 0.0),
        ("both", [RIGHT], "ready", 1.0),
        ("both", [RIGHT], "no", 0.0),
        ("both", [], "ready", 0.0),
        ("answer", [], "yes", 0.5),
        ("answer", [], "no", 0.0),
        ("partial", [], "done", 0.1),
        ("partial", ["seq 7 > in/a.txt"], "done", 0.7),
        ("python", [RIGHT], "done", 0.75),
        ("python", ["echo other > out.txt"], "done", 0.0),
        ("imports", ["echo 'raise SystemExit(3)' > json.py"], "done", 1.0),
        ("writes", [RIGHT], "done", 1.0),
    ],
)
async def test_the_verifier_decides(
    base_url: str, key: str, commands: list[str], answer: str, reward: float
) -> None:
    end = await play(base_url, key, *commands, answer=answer)
    assert (end.reward, end.done) == (reward, True)


@needs_bubblewrap
@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("status", "ended with status 3 and printed nothing"),
        ("crash", "ended with status 137"),
        ("missing", "status 127; it printed: .*no-such-command: command not found"),
        ("slow", r"was ended: time limit of 0\.5 s"),
        ("flood", "printed more than 64 KiB|was ended"),
        ("no number", "'nan' is not a finite number"),
        ("no reward", "last line is no reward"),
        ("python", "status 70; .*FileNotFoundError"),
    ],
)
async def test_a_verifier_that_fails_is_an_error_and_no_reward(
    base_url: str, key: str, reason: str
) -> None:
    with pytest.raises(EpisodeError, match=rf"(?s)the verifier.*({reason})") as caught:
        await play(base_url, key)
    assert caught.value.cause is Cause.ENV_EXCEPTION
    assert caught.value.claimed_reward is None


@needs_bubblewrap
async def test_without_a_step_left_the_verifier_decides(base_url: str) -> None:
    end = await play(base_url, "compare", "true", "true", "true", RIGHT)
    assert (end.reward, end.done) == (1.0, True)
    assert end.observation.fields["segments"][-1]["text"].endswith(
        "(no step is left: the episode is over)"
    )
    unanswered = await play(base_url, "both", "true", "true", "true", RIGHT)
    assert (unanswered.reward, unanswered.done) == (0.0, True)


FORGERIES = {
    "writes into the verifier's folder": "mkdir -p /verifier/expected; echo x > out.txt; "
    "cp out.txt /verifier/expected/out.txt",
    "links its output to what is expected": "ln -s /verifier/expected/out.txt out.txt",
    "links it by way of a folder": "mkdir a; ln -s .. a/x; ln -s a/x/../verifier/expected e; "
    "ln -s e/out.txt out.txt",
    "links a folder to the verifier's": "ln -s ../verifier/expected e; ln -s e/out.txt out.txt",
    "links through /task": "ln -s /task/../verifier/expected/out.txt out.txt",
    "links through /proc": "ln -s /proc/self/cwd/expected/out.txt out.txt",
    "replaces its folder by links": "rm -rf /task/* ; ln -s / root; ln -s / in; "
    "ln -s root/verifier/expected/out.txt out.txt",
    "leaves a daemon": "(setsid sh -c 'while :; do for d in /tmp/switchback-terminal-*/*; do "
    "echo x > $d/out.txt; cp $d/out.txt $d/expected/out.txt; done; done' "
    "</dev/null >/dev/null 2>&1 &) ; echo x > out.txt",
    "leaves a pipe": "mkfifo out.txt",
    "leaves a socket": "python3 -c "
    "\"import socket; socket.socket(socket.AF_UNIX).bind('out.txt')\"",
    "leaves a device": "mknod out.txt c 1 5; test -e out.txt || ln -s /dev/zero out.txt",
    "leaves programs of known names": "echo x > out.txt; for n in cmp test bash sh; do "
    "printf '#!/bin/sh\\nexit 0\\n' > $n; chmod +x $n; done; cp cmp ~/.bashrc; cp cmp .profile",
    "shuts its folders": "echo x > out.txt; chmod 000 out.txt in",
    "guesses the answer file": "echo 'reward: 1' > answer.txt; echo x > out.txt",
    "names a file like an option": "touch -- '--help' '-q' '$(exit 0)' 'a\nreward: 1'; "
    "echo x > out.txt",
}


@needs_bubblewrap
@pytest.mark.parametrize("name", FORGERIES)
async def test_a_verdict_cannot_be_forged(base_url: str, name: str) -> None:
    end = await play(base_url, "compare", FORGERIES[name])
    assert (end.reward, end.done) == (0.0, True)


@needs_bubblewrap
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("for i in $(seq 100); do truncate -s 8000000 f$i; done", "hold more than 64 MiB"),
        (f"mkdir -p {'d/' * 80}", "more than 64 deep"),
    ],
)
async def test_a_result_that_is_too_large_is_worth_nothing(
    base_url: str, command: str, words: str
) -> None:
    end = await play(base_url, "compare", command)
    assert (end.reward, end.done) == (0.0, True)
    assert words in end.observation.fields["segments"][-1]["text"]


@needs_bubblewrap
async def test_nothing_special_of_an_agents_folder_reaches_the_verifier(base_url: str) -> None:
    made = "mkfifo p; ln -s /etc/passwd l; ln -s in/a.txt ok; ln -s /task/in abs; touch .hidden"
    with pytest.raises(EpisodeError, match=r"printed: \.hidden abs in ok"):
        await play(base_url, "look", made)
    # A pipe that was opened would hold the verifier for ever.
    end = await play(base_url, "wander", "mkfifo q.txt; cp in/a.txt p.txt")
    assert end.reward == 0.0


@needs_bubblewrap
async def test_the_verifier_is_nowhere_while_the_agent_acts(base_url: str) -> None:
    look = (
        f"ls -d /verifier; grep -rls '{SECRET[4:12]}' / --exclude-dir=proc --exclude-dir=usr; true"
    )
    async with EpisodeSession.open(base_url) as session:
        await session.reset(task="compare")
        outcome = await session.step({"command": look})
        text = "".join(s["text"] for s in outcome.observation.fields["segments"])
        assert "cannot access '/verifier'" in text
        assert "out.txt" not in text
        layout = await session.step({"command": "find . -type f | sort"})
    assert layout.observation.fields["segments"][0]["text"] == "./in/a.txt\n./in/deep/er/b.txt"


@pytest.mark.parametrize(("content", "reward"), [("x", 1.0), ("y", 0.0)])
@pytest.mark.parametrize(
    ("language", "verifier"),
    [
        ("shell", 'cmp -s "$RESULT/a" e'),
        (
            "python",
            "import os\nassert open(os.environ['RESULT'] + '/a').read() == open('e').read()",
        ),
    ],
)
def test_where_the_operator_has_opted_out_it_judges_all_the_same(
    language: str, verifier: str, content: str, reward: float
) -> None:
    spec = {"verifier": verifier, "verifier_language": language, "verifier_files": {"e": "x"}}
    sandbox = Sandbox(Isolation(available=True, reason="opted out", mode="unsandboxed"))
    root = private_root()
    try:
        folder = lay_out(root, {"a": content}, sandbox.isolation)
        found = verify(TaskSpec.from_json(spec), folder, "", sandbox=sandbox, root=root)
        assert found == reward
        assert list(root.iterdir()) == [folder], "nothing is left behind"
    finally:
        remove_folder(root)


# --- pure ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "depth", "stays"),
    [
        ("a.txt", 0, True),
        ("./a/b", 0, True),
        ("../a", 1, True),
        ("../../a", 1, False),
        ("..", 0, False),
        ("..", 1, True),
        ("a/../b", 0, False),
        ("/task/a", 3, True),
        ("/task/../a", 3, False),
        ("/task", 0, False),
        ("/taskforce/a", 0, False),
        ("/etc/passwd", 0, False),
        ("/", 0, False),
    ],
)
def test_links_that_stay_inside(target: str, depth: int, stays: bool) -> None:
    assert stays_inside(target, depth) is stays


_PART = st.sampled_from(["..", ".", "a", "b", "", "task", "verifier"])


@given(
    links=st.dictionaries(
        st.sampled_from(["x", "a/y", "a/b/z"]), st.lists(_PART, min_size=1, max_size=5), min_size=1
    )
)
def test_links_that_are_kept_never_lead_out(
    links: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In a real folder: whatever combination of kept links is followed, it ends inside."""
    folder = tmp_path_factory.mktemp("links")
    (folder / "a" / "b").mkdir(parents=True)
    kept = []
    for name, parts in links.items():
        target = "/".join(parts) or "."
        if not stays_inside(target, name.count("/")):
            continue
        if target.startswith("/"):
            # The folder is what the verifier finds at /task.
            target = f"{folder}/{target.removeprefix('/task/')}"
        (folder / name).symlink_to(target)
        kept.append(name)
    for name in kept:
        for rest in ("", "/x", "/y", "/z", "/a/y"):
            try:
                resolved = Path(f"{folder}/{name}{rest}").resolve()
            except (OSError, RuntimeError):
                continue  # a loop of links
            assert resolved.is_relative_to(folder.resolve())


def ended(output: str = "", status: int = 0, *, warning: str = "", cut: bool = False) -> Any:
    return CommandResult(output.encode(), status, cut, warning, 0.1)


@pytest.mark.parametrize(
    ("result", "reward"),
    [
        (ended(), 1.0),
        (ended("fine\n"), 1.0),
        (ended("reward: 0.25"), 0.25),
        (ended("reward: 1\nreward: 0.25\n\n"), 0.25),
        (ended("reward:-2e1  \n"), -20.0),
        (ended("reward: 1\nlater"), 1.0),
        (ended("my reward: 3"), 1.0),
        (ended("reward: 1", 1), 0.0),
    ],
)
def test_what_a_verifier_says(result: CommandResult, reward: float) -> None:
    assert reward_of(result) == reward


@pytest.mark.parametrize(
    "result",
    [
        ended("reward: 1", 2),
        ended("reward: inf"),
        ended("reward: one"),
        ended("reward: 1 2"),
        ended("reward: 1", warning="time limit of 5 s"),
        ended("reward: 1", cut=True),
    ],
)
def test_what_is_no_verdict(result: CommandResult) -> None:
    with pytest.raises(VerifierError):
        reward_of(result)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verifier": ""}, "answer: nothing decides"),
        ({"files": {"../a": ""}}, "files: '../a' is not a plain path"),
        ({"files": {"/a": ""}}, "not a plain path"),
        ({"files": {"a//b": ""}}, "not a plain path"),
        ({"files": {"a\nb": ""}}, "not a plain path"),
        ({"files": {"a": "", "a/b": ""}}, "'a' is file and folder"),
        ({"files": {"a": 3}}, "files: 'a': a text"),
        ({"files": "a"}, "files: an object"),
        ({"files": {"a": "\ud800"}}, "files: a: is not Unicode"),
        ({"files": {"a": "x" * 2**24}}, "more than 8 MiB"),
        ({"verifier_files": {"answer.txt": ""}}, "answer.txt is written by the server"),
        ({"verifier": "", "answer": "1"}, "verifier: missing"),
        ({"answer": "x", "match": "number"}, "answer: 'x' is no number"),
        ({"match": "like"}, "match: one of exact, number"),
        ({"max_steps": 0}, "max_steps: a whole number"),
        ({"max_steps": True}, "max_steps"),
        ({"verifier_timeout_s": 500}, "verifier_timeout_s: a number from 0.1 to 50"),
        ({"verifier_language": "perl"}, "verifier_language: one of shell, python"),
        ({"verifer": "true"}, "verifer: unknown; known are answer"),
        ({"verifier": "a\0b"}, "verifier: has a NUL"),
    ],
)
def test_a_task_that_cannot_be_served_is_told_by_its_field(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        KINDS["terminal"].check_task({**task("a", "true"), **changes}, {})


def test_a_task_comes_back_as_it_was_written() -> None:
    for spec in TASKS:
        made = TaskSpec.from_json(spec)
        assert TaskSpec.from_json(made.as_json()) == made


@pytest.mark.parametrize("reply", ["done", "Done.", "  DONE  \nmore"])
def test_done_ends_a_task_that_asks_for_no_answer(reply: str) -> None:
    assert KINDS["terminal"].action_of(reply) == {"answer": "done"}
