"""What makes a rubric hard to believe, found by reading it. Pure; no model is asked.

Findings are advice: each names a criterion, says why in a sentence and what to do. A rubric with
findings can be published. The rules are few and meant to be right: one that cries wolf is turned
off by its readers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from rapidfuzz import fuzz

from rubrics.types import Aggregation, Criterion, RubricSpec

JUDGES = frozenset({"judge", "judge_panel", "judge_group"})
ALIKE = 92.0
"""Similarity, of 100, from which two questions are the same one."""
DOMINANT = 0.8
"""Share of the weight from which one criterion decides alone."""


class Severity(StrEnum):
    WARNING = "warning"
    """Likely to give wrong scores."""
    ADVICE = "advice"
    """Likely to make scores harder to read or to trust."""


@dataclass(frozen=True)
class Finding:
    code: str
    severity: Severity
    message: str
    """Why it matters, in a sentence."""
    fix: str
    """What to do."""
    criterion: str = ""
    """Id; empty for the rubric as a whole."""
    field: str = ""


def lint(spec: RubricSpec) -> list[Finding]:
    """All findings, warnings first, then in the rubric's order."""
    found = [finding for criterion in spec.criteria for finding in _of_criterion(criterion)]
    found += _of_rubric(spec)
    return sorted(found, key=lambda finding: finding.severity is not Severity.WARNING)


def _of_criterion(criterion: Criterion) -> Iterator[Finding]:
    rules = _JUDGE_RULES if criterion.kind in JUDGES else _CODE_RULES
    for rule in rules:
        finding = rule(criterion)
        if finding is not None:
            yield finding


def _finding(
    criterion: Criterion, code: str, message: str, fix: str, field: str, *, warns: bool = False
) -> Finding:
    severity = Severity.WARNING if warns else Severity.ADVICE
    return Finding(code, severity, message, fix, criterion.id, field)


# --- judges --------------------------------------------------------------------------------------

_AND = re.compile(r"\b(?:and|as well as)\b", re.IGNORECASE)
_VERB = re.compile(
    r"\b(?:is|are|was|were|does|do|did|has|have|had|can|should|must|contains?|includes?|gives?|"
    r"states?|names?|uses?|answers?|explains?|avoids?|lists?|cites?|follows?)\b",
    re.IGNORECASE,
)
_COUNTABLE = re.compile(
    r"\b(?:how many|number of|at (?:most|least) \d+|fewer than \d+|more than \d+|exactly \d+|"
    r"no more than|longer than|shorter than|word count|characters?)\b",
    re.IGNORECASE,
)
_EXACT = re.compile(
    r"\b(?:equals?|exactly (?:the same|matches)|identical to|valid json|is json|matches the "
    r"(?:regex|pattern|expression)|contains the (?:word|string|phrase)|file (?:exists|was created)|"
    r"exit (?:code|status))\b",
    re.IGNORECASE,
)
_FORMAT = re.compile(
    r"\b(?:answer|reply|respond|output|return)\b.{0,30}\b(?:json|xml|yaml|yes or no|true or false|"
    r"only (?:a|the) (?:number|score|word)|one word|a number|a score)\b"
    r"|\b(?:from|between) \d+ (?:to|and) \d+\b|\bout of (?:\d+|ten|five)\b|\bscore of\b",
    re.IGNORECASE,
)
_OBEY = re.compile(
    r"\b(?:as the (?:agent|answer|assistant) (?:says|claims|asks|requests)|trust the (?:agent|"
    r"answer)|if (?:the agent|it) (?:says|claims) (?:so|that))\b",
    re.IGNORECASE,
)
_VAGUE = re.compile(
    r"\b(?:good|nice|appropriate|reasonable|high[- ]quality|proper|adequate|great|well[- ]written|"
    r"satisfying|professional)\b",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"\b(?:reference|expected answer|correct answer|ground truth)\b", re.I)


def _question(criterion: Criterion) -> str:
    return str(criterion.params.get("question", ""))


def _prefer_binary(criterion: Criterion) -> Finding | None:
    if criterion.params.get("scale", "binary") == "binary":
        return None
    return _finding(
        criterion,
        "prefer-binary",
        "Judges agree with people more often on yes and no than on points of a scale.",
        "Ask for yes or no; split the scale into criteria of their own where it has steps.",
        "params.scale",
    )


