from __future__ import annotations

from django.db import models


class ProcessKind(models.TextChoices):
    WEB = "web", "web"
    WORKER = "worker", "worker"
    SWEEP = "sweep", "sweep"


class Process(models.Model):
    key = models.CharField(max_length=64, unique=True)
    """Random, made when the process starts: process ids come again."""
    kind = models.CharField(max_length=10, choices=ProcessKind.choices)
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    queues = models.JSONField(default=list)
    """Of a worker."""
    slots = models.PositiveIntegerField(default=0)
    """Jobs that a worker runs at a time."""
    version = models.CharField(max_length=40)
    build = models.CharField(max_length=12)
    """The first digits of a checksum of the code that it runs."""
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    """By the database's clock, see `orchestrator.jobs.clock`."""
    skew_s = models.FloatField(default=0.0)
    """Its host's clock less the database's."""
    measures = models.JSONField(default=list)
    """`orchestrator.measures.snapshot`."""

    class Meta:
        ordering = ["kind", "host", "pid"]
        verbose_name_plural = "processes"

    def __str__(self) -> str:
        return f"{self.kind} {self.host}:{self.pid}"
