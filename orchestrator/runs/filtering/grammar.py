"""Text of a filter into a tree. Pure; every error names its place.

    query      = or
    or         = and { "or" and }
    and        = not { ["and"] not }
    not        = [ "not" ] ( "(" or ")" | comparison | words )
    comparison = field operator value | field ["not"] "in" "(" value { "," value } ")"
               | field "is" ["not"] "empty"
    field      = name { "." name | "." quoted }

Words beside one another are one full-text search: an event must hold all of them. Quoted text is
a phrase, or a value. Keywords are lower or upper case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

LONGEST = 2_000
"""Characters of a filter."""
DEEPEST = 40
"""Levels of parentheses and `not`."""
MOST_TERMS = 60
"""Comparisons and searches in one filter: SQLite takes no deeper expressions than a thousand."""

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~", "!~", "in", "not in", "empty", "not empty"]
OPERATORS = ("!=", "!~", "<=", ">=", "=", "<", ">", "~")
KEYWORDS = frozenset({"and", "or", "not"})
"""Never words to search for, unless quoted. `in` and `is` mean something only behind a field."""


class FilterError(ValueError):
    """What is wrong with a filter, and where: `text[start:end]`."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = end


@dataclass(frozen=True)
class Value:
    text: str
    start: int
    end: int
    is_quoted: bool = False


@dataclass(frozen=True)
class Comparison:
    path: tuple[str, ...]
    """`verdict.file_exists` is ("verdict", "file_exists")."""
    operator: Operator
    values: tuple[Value, ...]
    """One, or those of a list; none for `empty`."""
    start: int
    end: int
    """Of the field's name."""