def _anchors(criterion: Criterion) -> Finding | None:
    if criterion.params.get("scale") != "scale" or criterion.params.get("anchors"):
        return None
    return _finding(
        criterion,
        "anchors",
        "Nothing says what the values of the scale mean, so each judge decides for itself.",
        "Describe at least both ends in anchors.",
        "params.anchors",
        warns=True,
    )


def _one_idea(criterion: Criterion) -> Finding | None:
    question = _question(criterion)
    parts = _AND.split(question)
    is_double = len(parts) > 1 and all(_VERB.search(part) for part in parts)
    if question.count("?") < 2 and not is_double:
        return None
    return _finding(
        criterion,
        "one-idea",
        "The question asks several things; a verdict on it does not say which of them failed.",
        "Make a criterion of each.",
        "params.question",
    )


def _use_code(criterion: Criterion) -> Finding | None:
    question = _question(criterion)
    if _COUNTABLE.search(question):
        kind = "steps, tool_called or python"
    elif _EXACT.search(question):
        kind = "exact, regex, json_schema or state_file"
    else:
        return None
    return _finding(
        criterion,
        "use-code",
        "Code decides this without error and without cost; a model miscounts and misreads.",
        f"Use a criterion of kind {kind}.",
        "kind",
    )


def _second_format(criterion: Criterion) -> Finding | None:
    if not _FORMAT.search(_question(criterion)):
        return None
    return _finding(
        criterion,
        "second-format",
        "The question asks for a form of answer of its own; the judge is told its form already.",
        "Say only what is to be decided; choose the scale in its fields.",
        "params.question",
        warns=True,
    )


def _obedient(criterion: Criterion) -> Finding | None:
    if not _OBEY.search(_question(criterion)):
        return None
    return _finding(
        criterion,
        "obeys-the-agent",
        "The question lets the agent's own words decide, which an agent learns to use.",
        "Ask what the trace shows, not what the agent says of it.",
        "params.question",
        warns=True,
    )


def _leak(criterion: Criterion) -> Finding | None:
    sees = criterion.params.get("sees", ())
    mentions = bool(_REFERENCE.search(_question(criterion)))
    if mentions and "expected" not in sees:
        return _finding(
            criterion,
            "reference-not-shown",
            "The question speaks of the reference answer, which the judge is not shown.",
            "Add expected to what it sees.",
            "params.sees",
            warns=True,
        )
    if "expected" in sees and not mentions:
        return _finding(
            criterion,
            "reference-not-used",
            "The judge is shown the reference answer and not asked about it: it will grade "
            "likeness instead of what is asked.",
            "Leave expected out of what it sees, or ask about it.",
            "params.sees",
        )
    return None


def _vague(criterion: Criterion) -> Finding | None:
    match = _VAGUE.search(_question(criterion))
    if match is None or criterion.params.get("anchors"):
        return None
    return _finding(
        criterion,
        "vague-word",
        f"Readers differ on what “{match.group()}” means, and so do judges.",
        "Say what can be seen in the trace when it holds.",
        "params.question",
    )


def _single_vote(criterion: Criterion) -> Finding | None:
    models = criterion.params.get("models", ())
    if criterion.kind != "judge_panel" or len(set(models)) != 1:
        return None
    return _finding(
        criterion,
        "panel-of-one",
        "A panel of one model repeats its errors.",
        "Name different models, or use kind judge with repeats.",
        "params.models",
    )


# --- code ----------------------------------------------------------------------------------------

_UNSTEADY = re.compile(
    r"^\s*(?:import|from)\s+(?:random|secrets|time|socket|urllib|http|requests|httpx)\b", re.M
)


def _unsteady(criterion: Criterion) -> Finding | None:
    match = _UNSTEADY.search(str(criterion.params.get("source", "")))
    if criterion.kind != "python" or match is None:
        return None
    return _finding(
        criterion,
        "unsteady-code",
        f"“{match.group().strip()}”: the same trace would get another score another time, and the "
        "sandbox has no network.",
        "Decide from the trace alone.",
        "params.source",
        warns=True,
    )


def _likeness(criterion: Criterion) -> Finding | None:
    if criterion.kind != "similarity" or not (criterion.required or criterion.gate):
        return None
    return _finding(
        criterion,
        "likeness-decides",
        "A text may be nearly the expected one and wrong in the word that matters.",
        "Use exact, number or contains where the rollout hangs on it.",
        "kind",
    )


