"""A play as the author's reference transcript of its task.

Messages as an agent would have written and read them after the task's prompt: each action in a
text that the kind reads as that action, each observation as the agent reads it; what the last
action brought is left out, nobody acts on it. Only plays of train tasks: nothing that proposes a
better harness may learn from the tasks that certify it. The transcript goes into the draft of the
environment; publishing makes a version of it.
"""

from __future__ import annotations

from dataclasses import replace

from django.db import transaction

from orchestrator.environments.authoring.content import content_of, digest_of
from orchestrator.environments.authoring.drafts import start_draft
from orchestrator.environments.authoring.errors import DraftRefusedError
from orchestrator.environments.authoring.tasks import save_task
from orchestrator.environments.kinds.acting import Interface, interface_of
from orchestrator.environments.models import DraftTask, Split, Task
from orchestrator.environments.queries import latest_version
from orchestrator.environments.serving import kind_of
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.tryouts.errors import ReferenceRefused
from orchestrator.tryouts.models import Tryout
from orchestrator.tryouts.play import Play, PlayedStep
from orchestrator.tryouts.queries import play_of
from orchestrator.tryouts.wording import text_of

Messages = list[dict[str, str]]


def interface_for(tryout: Tryout) -> Interface:
    """How an agent acts in this tryout's environment."""
    return interface_of(kind_of(tryout.version), tryout.action_schema, tryout.tools)


def messages_of(play: Play, interface: Interface) -> Messages:
    """`ReferenceRefused` names the step that cannot be written, or what is missing."""
    if not play.is_done:
        raise ReferenceRefused("The episode has not ended. Play it to its end first.")
    messages: Messages = []
    for step in play.steps:
        text = text_of(interface, step.action)
        if text is None:
            raise ReferenceRefused(
                f"Step {step.number} cannot be written as an agent of this kind writes it, for "
                "instance because a command has several lines. Undo it and act otherwise."
            )
        messages.append({"role": "assistant", "content": text})
        if step is not play.steps[-1]:
            messages.append({"role": "user", "content": _read(step)})
    return messages


def _read(step: PlayedStep) -> str:
    assert step.observation is not None
    if step.observation["is_shortened"]:
        raise ReferenceRefused(
            f"The observation of step {step.number} is too long for a transcript. Undo it and ask "
            "for less."
        )
    return "".join(piece["text"] for piece in step.observation["segments"])


def why_not(tryout: Tryout, play: Play) -> str:
    """Why this play cannot be saved now; empty if it can."""
    try:
        _check_task(tryout)
        messages_of(play, interface_for(tryout))
    except ReferenceRefused as exc:
        return str(exc)
    return ""


def is_saved(tryout: Tryout, play: Play) -> bool:
    """Whether the draft's reference of this task is this very play."""
    if tryout.task is None or why_not(tryout, play):
        return False
    row = DraftTask.objects.filter(
        draft__environment_id=tryout.version.environment_id, key=tryout.task.key
    ).first()
    return row is not None and row.reference == messages_of(play, interface_for(tryout))


def _check_task(tryout: Tryout) -> Task:
    task = tryout.task
    if task is None:
        raise ReferenceRefused("This play belongs to no task of the environment.")
    if task.split != Split.TRAIN:
        raise ReferenceRefused(
            f"{task.key} is a {task.split} task. Reference transcripts exist on train tasks only: "
            "what certifies a harness must not teach it."
        )
    return task


def save_reference(*, actor: User, tryout: Tryout) -> DraftTask:
    """The play into the task's draft, which is started from the newest version where there is none.

    Raises:
        ReferenceRefused: the play is not over, not of a train task, or cannot be written down; or
            the draft has no such train task any more.
    """
    environment = tryout.version.environment
    require(actor, environment.project, Role.EDITOR)
    task = _check_task(tryout)
    messages = messages_of(play_of(tryout), interface_for(tryout))
    with transaction.atomic():
        newest = latest_version(environment.pk)
        draft = start_draft(actor=actor, environment=environment, version=newest)
        row = DraftTask.objects.filter(draft=draft, key=task.key).first()
        if row is None or row.split != Split.TRAIN or row.prompt != task.prompt:
            raise ReferenceRefused(
                f"The draft of {environment} has no train task {task.key} with this prompt any "
                "more. Publish or discard the draft and try its newest version."
            )
        content = content_of(row)
        try:
            return save_task(
                actor=actor,
                draft=draft,
                task=replace(content, reference=messages),
                key=task.key,
                seen=digest_of(content),
            )
        except DraftRefusedError as exc:
            raise ReferenceRefused(str(exc)) from exc
