"""Rollouts outside the database: the model server, the environment, and the agent between them.

The same pieces as in a run: token-exact conversations, OpenEnv episodes, the terminal's own action
and observation texts. Rows have the form of `training.rows`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from orchestrator.agents.client import Endpoint, LocalModel, ModelClient
from orchestrator.agents.conversation import TokenConversation
from orchestrator.agents.errors import ModelError
from orchestrator.agents.types import Sampling, Segment, TokenTrack
from orchestrator.environments.episode import Actions, EpisodeState, View, run_episode
from orchestrator.environments.errors import Cause
from orchestrator.environments.kinds.terminal import TerminalKind
from orchestrator.environments.limits import EpisodeSettings
from orchestrator.environments.terminal.spec import TaskSpec
from orchestrator.reproduction.cells import MAX_TOKENS
from orchestrator.reproduction.world import World
from orchestrator.runs.seeds import derive_seed
from training.tokenizer import ChatTokenizer
from training.tokenizer import Segment as Piece

BASE = "base"
IN_FLIGHT = 32
START_LIMIT_S = 300.0
OWN_FAULT = frozenset({Cause.ACTION_REJECTED})
"""Ends that are the agent's doing: the attempt has not solved its task."""


@dataclass(frozen=True)
class Policy:
    """Weights to sample with: a name that is never used for others, and the adapter's folder."""

    name: str = BASE
    folder: str = ""


@dataclass(frozen=True)
class Attempt:
    """One rollout."""

    task: str
    reward: float | None
    """None: no verdict."""
    is_own_fault: bool
    """Without a verdict, because the agent said what the environment does not take."""
    reason: str
    track: TokenTrack

    @property
    def solved(self) -> float | None:
        """1 or 0; None if the machinery failed, which is no result."""
        return 0.0 if self.reward is None and self.is_own_fault else self.reward

    def row(self, *, rollout: str, weight_version: str) -> dict[str, Any]:
        """A record of `training.rows`."""
        status = "ok" if self.reward is not None else "failed"
        if self.reward is None and not self.is_own_fault:
            status = "infrastructure"
        sampled = iter(self.track.logprobs)
        kinds = list(self.track.kinds)
        return {
            "rollout": rollout,
            "group": self.task,
            "reward": self.reward,
            "status": status,
            "ids": list(self.track.ids),
            "kinds": kinds,
            "logprobs": [next(sampled) if kind == "action" else 0.0 for kind in kinds],
            "weight_version": weight_version,
        }


