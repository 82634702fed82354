"""Lessons from contrasts between attempts that passed and attempts that failed.

Nothing here reads meaning. A lesson is a regularity that several distinct tasks show: a course of
actions that passes have in common, actions frequent in passes and rare in failures, what led on
after an error, a form that all passes have and failures lack. The authors' transcripts count as
passes. What is said of actions is their pattern (`actions`), never their content, and what fewer
than two tasks show is not said at all. Nor are counts: the same lesson from more evidence is to be
the same edit, with more support.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from optimizer.edits import SKILLS, Edit, Op
from optimizer.harness import INSTRUCTIONS, Harness
from optimizer.lineage import skill_edit
from optimizer.operators.actions import error_of, pattern, symbol, symbols
from optimizer.operators.evidence import Evidence, Trace
from optimizer.skills import Skill

MIN_TASKS = 2
"""Distinct tasks behind a lesson."""
MIN_DIFFERENCE = 0.25
"""Of the shares of passed and failed tasks that show an action; less is chance at these numbers."""
MOST = 0.75
"""Share of the tasks from which one course is told for all."""
LONGEST = 3
MAX_LESSONS = 8
MAX_COURSES = 6
WORD_COUNTS = (3, 5, 10, 20, 50, 100, 200)
"""Steps of what is said of lengths, so that one more trace does not make another lesson of it."""
SKILL_NAME = "what-worked"
GROUP = "contrast"


@dataclass(frozen=True)
class Lesson:
    text: str
    support: int
    """Distinct tasks that show it."""
    weight: float
    """How much it tells passes from failures; 0 to 1."""


def skill_from_contrasts(evidence: Evidence, harness: Harness) -> list[Edit]:
    """All lessons as a skill, or else as a block of the instructions; at most one of the two."""
    found = lessons(evidence)
    if not found:
        return []
    support = len({trace.task for trace in _passes(evidence)})
    bullets = "\n".join(f"- {lesson.text}" for lesson in found)
    name = _free_name({skill.name for skill in harness.skills})
    skill = Skill(
        name,
        "What worked in tasks of this kind: which actions, in which order, and what to do after "
        "an error. Use it at the start of a task, before the first action.",
        f"{bullets}\n",
    )
    return [
        Edit(
            op=Op.APPEND,
            component=SKILLS,
            content=skill_edit(skill).content,
            operator="contrast.skill",
            support=support,
            group=GROUP,
        ),
        Edit(
            op=Op.APPEND,
            component=INSTRUCTIONS,
            content=f"What worked in tasks of this kind:\n{bullets}",
            operator="contrast.instructions",
            support=support,
            group=GROUP,
        ),
    ]


def lessons_as_bullets(evidence: Evidence, *, count: int = 4) -> list[Edit]:
    """The strongest lessons one by one, so that each can be measured by itself."""
    return [
        Edit(
            op=Op.APPEND,
            component=INSTRUCTIONS,
            content=f"- {lesson.text}",
            operator="contrast.lesson",
            support=lesson.support,
        )
        for lesson in lessons(evidence)[:count]
    ]


def lessons(evidence: Evidence) -> list[Lesson]:
    """Strongest first; none without a pass."""
    passes, failures = _passes(evidence), evidence.failed
    if len({trace.task for trace in passes}) < MIN_TASKS:
        return []
    taken = courses(passes)
    found = [
        *(lesson for lesson, _ in taken),
        *after_errors(passes),
        *forms(passes, failures),
        *frequent(passes, failures, [course for _, course in taken]),
    ]
    return sorted(found, key=lambda item: (-item.weight, -item.support, item.text))[:MAX_LESSONS]


# --- what to do in tasks of one kind


Course = tuple[str, ...]
"""Kinds of actions, in order."""


def courses(passes: Sequence[Trace]) -> list[tuple[Lesson, Course]]:
    """The course that most passes took; or, for each stratum, the one that most of its passes took,
    told by the words that its tasks share.
    """
    if everywhere := _course(passes):
        steps, course, tasks, share = everywhere
        if share >= MOST:
            text = f"Most tasks that worked took this course: {_told(steps)}."
            return [(Lesson(text, tasks, share), course)]
    found = []
    for traces in _by_stratum(passes).values():
        words = shared_words(traces, passes)
        if words and (most := _course(traces)):
            steps, course, tasks, share = most
            text = f"Where the task speaks of “{words}”: {_told(steps)}."
            found.append((Lesson(text, tasks, share), course))
    found.sort(key=lambda item: (-item[0].support, item[0].text))
    return found[:MAX_COURSES]


def _course(traces: Sequence[Trace]) -> tuple[Course, Course, int, float] | None:
    """Patterns, kinds, tasks and share of the tasks, of the most frequent course of known kinds."""
    counted: dict[tuple[Course, Course], set[str]] = defaultdict(set)
    for trace in traces:
        steps = list(trace.moves)
        patterns = tuple(pattern(step, trace, i) for i, step in enumerate(steps))
        if patterns and all(patterns):
            counted[patterns, tuple(map(symbol, steps))].add(trace.task)
    if not counted:
        return None
    (patterns, kinds), tasks = max(counted.items(), key=lambda item: (len(item[1]), item[0]))
    if len(tasks) < MIN_TASKS:
        return None
    return patterns, kinds, len(tasks), len(tasks) / len({trace.task for trace in traces})


def _told(steps: Sequence[str]) -> str:
    return ", then ".join(f"`{item}`" for item in steps)


def shared_words(traces: Sequence[Trace], others: Sequence[Trace]) -> str:
    """The longest run of words that all the tasks of `traces` share, and not all of the others."""
    prompts = {trace.task: _words(trace) for trace in traces}
    if len(prompts) < MIN_TASKS:
        return ""
    elsewhere = [" ".join(_words(t)) for t in others if t.task not in prompts]
    first, *rest = [" ".join(words) for words in prompts.values()]
    words = first.split()
    best = ""
    for i in range(len(words)):
        for j in range(len(words), i, -1):
            run = " ".join(words[i:j])
            if j - i <= len(best.split()):
                break
            if all(f" {run} " in f" {text} " for text in rest):
                best = run
                break
    if elsewhere and all(f" {best} " in f" {text} " for text in elsewhere):
        return ""
    return best


# --- actions that tell passes from failures


def frequent(
    passes: Sequence[Trace], failures: Sequence[Trace], told: Sequence[Course] = ()
) -> list[Lesson]:
    """Runs of actions that are frequent in passes and rare in failures, and the other way round.

    What is a part of a course that is `told` already is left out.
    """
    if len({trace.task for trace in failures}) < MIN_TASKS:
        return []
    good, bad = _tasks_by_run(passes), _tasks_by_run(failures)
    n_good = len({trace.task for trace in passes})
    n_bad = len({trace.task for trace in failures})
    found: list[tuple[Lesson, tuple[str, ...]]] = []
    for run in sorted(good.keys() | bad.keys()):
        shown, missed = len(good.get(run, ())), len(bad.get(run, ()))
        difference = shown / n_good - missed / n_bad
        if any(run == course or _contains(course, run) for course in told):
            continue
        if difference >= MIN_DIFFERENCE and shown >= MIN_TASKS:
            text = f"Do {_told(run)}: it was seen where tasks worked and rarely otherwise."
            found.append((Lesson(text, shown, difference), run))
        elif -difference >= MIN_DIFFERENCE and missed >= MIN_TASKS:
            text = f"Avoid {_told(run)}: it was seen where tasks failed and rarely otherwise."
            found.append((Lesson(text, missed, -difference), run))
    return [lesson for lesson, run in found if not _is_inside_a_better(lesson, run, found)]


def _is_inside_a_better(
    lesson: Lesson, run: tuple[str, ...], found: Iterable[tuple[Lesson, tuple[str, ...]]]
) -> bool:
    """What is to be done is told by the longest run that shows it, what is to be avoided by the
    shortest: the rest of that run did no harm.
    """
    is_avoided = lesson.text.startswith("Avoid")
    for other, another in found:
        if other.text.startswith("Avoid") is not is_avoided:
            continue
        part, whole = (another, run) if is_avoided else (run, another)
        if _contains(whole, part) and other.weight >= lesson.weight:
            return True
        if _contains(part, whole) and other.weight > lesson.weight:
            return True
    return False


def _contains(long: Sequence[str], short: Sequence[str]) -> bool:
    n = len(short)
    return n < len(long) and any(
        tuple(long[i : i + n]) == tuple(short) for i in range(len(long) - n + 1)
    )


def _tasks_by_run(traces: Sequence[Trace]) -> Mapping[tuple[str, ...], set[str]]:
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for trace in traces:
        row = symbols(trace)
        for n in range(1, LONGEST + 1):
            for i in range(len(row) - n + 1):
                found[tuple(row[i : i + n])].add(trace.task)
    return found


# --- errors


def after_errors(passes: Sequence[Trace]) -> list[Lesson]:
    """What was done right after an error, in attempts that passed all the same."""
    seen: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for trace in passes:
        steps = list(trace.moves)
        for i in range(len(steps) - 1):
            error, then = error_of(steps[i]), pattern(steps[i + 1], trace, i + 1)
            if error and then and not error_of(steps[i + 1]) and symbol(steps[i + 1]):
                seen[error][then].add(trace.task)
    found = []
    for error, actions in sorted(seen.items()):
        then, tasks = max(actions.items(), key=lambda item: (len(item[1]), item[0]))
        n_tasks = len(set().union(*actions.values()))
        if len(tasks) >= MIN_TASKS:
            text = f"After “{error}”, `{then}` led on."
            found.append(Lesson(text, len(tasks), len(tasks) / n_tasks))
    return found


# --- the form of the last action


def forms(passes: Sequence[Trace], failures: Sequence[Trace]) -> list[Lesson]:
    """What the last actions of all passes have in common, and those of failures often lack."""
    good = {trace.task: _last(trace) for trace in passes if _last(trace)}
    bad = [text for trace in failures if (text := _last(trace))]
    if len(good) < MIN_TASKS or not bad:
        return []
    found = []
    for text, holds in _forms_of(list(good.values())):
        lacking = sum(not holds(item) for item in bad) / len(bad)
        if lacking >= MIN_DIFFERENCE:
            # A form is half a lesson: it says how the end looks, and not how to come there.
            found.append(Lesson(text, len(good), lacking / 2))
    return found


Form = tuple[str, Callable[[str], bool]]


def _forms_of(texts: Sequence[str]) -> list[Form]:
    """Those that all the texts have."""
    found: list[Form] = []
    labels = {match[0] for text in texts if (match := re.match(r"[A-Za-z][\w-]*:", text))}
    if len(labels) == 1:
        label = min(labels)
        found.append((f"End with `{label} `, followed by the result alone.", _begins_with(label)))
    found.append(("The last action is one line.", lambda text: "\n" not in text.strip()))
    longest = max(len(text.split()) for text in texts)
    words = next((size for size in WORD_COUNTS if size >= longest), longest)
    found.append(
        (f"The last action has at most {words} words.", lambda text: len(text.split()) <= words)
    )
    found.append(
        (
            "The last action is a JSON object and nothing else.",
            lambda text: text.strip().startswith("{") and text.strip().endswith("}"),
        )
    )
    found.append(
        ("The result is a bare number.", lambda text: _NUMBER_LAST.search(text) is not None)
    )
    return [(text, holds) for text, holds in found if all(map(holds, texts))]


_NUMBER_LAST = re.compile(r"(^|[:\s])[-+]?\d[\d.,]*$")


def _begins_with(label: str) -> Callable[[str], bool]:
    return lambda text: text.startswith(label)


# --- evidence


def _passes(evidence: Evidence) -> list[Trace]:
    return [*evidence.passed, *evidence.references]


def _last(trace: Trace) -> str:
    steps = list(trace.moves)
    return steps[-1].action.strip() if steps else ""


def _by_stratum(traces: Iterable[Trace]) -> Mapping[str, list[Trace]]:
    found: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        found[trace.stratum].append(trace)
    return dict(sorted(found.items()))


def _words(trace: Trace) -> list[str]:
    text = trace.messages[0]["content"] if trace.messages else ""
    return [word.strip("'\"(),:;?!.").casefold() for word in text.split()]


def _free_name(taken: set[str]) -> str:
    names = [SKILL_NAME, *(f"{SKILL_NAME}-{n}" for n in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)
