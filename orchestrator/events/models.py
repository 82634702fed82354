from __future__ import annotations

from django.db import models
from django.utils import timezone


class Stream(models.Model):
    """One owner's log. Whoever may see the project may read it."""

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="streams"
    )
    kind = models.CharField(max_length=50)
    """What owns it: `run`, `rollout`, `climb`, `training_job`."""
    last_seq = models.PositiveBigIntegerField(default=0)
    """The sequence of the newest event; also the number of events."""

    def __str__(self) -> str:
        return f"{self.kind} stream {self.pk} at {self.last_seq}"


class Event(models.Model):
    # The unique constraint below starts with the stream: a second index would only cost writes.
    stream = models.ForeignKey(
        Stream, on_delete=models.CASCADE, related_name="events", db_index=False
    )
    seq = models.PositiveBigIntegerField()
    """1, 2, 3 … without a gap in the stream."""
    kind = models.CharField(max_length=50)
    payload = models.JSONField(default=dict)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["stream", "seq"], name="event_seq_once")]

    def __str__(self) -> str:
        return f"{self.stream_id}#{self.seq} {self.kind}"


class WaitingWords(models.Model):
    """Events of a stream that the full-text index lacks yet, written in their transaction."""

    stream = models.ForeignKey(Stream, on_delete=models.CASCADE, related_name="+", db_index=False)
    first_seq = models.PositiveBigIntegerField()
    last_seq = models.PositiveBigIntegerField()
    at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.stream_id}#{self.first_seq}-{self.last_seq}"
