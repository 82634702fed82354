"""A model decides: one judge, or a panel of them.

A judge is asked one thing about data that it is shown (`rubrics.judge`). Repeats and members of a
panel are calls of their own; what one of them could not say is left out as long as more than half
could, and the spread is kept. A judge that fails makes an errored verdict, never a zero.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rubrics.errors import CriterionFailed
from rubrics.judge.ask import Answer
from rubrics.judge.question import Sampling, make_question
from rubrics.judge.scale import Scale
from rubrics.judge.view import DEFAULT_PARTS, PARTS, step_of, view_of
from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.types import Criterion, Scope, Services, State, Transcript, Verdict

CITED = re.compile(r"\[E(\d{1,9})\]")
VOTES = ("mean", "majority", "all", "any")


async def decide(criterion: Criterion, transcript: Transcript, services: Services) -> Verdict:
    models = [str(criterion.params.get("model", ""))]
    return await _decide(JUDGE, criterion, transcript, services, models, "mean")


async def decide_panel(criterion: Criterion, transcript: Transcript, services: Services) -> Verdict:
    models = [str(model) for model in criterion.params["models"]]
    vote = str(PANEL.param(criterion, "vote"))
    return await _decide(PANEL, criterion, transcript, services, models, vote)


async def _decide(
    kind: Kind,
    criterion: Criterion,
    transcript: Transcript,
    services: Services,
    models: Sequence[str],
    vote: str,
) -> Verdict:
    repeats = max(1, int(kind.param(criterion, "repeats")))
    views = _views(kind, criterion, transcript)
    if not views:
        return Verdict.scored(criterion, 0.0, "no steps")
    calls = [(v, model, repeat) for v in views for model in models for repeat in range(repeats)]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_ask(kind, criterion, data, services, model, repeat))
            for (_, data), model, repeat in calls
        ]
    answers = [task.result() for task in tasks]
    per_view = len(models) * repeats
    grouped = [answers[i : i + per_view] for i in range(0, len(answers), per_view)]
    parts = [_joined(criterion, members, vote) for members in grouped]
    return _over_steps(criterion, transcript, [seq for seq, _ in views], parts)


async def _ask(
    kind: Kind,
    criterion: Criterion,
    data: Mapping[str, Any],
    services: Services,
    model: str,
    repeat: int,
) -> Answer | str:
    """The answer, or why there is none: one that fails must not end its siblings."""
    question = make_question(
        criterion=criterion.id,
        ask=str(criterion.params["question"]),
        scale=scale_of(kind, criterion),
        data=data,
        anchors=criterion.params.get("anchors"),
        sampling=Sampling(
            model=model,
            temperature=float(kind.param(criterion, "temperature")),
            seed=int(kind.param(criterion, "seed")) + repeat,
            max_tokens=int(kind.param(criterion, "max_tokens")),
        ),
        secret=services.frame_secret,
        repeat=repeat,
    )
    try:
        return await services.judge(question)
    except CriterionFailed as failure:
        return str(failure)


def scale_of(kind: Kind, criterion: Criterion) -> Scale:
    name = kind.param(criterion, "scale")
    allows_na = bool(kind.param(criterion, "allows_na"))
    if name == "binary":
        return Scale(allows_na=allows_na)
    return Scale(
        "scale",
        float(kind.param(criterion, "min")),
        float(kind.param(criterion, "max")),
        allows_na,
    )


def _views(
    kind: Kind, criterion: Criterion, transcript: Transcript
) -> list[tuple[int | None, Mapping[str, Any]]]:
    """What is judged, with the event that it is about where it is a single step."""
    parts = [str(part) for part in kind.param(criterion, "sees")]
    if criterion.scope is not Scope.STEP:
        return [(None, view_of(transcript, parts, criterion.scope))]
    whole = [part for part in parts if part != "steps"]
    around = view_of(transcript, whole, criterion.scope)
    return [(step.seq, {**around, "step": step_of(step)}) for step in transcript.steps]


def _joined(criterion: Criterion, members: Sequence[Answer | str], vote: str) -> Verdict:
    """One verdict of the calls about one thing."""
    detail: dict[str, Any] = {"calls": [_called(member) for member in members]}
    scored = [m for m in members if isinstance(m, Answer) and m.reading.state is State.SCORED]
    na = [m for m in members if isinstance(m, Answer) and m.reading.state is State.NOT_APPLICABLE]
    reasons = [m.reason for m in (*scored, *na)]
    if 2 * len(na) > len(members):
        return Verdict.not_applicable(criterion, reasons[-1], detail)
    if 2 * len(scored) <= len(members):
        failures = [m if isinstance(m, str) else m.reason for m in members if m not in scored]
        return Verdict.errored(criterion, _counted(failures), detail)
    values = [float(m.reading.value or 0.0) for m in scored]
    value = _voted(values, vote, criterion.threshold)
    detail["spread"] = max(values) - min(values)
    cites = tuple(dict.fromkeys(int(seq) for text in reasons for seq in CITED.findall(text)))
    reason = reasons[0] if len(members) == 1 else _panel_reason(values, reasons, vote)
    return Verdict.scored(criterion, value, reason, cites, detail)


def _voted(values: Sequence[float], vote: str, threshold: float) -> float:
    passed = sum(value >= threshold for value in values)
    if vote == "majority":
        # A tie is no majority.
        return float(2 * passed > len(values))
    if vote == "all":
        return float(passed == len(values))
    if vote == "any":
        return float(passed > 0)
    return fmean(values)


def _panel_reason(values: Sequence[float], reasons: Sequence[str], vote: str) -> str:
    said = ", ".join(f"{value:g}" for value in values)
    return f"{len(values)} verdicts ({said}), by {vote}. The first: {reasons[0]}"


def _over_steps(
    criterion: Criterion, transcript: Transcript, seqs: Sequence[int | None], parts: list[Verdict]
) -> Verdict:
    """The mean over the steps that the criterion applies to; one that errored is an error."""
    if criterion.scope is not Scope.STEP:
        known = {step.seq for step in transcript.steps}
        (only,) = parts
        cites = tuple(seq for seq in only.cites if seq in known)
        return Verdict(only.criterion, only.state, only.value, only.reason, cites, only.detail)
    detail = {"steps": [{"seq": s, **p.detail} for s, p in zip(seqs, parts, strict=True)]}
    errors = [part.reason for part in parts if part.state is State.ERRORED]
    if errors:
        return Verdict.errored(
            criterion, f"{len(errors)} of {len(parts)} steps: {errors[0]}", detail
        )
    scored = [(s, p) for s, p in zip(seqs, parts, strict=True) if p.value is not None]
    if not scored:
        return Verdict.not_applicable(criterion, parts[0].reason, detail)
    low = tuple(s for s, p in scored if s is not None and (p.value or 0.0) < criterion.threshold)
    value = fmean(p.value or 0.0 for _, p in scored)
    reason = f"{len(scored) - len(low)} of {len(scored)} steps pass; {scored[0][1].reason}"
    return Verdict.scored(criterion, value, reason, low, detail)


def _called(member: Answer | str) -> dict[str, Any]:
    if isinstance(member, str):
        return {"failed": member}
    return {
        "call": member.call,
        "model": member.model,
        "state": member.reading.state.value,
        "value": member.reading.value,
    }


def _counted(failures: Sequence[str]) -> str:
    first = failures[0] if failures else "no verdict"
    return first if len(failures) == 1 else f"{len(failures)} calls without a verdict: {first}"


def check(params: Mapping[str, Any]) -> list[str]:
    problems = []
    if params.get("scale", "binary") == "binary" and ("min" in params or "max" in params):
        problems.append("params.min: a binary criterion has 0 and 1; choose scale for others")
    if params.get("min", 1) >= params.get("max", 5):
        problems.append("params.max: must be above params.min")
    unknown = set(params.get("sees", ())) - set(PARTS)
    if unknown:
        problems.append(f"params.sees: {sorted(unknown)[0]!r}; accepts {', '.join(PARTS)}")
    if not 0 <= params.get("temperature", 0) <= 2:
        problems.append("params.temperature: accepts 0 to 2")
    if not all(isinstance(text, str) for text in params.get("anchors", {}).values()):
        problems.append("params.anchors: accepts a text for each value")
    return problems


PARAMS = (
    Param("question", ParamType.TEXT, "one idea that can be answered", required=True),
    Param(
        "scale",
        ParamType.TEXT,
        "yes and no, or a range",
        default="binary",
        choices=("binary", "scale"),
    ),
    Param("min", ParamType.NUMBER, "lower end of a range", default=1),
    Param("max", ParamType.NUMBER, "upper end of a range", default=5),
    Param("anchors", ParamType.OBJECT, "what values mean, by value"),
    Param("allows_na", ParamType.FLAG, "the judge may say that it does not apply", default=False),
    Param(
        "sees",
        ParamType.TEXTS,
        "what it is shown: task, steps, answer, expected",
        default=DEFAULT_PARTS,
    ),
    Param("temperature", ParamType.NUMBER, "of the judge's model", default=0.0),
    Param("seed", ParamType.COUNT, "of the judge's model", default=0),
    Param("max_tokens", ParamType.COUNT, "longest reply", default=800),
    Param("repeats", ParamType.COUNT, "how often each is asked; the mean counts", default=1),
)
_SCOPES = (Scope.TRAJECTORY, Scope.FINAL_ANSWER, Scope.STEP, Scope.ENVIRONMENT_STATE)

JUDGE = Kind(
    name="judge",
    about="A model decides",
    decide_async=decide,
    params=(
        *PARAMS,
        Param("model", ParamType.TEXT, "name of the endpoint; the project's judge where absent"),
    ),
    scopes=_SCOPES,
    check=check,
)
PANEL = Kind(
    name="judge_panel",
    about="Several models decide together",
    decide_async=decide_panel,
    params=(
        *PARAMS,
        Param("models", ParamType.TEXTS, "names of the endpoints", required=True),
        Param("vote", ParamType.TEXT, "how they decide", default="majority", choices=VOTES),
    ),
    scopes=_SCOPES,
    check=check,
)
