"""What of a project is in its archive, table by table, and what is not, with the reason.

The order is that of the foreign keys: a row names only rows of tables above it, or of its own.
A test holds every model of the product against this list, so that a new one is decided on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.apps import apps
from django.db import models

UNDER_WAY = "It was under way when the project was exported."


@dataclass(frozen=True)
class Ended:
    """What has no job on the other side must not wait for one: open states become this one."""

    open: tuple[str, ...]
    as_state: str
    reason: str = ""
    """Name of the field that takes `UNDER_WAY`."""


@dataclass(frozen=True)
class Table:
    model_name: str
    """`app.Model`."""
    path: str
    """Of lookups from a row to its project."""
    without: Mapping[str, Any] = field(default_factory=dict)
    """Fields that stay at home, and the value they have elsewhere."""
    ended: Ended | None = None
    exclude: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def model(self) -> type[models.Model]:
        return apps.get_model(self.model_name)

    @cached_property
    def fields(self) -> list[models.Field[Any, Any]]:
        """Those that are written, without the key and the project."""
        return [
            each
            for each in self.model._meta.concrete_fields
            if not each.primary_key and each.name not in self.without and not _is_elsewhere(each)
        ]

    @cached_property
    def people(self) -> list[models.ManyToManyField[Any, Any]]:
        """Lists of users."""
        return list(self.model._meta.local_many_to_many)

    @property
    def member(self) -> str:
        return f"rows/{self.model_name}.jsonl"


_LINKS_LEFT = ("projects.Project", "jobs.Job")


def _is_elsewhere(each: models.Field[Any, Any]) -> bool:
    return each.is_relation and label_of(each) in _LINKS_LEFT


def label_of(each: models.Field[Any, Any]) -> str:
    """Of the model that a foreign key names."""
    return str(each.related_model._meta.label)  # type: ignore[union-attr]  # never a name here


def through(each: models.ManyToManyField[Any, Any]) -> tuple[type[models.Model], str, str]:
    """The table of a list of users, and its columns for the owner and the user."""
    found: Any = each
    return found.remote_field.through, found.m2m_field_name(), found.m2m_reverse_field_name()


def _work(*states: str, as_state: str = "cancelled", reason: str = "error") -> Ended:
    return Ended(states or ("queued", "running", "paused"), as_state, reason)


_FAILED = _work("queued", "running", as_state="failed")
_NO_KEY: dict[str, Any] = {"key": None}
"""Names a piece of work for whoever asked for it; unique in an installation."""
_PATHS: dict[str, Any] = {"adapter_path": ""}
_VERSION = "environment_version__environment__project"

TABLES: tuple[Table, ...] = (
    Table("events.Stream", "project", exclude={"kind__in": ["tryout", "registration"]}),
    Table(
        "agents.ModelEndpoint",
        "project",
        {"secret": "", "tokenizer_path": "", **_PATHS},
    ),
    Table("rubrics.Rubric", "project"),
    Table("rubrics.RubricVersion", "rubric__project"),
    Table("optimizer.HarnessVersion", "project"),
    Table("environments.Environment", "project"),
    Table("environments.EnvironmentVersion", "environment__project"),
    Table("environments.Task", "version__environment__project"),
    Table("environments.EnvironmentDraft", "environment__project", {"undo": []}),
    Table("environments.DraftTask", "draft__environment__project"),
    Table("environments.EnvironmentCheck", "version__environment__project", ended=_FAILED),
    Table("environments.CheckResult", "check_run__version__environment__project"),
    Table("environments.EgressDecision", "version__environment__project"),
    Table("judging.JudgeCall", "project"),
    Table(
        "runs.Run",
        "project",
        {**_NO_KEY, **_PATHS},
        ended=_FAILED,
    ),
    Table(
        "runs.Rollout",
        "run__project",
        ended=Ended(("pending", "running", "judging"), "cancelled", "message"),
    ),
    Table(
        "runs.VerdictRecord",
        "rollout__run__project",
        ended=Ended(("pending",), "errored", "reason"),
    ),
    Table("runs.TokenRow", "rollout__run__project"),
    Table("runs.SavedView", "project"),
    Table("traces.OutsideRollout", "project"),
    Table("traces.OutsideEvent", "owner__project"),
    Table("optimizer.Search", "project", ended=_work()),
    Table(
        "optimizer.Proposal",
        "search__project",
        ended=Ended(("waiting",), "failed", "reason"),
    ),
    Table("optimizer.Nudge", "search__project"),
    Table("optimizer.Edit", "search__project"),
    Table("optimizer.Candidate", "search__project"),
    Table("optimizer.Tombstone", "search__project"),
    Table("optimizer.SearchRun", "search__project"),
    Table("optimizer.Comparison", "project"),
    Table("optimizer.Release", "project"),
    Table("training.Sweep", "project"),
    Table(
        "training.TrainingJob",
        "project",
        {"folder": "", "device": "", "device_since": None, **_NO_KEY, **_PATHS},
        ended=_work("queued", "running"),
    ),
    Table("training.TrainingRun", "training_job__project"),
    Table("training.TrainingCurve", "training_job__project"),
    Table("training.Checkpoint", "training_job__project", {"path": "", "merge": {}}),
    Table("training.TrainingAlarm", "training_job__project"),
    Table("climbs.Climb", "project", ended=_work()),
    Table("climbs.Rung", "climb__project", ended=Ended(("pending", "running"), "failed")),
    Table("climbs.ClimbRun", "climb__project"),
    Table("environments.Curriculum", "version__environment__project"),
    Table("environments.TaskEstimate", "curriculum__version__environment__project"),
    Table("environments.CurriculumDraw", "curriculum__version__environment__project"),
    Table("environments.CurriculumRollout", "curriculum__version__environment__project"),
    Table("gates.Gate", "project", ended=Ended(("queued", "running"), "cancelled", "sentence")),
    Table("gates.GateRun", "gate__project"),
    Table("grading.RubricDraft", "rubric__project"),
    Table("grading.GoldenCase", "rubric__project"),
    Table("grading.Regrade", "project", ended=_FAILED),
    Table("grading.RegradedScore", "regrade__project"),
    Table("grading.RedTeamReport", "rubric__project", ended=_FAILED),
    Table("grading.CriterionPolicy", "rubric__project"),
    Table("grading.CriterionPolicyEntry", "rubric__project"),
    Table("grading.HackingAlarm", "project"),
    Table("grading.CalibrationBar", "project"),
    Table("grading.Alignment", "version__rubric__project", ended=_FAILED),
    Table("grading.RubricSuggestion", "rubric__project", ended=_FAILED),
    Table("review.ReviewQueue", "project"),
    Table("review.ReviewItem", "queue__project"),
    Table("review.ReviewSeat", "queue__project"),
    Table("review.ReviewSkip", "item__queue__project"),
    Table("review.Annotation", "rollout__run__project"),
    Table("review.Correction", "rollout__run__project"),
    Table("review.ReviewComment", "item__queue__project"),
    Table("review.ReviewEntry", "queue__project"),
    Table("events.Event", "stream__project"),
)

LEFT_OUT: dict[str, str] = {
    "projects.User": "accounts stay; people come as names, without a way to sign in",
    "projects.Project": "the manifest has its name",
    "projects.Membership": "who may see the new project is for its owner to say",
    "projects.ApiToken": "secrets",
    "projects.Invitation": "secrets",
    "projects.ProjectLimits": "what a project may use is said where it is used",
    "projects.ProjectUse": "it is measured again",
    "projects.AuditEntry": "it says what was done in an installation, and stays there",
    "events.WaitingWords": "events whose words are not in the index yet",
    "blobs.SharedFolder": "where the files of an installation are",
    "jobs.Job": "work under way cannot move; it comes as ended",
    "optimizer.Blob": "texts of harnesses, in texts.jsonl by their hashes",
    "optimizer.Budget": "accounts of an installation",
    "optimizer.LedgerEntry": "accounts of an installation",
    "training.TrainingQuota": "what a project may use is said where it is used",
    "judging.JudgeLimits": "what a project may use is said where it is used",
    "environments.TaskUpload": "previews of files, not yet taken in",
    "environments.EgressLog": "places in files of a host",
    "environments.SourceRegistration": "steps of installing a package on a host",
    "tryouts.Tryout": "sessions of people at environments, over within minutes",
    "tryouts.TryoutCommand": "sessions of people at environments, over within minutes",
    "traces.RefusedItem": "what was never taken in",
    "webhooks.Webhook": "its signing secret; set it up again where messages shall go on",
    "webhooks.Delivery": "messages of this installation",
    "api.IdempotentRequest": "answers of this installation",
    "processes.Process": "processes of this installation",
}
"""Models that hold nothing of a project for elsewhere, and why. Django's own are not listed."""


def table(model_name: str) -> Table:
    return next(each for each in TABLES if each.model_name == model_name)


def rows_of(each: Table, project_id: int) -> models.QuerySet[Any]:
    """Of a project, in the order of the archive: that of their keys."""
    found = each.model._base_manager.filter(**{each.path: project_id})
    return (found.exclude(**each.exclude) if each.exclude else found).order_by("pk")
