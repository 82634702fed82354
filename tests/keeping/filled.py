"""A project with rows in every table that an archive has, made from the fields of the models.

New fields get values without anybody thinking of this file, so that one which does not survive a
round trip is seen.
"""

from __future__ import annotations

import datetime
import itertools
import random
from typing import Any

from django.db import models

from optimizer.harness import Harness
from optimizer.store import store_harness
from orchestrator.keeping.archive.ending import end_logs
from orchestrator.keeping.archive.references import NUMBERS
from orchestrator.keeping.archive.tables import TABLES, Table
from orchestrator.projects.models import Project, User
from rubrics.codec import content_hash, from_json, to_json
from tests.base import make_user

START = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)
CANARY = "sk-canary-4711"
RUBRIC = {
    "format": 1,
    "criteria": [{"id": "right", "name": "Right", "kind": "exact"}],
}
SPECIAL: dict[str, dict[str, Any]] = {
    "runs.Rollout": {"state": "scored", "score": 0.5, "message": "m", "is_replaced": False},
    "judging.JudgeCall": {"state": "scored", "value": 0.5},
    "runs.VerdictRecord": {"state": "scored", "value": 0.25},
    "grading.RegradedScore": {"state": "scored", "score": 0.5},
    "review.Annotation": {"state": "scored", "value": 1.0, "preference": ""},
    "review.ReviewSeat": {"state": "done"},
    "agents.ModelEndpoint": {"secret": CANARY, "is_judge": False},
    "grading.GoldenCase": {"expect": "pass"},
    "events.Stream": {"last_seq": 1, "kind": "run"},
    "events.Event": {"seq": 1, "kind": "note"},
}


class Filler:
    def __init__(self, project: Project, seed: int = 7) -> None:
        self._project, self._random = project, random.Random(seed)
        self._numbers = itertools.count(1)
        self._users = [make_user(), make_user()]
        self._rows: dict[str, list[models.Model]] = {}

    def fill(self, per_table: int = 2) -> None:
        for table in TABLES:
            self._rows[table.model_name] = []
            count = len(TABLES) * 2 if table.model_name == "events.Stream" else per_table
            if isinstance(
                table.model._meta.get_field(table.path.split("__")[0]), models.OneToOneField
            ):
                count = 1 if table.path == "project" else count
            for at in range(count):
                self._rows[table.model_name].append(self._row(table, at))
        # Rows have ended, and so their logs have.
        end_logs(self._project)

    def _row(self, table: Table, at: int) -> models.Model:
        if table.model_name == "optimizer.HarnessVersion":
            return store_harness(
                project_id=self._project.pk,
                harness=Harness(instructions=f"Answer {at} – «ü».\n"),
                label=f"h{at}",
            )
        values: dict[str, Any] = {}
        for each in table.model._meta.concrete_fields:
            if not each.primary_key:
                values[each.attname] = self._value(table, each, at)
        if table.path == "project":
            values["project_id"] = self._project.pk
        if table.model_name == "rubrics.RubricVersion":
            spec = from_json(RUBRIC)
            values |= {"spec": to_json(spec), "sha256": content_hash(spec)}
        values |= SPECIAL.get(table.model_name, {})
        row = table.model._base_manager.create(**values)
        for each in table.people:
            getattr(row, each.name).set(self._users)
        # The times that fields take by themselves are those of now: older ones must survive too.
        moments = {
            each.name: START + datetime.timedelta(seconds=next(self._numbers))
            for each in table.model._meta.concrete_fields
            if isinstance(each, models.DateTimeField) and getattr(row, each.name) is not None
        }
        if moments:
            table.model._base_manager.filter(pk=row.pk).update(**moments)
        return row

    def _value(self, table: Table, each: models.Field[Any, Any], at: int) -> Any:
        number = next(self._numbers)
        if each.is_relation:
            return self._link(table, each, at)
        if to := NUMBERS.get((table.model_name, each.name)):
            return self._rows[to][at].pk
        if each.choices:
            ended = table.ended.open if table.ended and each.name == "state" else ()
            return next(value for value, _ in each.flatchoices if value not in ended)
        if isinstance(each, models.JSONField):
            return (
                [] if each.default is list else {"n": number, "text": "ü\ud7ff", "list": [1, 2.5]}
            )
        if isinstance(each, models.DateTimeField):
            return START
        if isinstance(each, models.BinaryField):
            return bytes([number % 256, 0, 255])
        if isinstance(each, models.BooleanField):
            return self._random.random() < 0.5
        if isinstance(each, models.FloatField):
            return self._random.random()
        if isinstance(each, models.IntegerField):
            return number
        return f"{each.name} {number}"[: each.max_length or 99].replace(" ", "-")

    def _link(self, table: Table, each: models.Field[Any, Any], at: int) -> Any:
        to = each.related_model._meta.label  # type: ignore[union-attr]
        if to == User._meta.label:
            return self._users[at % 2].pk
        if to == "events.Stream" and each.unique:
            taken = {
                row.stream_id
                for rows in self._rows.values()
                for row in rows
                if hasattr(row, "stream_id") and row._meta.label != "events.Event"
            }
            return next(row.pk for row in self._rows[to] if row.pk not in taken)
        if to == table.model_name:
            rows = self._rows[to]
            return rows[-1].pk if rows else None
        rows = self._rows.get(to, [])
        return rows[at % len(rows)].pk if rows else None
