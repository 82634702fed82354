"""How numbers, times, ids and icons look. A missing value is a dash, never a zero."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from orchestrator.web import code as codes
from orchestrator.web import terminal as terminals
from orchestrator.web import text as texts
from orchestrator.web.colours import colour_of
from orchestrator.web.icons import ICONS

register = template.Library()

DASH = "–"
MINUS = "\N{MINUS SIGN}"
THEMES = ("light", "dark")


@register.simple_tag
def icon(name: str, size: str = "") -> SafeString:
    """A decorative icon; the word beside it says what it means."""
    return format_html(
        '<svg class="icon {}" viewBox="0 0 16 16" aria-hidden="true"><path d="{}"/></svg>',
        size,
        ICONS[name],
    )


@register.filter
def theme(value: str | None) -> str:
    """The stored scheme, or nothing when the system decides."""
    return value if value in THEMES else ""


def _is_number(value: Any) -> bool:
    """False for what a template has when there is nothing (None, an empty text) and for NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@register.filter
def score(value: float | None) -> str:
    """0.62; a dash when there is no number."""
    return f"{value:.2f}" if _is_number(value) else DASH


@register.filter
def signed(value: float | None, digits: int = 2) -> str:
    """+0.06 or, with a true minus, −0.02."""
    if value is None or not _is_number(value):
        return DASH
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return f"±{text}"
    return ("+" if value > 0 else MINUS) + text


@register.filter
def decimal(value: float | None, digits: int = 2) -> str:
    if value is None or not _is_number(value):
        return DASH
    return f"{value:.{digits}f}".replace("-", MINUS)


@register.filter
def percent(value: float | None) -> str:
    return (
        f"{100 * value:.0f}\N{NO-BREAK SPACE}%" if value is not None and _is_number(value) else DASH
    )


@register.simple_tag
def interval(low: float | None, high: float | None, sign: str = "") -> str:
    """[0.61, 0.84]; empty when there is none."""
    if low is None or high is None:
        return ""
    show = signed if sign else decimal
    return f"[{show(low)}, {show(high)}]"


@register.filter
def count(value: int | None) -> str:
    """12,408."""
    return DASH if value is None else f"{value:,}"


@register.filter
def compact(value: int | None) -> str:
    """Tokens: 940, 21 k, 1.3 M."""
    if value is None:
        return DASH
    if value < 1_000:
        return str(value)
    if value < 10_000:
        return f"{value / 1_000:.1f}\N{NO-BREAK SPACE}k"
    if value < 1_000_000:
        return f"{value / 1_000:.0f}\N{NO-BREAK SPACE}k"
    return f"{value / 1_000_000:.1f}\N{NO-BREAK SPACE}M"


@register.filter
def usd(value: float | None) -> str:
    if value is None:
        return DASH
    return f"${value:.2f}" if value == 0 or value >= 0.01 else "<$0.01"


@register.filter
def duration(seconds: float | timedelta | None) -> str:
    """0.4 s, 48 s, 3 min 40 s, 2 h 05 min."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if seconds is None or not _is_number(seconds) or seconds < 0:
        return DASH
    space = "\N{NO-BREAK SPACE}"
    if seconds < 10:
        return f"{seconds:.1f}{space}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}{space}s"
    if whole < 3600:
        return f"{whole // 60}{space}min{space}{whole % 60:02d}{space}s"
    return f"{whole // 3600}{space}h{space}{whole % 3600 // 60:02d}{space}min"


@register.simple_tag
def instant(at: datetime | None, style: str = "short") -> SafeString | str:
    """A time with its zone written beside it; the full instant is in the title.

    `short`: 29 Nov, 18:42 UTC · `clock`: 18:42:07 · `full`: 29 Nov 2026, 18:42:07 UTC.
    `clock` is for lists that name the zone once, in their heading.
    """
    if at is None:
        return DASH
    moment = at.astimezone(UTC)
    shapes = {"short": "%-d %b, %H:%M UTC", "clock": "%H:%M:%S", "full": "%-d %b %Y, %H:%M:%S UTC"}
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        moment.isoformat(),
        moment.strftime("%-d %b %Y, %H:%M:%S UTC"),
        moment.strftime(shapes[style]),
    )


@register.filter
def pretty_json(value: Any) -> str:
    """Indented JSON. Numbers that are not finite are shown in their `$number` form elsewhere."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def get(mapping: dict[str, Any], key: str) -> Any:
    return mapping.get(key)


@register.filter
def times(value: float, factor: float) -> float:
    return value * factor


