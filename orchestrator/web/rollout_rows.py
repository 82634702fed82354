"""Rows, columns and bars of the list of rollouts, as the page draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.runs.filtering.grammar import quoted
from orchestrator.runs.models import RolloutState
from orchestrator.runs.rollout_list import Amount
from orchestrator.web.listing import Column, ListState
from orchestrator.web.templatetags import formats

COLUMNS: Mapping[str, Column] = {
    column.name: column
    for column in (
        Column("score", "Score", "score", is_number=True),
        Column("run", "Run", "id"),
        Column("family", "Family"),
        Column("split", "Split"),
        Column("harness", "Harness"),
        Column("model", "Model"),
        Column("weights", "Weights"),
        Column("environment", "Environment"),
        Column("rubric", "Rubric"),
        Column("purpose", "Purpose"),
        Column("replicate", "Replicate", is_number=True),
        Column("reward", "Reward", is_number=True),
        Column("steps", "Steps", "steps", is_number=True),
        Column("events", "Events", is_number=True),
        Column("tokens", "Tokens", "tokens", is_number=True),
        Column("cost", "Cost", "cost", is_number=True),
        Column("latency", "Took", "latency", is_number=True),
        Column("started", "Started", "started"),
        Column("reason", "Answer or reason", is_wide=True),
    )
}
USUAL = ("score", "run", "tokens", "latency", "reason", "started")
TASK = Column("task", "Task", "task")
VERDICT = "verdict."
_SHOWN_HEIGHT = 40.0


def columns_of(state: ListState) -> list[Column]:
    """Those asked for, in their order; names that there are not are left out."""
    found = []
    for name in state.columns or USUAL:
        if name in COLUMNS:
            found.append(COLUMNS[name])
        elif name.startswith(VERDICT) and len(name) > len(VERDICT):
            found.append(Column(name, name.removeprefix(VERDICT).replace("_", " "), is_number=True))
    return found


def criteria_in(columns: Sequence[Column]) -> list[str]:
    return [c.name.removeprefix(VERDICT) for c in columns if c.name.startswith(VERDICT)]


@dataclass(frozen=True)
class Cell:
    column: Column
    html: SafeString | str


@dataclass(frozen=True)
class Row:
    rollout: Any
    name: str
    url: str
    peek_url: str
    cells: Sequence[Cell]


def row_of(rollout: Any, project_id: int, columns: Sequence[Column]) -> Row:
    verdicts = {
        criterion: (
            getattr(rollout, f"verdict_state_{number}"),
            getattr(rollout, f"verdict_value_{number}"),
        )
        for number, criterion in enumerate(criteria_in(columns))
    }
    number = f" #{rollout.replicate}" if rollout.replicate else ""
    return Row(
        rollout=rollout,
        name=f"{rollout.task.key}{number}",
        url=reverse("web:rollout", args=[project_id, rollout.pk]),
        peek_url=reverse("web:rollout_peek", args=[project_id, rollout.pk]),
        cells=[Cell(c, _cell(c.name, rollout, project_id, verdicts)) for c in columns],
    )


def _cell(
    name: str,
    rollout: Any,
    project_id: int,
    verdicts: Mapping[str, tuple[str | None, float | None]],
) -> SafeString | str:
    if name.startswith(VERDICT):
        return _verdict(*verdicts[name.removeprefix(VERDICT)])
    run = rollout.run
    if name == "run":
        url = reverse("web:run", args=[project_id, run.pk])
        label = formats.cell(run.label or run.get_purpose_display(), 40)
        return format_html(
            '<a class="link short" href="{}">{}</a> <span class="mono faint small">{}</span>',
            url,
            label,
            run.pk,
        )
    if name == "score":
        if rollout.score is None:
            return formats.DASH
        return format_html("<b>{}</b>", formats.score(rollout.score))
    version = run.environment_version
    texts: dict[str, Any] = {
        "family": lambda: formats.words(rollout.task.family),
        "split": lambda: rollout.task.split,
        "harness": lambda: format_html('<span class="mono small">{}</span>', rollout.harness.short),
        "model": lambda: formats.cell(run.model.name, 40),
        "weights": lambda: formats.cell(rollout.weight_version or "base", 40),
        "environment": lambda: f"{version.environment.slug} v{version.number}",
        "rubric": lambda: formats.cell(
            f"{run.rubric_version.rubric.name} v{run.rubric_version.number}", 60
        ),
        "purpose": lambda: run.get_purpose_display(),
        "replicate": lambda: str(rollout.replicate),
        "reward": lambda: formats.decimal(rollout.reward),
        "steps": lambda: formats.count(rollout.n_steps),
        "events": lambda: formats.count(rollout.stream.last_seq),
        "tokens": lambda: formats.count(rollout.tokens_in + rollout.tokens_out),
        "cost": lambda: formats.usd(rollout.cost_usd),
        "latency": lambda: formats.duration(rollout.latency_s),
        "started": lambda: formats.instant(rollout.started_at),
        "reason": lambda: formats.row_reason(
            {
                "state": rollout.state,
                "cause": rollout.cause,
                "message": rollout.short_message,
                "answer": rollout.short_answer,
            }
        ),
    }
    return texts[name]()  # type: ignore[no-any-return] # each gives a text


def _verdict(state: str | None, value: float | None) -> SafeString | str:
    if state is None:
        return format_html('<span class="faint">{}</span>', formats.DASH)
    return format_html("{}", formats.score(value)) if value is not None else formats.pill(state)


@dataclass(frozen=True)
class Bar:
    """One bar of the histogram: a link to what it counts."""

    look: str
    word: str
    n: int
    url: str
    y: float
    height: float


def bars_of(amount: Amount, state: ListState) -> tuple[list[Bar], list[Bar]]:
    """Bars by tenth of the score, and by what has none. Heights share one scale, of 40."""
    last = len(amount.bins) - 1
    scored = []
    for i, each in enumerate(amount.bins):
        parts = [f"score >= {each.low:g}"] if i else []
        parts += [f"score < {each.high:g}"] if i < last else []
        word = f"score {each.low:g} to {each.high:g}"
        look = "good" if each.low >= 0.5 else "bad"
        scored.append((look, word, each.n, " and ".join(parts)))
    unscored = [
        (look, word, sum(amount.by_state.get(name, 0) for name in names), _states(names))
        for look, word, names in (
            ("hatch", "errored", (RolloutState.ERRORED,)),
            ("na", "not applicable", (RolloutState.NOT_APPLICABLE,)),
            (
                "run",
                "not ended",
                (RolloutState.PENDING, RolloutState.RUNNING, RolloutState.JUDGING),
            ),
            ("off", "cancelled", (RolloutState.CANCELLED,)),
        )
    ]
    unscored = [each for each in unscored if each[2]]
    most = max((n for _, _, n, _ in [*scored, *unscored]), default=0)

    def drawn(look: str, word: str, n: int, condition: str) -> Bar:
        # What there is shows, however little it is beside the rest.
        height = max(1.5, _SHOWN_HEIGHT * n / most) if n else 0.0
        height = round(height, 2)
        url = state.link(query=state.narrowed(condition))
        return Bar(look, word, n, url, round(_SHOWN_HEIGHT - height, 2), height)

    return [drawn(*each) for each in scored], [drawn(*each) for each in unscored]


def _states(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"state = {quoted(names[0])}"
    return f"state in ({', '.join(names)})"
