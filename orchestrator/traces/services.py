"""Takes events from outside into the log: each accepted, a resend, or refused with its reason.

What is accepted is committed before the answer. Events of one rollout are written by one caller at
a time: the row of its stream is locked first. A rollout from outside belongs to the run *Imported
traces* of its project, so that lists, the trace page, search, grading and exports know it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.utils import timezone

from optimizer.harness import Harness
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion, Task
from orchestrator.environments.services import NewTask, create_version
from orchestrator.events.models import Stream
from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.projects.models import Project
from orchestrator.runs.models import Purpose, Rollout, RolloutState, Run, RunState
from orchestrator.traces.exact import Number, dump, leaves, parse
from orchestrator.traces.models import OutsideEvent, OutsideRollout, RefusedItem
from orchestrator.traces.reading import PREVIEW_CHARS, Item, Refused, flags_of, instant
from orchestrator.traces.refusals import run_key
from rubrics.models import Rubric
from rubrics.versions import create_rubric_version

KIND = "outside"
"""Kind of these events in the log."""
NAME = "Imported traces"
NOT_GRADED = "It came from outside and has not been graded."
_DATA_URL_CHARS = 400_000
_SAID_CHARS = 20_000
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""What no text column takes."""
Resolve = Callable[[str], Project | None]
"""The project that an event names, if whoever sends it may write there."""


@dataclass
class Outcome:
    accepted: int = 0
    duplicate: int = 0
    rejected: list[Refused] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "accepted": self.accepted,
            "duplicate": self.duplicate,
            "rejected": [refused.as_json() for refused in self.rejected],
        }


def ingest(
    *, project: Project, items: Iterable[Item | Refused], resolve: Resolve | None = None
) -> Outcome:
    """Stores what can be stored; one transaction per rollout. Raises django.db.Error."""
    outcome = Outcome()
    groups: dict[tuple[int, str], list[Item]] = defaultdict(list)
    projects = {project.pk: project}
    refused: list[tuple[int, Refused, str]] = []
    for item in items:
        if isinstance(item, Refused):
            refused.append((project.pk, item, ""))
            continue
        target = _target(item, project, resolve)
        if target is None:
            text = "no such project, or no right to write there"
            refused.append((project.pk, _refusal(item, "unknown_project", text), ""))
            continue
        projects[target.pk] = target
        groups[target.pk, dump(item.event["rollout"])].append(item)
    for (project_id, name), events in groups.items():
        with transaction.atomic():
            owner = _owner(projects[project_id], name)
            refused += [(project_id, *pair) for pair in _stored(owner, events, outcome)]
    with transaction.atomic():
        RefusedItem.objects.bulk_create(
            RefusedItem(
                project_id=project_id,
                index=item.index,
                reason_kind=item.reason_kind,
                detail=item.detail,
                body=item.body if item.body.isascii() else json.dumps(item.body),
                stored_body=stored,
            )
            for project_id, item, stored in refused
        )
    outcome.rejected = sorted((item for _, item, _ in refused), key=lambda item: item.index)
    return outcome


def _target(item: Item, project: Project, resolve: Resolve | None) -> Project | None:
    named = item.event.get("project")
    if named in (None, ""):
        return project
    if not isinstance(named, str) or resolve is None:
        return None
    return resolve(named)


def _refusal(item: Item, reason: str, detail: str) -> Refused:
    external = item.event["id"]
    shown = external if isinstance(external, str) else dump(external)
    return Refused(item.index, reason, detail, shown, item.body)


def _stored(
    owner: OutsideRollout, items: Sequence[Item], outcome: Outcome
) -> list[tuple[Refused, str]]:
    stream_id = owner.rollout.stream_id
    Stream.objects.select_for_update().get(pk=stream_id)
    keys = [digest(dump(item.event["id"])) for item in items]
    known = dict(OutsideEvent.objects.filter(owner=owner, key__in=keys).values_list("key", "body"))
    fresh: list[tuple[str, Item]] = []
    refused = []
    for key, item in zip(keys, items, strict=True):
        stored = known.get(key)
        if stored is None:
            known[key] = item.body
            fresh.append((key, item))
        elif stored == item.body or parse(stored) == parse(item.body):
            outcome.duplicate += 1
        else:
            text = "an event of this id has other content; the first one stays"
            refused.append((_refusal(item, "id_conflict", text), stored))
    if not fresh:
        return refused
    rows, events = [], []
    for key, item in fresh:
        row, event = _made(owner, key, item)
        rows.append(row)
        events.append(event)
    last = append(stream_id=stream_id, items=events)
    for seq, row in enumerate(rows, start=last - len(rows) + 1):
        row.seq = seq
    OutsideEvent.objects.bulk_create(rows, batch_size=200)
    outcome.accepted += len(rows)
    answer = _UNSTORABLE.sub("\ufffd", events[-1].payload["said"])
    Rollout.objects.filter(pk=owner.rollout_id).update(
        n_steps=min(32_767, last), answer=answer, ended_at=timezone.now()
    )
    return refused


