"""Code in a trace, coloured by a small tokenizer. It colours; it does not understand.

Joined, the parts of a text are the text again. A language that is not known here stays plain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe

from orchestrator.web.text import shell_tokens, visible

_QUOTED = r"""\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"""
_NUMBER = r"(?P<num>(?<![\w.])-?\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?\b)"
_WORD = r"(?P<word>[^\W\d]\w*)"


def _rule(*, string: str = "", note: str = r"(?!)", key: str = r"(?!)") -> re.Pattern[str]:
    quoted = f"{string}|{_QUOTED}" if string else _QUOTED
    return re.compile(rf"(?P<note>{note})|(?P<key>{key})|(?P<str>{quoted})|{_NUMBER}|{_WORD}")


_RULES = {
    "json": _rule(key=r'"(?:[^"\\\n]|\\.)*"(?=\s*:)'),
    "python": _rule(
        string=r"""[rbfRBF]{0,2}(?:\"\"\"[\s\S]*?\"\"\"|\'\'\'[\s\S]*?\'\'\')""", note=r"\#[^\n]*"
    ),
    "sql": _rule(note=r"--[^\n]*|/\*[\s\S]*?\*/"),
    "javascript": _rule(string=r"`(?:[^`\\]|\\.)*`", note=r"//[^\n]*|/\*[\s\S]*?\*/"),
}
_WORDS = {
    "json": "true false null",
    "python": (
        "and as assert async await break class continue def del elif else except False finally for "
        "from global if import in is lambda None nonlocal not or pass raise return True try while "
        "with yield match case"
    ),
    "sql": (
        "select from where and or not in is null as on join left right inner outer full cross "
        "group by order having limit offset insert into values update set delete create table "
        "drop alter index view with union all distinct case when then else end asc desc between "
        "like exists begin commit rollback primary key references default"
    ),
    "javascript": (
        "async await break case catch class const continue default delete do else export extends "
        "false finally for from function if import in instanceof let new null of return super "
        "switch this throw true try typeof undefined var void while yield"
    ),
}
_KEYWORDS: Mapping[str, frozenset[str]] = {name: frozenset(w.split()) for name, w in _WORDS.items()}
_ALIASES = {"py": "python", "js": "javascript", "typescript": "javascript", "sh": "shell"}
_ALIASES |= {"bash": "shell", "command": "shell", "cmd": "shell", "query": "sql"}


def code_tokens(text: str, language: str) -> Iterator[tuple[str, str]]:
    """(class, text) of the parts; an empty class for what has no colour."""
    language = _ALIASES.get(language, language)
    if language == "shell":
        yield from shell_tokens(text)
        return
    rule = _RULES.get(language)
    if rule is None:
        yield "", text
        return
    position = 0
    for match in rule.finditer(text):
        if match.start() > position:
            yield "", text[position : match.start()]
        position = match.end()
        yield _colour(match, language), match.group()
    if position < len(text):
        yield "", text[position:]


def _colour(match: re.Match[str], language: str) -> str:
    kind = match.lastgroup or ""
    if kind != "word":
        return kind
    word = match.group().lower() if language == "sql" else match.group()
    return "word" if word in _KEYWORDS[language] else ""


def code(text: str, language: str) -> SafeString:
    """The text as coloured HTML."""
    parts = code_tokens(text, language)
    return format_html_join("", "{}", ((_marked(kind, part),) for kind, part in parts))


def _marked(kind: str, part: str) -> SafeString:
    shown = visible(part)
    return mark_safe(f'<span class="sh-{kind}">{shown}</span>') if kind else shown


_FENCE = re.compile(r"^(?:```|~~~)\s*([\w+-]*)[^\n]*\n([\s\S]*?)^(?:```|~~~)[ \t]*$", re.MULTILINE)


def with_fences(text: str) -> SafeString:
    """Text in which fenced blocks are coloured; the fences stay, nothing is taken away."""
    parts: list[SafeString] = []
    position = 0
    for match in _FENCE.finditer(text):
        parts.append(visible(text[position : match.start(2)]))
        parts.append(code(match.group(2), match.group(1).lower()))
        position = match.end(2)
    parts.append(visible(text[position:]))
    return mark_safe("".join(parts))


def language_of(tool: str, argument: str, value: str) -> str:
    """A guess from the names of a tool and its argument; plain when nothing tells."""
    names = f"{tool} {argument}".lower()
    for word in ("sql", "python", "javascript", "json"):
        if word in names:
            return word
    if re.search(r"\b(bash|shell|sh|terminal|command|cmd)\b|run_command|execute_command", names):
        return "shell"
    if re.search(r"\bcode\b|script|program", names):
        return "python"
    if re.match(r"\s*(select|insert|update|delete|with|create)\b", value, re.IGNORECASE):
        return "sql"
    return "json" if value.lstrip()[:1] in ("{", "[") else ""