def _threshold(criterion: Criterion) -> Finding | None:
    if criterion.kind not in ("exact", "contains", "regex", "json_schema", "tool_called"):
        return None
    if criterion.scope.value == "step" or not criterion.negative or criterion.threshold < 1.0:
        return None
    return _finding(
        criterion,
        "threshold-never-fails",
        "With a threshold of 1 a penalty counts as passed unless it happened in full.",
        "Set the threshold to 0.5.",
        "threshold",
    )


Rule = Callable[[Criterion], Finding | None]
_JUDGE_RULES: tuple[Rule, ...] = (
    _prefer_binary,
    _anchors,
    _one_idea,
    _use_code,
    _second_format,
    _obedient,
    _leak,
    _vague,
    _single_vote,
)
_CODE_RULES: tuple[Rule, ...] = (_unsteady, _likeness, _threshold)


# --- the rubric as a whole -----------------------------------------------------------------------


def _of_rubric(spec: RubricSpec) -> Iterator[Finding]:
    yield from _alike(spec)
    yield from _weights(spec)
    yield from _gates(spec)
    if all(c.negative or c.kind in ("steps", "cost", "latency", "tokens") for c in spec.criteria):
        yield Finding(
            "nothing-to-do",
            Severity.WARNING,
            "An agent that does nothing gets full marks: no criterion asks for a result.",
            "Add a criterion on the answer or on the final state.",
        )


def _alike(spec: RubricSpec) -> Iterator[Finding]:
    asked = [c for c in spec.criteria if c.kind in JUDGES]
    for a, b in combinations(asked, 2):
        if fuzz.token_sort_ratio(_question(a), _question(b)) >= ALIKE:
            yield _finding(
                b,
                "asked-twice",
                f"It asks what {a.id} asks, so that one idea counts twice.",
                "Remove one of them and give the other its weight.",
                "params.question",
            )
    coded = [c for c in spec.criteria if c.kind not in JUDGES]
    for a, b in combinations(coded, 2):
        if (a.kind, a.params, a.scope) == (b.kind, b.params, b.scope) and a.applies == b.applies:
            yield _finding(
                b,
                "asked-twice",
                f"It decides what {a.id} decides.",
                "Remove one of them and give the other its weight.",
                "params",
            )


def _weights(spec: RubricSpec) -> Iterator[Finding]:
    if spec.aggregation is not Aggregation.WEIGHTED_MEAN or spec.groups:
        return
    earning = [c for c in spec.criteria if not c.negative]
    whole = sum(c.weight for c in earning)
    if len(earning) >= 5 and len({c.weight for c in earning}) == 1:
        yield Finding(
            "weights-all-equal",
            Severity.ADVICE,
            f"All {len(earning)} criteria weigh the same, the decisive ones too.",
            "Give what matters most a weight of 8 to 10.",
            field="weight",
        )
    for criterion in earning:
        if len(earning) >= 3 and criterion.weight / whole >= DOMINANT and not criterion.required:
            yield _finding(
                criterion,
                "one-decides",
                f"It has {criterion.weight / whole:.0%} of the weight: the others hardly count.",
                "Make it required if the rollout hangs on it, and lower its weight.",
                "weight",
            )
    for criterion in spec.criteria:
        if criterion.negative and not criterion.required and criterion.weight * 20 <= whole:
            yield _finding(
                criterion,
                "penalty-too-small",
                f"It takes at most {criterion.weight / whole:.0%} off: worth the risk to an agent.",
                "Raise its weight, or make it required.",
                "weight",
            )


def _gates(spec: RubricSpec) -> Iterator[Finding]:
    last = spec.criteria[-1]
    if last.gate and len(spec.criteria) > 1:
        yield _finding(
            last,
            "gate-at-the-end",
            "A gate spares what stands behind it; nothing does.",
            "Move it to the front, where it spares the costly criteria.",
            "gate",
        )
    first_judge = next((i for i, c in enumerate(spec.criteria) if c.kind in JUDGES), None)
    if first_judge is None:
        return
    for criterion in spec.criteria[first_judge:]:
        if criterion.gate and criterion.kind not in JUDGES:
            yield _finding(
                criterion,
                "gate-behind-a-judge",
                "A judge is asked before this gate decides that it need not be.",
                "Move the gate before the judges.",
                "gate",
            )
