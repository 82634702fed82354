"""Rollouts that a filter finds, as JSON lines or CSV: streamed, so that memory stays flat.

A record holds what the list can show: ids, versions, score with its state, cost, verdicts, answer
and reason whole. Cells of CSV that a spreadsheet would run as a formula get an apostrophe.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from django.db.models import F, QuerySet

from orchestrator.environments.authoring.export import guarded
from orchestrator.runs.models import Rollout
from orchestrator.runs.rollout_list import drawn, verdicts_by_rollout

AT_ONCE = 500
HEAD = (
    *("id", "run", "label", "purpose", "task", "family", "split", "replicate", "environment"),
    *("rubric", "harness", "model", "weights", "state", "score", "reward", "cause", "reason"),
    *("answer", "steps", "tokens_in", "tokens_out", "cost_usd", "latency_s", "started_at"),
    *("ended_at", "verdicts"),
)


def records(query: QuerySet[Rollout]) -> Iterator[dict[str, Any]]:
    """Newest first; one query for all rows and one for the verdicts of each 500."""
    rows = iter(
        drawn(query)
        .order_by("-pk")
        .annotate(whole_answer=F("answer"), whole_message=F("message"), over_at=F("ended_at"))
        .iterator(chunk_size=AT_ONCE)
    )
    while chunk := list(islice(rows, AT_ONCE)):
        verdicts = verdicts_by_rollout([row.pk for row in chunk])
        for row in chunk:
            yield _record(row, verdicts.get(row.pk, {}))


def jsonl_lines(query: QuerySet[Rollout]) -> Iterator[str]:
    for record in records(query):
        yield json.dumps(record, ensure_ascii=False) + "\n"


def csv_lines(query: QuerySet[Rollout]) -> Iterator[str]:
    yield _csv_line(HEAD)
    for record in records(query):
        record["verdicts"] = json.dumps(record["verdicts"], ensure_ascii=False)
        yield _csv_line([_cell(record[name]) for name in HEAD])


def _record(row: Any, verdicts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    run = row.run
    environment, rubric = run.environment_version, run.rubric_version
    return {
        "id": row.pk,
        "run": run.pk,
        "label": run.label,
        "purpose": run.purpose,
        "task": row.task.key,
        "family": row.task.family,
        "split": row.task.split,
        "replicate": row.replicate,
        "environment": f"{environment.environment.slug} v{environment.number}",
        "rubric": f"{rubric.rubric.name} v{rubric.number}",
        "harness": row.harness.sha256,
        "model": run.model.name,
        "weights": row.weight_version,
        "state": row.state,
        "score": row.score,
        "reward": row.reward,
        "cause": row.cause,
        "reason": row.whole_message,
        "answer": row.whole_answer,
        "steps": row.n_steps,
        "tokens_in": row.tokens_in,
        "tokens_out": row.tokens_out,
        "cost_usd": row.cost_usd,
        "latency_s": row.latency_s,
        "started_at": row.started_at.isoformat() if row.started_at else None,
        "ended_at": row.over_at.isoformat() if row.over_at else None,
        "verdicts": verdicts,
    }


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return guarded(value) if isinstance(value, str) else str(value)


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue()
