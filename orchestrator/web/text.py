"""Text from outside, made safe to look at: odd characters as marks, commands coloured, texts cut.

What is stored is never changed: copy and download give the stored text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from django.utils.html import escape, format_html_join
from django.utils.safestring import SafeString, mark_safe

PREVIEW_CHARS = 64_000
CELL_CHARS = 200

# Direction marks and invisible characters that can hide or reorder text. Joiners (U+200C, U+200D)
# stay: scripts and emoji need them.
_NAMED = re.compile("[\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def visible(text: str) -> SafeString:
    """Escaped HTML in which control, direction and invisible characters are marks with a name."""
    text = text.replace("\r\n", "\n")
    shown = str(escape(_SURROGATE.sub("\ufffd", text)))
    shown = _CONTROL.sub(lambda m: _control_picture(m.group()), shown)
    shown = _NAMED.sub(lambda m: f'<span class="ch">U+{ord(m.group()):04X}</span>', shown)
    return mark_safe(shown)


def _control_picture(char: str) -> str:
    code = ord(char)
    return f'<span class="ch">{chr(0x2421 if code == 0x7F else 0x2400 + code)}</span>'


def cut(text: str, limit: int = PREVIEW_CHARS) -> tuple[str, int]:
    """The first `limit` characters and how many were left out."""
    return text[:limit], max(0, len(text) - limit)


def cell(text: str, limit: int = CELL_CHARS) -> str:
    """One line for a list, cut between characters with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


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
