"""The verdict of a command of the author's on what an agent has left.

It runs when the episode is over, in a fresh sandbox that the agent has never been in: `/task` holds
a copy of the agent's folder (also in `$RESULT`), `/verifier` the author's files, read-only, and
`answer.txt` with the agent's answer; `/verifier` is the working directory, so that nothing of the
agent's is imported or sourced by accident. Nothing of `/verifier` exists while the agent acts.

What counts, for a command in shell:

- status 0 with a last line `reward: x`: x, a finite number;
- status 0 without one: 1; status 1: 0;
- everything else (another status, a signal, the time limit, too much output): no verdict, an error.

In Python, `assert` that fails is status 1, any other exception is an error.

A verifier that runs programs which the agent wrote gives them its own rights: they could print a
last line. Capture their output and print the verdict after them.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

from orchestrator.environments.errors import SandboxError
from orchestrator.environments.sandbox import TASK_FOLDER, CommandResult, Sandbox, remove_folder
from orchestrator.environments.sandbox.limits import Limits
from orchestrator.environments.terminal.files import copy_result, lay_out
from orchestrator.environments.terminal.spec import ANSWER_FILE, TaskSpec

FOLDER = "/verifier"
SCRIPTS = {"shell": ".verifier.sh", "python": ".verifier.py"}
RUNNER = ".runner.py"
OUTPUT_BYTES = 64 * 2**10
MAX_COPY_BYTES = 64 * 2**20
TOLD_CHARS = 300
_REWARD = re.compile(r"reward:\s*(\S+)")
_ASSERTION_STATUS, _EXCEPTION_STATUS = 1, 70
_RUNNER = f"""
import os, sys, traceback
sys.path.insert(0, os.getcwd())
sys.argv = ["verifier"]
try:
    with open({SCRIPTS["python"]!r}, encoding="utf-8") as file:
        code = compile(file.read(), "verifier", "exec")
    exec(code, {{"__name__": "__main__"}})
except AssertionError:
    traceback.print_exc()
    sys.exit({_ASSERTION_STATUS})
except SystemExit:
    raise
except BaseException:
    traceback.print_exc()
    sys.exit({_EXCEPTION_STATUS})
"""


class VerifierError(SandboxError):
    """No verdict. The message says why and ends with the last of what the verifier printed."""


def verify(
    task: TaskSpec, agent_folder: Path, answer: str, *, sandbox: Sandbox, root: Path
) -> float:
    """The reward. Blocks for at most `task.verifier_timeout_s` and the time to copy.

    `VerifierError` without a verdict, `ResultTooLargeError` if the agent has left too much.
    """
    isolation = sandbox.isolation
    script = SCRIPTS[task.verifier_language]
    files = {**task.verifier_files, ANSWER_FILE: answer, script: task.verifier, RUNNER: _RUNNER}
    folders: list[Path] = []
    try:
        own = lay_out(root, files, isolation)
        folders.append(own)
        copy = copy_result(agent_folder, root, isolation, max_bytes=MAX_COPY_BYTES)
        folders.append(copy)
        is_apart = isolation.mode == "bubblewrap"
        result_path, own_path = (TASK_FOLDER, FOLDER) if is_apart else (str(copy), str(own))
        judge = replace(
            sandbox,
            limits=_limits(task),
            egress=None,
            shares_network=False,
            readable=((str(own), FOLDER),) if is_apart else (),
        )
        result = judge.run(_command(task, result_path, own_path), copy)
    finally:
        for folder in folders:
            remove_folder(folder)
    return reward_of(result)


def reward_of(result: CommandResult) -> float:
    """See the module's text. `VerifierError` if it is no verdict."""
    output = result.output.decode("utf-8", errors="replace")
    if result.is_truncated:
        raise VerifierError(f"the verifier printed more than {OUTPUT_BYTES // 1024} KiB")
    if result.warning:
        raise VerifierError(_with_output(f"the verifier was ended: {result.warning}", output))
    if result.exit_status == _ASSERTION_STATUS:
        return 0.0
    if result.exit_status != 0:
        raise VerifierError(
            _with_output(f"the verifier ended with status {result.exit_status}", output)
        )
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
    found = _REWARD.fullmatch(last)
    if found is None:
        if last.lower().startswith("reward:"):
            raise VerifierError(_with_output("the verifier's last line is no reward", output))
        return 1.0
    try:
        value = float(found[1])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise VerifierError(f"the verifier's reward {found[1]!r:.80} is not a finite number")
    return value


def _command(task: TaskSpec, result_path: str, own_path: str) -> str:
    script = SCRIPTS[task.verifier_language]
    start = f"export RESULT='{result_path}'; cd '{own_path}' || exit 71"
    if task.verifier_language == "python":
        return f"{start}; exec python3 -I {RUNNER}"
    return f"{start}; exec /bin/bash --noprofile --norc {script}"


def _limits(task: TaskSpec) -> Limits:
    return Limits(
        wall_s=task.verifier_timeout_s,
        cpu_s=math.ceil(task.verifier_timeout_s),
        memory_bytes=512 * 2**20,
        tree_memory_bytes=512 * 2**20,
        folder_bytes=2 * MAX_COPY_BYTES,
        output_bytes=OUTPUT_BYTES,
    )


def _with_output(text: str, output: str) -> str:
    said = output.strip()[-TOLD_CHARS:]
    return f"{text}; it printed: {said}" if said else f"{text} and printed nothing"
