"""Actions in general terms: what an agent did, without what only this task is about.

    wc -l ideas.txt            ->  wc -l …
    get_invoice(id="INV-939")  ->  get_invoice id=…
    answer: 11                 ->  answer: …

Words that stand in the task or in what the environment said are not kept, nor are numbers, except
as options. What is left can be told to an agent without telling it an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from optimizer.operators.evidence import Step, Trace

GAP = "…"
MAX_PATTERN_CHARS = 80
LABEL = re.compile(r"([A-Za-z][\w-]{0,30}):(?=\s|$)")
PIPE = re.compile(r"\s*(\|\||&&|[|;])\s*")
QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'")
WORD = re.compile(r"[A-Za-z_][\w.-]*")
OPTION = re.compile(r"-{1,2}[A-Za-z][\w-]*|-\d")
NUMBER = re.compile(r"[-+]?\d[\d.,:/]*%?")
SQL = re.compile(
    r"select|insert|update|delete|create|alter|drop|with|pragma|from|into|values|set|where|group|by|"
    r"order|having|join|left|on|and|or|not|in|is|null|limit|count|sum|avg|min|max|as|distinct|like|"
    r"table|add|column|primary|key|default|union|all|exists|between|case|when|then|else|end",
    re.IGNORECASE,
)
SQL_VERBS = ("select", "insert", "update", "delete", "create", "alter", "drop", "with", "pragma")
ERROR = re.compile(
    r"\b(error|exception|traceback|no such|not found|not permitted|denied|invalid|unknown|refused|"
    r"unrecognized|usage:|failed|cannot|missing|syntax)\b",
    re.IGNORECASE,
)
ERROR_LOOKED_AT_CHARS = 300


def symbol(step: Step) -> str:
    """What kind of action it is: a tool, the programs of a command, or the label of a text.

    Empty for free text, which has no kind that could be told from its content.
    """
    if step.tool:
        return step.tool
    line = _first_line(step.action)
    if label := LABEL.match(line):
        return f"{label[1].casefold()}:"
    if verb := _sql_verb(line):
        return verb
    if not _is_command(line):
        return ""
    programs = [WORD.match(part) for part in _parts(line)[::2]]
    return " | ".join(found[0] for found in programs if found)


def pattern(step: Step, trace: Trace, before: int) -> str:
    """The action in general terms; `before`: how many steps of the trace came earlier."""
    if step.tool:
        return " ".join([step.tool, *(f"{name}={GAP}" for name in step.arguments)])
    line = _first_line(step.action)
    if label := LABEL.match(line):
        return f"{label[1]}: {GAP}"
    if _sql_verb(line):
        return _general_sql(step.action)
    if not _is_command(line):
        return ""
    known = _words_of(trace, before)
    parts = _parts(line)
    general = [part if i % 2 else _general(part, known) for i, part in enumerate(parts)]
    return " ".join(general)[:MAX_PATTERN_CHARS]


def error_of(step: Step) -> str:
    """The kind of error that an action met, without what is particular; empty where it met none."""
    text = step.error
    if not text:
        head = step.output[:ERROR_LOOKED_AT_CHARS]
        lines = [line for line in head.splitlines() if ERROR.search(line)]
        # A long answer that speaks of errors is content; an error is what comes back instead.
        text = lines[0] if lines and len(step.output) <= ERROR_LOOKED_AT_CHARS else ""
    text = _first_line(text)
    text = QUOTED.sub(GAP, text)
    text = re.sub(r"\S*[/\\.]\S+|\S*\d\S*", GAP, text)
    return re.sub(rf"{GAP}(\s*{GAP})+", GAP, text).strip()[:MAX_PATTERN_CHARS]


def symbols(trace: Trace) -> list[str]:
    """Of the actions that have a kind, in order."""
    return [found for step in trace.moves if (found := symbol(step))]


def _general(command: str, known: frozenset[str]) -> str:
    words = QUOTED.sub(f" {GAP} ", command).split()
    kept = []
    for i, word in enumerate(words):
        is_language = (i == 0 and WORD.fullmatch(word)) or OPTION.fullmatch(word)
        if is_language or (i and _is_value_of_option(words[i - 1], word, known)):
            kept.append(word)
        elif _is_particular(word, known):
            kept.append(GAP)
        else:
            kept.append(word)
    return re.sub(rf"{GAP}(\s+{GAP})+", GAP, " ".join(kept))


def _is_value_of_option(option: str, word: str, known: frozenset[str]) -> bool:
    """A small number behind an option that the task does not speak of: `head -n 1`."""
    return (
        OPTION.fullmatch(option) is not None
        and re.fullmatch(r"\d{1,2}", word) is not None
        and word not in known
    )


def _sql_verb(line: str) -> str:
    found = WORD.match(line)
    is_sql = found is not None and found[0].casefold() in SQL_VERBS and " " in line
    return found[0].upper() if found is not None and is_sql else ""


def _general_sql(statement: str) -> str:
    """Its keywords; names and values are the task's."""
    words = re.findall(r"[A-Za-z_]+|[^\sA-Za-z_]+", QUOTED.sub(f" {GAP} ", statement))
    kept = [word.upper() if SQL.fullmatch(word) else GAP for word in words]
    return re.sub(rf"{GAP}(\s+{GAP})+", GAP, " ".join(kept))[:MAX_PATTERN_CHARS]


def _is_particular(word: str, known: frozenset[str]) -> bool:
    """A name, a value or a number, rather than a part of the language of commands."""
    bare = word.strip("'\"(),")
    return (
        GAP in word
        or any(part.casefold() in known for part in re.findall(r"\w+", bare))
        or NUMBER.fullmatch(bare) is not None
        or re.search(r"[./\\=@]\w", bare) is not None
        or len(bare) > 20
    )


def _words_of(trace: Trace, before: int) -> frozenset[str]:
    """All words of the task and of what came back before the action."""
    texts = [trace.messages[0]["content"]] if trace.messages else []
    texts += [step.output for step in list(trace.moves)[:before]]
    return frozenset(word.casefold() for text in texts for word in re.findall(r"\w+", text))


def _is_command(line: str) -> bool:
    """It begins with a small word and is no sentence."""
    first = re.match(r"[a-z_][\w.-]*(?=\s|$|\()", line)
    return (
        first is not None
        and not line.rstrip().endswith((".", "?", "!"))
        and (" " in line or "_" in first[0] or "(" in line)
    )


def _parts(line: str) -> Sequence[str]:
    """Commands and what joins them, in turns; joints inside of quotes do not count."""
    hidden = QUOTED.sub(lambda found: "\x00" * len(found[0]), line)
    parts: list[str] = []
    at = 0
    for joint in PIPE.finditer(hidden):
        parts += [line[at : joint.start()], joint[1]]
        at = joint.end()
    return [*parts, line[at:]]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