@dataclass(frozen=True)
class Words:
    """A full-text search, as `orchestrator.events.search` reads it."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Not:
    part: Node


@dataclass(frozen=True)
class And:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Or:
    parts: tuple[Node, ...]


Node = Comparison | Words | Not | And | Or


@dataclass(frozen=True)
class _Token:
    kind: Literal["word", "quoted", "operator", "(", ")", ",", "end"]
    text: str
    start: int
    end: int

    def is_keyword(self, *names: str) -> bool:
        return self.kind == "word" and self.text.lower() in names


_SPACE = re.compile(r"\s+")
_OPERATOR = re.compile("|".join(re.escape(each) for each in OPERATORS))
_WORD = re.compile(r"""(?:[^\s"'()=!<>~,]|!(?![=~]))(?:[^\s"()=!<>~,]|!(?![=~]))*""")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'', re.DOTALL)


def parse(text: str) -> Node | None:
    """None for a filter that asks for nothing. FilterError names what is wrong."""
    if len(text) > LONGEST:
        raise FilterError(
            f"A filter has at most {LONGEST:,} characters; this one has {len(text):,}.",
            LONGEST,
            len(text),
        )
    tokens = _tokens(text)
    if tokens[0].kind == "end":
        return None
    return _Parser(tokens).whole()


def quoted(text: str) -> str:
    """A value as it is written in a filter; bare where that reads as the same."""
    match = _WORD.fullmatch(text)
    if match and text.lower() not in KEYWORDS and "\\" not in text:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        if match := _SPACE.match(text, at):
            at = match.end()
            continue
        char = text[at]
        if char in "(),":
            found.append(_Token(char, char, at, at + 1))  # type: ignore[arg-type] # one of three
            at += 1
        elif char in "\"'":
            quote = _QUOTED.match(text, at)
            if quote is None:
                raise FilterError(f"This {char} is not closed.", at, len(text))
            inner = quote[1] if quote[1] is not None else quote[2]
            found.append(_Token("quoted", _unescaped(inner), at, quote.end()))
            at = quote.end()
        elif match := _OPERATOR.match(text, at):
            found.append(_Token("operator", match[0], at, match.end()))
            at = match.end()
        else:
            word = _WORD.match(text, at)
            assert word is not None, "every other character belongs to a word"
            found.append(_Token("word", word[0], at, word.end()))
            at = word.end()
    found.append(_Token("end", "", len(text), len(text)))
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._last = len(tokens) - 1
        self._at = 0
        self._depth = 0
        self._n_terms = 0

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _stands(self, kind: str) -> bool:
        return self._now.kind == kind

    def _take(self) -> _Token:
        token = self._now
        self._at += 1
        return token

    def whole(self) -> Node:
        node = self._or()
        if self._now.kind == ")":
            raise FilterError("This ) closes nothing.", self._now.start, self._now.end)
        if self._now.kind != "end":
            raise self._unexpected("and, or, or another condition")
        return node

    def _or(self) -> Node:
        parts = [self._and()]
        while self._now.is_keyword("or"):
            self._take()
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _and(self) -> Node:
        parts = [self._not()]
        while True:
            if self._now.is_keyword("and"):
                self._take()
                parts.append(self._not())
            elif self._starts_condition():
                parts.append(self._not())
            else:
                break
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _starts_condition(self) -> bool:
        token = self._now
        return token.kind in ("(", "quoted") or (
            token.kind == "word" and not token.is_keyword("and", "or")
        )

    def _not(self) -> Node:
        self._depth += 1
        if self._depth > DEEPEST:
            raise FilterError(
                f"A filter has at most {DEEPEST} levels.", self._now.start, self._now.end
            )
        try:
            if self._now.is_keyword("not"):
                self._take()
                return Not(self._not())
            if self._now.kind == "(":
                return self._group()
            self._n_terms += 1
            if self._n_terms > MOST_TERMS:
                raise FilterError(
                    f"A filter has at most {MOST_TERMS} conditions.",
                    self._now.start,
                    self._now.end,
                )
            return self._comparison() if self._is_comparison() else self._words()
        finally:
            self._depth -= 1

    def _group(self) -> Node:
        opened = self._take()
        if self._stands(")"):
            raise FilterError("Nothing stands in these parentheses.", opened.start, self._now.end)
        node = self._or()
        if not self._stands(")"):
            if self._now.kind == "end":
                raise FilterError("This ( is not closed.", opened.start, opened.end)
            raise self._unexpected("and, or, or )")
        self._take()
        return node

    def _is_comparison(self) -> bool:
        """Whether a field stands here: a word, and after it an operator."""
        if self._now.kind == "operator":
            raise FilterError(
                f"A field's name is missing before {self._now.text}.",
                self._now.start,
                self._now.end,
            )
        if self._now.kind != "word" or self._now.is_keyword(*KEYWORDS):
            return False
        at = self._at + 1
        # `verdict."file exists"`: the quoted part touches the point before it.
        if self._is_quoted_field():
            at += 1
        after, second, third = (self._tokens[min(at + i, self._last)] for i in range(3))
        if after.kind == "operator":
            return True
        if after.is_keyword("not"):
            after, second = second, third
            return after.is_keyword("in") and second.kind == "("
        if after.is_keyword("in"):
            return second.kind == "("
        return after.is_keyword("is") and (
            second.is_keyword("empty") or (second.is_keyword("not") and third.is_keyword("empty"))
        )

    def _is_quoted_field(self) -> bool:
        after = self._tokens[min(self._at + 1, self._last)]
        return (
            self._now.text.endswith(".") and after.kind == "quoted" and after.start == self._now.end
        )

    def _comparison(self) -> Node:
        path, start, end = self._field()
        if self._now.kind == "operator":
            operator = self._take().text
            return Comparison(path, operator, (self._value(operator),), start, end)  # type: ignore[arg-type] # one of OPERATORS
        if self._now.is_keyword("is"):
            self._take()
            is_not = self._now.is_keyword("not")
            if is_not:
                self._take()
            self._take()
            return Comparison(path, "not empty" if is_not else "empty", (), start, end)
        is_not = self._now.is_keyword("not")
        if is_not:
            self._take()
        self._take()
        return Comparison(path, "not in" if is_not else "in", self._list(), start, end)

    def _field(self) -> tuple[tuple[str, ...], int, int]:
        token = self._take()
        names = token.text.split(".")
        end = token.end
        if names[-1] == "" and self._now.kind == "quoted" and self._now.start == end:
            last = self._take()
            names[-1], end = last.text, last.end
        if "" in names:
            raise FilterError(
                f"«{token.text}» is no field: a name is missing beside the point.", token.start, end
            )
        return tuple(names), token.start, end

    def _value(self, operator: str) -> Value:
        token = self._now
        if token.kind not in ("word", "quoted") or token.is_keyword(*KEYWORDS):
            raise self._unexpected(f"a value after {operator}")
        self._take()
        return Value(token.text, token.start, token.end, token.kind == "quoted")

    def _list(self) -> tuple[Value, ...]:
        self._take()
        values = [self._value("(")]
        while self._now.kind == ",":
            self._take()
            values.append(self._value(","))
        if self._now.kind != ")":
            raise self._unexpected(", or ) in the list of values")
        self._take()
        return tuple(values)

    def _words(self) -> Node:
        first = self._now
        if first.kind == "word" and first.is_keyword(*KEYWORDS):
            raise self._unexpected("a condition or a word to search for")
        if first.kind not in ("word", "quoted"):
            raise self._unexpected("a condition or a word to search for")
        parts: list[str] = []
        end = first.end
        while self._now.kind in ("word", "quoted", ",") and not self._now.is_keyword(*KEYWORDS):
            if parts and self._now.kind == "word" and self._is_comparison():
                break
            token = self._take()
            end = token.end
            if token.kind == "quoted":
                parts.append(f'"{token.text.replace(chr(34), " ")}"')
            elif token.kind == "word":
                parts.append(token.text)
        return Words(" ".join(parts), first.start, end)

    def _unexpected(self, wanted: str) -> FilterError:
        token = self._now
        if token.kind == "end":
            start = max(0, token.start - 1)
            return FilterError(f"The filter ends where {wanted} is expected.", start, token.end)
        return FilterError(
            f"«{token.text}» stands where {wanted} is expected.", token.start, token.end
        )
