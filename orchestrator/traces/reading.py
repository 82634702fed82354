"""Bodies of ingest requests as items: events, or what is wrong with them, one by one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.traces.exact import Number, TooDeep, dump, leaves, parse

ITEM_BYTES = 64 * 2**20
"""Of one event as it is sent."""
PREVIEW_CHARS = 64_000
REQUIRED = ("rollout", "id", "seq", "kind")


@dataclass(frozen=True)
class Refused:
    index: int
    """Place in the batch, from 0."""
    reason_kind: str
    detail: str
    id: Any = None
    body: str = ""

    def as_json(self) -> dict[str, Any]:
        named = {} if self.id is None else {"id": self.id}
        return {
            "index": self.index,
            **named,
            "reason_kind": self.reason_kind,
            "detail": self.detail,
        }


@dataclass(frozen=True)
class Item:
    index: int
    event: dict[str, Any]
    body: str
    """The event as strict JSON in ASCII."""
    tokens: tuple[int, int] = (0, 0)
    """That a model call read and wrote, where the sender counted them."""

    def text(self, field: str) -> str:
        value = self.event.get(field)
        return value if isinstance(value, str) else "" if value is None else dump(value)

    @property
    def seq(self) -> int:
        """The producer's number inside what a database holds."""
        value = self.event["seq"]
        number = (
            int(float(value.token))
            if "e" in value.token.lower()
            else int(value.token.partition(".")[0][:19])
        )
        return max(-(2**62), min(2**62, number))


def read_lines(body: bytes) -> Iterator[Item | Refused]:
    """JSON lines. Blank ones are skipped but keep their place."""
    for index, line in enumerate(body.removeprefix(b"\xef\xbb\xbf").split(b"\n")):
        if line.strip():
            yield read_item(index, line)


def read_batch(body: bytes) -> list[Item | Refused]:
    """A JSON list of events, or `{"events": […]}`. Raises ValueError, TooDeep for the whole."""
    value = parse(body.decode())
    events = value.get("events") if isinstance(value, dict) else value
    if not isinstance(events, list):
        raise ValueError("accepts a list of events, or an object with events")
    return [checked(index, event) for index, event in enumerate(events)]


def read_item(index: int, line: bytes) -> Item | Refused:
    if len(line) > ITEM_BYTES:
        text = f"the event takes {len(line):,} bytes; at most {ITEM_BYTES:,} are taken"
        return Refused(index, "too_large", text)
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        shown = line[:2_000].decode(errors="replace")
        return Refused(index, "bad_encoding", f"byte {error.start} is not UTF-8", body=shown)
    try:
        return checked(index, parse(text))
    except (TooDeep, RecursionError):
        return Refused(index, "too_deep", "more than 500 levels of nesting", body=text[:2_000])
    except ValueError as error:
        return Refused(index, "bad_json", str(error)[:300], body=text[:2_000])


def checked(index: int, event: Any) -> Item | Refused:
    if not isinstance(event, dict):
        return Refused(index, "bad_json", "an event is a JSON object", body=dump(event)[:2_000])
    body = dump(event)
    missing = [name for name in REQUIRED if event.get(name) in (None, "")]
    if not missing and not isinstance(event["seq"], Number):
        missing = ["seq (a number)"]
    elif not missing and not event["seq"].is_finite:
        missing = ["seq (a finite number)"]
    if missing:
        shown = event.get("id") if isinstance(event.get("id"), str) else None
        text = f"missing: {', '.join(missing)}"
        return Refused(index, "missing_field", text, shown, body[:20_000])
    return Item(index, event, body, _tokens(event))


def _tokens(event: dict[str, Any]) -> tuple[int, int]:
    """What the `data.usage` of a model call counts, in the names of today's APIs."""
    data = event.get("data")
    usage = data.get("usage") if event["kind"] == "model_call" and isinstance(data, dict) else None
    if not isinstance(usage, dict):
        return (0, 0)
    read, written = (usage.get(name) for name in ("input_tokens", "output_tokens"))
    return (_count(read), _count(written))


def _count(value: Any) -> int:
    is_whole = isinstance(value, Number) and value.token.isdecimal() and len(value.token) < 10
    return int(value.token) if is_whole else 0


# Instants

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?"
    r"\s*(Z|z|[+-]\d\d:?\d\d)?$"
)


def instant(value: Any) -> tuple[datetime | None, set[str]]:
    """An instant in UTC with microseconds, and flags. None for what cannot be read."""
    match = _TIME.match(value.strip()) if isinstance(value, str) else None
    if match is None:
        if isinstance(value, Number) and value.is_finite:
            return _from_seconds(float(value.token)), {"time_adjusted"}
        return None, {"time_adjusted"} if value is not None else set()
    flags = set()
    second = int(match[6] or 0)
    extra = 0
    if second == 60:
        second, extra = 59, 1
        flags.add("time_adjusted")
    zone = match[8]
    offset = timedelta(0)
    if zone is None:
        flags.add("assumed_utc")
    elif zone not in "Zz":
        digits = zone[1:].replace(":", "")
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        offset = -offset if zone[0] == "-" else offset
    micro = int((match[7] or "0").ljust(6, "0")[:6])
    year, month, day = (int(match[i]) for i in (1, 2, 3))
    try:
        moment = datetime(
            year, month, day, int(match[4] or 0), int(match[5] or 0), second, micro, tzinfo=UTC
        )
        return moment + timedelta(seconds=extra) - offset, flags
    except (ValueError, OverflowError):
        return None, {"time_adjusted"}


def _from_seconds(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return None


# Flags

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_INVISIBLE = re.compile(
    "[\u00ad\u115f\u1160\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]"
    "|(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0000-\U000e007f]"
    "|(?<=[\x20-\x7e])[\u200c\u200d]|[\u200c\u200d](?=[\x20-\x7e]|$)"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+=-]+)*;base64,([A-Za-z0-9+/=_-]*)")
_MAGIC = {"image/png": "iVBORw0KGgo", "image/jpeg": "/9j/", "image/gif": "R0lG"}


def is_plain(body: str) -> bool:
    """Whether the body alone shows that the event has no flag and that its preview is all of it."""
    return len(body) <= PREVIEW_CHARS and not any(
        sign in body for sign in ("\\u", '"$number"', '"data:')
    )


def flags_of(event: dict[str, Any]) -> set[str]:
    """What a reader must know of one event's texts and numbers."""
    flags = set()
    for leaf in leaves(event):
        if isinstance(leaf, Number):
            if not leaf.is_finite:
                flags.add("non_finite")
        elif isinstance(leaf, str):
            if len(leaf) > PREVIEW_CHARS:
                flags.add("preview_cut")
            if not leaf.isascii():
                for name, pattern in (
                    ("unpaired_surrogate", _SURROGATE),
                    ("bidi_control", _BIDI),
                    ("invisible_chars", _INVISIBLE),
                ):
                    if pattern.search(leaf):
                        flags.add(name)
            if leaf.startswith("data:") and _is_broken(leaf):
                flags.add("media_broken")
    return flags


def _is_broken(url: str) -> bool:
    match = _DATA_URL.match(url)
    if match is None:
        return True
    letters = match[2].rstrip("=")
    magic = _MAGIC.get(match[1].lower(), "")
    is_whole = match.end() == len(url) and len(letters) % 4 != 1 and letters != ""
    return not is_whole or not letters.startswith(magic)
