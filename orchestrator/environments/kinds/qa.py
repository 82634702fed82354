"""Questions and answers."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.environments.episode import Action
from orchestrator.environments.kinds.base import Segments
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.qa.answers import QaTask
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalSpec
from orchestrator.environments.tasks_file import write_tasks

_MATCHES = (
    ("exact", "the same text"),
    ("contains", "the reply contains it"),
    ("number", "number"),
    ("choice", "letter of a choice"),
    ("regex", "regular expression"),
    ("json", "JSON value"),
)


class QaKind:
    """One question, one answer; the product's own server."""

    capacity = 128
    resets_by_key = True
    summary = "One question, one answer, compared with reference answers."
    source_fields: Sequence[Field] = ()
    task_fields: Sequence[Field] = (
        Field(
            "answers",
            "Answers",
            "text_list",
            is_required=True,
            is_secret=True,
            help="One a line; each is right by itself.",
        ),
        Field("match", "Compared as", "choice", choices=_MATCHES, default="exact"),
        Field(
            "ignore",
            "Differences to ignore",
            "text_list",
            help="Any of case, punctuation, articles, accents; for texts.",
        ),
        Field("tolerance", "Tolerance", "number", help="Greatest difference of numbers."),
        Field(
            "relative_tolerance",
            "Relative tolerance",
            "number",
            help="The same as a share of the answer: 0.01 is one per cent.",
        ),
        Field(
            "take",
            "Where a reply has several numbers or letters",
            "choice",
            choices=(("only", "it is wrong"), ("last", "the last one counts")),
            default="only",
        ),
        Field(
            "partial", "Partial credit", "flag", default=False, help="For JSON: share of fields."
        ),
    )
    _mark = re.compile(r"^[ \t*#>]*(?:the )?(?:final )?answer[ \t*]*:[ \t*]*", re.I | re.M)

    def check_source(self, source: Mapping[str, Any]) -> None:
        """Everything fits: nothing is said of the environment as a whole."""

    def check_task(self, spec: Mapping[str, Any], reset: Mapping[str, Any]) -> None:
        QaTask.from_json(spec)

    def server(
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        resources: Resources,
        specs: Sequence[Mapping[str, Any]],
        data: Path,
    ) -> LocalSpec:
        """Writes the tasks, answers included, to a file that only this user can read."""
        tasks = [QaTask.from_json(spec) for spec in specs]
        if not tasks:
            raise ValueError("tasks: a qa environment needs at least one")
        path = write_tasks([task.as_json() for task in tasks], data / name)
        capacity = resources.slots or self.capacity
        return LocalSpec(
            name=name,
            command=(
                *(sys.executable, "-m", "orchestrator.environments.qa.server"),
                *("--tasks", str(path), "--uds", "{socket}", "--capacity", str(capacity)),
            ),
            capacity=capacity,
            max_servers=resources.max_servers,
            probe={"task": tasks[0].key},
        )

    def action_of(self, reply: str) -> Action:
        """What follows the last line that begins with `answer:`, else the whole reply."""
        *_, text = self._mark.split(reply)
        return {"answer": text.strip()}

    def segments(self, observation: Mapping[str, Any]) -> Segments:
        return [dict(segment) for segment in observation["segments"]] or [
            {"kind": "scaffold", "text": "(the episode is over)"}
        ]