def _made(owner: OutsideRollout, key: str, item: Item) -> tuple[OutsideEvent, NewEvent]:
    event = item.event
    started, started_flags = instant(event.get("started_at"))
    ended, ended_flags = instant(event.get("ended_at"))
    flags = sorted(flags_of(event) | started_flags | ended_flags)
    parent = event.get("parent")
    row = OutsideEvent(
        owner=owner,
        key=key,
        parent_key="" if parent in (None, "") else digest(dump(parent)),
        position=item.seq,
        body=item.body,
        started_at=started,
        ended_at=ended,
        flags=flags,
    )
    hidden = [0]

    def shortened(text: str) -> str:
        limit = _DATA_URL_CHARS if text.startswith("data:") else PREVIEW_CHARS
        hidden[0] += max(0, len(text) - limit)
        return text[:limit]

    said = said_in(event.get("content"))
    payload = {
        "name": item.text("kind"),
        "body": dump(event, shortened),
        "said": said[:_SAID_CHARS],
        "hidden_chars": hidden[0],
        "flags": flags,
        "position": item.seq,
    }
    searched = [event.get("kind"), event.get("name"), event.get("content"), event.get("data")]
    words = [leaf.token if isinstance(leaf, Number) else leaf for leaf in leaves(searched)]
    return row, NewEvent(KIND, payload, search=words)


def said_in(content: Any) -> str:
    """Content as a judge reads it: a text as it is, anything else as JSON."""
    if isinstance(content, str):
        return content
    return "" if content is None else dump(content)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# The run that rollouts from outside belong to


def _owner(project: Project, name: str) -> OutsideRollout:
    key = digest(name)
    found = OutsideRollout.objects.select_related("rollout").filter(project=project, key=key)
    if owner := found.first():
        return owner
    # Two callers that bring the same rollout wait for one another here.
    Project.objects.select_for_update().get(pk=project.pk)
    if owner := found.first():
        return owner
    run = _run(project)
    harness = store_harness(
        project_id=project.pk,
        harness=Harness(instructions="Unknown: the traces came from outside.\n"),
        label=NAME,
    )
    shown = json.loads(name)
    label = shown if isinstance(shown, str) and shown.isprintable() else name
    task = _task(run.environment_version, label, key)
    rollout = Rollout.objects.create(
        run=run,
        stream=create_stream(project=project, kind="rollout"),
        harness=harness,
        task=task,
        seed=0,
        state=RolloutState.NOT_APPLICABLE,
        attempt=1,
        message=NOT_GRADED,
        started_at=timezone.now(),
    )
    return OutsideRollout.objects.create(project=project, key=key, name=name, rollout=rollout)


def _task(version: EnvironmentVersion, label: str, key: str) -> Task:
    is_taken = len(label) > 64 or Task.objects.filter(version=version, key=label).exists()
    name = f"{label[:50]}-{key[:12]}" if is_taken else label
    return Task.objects.create(version=version, key=name, split="train", prompt="")


def _run(project: Project) -> Run:
    name = run_key(project.pk)
    if run := Run.objects.filter(key=name).first():
        return run
    environment, _ = Environment.objects.get_or_create(
        project=project,
        slug="imported-traces",
        defaults={
            "name": NAME,
            "kind": EnvironmentKind.URL,
            "description": "Where traces came from that others produced; nothing can be run here.",
        },
    )
    version = environment.versions.first() or create_version(
        environment=environment,
        source={"base_url": "http://imported.invalid"},
        settings={},
        tasks=[NewTask(key="imported", split="train", prompt="")],
    )
    rubric, _ = Rubric.objects.get_or_create(project=project, name=NAME)
    spec = {"criteria": [{"id": "reward", "kind": "environment_reward", "weight": 1}]}
    model, _ = ModelEndpoint.objects.get_or_create(
        project=project, name=NAME, defaults={"kind": EndpointKind.OPENAI, "model": "unknown"}
    )
    now = timezone.now()
    return Run.objects.create(
        project=project,
        stream=create_stream(project=project, kind="run"),
        key=name,
        purpose=Purpose.EVALUATE,
        label=NAME,
        state=RunState.COMPLETED_UNSCORED,
        environment_version=version,
        rubric_version=create_rubric_version(rubric=rubric, spec=spec),
        model=model,
        started_at=now,
        ended_at=now,
    )
