"""How the result of a command reads: raw output apart from the wrapper's own words.

Training may learn to predict what the world answers, never what this wrapper adds. So each piece
of text carries its kind, and an agent's view is the plain concatenation of the texts. Author's
transcripts and live episodes use the same functions, hence read the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

SegmentKind = Literal["env_output", "scaffold", "warning"]

OUTPUT_LIMIT_BYTES = 4096
"""What an agent with a window of 2048 tokens can still read beside its instructions."""


@dataclass(frozen=True)
class Segment:
    """A piece of an observation."""

    kind: SegmentKind
    """`env_output`: the command's own bytes; `scaffold`: the wrapper's words; `warning`: limits."""
    text: str

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "text": self.text}


def segments_of(
    output: bytes, *, exit_status: int, is_truncated: bool = False, warning: str = ""
) -> list[Segment]:
    """Pieces for one command: its output, then a remark only where there is something to say.

    Final newlines are dropped as a shell's `$(...)` drops them. Bytes that are not UTF-8 become
    U+FFFD, NUL characters too: databases refuse them. Exit status 0 is not mentioned.
    """
    text = output.decode("utf-8", errors="replace").replace("\0", "\ufffd").rstrip("\n")
    segments = [Segment("env_output", text)] if text else []
    remarks: list[tuple[SegmentKind, str]] = []
    if not text:
        remarks.append(("scaffold", "(no output)"))
    if is_truncated:
        remarks.append(("warning", f"(cut at {OUTPUT_LIMIT_BYTES} bytes)"))
    if warning:
        remarks.append(("warning", f"({warning})"))
    elif exit_status != 0:
        remarks.append(("scaffold", f"(exit status {exit_status})"))
    for kind, remark in remarks:
        segments.append(Segment(kind, f"\n{remark}" if segments else remark))
    return segments


def text_of(segments: Iterable[Segment | Mapping[str, str]]) -> str:
    """What the agent reads: the texts joined without any addition."""
    return "".join(s.text if isinstance(s, Segment) else s["text"] for s in segments)
