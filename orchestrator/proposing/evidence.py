"""What a reflector may read of a search: rollouts on train tasks, with what the graders said.

Scores and criteria are those that the search learns from: what is barred is in neither. Nothing is
taken from select or test tasks but what the linter needs to refuse a copy of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.edits import Edit
from optimizer.lint import HeldOut
from optimizer.models import Search
from optimizer.operators.evidence import SUCCESS, Judgement, Step, Trace
from optimizer.reflection import Grave, Mode, chosen
from orchestrator.environments.models import Split, Task
from orchestrator.events.models import Event
from orchestrator.grading.policies import rewards
from orchestrator.runs.acting import expected_in
from orchestrator.runs.models import Rollout, RolloutState, VerdictRecord
from orchestrator.runs.transcripts import transcripts_of
from rubrics.codec import from_json
from rubrics.types import Criterion, Transcript
from rubrics.types import Step as TranscriptStep

UNREAD = ("preflight", "recheck", "test")
"""Phases of runs that nobody learns from."""
MAX_READ = 60
"""Rollouts whose logs are read to choose among."""


def success_of(search: Search) -> float:
    """Score from which a rollout counts as passed."""
    if search.rubric_version is None:
        return SUCCESS
    return min(SUCCESS, from_json(search.rubric_version.spec).pass_threshold)


def traces_for(
    search: Search, *, mode: Mode, failed: int, passed: int, seed: int, told: Sequence[int] = ()
) -> list[Trace]:
    """The traces of a question. `told`: rollouts that stood in earlier ones; of those that failed,
    others come first.
    """
    success = success_of(search)
    rollouts = _rollouts(search)
    old = set(told)
    scores = rewards(rollouts, left_out_of(search))

    def bare(rollout: Rollout) -> Trace:
        return Trace(
            task=rollout.task.key,
            messages=[],
            stratum=rollout.task.family,
            score=scores[rollout.pk],
            source=source_of(rollout),
        )

    failures = {r.pk for r in rollouts if bare(r).has_failed(success)}
    if failures - old:
        rollouts = [r for r in rollouts if r.pk not in failures & old]
    pool = {source_of(r): r for r in rollouts}
    light = [bare(rollout) for rollout in pool.values()]
    if mode is Mode.TOOLS:  # the calls stand in the logs alone
        read = sorted(light, key=lambda trace: trace.score or 0.0)[:MAX_READ]
    else:
        read = chosen(light, mode=mode, failed=failed, passed=passed, success=success, seed=seed)
    traces = traces_of(search, [pool[trace.source] for trace in read], scores)
    return chosen(traces, mode=mode, failed=failed, passed=passed, success=success, seed=seed)


def traces_of(
    search: Search, rollouts: Sequence[Rollout], scores: Mapping[int, float | None] | None = None
) -> list[Trace]:
    """In their order, read from the logs."""
    left_out = left_out_of(search)
    scores = rewards(rollouts, left_out) if scores is None else scores
    transcripts = transcripts_of(rollouts)
    verdicts: dict[int, list[VerdictRecord]] = {}
    for record in VerdictRecord.objects.filter(rollout__in=rollouts).order_by("id"):
        if record.criterion not in left_out:
            verdicts.setdefault(record.rollout_id, []).append(record)
    loaded = _skills_loaded(rollouts)
    criteria = _criteria(search)
    return [
        _trace(
            rollout,
            transcripts[rollout.pk],
            scores[rollout.pk],
            [_judgement(record, criteria) for record in verdicts.get(rollout.pk, ())],
            loaded.get(rollout.stream_id, []),
        )
        for rollout in rollouts
    ]


def rollouts_by_id(search: Search, ids: Sequence[int]) -> list[Rollout]:
    found = {rollout.pk: rollout for rollout in _rollouts(search)}
    return [found[pk] for pk in ids if pk in found]


def source_of(rollout: Rollout) -> str:
    return f"rollout {rollout.pk}"


def ran_with(search: Search, rollouts: Sequence[Rollout]) -> dict[str, list[Edit]]:
    """By source of a trace: the edits of its harness, where that is not the seed."""
    edits = {row.sha256: Edit.from_json(row.data) for row in search.edits.all()}
    sets = dict(search.candidates.exclude(edits=[]).values_list("harness_id", "edits"))
    found = {}
    for rollout in rollouts:
        known = [edits[sha] for sha in sets.get(rollout.harness_id, ()) if sha in edits]
        if known:
            found[source_of(rollout)] = known
    return found


def left_out_of(search: Search) -> dict[str, str]:
    """Criteria that nothing is learned from, as the search began with them."""
    first = search.search_runs.exclude(phase__in=UNREAD).order_by("id").first()
    return first.left_out if first else {}


def graves_of(search: Search) -> list[Grave]:
    """The oldest first."""
    return [
        Grave(Edit.from_json(row.edit), row.reason, row.support)
        for row in search.tombstones.order_by("id")
    ]


def held_out_of(search: Search) -> HeldOut:
    tasks = list(Task.objects.filter(version_id=search.environment_version_id))
    sealed = [task for task in tasks if task.split != Split.TRAIN]
    return HeldOut.of(
        [task.prompt for task in sealed],
        [expected_in(task.spec) or "" for task in sealed],
        [task.prompt for task in tasks if task.split == Split.TRAIN],
    )


def functions_of(rollouts: Sequence[Rollout]) -> list[Mapping[str, Any]]:
    """What an agent was offered to call, as the first log that says so has it."""
    streams = [rollout.stream_id for rollout in rollouts]
    told = Event.objects.filter(stream_id__in=streams, kind="told").order_by("stream_id", "seq")
    for payload in told.values_list("payload", flat=True):
        functions = payload.get("functions") if isinstance(payload, dict) else None
        if functions:
            return [item for item in functions if isinstance(item, dict)]
    return []


def parameters_of(functions: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """By tool."""
    found = {}
    for item in functions:
        function = item.get("function")
        if isinstance(function, dict):
            schema = function.get("parameters")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            found[str(function.get("name"))] = list(properties or ())
    return found


# --- rows ----------------------------------------------------------------------------------------


def _rollouts(search: Search) -> list[Rollout]:
    return list(
        Rollout.objects.filter(
            run__search_run__search=search,
            task__split=Split.TRAIN,
            state=RolloutState.SCORED,
        )
        .exclude(run__search_run__phase__in=UNREAD)
        .select_related("task", "run__rubric_version")
        .order_by("id")
    )


def _criteria(search: Search) -> dict[str, Criterion]:
    if search.rubric_version is None:
        return {}
    return {item.id: item for item in from_json(search.rubric_version.spec).criteria}


def _skills_loaded(rollouts: Sequence[Rollout]) -> dict[int, list[str]]:
    events = Event.objects.filter(
        stream_id__in=[rollout.stream_id for rollout in rollouts], kind="skill.loaded"
    ).order_by("stream_id", "seq")
    found: dict[int, list[str]] = {}
    for stream_id, payload in events.values_list("stream_id", "payload"):
        name = str(payload.get("name", ""))
        if name not in found.setdefault(stream_id, []):
            found[stream_id].append(name)
    return found


def _judgement(record: VerdictRecord, criteria: Mapping[str, Criterion]) -> Judgement:
    criterion = criteria.get(record.criterion)
    is_passed = None
    if record.value is not None and criterion is not None:
        is_passed = (record.value >= criterion.threshold) != criterion.negative
    return Judgement(
        criterion=record.criterion,
        value=record.value,
        reason=record.reason,
        is_passed=is_passed,
        name=record.name,
        cites=tuple(n for n in record.cites if isinstance(n, int)),
    )


def _trace(
    rollout: Rollout,
    transcript: Transcript,
    score: float | None,
    judgements: Sequence[Judgement],
    skills: Sequence[str],
) -> Trace:
    return Trace(
        task=rollout.task.key,
        messages=[{"role": "user", "content": rollout.task.prompt}],
        stratum=rollout.task.family,
        score=score,
        steps=[_step(step) for step in transcript.steps],
        judgements=judgements,
        answer=transcript.answer,
        cost_usd=rollout.cost_usd,
        tokens=rollout.tokens_in + rollout.tokens_out,
        latency_s=rollout.latency_s,
        source=source_of(rollout),
        skills_loaded=skills,
    )


def _step(step: TranscriptStep) -> Step:
    error = step.tool_error
    if not error and step.exit_status:
        error = f"exit status {step.exit_status}"
    return Step(
        action=step.action,
        output=step.output,
        tool=step.tool or "",
        arguments=step.arguments,
        error=error,
        event=step.seq,
    )
