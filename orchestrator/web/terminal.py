"""Output of terminals as HTML, in colour and without danger.

Colours and weights (SGR sequences) become classes of the style sheet. Every other complete escape
sequence is left out, the target of a hyperlink too. One without an end is no sequence: its ESC is
shown as a picture, so that nothing can hide the rest of a text. Text that a terminal would conceal,
or print in the colour of its ground, is shown. A carriage return begins a line: what a progress bar
overwrote stays readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

_SEQUENCE = re.compile(
    "\x1b\\[(?P<sgr>[0-9;:]*)m"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b\\]|\x9d)[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)"
    "|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c\n]{0,4096}(?:\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-OQ-WYZ\\\\`-~]"
)
_LONE_RETURN = re.compile("\r(?!\n)")


@dataclass(frozen=True)
class _Look:
    is_bold: bool = False
    is_dim: bool = False
    is_italic: bool = False
    is_underlined: bool = False
    is_inverse: bool = False
    ink: int | None = None
    """0 to 15, as terminals number them."""
    ground: int | None = None

    @property
    def classes(self) -> str:
        ink, ground = (self.ground, self.ink) if self.is_inverse else (self.ink, self.ground)
        names = [
            *(["t-bold"] if self.is_bold else []),
            *(["t-dim"] if self.is_dim else []),
            *(["t-italic"] if self.is_italic else []),
            *(["t-under"] if self.is_underlined else []),
        ]
        # A ground brings its own ink along, or a text could be printed so that nobody sees it.
        if ground is not None:
            names.append(f"t-b{ground % 8}")
        elif self.is_inverse:
            names.append("t-b7")
        elif ink is not None:
            names.append(f"t-f{ink % 8}")
        return " ".join(names)


def without_sequences(text: str) -> str:
    """What is left to read: for list cells and for searching."""
    return _SEQUENCE.sub("", text)


def terminal(text: str) -> SafeString:
    """Escaped HTML. Odd characters are marks, as in every other text."""
    from orchestrator.web.text import visible

    text = _LONE_RETURN.sub("\n", text)
    return mark_safe(
        "".join(
            format_html('<span class="{}">{}</span>', look.classes, visible(part))
            if look.classes
            else visible(part)
            for look, part in _parts(text)
        )
    )


def _parts(text: str) -> Iterator[tuple[_Look, str]]:
    look, position = _Look(), 0
    for match in _SEQUENCE.finditer(text):
        if match.start() > position:
            yield look, text[position : match.start()]
        position = match.end()
        if match["sgr"] is not None:
            look = _after(look, match["sgr"])
    if position < len(text):
        yield look, text[position:]


def _after(look: _Look, sgr: str) -> _Look:
    codes = [int(code) if code else 0 for code in re.split("[;:]", sgr)][:32]
    at = 0
    while at < len(codes):
        code = codes[at]
        at += 1
        if code in (38, 48):
            colour, at = _extended(codes, at)
            look = replace(look, ink=colour) if code == 38 else replace(look, ground=colour)
        else:
            look = _with(look, code)
    return look


def _with(look: _Look, code: int) -> _Look:
    match code:
        case 0:
            return _Look()
        case 1:
            return replace(look, is_bold=True)
        case 2:
            return replace(look, is_dim=True)
        case 3:
            return replace(look, is_italic=True)
        case 4 | 21:
            return replace(look, is_underlined=True)
        case 7:
            return replace(look, is_inverse=True)
        case 22:
            return replace(look, is_bold=False, is_dim=False)
        case 23:
            return replace(look, is_italic=False)
        case 24:
            return replace(look, is_underlined=False)
        case 27:
            return replace(look, is_inverse=False)
        case 39:
            return replace(look, ink=None)
        case 49:
            return replace(look, ground=None)
    if 30 <= code < 38 or 90 <= code < 98:
        return replace(look, ink=code % 10)
    if 40 <= code < 48 or 100 <= code < 108:
        return replace(look, ground=code % 10)
    return look


def _extended(codes: list[int], at: int) -> tuple[int | None, int]:
    """A colour of the 256 or of all, as the nearest of eight; and the place behind it."""
    if at >= len(codes):
        return None, at
    if codes[at] == 5 and at + 1 < len(codes):
        return _of_256(codes[at + 1]), at + 2
    if codes[at] == 2 and at + 3 < len(codes):
        return _nearest(*codes[at + 1 : at + 4]), at + 4
    return None, len(codes)


def _of_256(number: int) -> int | None:
    if number < 16:
        return number % 8
    if number < 232:
        cube = number - 16
        return _nearest(*(51 * level for level in (cube // 36, cube // 6 % 6, cube % 6)))
    return 7 if number >= 244 else 0


def _nearest(red: int, green: int, blue: int) -> int:
    brightest = max(red, green, blue)
    if brightest - min(red, green, blue) < 40:
        return 7 if brightest >= 128 else 0
    return sum(bit for bit, level in ((1, red), (2, green), (4, blue)) if level > 0.6 * brightest)
