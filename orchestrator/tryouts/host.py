"""The job that holds a tryout's session and carries out its commands, in order.

A command is done in the transaction that appends what came of it, under the job's fence: a worker
that has lost its lease writes nothing any more. The environment's own failures are events; the
tryout stays open, and undo plays up to the step before. A job that finds its tryout open was not
the one that opened it: the session went with the earlier worker, which is told as a loss, never
silently played again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar

import structlog
from django.db import transaction
from django.utils import timezone

from orchestrator.environments.errors import ActionRejectedError, EpisodeError, ServerStartError
from orchestrator.environments.isolation import isolation_of
from orchestrator.environments.kinds.acting import Interface, interface_of
from orchestrator.environments.serving import episode_settings, kind_of, server_spec
from orchestrator.environments.session import Waiting
from orchestrator.events.models import Event
from orchestrator.events.services import NewEvent, append, hold_fence
from orchestrator.jobs.registry import JobContext
from orchestrator.runs.engine import servers
from orchestrator.tryouts import grading
from orchestrator.tryouts.limits import IDLE_S, LONGEST_PLAY, LONGEST_S, POLL_S
from orchestrator.tryouts.loop import LoopThread
from orchestrator.tryouts.models import (
    CommandKind,
    CommandState,
    Tryout,
    TryoutCommand,
    TryoutState,
)
from orchestrator.tryouts.play import Play, fold
from orchestrator.tryouts.services import end_tryout, lose_tryout
from orchestrator.tryouts.session import LiveEpisode, PastStep, closed_quietly, failure
from orchestrator.tryouts.wording import readable, text_of
from rubrics.codec import from_json
from rubrics.types import RubricSpec

T = TypeVar("T")
log = structlog.get_logger(__name__)

LOST_WORKER = (
    "The worker that held the session stopped. Start again: the reset and all steps are "
    "played again in a fresh session."
)


class Ended(Exception):
    """Somebody closed the tryout while its job was at work."""


def host_tryout(*, tryout: Tryout, ctx: JobContext) -> None:
    """Returns when the tryout has ended. Raises LeaseLost, Cancelled, Stopped."""
    if tryout.state == TryoutState.OPEN:
        lose_tryout(tryout=tryout, message=LOST_WORKER, fence=ctx.fence)
    if tryout.state != TryoutState.STARTING:
        return
    with ExitStack() as stack:
        try:
            Host(tryout, ctx, stack).run()
        except Ended:
            log.info("tryout closed", tryout_id=tryout.pk)
        except (ServerStartError, ValueError) as exc:
            message = f"The environment's server did not start. {exc}"
            lose_tryout(tryout=tryout, message=message, fence=ctx.fence)


class Host:
    """One attempt. Must be used in the job's own thread."""

    def __init__(self, tryout: Tryout, ctx: JobContext, stack: ExitStack) -> None:
        self._tryout, self._ctx, self._stack = tryout, ctx, stack
        version = tryout.version
        self._kind = kind_of(version)
        self._task = tryout.task
        self._settings = episode_settings(
            version, max_steps=LONGEST_PLAY, limits=self._task.limits if self._task else None
        )
        self._serving = stack.enter_context(ExitStack())
        self._loop = stack.enter_context(LoopThread())
        self._waiting: Waiting | None = None
        self._is_told = False
        self._began_s = self._used_s = time.monotonic()
        self._server = self._serving.enter_context(servers.server(server_spec(version)))
        self._episode = self._new_episode()
        self._schema: Mapping[str, Any] | None = None
        self._interface = Interface(self._kind)
        stack.callback(self._close)

    def run(self) -> None:
        self._open()
        while True:
            command = self._next_command()
            if command is not None:
                self._carry_out(command)
                self._used_s = time.monotonic()
                continue
            self._end_if_due()
            self._ctx.stop.wait(POLL_S)
            self._check()

    # --- life ----------------------------------------------------------------------------------

    def _new_episode(self) -> LiveEpisode:
        return LiveEpisode(self._server.base_url, self._settings, self._kind, self._tell_waiting)

    def _open(self) -> None:
        schema = self._wait(self._episode.schema())
        self._schema = schema
        self._interface = interface_of(self._kind, schema)
        now = timezone.now()
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            opened = Tryout.objects.filter(pk=self._tryout.pk, state=TryoutState.STARTING).update(
                state=TryoutState.OPEN,
                message="",
                action_schema=schema,
                isolation=isolation_of(self._tryout.version),
                opened_at=now,
                used_at=now,
            )
            if not opened:
                raise Ended
            self._append(
                NewEvent("tryout.started", {"task": self._task.key if self._task else None})
            )

    def _end_if_due(self) -> None:
        now_s = time.monotonic()
        if now_s - self._began_s >= LONGEST_S:
            minutes = round(LONGEST_S / 60)
            reason, text = "limit", f"A try-out is open for at most {minutes} minutes."
        elif now_s - self._used_s >= IDLE_S:
            minutes = round(IDLE_S / 60)
            reason, text = "idle", f"Nothing was asked for in {minutes} minutes."
        else:
            return
        message = f"{text} Start again: the reset and all steps are played again."
        end_tryout(tryout=self._tryout, reason=reason, message=message, fence=self._ctx.fence)
        raise Ended

    def _check(self) -> None:
        self._ctx.check()
        is_open = Tryout.objects.filter(
            pk=self._tryout.pk, state__in=(TryoutState.STARTING, TryoutState.OPEN)
        ).exists()
        if not is_open:
            raise Ended
        if (waiting := self._waiting) is not None:
            self._waiting = None
            event = {"active": waiting.active, "maximum": waiting.maximum}
            self._record(NewEvent("tryout.waiting", event))

    def _close(self) -> None:
        try:
            self._loop.run(closed_quietly(self._episode), check=lambda: None)
        except TimeoutError:
            log.warning("tryout's session did not close", tryout_id=self._tryout.pk)

    # --- commands ------------------------------------------------------------------------------

    def _next_command(self) -> TryoutCommand | None:
        return (
            TryoutCommand.objects.filter(tryout=self._tryout, state=CommandState.PENDING)
            .order_by("id")
            .first()
        )

    def _carry_out(self, command: TryoutCommand) -> None:
        self._check()
        self._is_told = False
        actions: dict[str, Callable[[TryoutCommand], None]] = {
            CommandKind.RESET: self._reset,
            CommandKind.STEP: self._step,
            CommandKind.UNDO: self._undo,
            CommandKind.REPLAY: self._replay_all,
            CommandKind.STATE: self._state,
            CommandKind.GRADE: self._grade,
        }
        actions[command.kind](command)

    def _reset(self, command: TryoutCommand) -> None:
        self._renew_server()
        try:
            payload = self._wait(self._episode.reset(command.payload["params"]))
        except EpisodeError as exc:
            self._done(command, NewEvent("tryout.failed", failure(0, exc)))
        except ValueError as exc:
            self._refuse(command, str(exc))
        else:
            self._learn_tools()
            self._done(command, NewEvent("tryout.reset", payload))

    def _step(self, command: TryoutCommand) -> None:
        action = command.payload["action"]
        if reason := self._why_no_step():
            self._refuse(command, reason)
            return
        number = len(self._episode.taken) + 1
        # Committed before it is sent, so that a loss in between is seen on the page.
        seq = self._record(NewEvent("tryout.action", {"step": number, "action": action}))
        text = self._said(action)
        try:
            payload = self._wait(self._episode.step(action, text=text, seq=seq))
        except ActionRejectedError as exc:
            self._refuse(command, str(exc), action)
        except EpisodeError as exc:
            self._done(command, NewEvent("tryout.failed", failure(number, exc)))
        else:
            self._done(command, NewEvent("tryout.observation", payload), *self._graded([number]))

    def _said(self, action: Mapping[str, Any]) -> str:
        """What an agent would have said to act like this."""
        return text_of(self._interface, action) or readable(action)

    def _learn_tools(self) -> None:
        """An episode that has begun says which tools there are."""
        tools = self._episode.tools
        if tools == self._tryout.tools:
            return
        self._tryout.tools = tools
        self._interface = interface_of(self._kind, self._schema, tools)
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            Tryout.objects.filter(pk=self._tryout.pk).update(tools=tools)

    def _why_no_step(self) -> str:
        if self._episode.is_done:
            return "The episode is over. Undo a step or reset it."
        if self._episode.failure:
            return "No episode is running. Reset it, or undo the step that failed."
        if not self._episode.has_begun:
            return "Reset the environment first."
        if len(self._episode.taken) >= LONGEST_PLAY:
            return f"An episode by hand has at most {LONGEST_PLAY} steps. Undo some or reset it."
        return ""

    def _undo(self, command: TryoutCommand) -> None:
        play = self._play()
        n = int(command.payload["steps"])
        if play.reset is None or not 1 <= n <= len(play.steps):
            self._refuse(command, "There is no step to undo.")
            return
        self._replay(command, play, len(play.steps) - n, reason="undo")

    def _replay_all(self, command: TryoutCommand) -> None:
        play = self._play()
        if play.reset is None:
            self._refuse(command, "There was no episode to play again. Reset the environment.")
            return
        standing = [step for step in play.steps if step.observation is not None]
        self._replay(command, play, len(standing), reason="restart")

    def _replay(self, command: TryoutCommand, play: Play, keep: int, *, reason: str) -> None:
        """The first `keep` steps again in a fresh session; undone are the others."""
        assert play.reset is not None
        self._renew_server()
        steps = [
            PastStep(
                action=step.action,
                payload=step.observation,
                text=self._said(step.action),
                seq=step.seq,
            )
            for step in play.steps[:keep]
            if step.observation is not None
        ]
        started_s = time.monotonic()
        result = self._wait(self._episode.replay(play.params, play.reset, steps))
        if not self._episode.has_begun:
            event = {"step": 0, "cause": "replay", "message": result.stopped, "raw": ""}
            self._done(command, NewEvent("tryout.failed", event))
            return
        self._learn_tools()
        event = {
            "reason": reason,
            "undone": len(play.steps) - keep,
            "steps": len(self._episode.taken),
            "differences": result.found,
            "observations": result.changed,
            "stopped": result.stopped,
            "latency_s": round(time.monotonic() - started_s, 3),
        }
        is_same = not result.found and not result.stopped
        again = [] if is_same else self._graded(range(1, len(self._episode.taken) + 1))
        self._done(command, NewEvent("tryout.replayed", event), *again)

    def _state(self, command: TryoutCommand) -> None:
        if not self._episode.has_begun:
            self._refuse(command, "Reset the environment first.")
            return
        try:
            text = self._wait(self._episode.state())
        except (EpisodeError, RuntimeError) as exc:
            message = exc.message if isinstance(exc, EpisodeError) else str(exc)
            self._refuse(command, f"The environment does not tell its state: {message}")
        else:
            payload = {"step": len(self._episode.taken), "state": text}
            self._done(command, NewEvent("tryout.state", payload))

    def _grade(self, command: TryoutCommand) -> None:
        self._tryout.refresh_from_db(fields=["rubric_version"])
        self._done(command, *self._graded(range(1, len(self._episode.taken) + 1)))

    # --- grading -------------------------------------------------------------------------------

    def _graded(self, numbers: Sequence[int]) -> list[NewEvent]:
        """The rubric's breakdown after each of these steps; nothing without a rubric."""
        version = self._tryout.rubric_version
        if version is None:
            return []
        spec = from_json(version.spec)
        return [self._breakdown(spec, str(version), number) for number in numbers]

    def _breakdown(self, spec: RubricSpec, rubric: str, number: int) -> NewEvent:
        taken = self._episode.taken[:number]
        transcript = grading.transcript_of(
            [item.step for item in taken],
            is_sum=self._episode.settings.reward_aggregate == "sum",
            wall_s=sum(item.payload["latency_s"] for item in taken),
        )
        if (task := self._task) is not None:
            transcript = replace(
                transcript,
                task=task.prompt,
                labels={"family": task.family},
                expected=task.spec.get("answer"),
            )
        verdicts, score = grading.breakdown(spec, transcript, is_over=taken[-1].step.done)
        shown, total = grading.as_json(spec, verdicts, score)
        return NewEvent(
            "tryout.graded", {"step": number, "rubric": rubric, "verdicts": shown, "score": total}
        )

    # --- the record ----------------------------------------------------------------------------

    def _play(self) -> Play:
        return fold(Event.objects.filter(stream_id=self._tryout.stream_id).order_by("seq"))

    def _done(self, command: TryoutCommand, *events: NewEvent) -> None:
        self._finish(command, CommandState.DONE, "", events)

    def _refuse(self, command: TryoutCommand, reason: str, action: Any = None) -> None:
        event = NewEvent(
            "tryout.refused", {"command": command.kind, "action": action, "reason": reason}
        )
        self._finish(command, CommandState.REFUSED, reason, [event])

    def _finish(
        self, command: TryoutCommand, state: CommandState, reason: str, events: Sequence[NewEvent]
    ) -> None:
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            TryoutCommand.objects.filter(pk=command.pk).update(state=state, reason=reason)
            Tryout.objects.filter(pk=self._tryout.pk).update(used_at=timezone.now())
            if events:
                self._append(*events)
        self._ctx.progress()

    def _record(self, event: NewEvent) -> int:
        with transaction.atomic():
            return self._append(event)

    def _append(self, *events: NewEvent) -> int:
        return append(stream_id=self._tryout.stream_id, items=events, fence=self._ctx.fence)

    # --- the session ---------------------------------------------------------------------------

    def _renew_server(self) -> None:
        """A server that died is started again before the next episode."""
        if self._server.is_alive:
            return
        self._serving.close()
        self._server = self._serving.enter_context(
            servers.server(server_spec(self._tryout.version))
        )
        self._episode = self._new_episode()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work, check=self._check)

    async def _tell_waiting(self, waiting: Waiting) -> None:
        """Kept for the job's thread, which tells it once for each start of an episode."""
        if not self._is_told:
            self._is_told, self._waiting = True, waiting
