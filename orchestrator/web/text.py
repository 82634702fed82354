"""Text from outside, made safe to look at: odd characters as marks, commands coloured, texts cut.

What is stored is never changed: copy and download give the stored text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from django.utils.html import escape, format_html_join
from django.utils.safestring import SafeString, mark_safe

from orchestrator.web.terminal import without_sequences

PREVIEW_CHARS = 64_000
CELL_CHARS = 200

# Direction marks and invisible characters that can hide or reorder text, and the tags with which
# a text can be hidden in a text. A joiner is one of them only beside ASCII: scripts and emoji need
# it. So are tags, except in a flag.
_NAMED = re.compile(
    "[\x80-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064"
    "\u2066-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]"
    "|(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0000-\U000e007f]+"
    "|(?<=[\x20-\x7e])[\u200c\u200d]|[\u200c\u200d](?=[\x20-\x7e]|$)"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BETWEEN_BACKTICKS = re.compile("`([^`\n]+)`")


def visible(text: str) -> SafeString:
    """Escaped HTML in which control, direction and invisible characters are marks with a name."""
    text = text.replace("\r\n", "\n")
    shown = str(escape(_SURROGATE.sub("\ufffd", text)))
    shown = _CONTROL.sub(lambda m: _control_picture(m.group()), shown)
    return mark_safe(_NAMED.sub(_names, shown))


def with_code(text: str) -> SafeString:
    """A sentence of ours, with what stands between backticks as code. Escaped."""
    return mark_safe(_BETWEEN_BACKTICKS.sub(r"<code>\1</code>", visible(text)))


def _names(match: re.Match[str]) -> str:
    return "".join(f'<span class="ch">U+{ord(char):04X}</span>' for char in match.group())


def _control_picture(char: str) -> str:
    code = ord(char)
    return f'<span class="ch">{chr(0x2421 if code == 0x7F else 0x2400 + code)}</span>'


def cut(text: str, limit: int = PREVIEW_CHARS) -> tuple[str, int]:
    """The first `limit` characters and how many were left out."""
    return text[:limit], max(0, len(text) - limit)


def cell(text: str, limit: int = CELL_CHARS) -> str:
    """One line for a list without terminal escapes, cut between characters with an ellipsis."""
    line = " ".join(without_sequences(text[: 20 * limit]).split())
    if len(line) <= limit:
        return line
    return line[: _boundary(line, limit - 1)] + "…"


_LONGEST_CLUSTER = 32
_REGIONAL = ("\U0001f1e6", "\U0001f1ff")


def _boundary(text: str, at: int) -> int:
    """The place at or before `at` where no character of several code points is cut through."""
    for place in range(at, max(0, at - _LONGEST_CLUSTER), -1):
        if not _joins(text, place):
            return place
    return at


def _joins(text: str, at: int) -> bool:
    before, after = text[at - 1], text[at]
    if before == "\u200d" or after == "\u200d" or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    if "\ufe00" <= after <= "\ufe0f" or "\U000e0020" <= after <= "\U000e007f":
        return True
    if _REGIONAL[0] <= after <= _REGIONAL[1]:
        flags = 0
        while flags < at and _REGIONAL[0] <= text[at - 1 - flags] <= _REGIONAL[1]:
            flags += 1
        return flags % 2 == 1
    return unicodedata.category(after) in ("Mn", "Me", "Mc")


_SHELL = re.compile(
    r"""(?P<str>'[^']*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<var>\$\w+|\$\{[^}]*\})"""
    r"""|(?P<op>\|\||&&|[|;&<>]+|\$\(|[()])"""
    r"""|(?P<space>\s+)"""
    r"""|(?P<word>[^\s'"|;&<>()$]+|\$)""",
)


def shell_tokens(command: str) -> Iterator[tuple[str, str]]:
    """(class, text) of the parts of a command line; joined, the texts are the command again."""
    at_start = True
    position = 0
    for match in _SHELL.finditer(command):
        if match.start() > position:
            yield "", command[position : match.start()]
        position = match.end()
        kind, text = match.lastgroup or "", match.group()
        if kind == "word":
            if at_start:
                kind = "cmd"
            elif text.startswith("-"):
                kind = "flag"
            else:
                kind = ""
            at_start = False
        elif kind == "op":
            at_start = text not in (">", ">>", "<")
        elif kind in ("str", "var"):
            at_start = False
        yield ("" if kind == "space" else kind), text
    if position < len(command):
        yield "", command[position:]


def shell(command: str) -> SafeString:
    """The command as coloured HTML."""
    return format_html_join(
        "",
        "{}",
        (
            (
                mark_safe(f'<span class="sh-{kind}">{visible(text)}</span>')
                if kind
                else visible(text),
            )
            for kind, text in shell_tokens(command)
        ),
    )