# What each state looks like: (class, icon). The word always stands beside it.
STATE_LOOKS: dict[str, tuple[str, str]] = {
    "queued": ("", "clock"),
    "starting": ("busy", "ring"),
    "open": ("good", "play"),
    "ended": ("ghost", "stop"),
    "lost": ("err", "alert"),
    "pending": ("", "clock"),
    "running": ("busy", "ring"),
    "judging": ("", "scales"),
    "paused": ("warn", "pause"),
    "scored": ("good", "check"),
    "done": ("good", "check"),
    "completed": ("good", "check"),
    "completed_unscored": ("err", "alert"),
    "errored": ("err", "alert"),
    "failed": ("err", "alert"),
    "not_applicable": ("ghost", "dash"),
    "cancelled": ("ghost", "stop"),
    "reference": ("", "flag"),
    "better": ("good", "up"),
    "improved": ("good", "up"),
    "regressed": ("bad", "down"),
    "inconclusive": ("warn", "approx"),
    "infrastructure": ("err", "alert"),
    "certified": ("good", "check"),
    "not_certified": ("warn", "approx"),
    "not_improved": ("bad", "down"),
    "indecisive": ("warn", "approx"),
    "rejected": ("ghost", "cross"),
    "screening": ("ghost", "task"),
    "racing": ("ghost", "flag"),
    "awaiting_approval": ("trail", "flag"),
    "waiting": ("trail", "clock"),
    "answered": ("good", "check"),
    "pass": ("good", "check"),
    "warn": ("warn", "alert"),
    "fail": ("bad", "cross"),
    "skip": ("ghost", "dash"),
    "error": ("err", "alert"),
}
STATE_WORDS = {
    "judging": "waits for its group",
    "not_applicable": "n/a",
    "completed_unscored": "too few scored",
    "not_certified": "not certified",
}


@register.simple_tag
def pill(state: str, word: str = "") -> SafeString:
    """The mark of a state: colour, icon and word together."""
    look, mark = STATE_LOOKS.get(state, ("", "dash"))
    drawn = (
        mark_safe('<span class="ring" aria-hidden="true"></span>')
        if mark == "ring"
        else icon(mark, "s")
    )
    return format_html(
        '<span class="pill {}" data-state="{}">{}<span>{}</span></span>',
        look,
        state,
        drawn,
        word or STATE_WORDS.get(state, state.replace("_", " ")),
    )


@register.simple_tag
def verdict_pill(value: float | None) -> SafeString:
    """Pill of a scored rollout: green from one half upward, red below, always with the number."""
    if value is None:
        return format_html('<span class="pill">{}</span>', DASH)
    look, mark = ("good", "check") if value >= 0.5 else ("bad", "cross")
    return format_html(
        '<span class="pill {}" data-state="scored">{}<span>{}</span></span>',
        look,
        icon(mark, "s"),
        score(value),
    )


@register.simple_tag
def criterion_pill(value: float | None, is_negative: bool) -> SafeString:
    """Pill of a scored verdict. A negative criterion below one half did not happen: good."""
    if value is None or not is_negative:
        return verdict_pill(value)
    look, mark, word = ("good", "check", "avoided") if value < 0.5 else ("bad", "cross", "happened")
    return format_html(
        '<span class="pill {}" data-state="scored">{}<span>{} {}</span></span>',
        look,
        icon(mark, "s"),
        word,
        score(value),
    )


KIND_WORDS = {"env_output": "environment"}


@register.filter
def kind_word(kind: str) -> str:
    """A token kind as people read it."""
    return KIND_WORDS.get(kind, kind)


EVENT_WORDS = {
    "rollout.started": "task",
    "rollout.ended": "end",
    "rollout.judging": "judging",
    "rollout.restarted": "cut off",
    "told": "how to act",
    "observation": "output",
    "skill.loaded": "skill",
    "skill.refused": "skill not found",
}


@register.filter
def event_word(kind: str) -> str:
    """The kind of an event as people read it."""
    return EVENT_WORDS.get(kind, kind.replace("_", " "))


@register.inclusion_tag("web/parts/id.html")
def identifier(text: str, copy: str = "") -> dict[str, str]:
    """An id as a monospaced pill with a copy button."""
    return {"text": text, "copy": copy or text}


@register.simple_tag
def tally_line(tally: Any) -> SafeString:
    """`0.62 (n 148, 12 errored, 3 n/a)`: a mean never travels without its counts."""
    parts = [format_html("n&nbsp;{}", count(tally.scored))]
    if tally.errored:
        parts.append(format_html('<span class="err-text">{} errored</span>', count(tally.errored)))
    else:
        parts.append(mark_safe("0&nbsp;errored"))
    if tally.not_applicable:
        parts.append(format_html("{} n/a", count(tally.not_applicable)))
    if tally.cancelled:
        parts.append(format_html("{} cancelled", count(tally.cancelled)))
    joined = mark_safe(", ".join(parts))
    return format_html('<b>{}</b> <span class="muted">({})</span>', score(tally.mean), joined)


# --- for figures ------------------------------------------------------------------------------


@register.filter
def shift(value: float, by: float) -> float:
    """`add` for coordinates."""
    return round(float(value) + float(by), 1)


@register.filter
def run_look(pk: int) -> str:
    """Classes of a `swatch` in the colour of a run or training job."""
    colour = colour_of(pk)
    return f"run-{colour.slot}{' dashed' if colour.is_dashed else ''}"


