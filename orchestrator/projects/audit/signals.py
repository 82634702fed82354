"""Differences of models that are saved or deleted while a record is open.

All models of the product count, but for those that the machine writes along the way: events, jobs
and what rollouts leave behind. They have their own log, and a row of each would bury the change.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from django.db.models.signals import post_delete, post_save, pre_delete, pre_save

from orchestrator.projects.audit.record import current

_APPS = frozenset(
    (
        "agents",
        "climbs",
        "environments",
        "gates",
        "grading",
        "judging",
        "keeping",
        "optimizer",
        "projects",
        "proposing",
        "review",
        "rubrics",
        "runs",
        "searches",
        "traces",
        "training",
        "trainings",
        "tryouts",
        "webhooks",
    )
)
_UNNAMED = frozenset(
    (
        "environments.CheckResult",
        "environments.DraftTask",
        "environments.EgressDecision",
        "environments.Task",
        "environments.TaskEstimate",
        "environments.TaskUpload",
        "optimizer.Blob",
        "keeping.RetentionMark",
        "projects.AuditEntry",
        "projects.ProjectUse",
        "runs.Rollout",
        "runs.TokenRow",
        "runs.VerdictRecord",
        "webhooks.Delivery",
    )
)
_BEFORE = "_audit_before"


def connect() -> None:
    pre_save.connect(_before_saving, dispatch_uid="audit")
    post_save.connect(_after_saving, dispatch_uid="audit")
    pre_delete.connect(_before_deleting, dispatch_uid="audit")
    post_delete.connect(_after_deleting, dispatch_uid="audit")


def counts(model: type[Model]) -> bool:
    return model._meta.app_label in _APPS and model._meta.label not in _UNNAMED


def _before_saving(sender: type[Model], instance: Model, raw: bool, **_: Any) -> None:
    if raw or current() is None or not counts(sender) or instance._state.adding:
        return
    stored = sender._base_manager.filter(pk=instance.pk).values(*_names(sender)).first()
    setattr(instance, _BEFORE, stored or {})


def _after_saving(sender: type[Model], instance: Model, created: bool, raw: bool, **_: Any) -> None:
    record = current()
    if raw or record is None or not counts(sender):
        return
    before = {} if created else instance.__dict__.pop(_BEFORE, {})
    what = "created" if created else "changed"
    record.add(_kind(sender), instance.pk, _label(instance), what, before, _values(instance))


def _before_deleting(sender: type[Model], instance: Model, **_: Any) -> None:
    if current() is not None and counts(sender):
        setattr(instance, _BEFORE, (instance.pk, _values(instance)))


def _after_deleting(sender: type[Model], instance: Model, **_: Any) -> None:
    record = current()
    if record is None or not counts(sender):
        return
    pk, before = instance.__dict__.pop(_BEFORE, (instance.pk, {}))
    record.add(_kind(sender), pk, _label(instance), "deleted", before, {})


def _names(model: type[Model]) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]


def _values(instance: Model) -> dict[str, Any]:
    return {name: getattr(instance, name) for name in _names(type(instance))}


def _kind(model: type[Model]) -> str:
    return str(model._meta.verbose_name)


def _label(instance: Model) -> str:
    """A name, where the object has one: `__str__` may read the database."""
    for name in ("name", "username", "title", "slug", "key"):
        if isinstance(value := getattr(instance, name, None), str) and value:
            return value
    return f"{instance._meta.verbose_name} {instance.pk}"
