"""What is wrong with a harness as it stands: for people who write or import one.

A harness with errors can still be run; the findings say what will not do what its author meant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from optimizer import evals
from optimizer.edits import body_text
from optimizer.findings import Finding, Severity
from optimizer.harness import ACTIONS, INSTRUCTIONS, SKILL_FILE, Harness, Pick
from optimizer.lineage import descriptions_of
from optimizer.lint import (
    MAX_PROMPT_TOKENS,
    MAX_TOKENS,
    component_tokens,
    missing_references,
    plain,
    prompt_tokens,
    size_class,
)
from optimizer.paragraphs import has_unclosed_part, paragraphs
from optimizer.skills import body_problems, linked_files
from optimizer.tools import TOOLS, parameters_of
from optimizer.wording import faults


def lint_harness(
    harness: Harness,
    *,
    offered: Mapping[str, Collection[str]] | None = None,
    has_person: bool = False,
) -> list[Finding]:
    """Findings, by component. `offered`: tools of the environment and their parameters."""
    found = [
        *_texts(harness, has_person),
        *_skills(harness),
        *_tools(harness, offered),
        *_sizes(harness),
        *_demonstrations(harness),
    ]
    return sorted(dict.fromkeys(found), key=lambda item: (item.component, item.code))


def _texts(harness: Harness, has_person: bool) -> Iterator[Finding]:
    for component in harness.components():
        text = body_text(harness, component)
        if text is None:
            continue
        yield from _faults(component, text, has_person)
        seen: set[str] = set()
        for block in paragraphs(text):
            if plain(block) in seen:
                yield _warning(component, "duplicate", f"is told twice: {block[:80]!r}")
            seen.add(plain(block))
        if has_unclosed_part(text):
            message = "a protected part has no end: all that follows it is protected"
            yield _warning(component, "protected_part", message)
    for skill in harness.skills:
        component = f"skills/{skill.name}/SKILL.md"
        yield from _faults(component, skill.description, has_person)
    for description in descriptions_of(harness).values():
        yield from _faults(TOOLS, description, has_person)
    if (n := harness.instructions.count(ACTIONS)) > 1:
        yield _warning(INSTRUCTIONS, "placeholder", f"{ACTIONS} stands there {n} times")


def _faults(component: str, text: str, has_person: bool) -> Iterator[Finding]:
    for code, message in faults(text, has_person=has_person):
        yield _error(component, code, message)


def _skills(harness: Harness) -> Iterator[Finding]:
    for skill in harness.skills:
        component = f"skills/{skill.name}/SKILL.md"
        if not skill.body.strip():
            yield _warning(component, "skill", "the body is empty: there is nothing to load")
        for problem in body_problems(skill.body):
            yield _warning(component, "skill", problem)
    for path, name in missing_references(harness):
        yield _warning(path, "reference", f"names {name}, which is not there")
    for path, text in harness.files.items():
        if path.split("/")[2] == "references" and (linked := linked_files(text)):
            message = f"names {linked[0]}; references name no further ones"
            yield _warning(path, "reference", message)
    for problem in evals.problems(harness):
        path, _, message = problem.partition(": ")
        yield _error(path.split(" ")[0].split(",")[0], "evals", message)
    for problem in evals.advice(harness):
        path, _, message = problem.partition(": ")
        yield _warning(path, "evals", message)


def _tools(harness: Harness, offered: Mapping[str, Collection[str]] | None) -> Iterator[Finding]:
    if offered is None:
        return
    for tool in harness.tools:
        if tool["name"] not in offered:
            yield _warning(TOOLS, "unknown_tool", f"{tool['name']!r} is not offered")
            continue
        for parameter in parameters_of(tool):
            if parameter not in offered[tool["name"]]:
                message = f"{tool['name']} has no parameter {parameter!r}"
                yield _warning(TOOLS, "unknown_tool", message)


def _sizes(harness: Harness) -> Iterator[Finding]:
    for component, tokens in component_tokens(harness).items():
        most = MAX_TOKENS.get(size_class(component))
        if most is not None and tokens > most and not SKILL_FILE.fullmatch(component):
            yield _warning(component, "size", f"about {tokens} tokens; at most {most} are advised")
    if (tokens := prompt_tokens(harness)) > MAX_PROMPT_TOKENS:
        message = (
            f"every rollout begins with about {tokens} tokens; advised are {MAX_PROMPT_TOKENS}"
        )
        yield _warning("", "size", message)


def _demonstrations(harness: Harness) -> Iterator[Finding]:
    if harness.picking.pick is Pick.NEAREST and not harness.demonstrations:
        yield _warning(
            "harness.yaml", "demonstrations", "picks the nearest demonstrations; there are none"
        )


def _error(component: str, code: str, message: str) -> Finding:
    return Finding(code, Severity.ERROR, message, component)


def _warning(component: str, code: str, message: str) -> Finding:
    return Finding(code, Severity.WARNING, message, component)