@register.filter
def at(items: Any, index: int) -> Any:
    return items[index]


@register.filter
def plain(value: float | None) -> str:
    """A number for an attribute: point as separator, no unit."""
    return "0" if value is None else f"{value:.4f}"


@dataclass(frozen=True)
class EffectBar:
    """Places on a scale of 120 units that has zero in the middle and ±1 at the ends."""

    mean: float
    low: float
    high: float
    is_up: bool


@register.simple_tag
def effect_bar(mean: float, low: float | None, high: float | None) -> EffectBar:
    def place(value: float) -> float:
        return round(60 + 56 * max(-1.0, min(1.0, value)), 1)

    return EffectBar(
        mean=place(mean),
        low=place(mean if low is None else low),
        high=place(mean if high is None else high),
        is_up=mean >= 0,
    )


# --- for text ---------------------------------------------------------------------------------


@register.filter
def visible(value: Any) -> SafeString:
    return texts.visible(str(value))


@register.filter
def with_code(value: Any) -> SafeString:
    return texts.with_code(str(value))


@register.filter
def terminal(value: Any) -> SafeString:
    """Output of a terminal: colours drawn, other sequences left out."""
    return terminals.terminal(str(value))


@register.filter
def code(value: Any, language: str) -> SafeString:
    return codes.code(str(value), language)


@register.filter
def fenced(value: Any) -> SafeString:
    """Text whose fenced blocks are coloured."""
    return codes.with_fences(str(value))


@register.filter
def lead(value: Any) -> SafeString:
    """A sentence whose short first part, before a colon, is printed bold."""
    head, colon, rest = str(value).partition(": ")
    if not colon or len(head) > 28:
        return texts.visible(str(value))
    return format_html(
        '<b class="strong">{}.</b> {}{}',
        texts.visible(head),
        texts.visible(rest[:1].upper()),
        texts.visible(rest[1:]),
    )


@register.filter
def shell(value: Any) -> SafeString:
    return texts.shell(str(value))


@register.filter
def cell(value: Any, limit: int = texts.CELL_CHARS) -> SafeString:
    """One line, cut, with odd characters as marks."""
    return texts.visible(texts.cell(str(value), limit))


@register.filter
def words(value: Any) -> str:
    """`count_lines` as people write it."""
    return str(value).replace("_", " ")


@register.filter
def prefix(value: Any, head: str) -> str:
    return f"{head}{value}"


@register.filter
def pad(value: int) -> str:
    return f"{value:02d}"


@register.filter
def number(value: Any, digits: int = 2) -> str:
    """A metric; what is not finite is named, what is missing is a dash."""
    if (
        value is None
        or value == ""
        or isinstance(value, bool)
        or not isinstance(value, int | float)
    ):
        return str(value["$number"]) if isinstance(value, dict) and "$number" in value else DASH
    if not math.isfinite(value):
        return str(value)
    return f"{value:.{digits}f}".replace("-", MINUS)


@register.filter
def scientific(value: float | None) -> str:
    """4.1·10⁸; plain below ten thousand."""
    if value is None:
        return DASH
    if not math.isfinite(value):
        return "∞"
    if value < 10_000:
        return f"{value:.1f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10" + str(int(exponent)).translate(
        str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
    )


# --- for runs and rollouts --------------------------------------------------------------------


@register.filter
def took(thing: Any) -> float | None:
    """Wall time of a run, rung or job so far, in seconds."""
    if thing.started_at is None:
        return None
    return float(((thing.ended_at or timezone.now()) - thing.started_at).total_seconds())


@register.filter
def failed(tally: Any) -> int:
    """Scored below one half."""
    return int(tally.scored - tally.passed)


@register.simple_tag
def rollout_pill(state: str, value: float | None) -> SafeString:
    """Pill of a rollout. Scored: green from one half upward, red below, each with its own sign."""
    if state != "scored" or value is None:
        return pill(state)
    look, mark = ("good", "check") if value >= 0.5 else ("bad", "cross")
    return format_html(
        '<span class="pill {}" data-state="scored">{}<span>scored</span></span>',
        look,
        icon(mark, "s"),
    )


@register.filter
def row_values(row: dict[str, Any] | None) -> str:
    """What the table sorts by, as JSON for the script."""
    keys = ("task", "family", "state", "score", "steps", "tokens", "latency_s", "replicate")
    return json.dumps({key: row.get(key) for key in keys}) if row else "{}"


@register.filter
def row_reason(row: dict[str, Any]) -> SafeString | str:
    """The answer of a rollout, or why it has no score."""
    reason = row.get("message") or row.get("cause") or ""
    if row["state"] == "errored":
        cause = row.get("cause") or ""
        text = f"{cause.replace('_', ' ')}: {reason}" if cause and reason != cause else reason
        return texts.visible(texts.cell(text))
    answer = row.get("answer") or ""
    if answer:
        return texts.visible(texts.cell(answer, 120))
    return texts.visible(texts.cell(reason))