class ModelServer:
    """`training.serve` as a child process on a free port; it dies with this process."""

    def __init__(self, model: Path, *, port: int, threads: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        self._command = [
            *(sys.executable, "-m", "training.serve", "--model", str(model), "--name", BASE),
            *("--port", str(port), "--threads", str(threads), "--max-adapters", "3"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=Path(__file__).resolve().parents[2],
            )
        deadline = time.monotonic() + START_LIMIT_S
        while not self._answers():
            if self._process.poll() is not None:
                raise RuntimeError(f"the model server did not start; see {self._log}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the model server did not answer within {START_LIMIT_S:g} s")
            self._wait(0.2)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2.0, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def _wait(self, seconds: float) -> None:
        assert self._process is not None
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return


class Player:
    """Plays tasks of one world with the weights that it is told."""

    def __init__(self, world: World, *, model_url: str, environment_url: str) -> None:
        self._world = world
        self._model_url = model_url
        self._environment_url = environment_url

    def play(
        self,
        tasks: Sequence[TaskSpec],
        policy: Policy,
        *,
        temperature: float,
        seeds: Sequence[int],
    ) -> list[Attempt]:
        """One attempt per task and seed, in their order. Blocks."""
        return asyncio.run(self._play(tasks, policy, temperature, seeds))

    async def _play(
        self,
        tasks: Sequence[TaskSpec],
        policy: Policy,
        temperature: float,
        seeds: Sequence[int],
    ) -> list[Attempt]:
        endpoint = Endpoint(self._model_url, policy.name, adapter_path=policy.folder)
        sampling = Sampling(temperature=temperature, max_tokens=MAX_TOKENS, stop=("\n",))
        gate = asyncio.Semaphore(IN_FLIGHT)
        async with ModelClient(endpoint, retry_for_s=900.0) as client:

            async def one(task: TaskSpec, seed: int) -> Attempt:
                async with gate:
                    return await self._attempt(LocalModel(client), sampling, task, seed)

            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(one(task, seed))
                    for task, seed in zip(tasks, seeds, strict=True)
                ]
            return [each.result() for each in running]

    async def _attempt(
        self, model: LocalModel, sampling: Sampling, task: TaskSpec, seed: int
    ) -> Attempt:
        conversation = TokenConversation(model, sampling)
        agent = _Agent(conversation, self._world.messages(task), seed)
        settings = EpisodeSettings(
            max_steps=task.max_steps,
            step_timeout_s=300.0,
            reset_timeout_s=300.0,
            slot_wait_s=900.0,
            episode_timeout_s=3600.0,
            reward_range=(0.0, 1.0),
        )
        try:
            result = await run_episode(
                self._environment_url, agent, settings, reset={"task": task.key}
            )
        except ModelError as error:
            return _attempt_of(task, conversation, None, reason=error.message)
        reward = result.reward if result.state is EpisodeState.SCORED else None
        is_own = result.state is not EpisodeState.SCORED and result.cause in OWN_FAULT
        return _attempt_of(task, conversation, reward, is_own_fault=is_own, reason=result.message)


def _attempt_of(
    task: TaskSpec,
    conversation: TokenConversation,
    reward: float | None,
    *,
    is_own_fault: bool = False,
    reason: str = "",
) -> Attempt:
    tracks = conversation.tracks()
    track = tracks[0] if tracks else TokenTrack()
    return Attempt(task.key, reward, is_own_fault, reason, track)


class _Agent:
    """From what the environment shows to the next action."""

    def __init__(
        self, conversation: TokenConversation, messages: Sequence[dict[str, Any]], seed: int
    ) -> None:
        self._conversation = conversation
        self._messages = messages
        self._seed = seed
        self._turns = 0
        self._kind = TerminalKind()

    async def __call__(self, view: View) -> Actions:
        if self._turns == 0:
            await self._conversation.start(self._messages)
        elif view.rejection:
            await self._conversation.observe([Segment("warning", f"({view.rejection})")])
        else:
            pieces = self._kind.segments(view.observation)
            await self._conversation.observe([Segment(p["kind"], p["text"]) for p in pieces])
        self._turns += 1
        seed = derive_seed(self._seed, self._turns)
        completion = await self._conversation.act(seed=seed)
        return self._kind.action_of(completion.text)


def author_rows(world: World, tokenizer: ChatTokenizer) -> list[dict[str, Any]]:
    """The pool: author's transcripts under the harness, as rows that nothing is trained on."""
    return [_author_row(world, tokenizer, task) for task in world.pool]


def _author_row(world: World, tokenizer: ChatTokenizer, task: TaskSpec) -> dict[str, Any]:
    start = tokenizer.encode_messages(world.messages(task))
    ids, kinds = list(start.ids), ["context"] * len(start.ids)
    for message in task.reference:
        if message["role"] == "assistant":
            action = [*tokenizer.encode(message["content"]), tokenizer.eos_id]
            ids += action
            kinds += ["action"] * len(action)
        else:
            # Commands of authors print something and end with status 0: all of it is output.
            bridge = tokenizer.encode_bridge(
                [Piece("env_output", message["content"])], sampled_eos=True
            )
            ids += bridge.ids
            kinds += bridge.kinds
    return {
        "rollout": f"author-{task.key}",
        "group": task.key,
        "reward": 1.0,
        "status": "ok",
        "ids": ids,
        "kinds": kinds,
        "logprobs": None,
        "weight_version": "author",
    }
