"""Review queues: people mark rollouts, so that a team knows whether its rubric agrees with them.

Who may mark an item is decided by the database: a seat of an item is held by one person, a person
holds one seat of an item and one reservation in a queue, and there are as many seats as the queue
asks for marks. An item is completed when all its seats are done; nothing else says so.

What people did is kept in `ReviewEntry`, which outlives the items that it tells of.
"""

from __future__ import annotations

from django.db import models


class QueueMode(models.TextChoices):
    SINGLE = "single", "one rollout"
    PAIRWISE = "pairwise", "two rollouts side by side"


class ReviewQueue(models.Model):
    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="review_queues"
    )
    name = models.CharField(max_length=120)
    rubric_version = models.ForeignKey(
        "rubrics.RubricVersion", on_delete=models.PROTECT, related_name="review_queues"
    )
    criteria = models.JSONField(default=list)
    """Ids of the criteria to mark; empty: all."""
    instructions = models.TextField(blank=True)
    mode = models.CharField(max_length=8, choices=QueueMode.choices, default=QueueMode.SINGLE)
    seats = models.PositiveSmallIntegerField(default=1)
    """Marks wanted for each item, each by another person. Fixed once the queue exists."""
    reviewers = models.ManyToManyField("projects.User", related_name="named_review_queues")
    """Its items are dealt to these in turn; none: whoever comes."""
    is_blind = models.BooleanField(default=True)
    """The judge's verdicts are hidden until the person has marked."""
    reserve_minutes = models.PositiveSmallIntegerField(default=20)
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="queue_name_in_project"),
            models.CheckConstraint(condition=models.Q(seats__gte=1), name="queue_has_a_seat"),
        ]

    def __str__(self) -> str:
        return self.name


class ReviewItem(models.Model):
    queue = models.ForeignKey(ReviewQueue, on_delete=models.CASCADE, related_name="items")
    rollout = models.ForeignKey(
        "runs.Rollout", on_delete=models.CASCADE, related_name="review_items"
    )
    other = models.ForeignKey(
        "runs.Rollout", null=True, on_delete=models.CASCADE, related_name="review_items_b"
    )
    """The second of a pair."""
    is_swapped = models.BooleanField(default=False)
    """`other` is shown left."""
    assigned = models.ManyToManyField("projects.User", related_name="assigned_reviews")
    """For each of these a seat is kept until they mark the item or skip it."""
    position = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["queue", "rollout", "other"], name="pair_once_in_queue"
            ),
            models.UniqueConstraint(
                fields=["queue", "rollout"],
                condition=models.Q(other__isnull=True),
                name="item_once_in_queue",
            ),
        ]
        indexes = [models.Index(fields=["queue", "position", "id"])]
        ordering = ["position", "id"]

    def __str__(self) -> str:
        return f"item {self.pk} of {self.queue}"


class SeatState(models.TextChoices):
    RESERVED = "reserved", "reserved"
    DONE = "done", "done"


class ReviewSeat(models.Model):
    """One person's place at an item: first a reservation, then the fact that it was marked."""

    item = models.ForeignKey(ReviewItem, on_delete=models.CASCADE, related_name="seats")
    queue = models.ForeignKey(ReviewQueue, on_delete=models.CASCADE, related_name="taken_seats")
    """The item's, repeated here for the constraint on reservations."""
    number = models.PositiveSmallIntegerField()
    """0 to `of` - 1."""
    of = models.PositiveSmallIntegerField()
    """The queue's `seats`, repeated here for the constraint on `number`."""
    user = models.ForeignKey("projects.User", on_delete=models.CASCADE, related_name="review_seats")
    state = models.CharField(max_length=8, choices=SeatState.choices, default=SeatState.RESERVED)
    expires_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["item", "number"], name="one_person_per_seat"),
            models.UniqueConstraint(fields=["item", "user"], name="one_seat_per_person"),
            models.UniqueConstraint(
                fields=["queue", "user"],
                condition=models.Q(state="reserved"),
                name="one_reservation_per_person",
            ),
            models.CheckConstraint(
                condition=models.Q(number__lt=models.F("of")), name="seat_within_the_queue"
            ),
            models.CheckConstraint(
                condition=models.Q(state="done", done_at__isnull=False)
                | models.Q(state="reserved", done_at__isnull=True),
                name="seat_done_at_a_time",
            ),
        ]

    def __str__(self) -> str:
        return f"seat {self.number} of {self.item_id}"


class ReviewSkip(models.Model):
    """A person does not want an item; it goes on to others."""

    item = models.ForeignKey(ReviewItem, on_delete=models.CASCADE, related_name="skips")
    user = models.ForeignKey("projects.User", on_delete=models.CASCADE, related_name="+")
    reason = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["item", "user"], name="one_skip_per_person")]

    def __str__(self) -> str:
        return f"skip of {self.item_id}"


class Annotation(models.Model):
    """A person's mark of one criterion on one rollout, or on a pair."""

    rollout = models.ForeignKey(
        "runs.Rollout", on_delete=models.CASCADE, related_name="annotations"
    )
    item = models.ForeignKey(
        ReviewItem, null=True, on_delete=models.CASCADE, related_name="annotations"
    )
    """None for a mark outside any queue. `services.delete_item` rescues marks first."""
    rubric = models.ForeignKey(
        "rubrics.Rubric", on_delete=models.CASCADE, related_name="annotations"
    )
    rubric_version = models.ForeignKey(
        "rubrics.RubricVersion", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    criterion = models.CharField(max_length=64)
    user = models.ForeignKey("projects.User", on_delete=models.CASCADE, related_name="annotations")
    state = models.CharField(max_length=16)
    """`scored` with a value, or `not_applicable`."""
    value = models.FloatField(null=True)
    preference = models.CharField(max_length=1, blank=True)
    """Of a pair: `a` (rollout), `b` (other), `e` (equal), whichever side they were shown on."""
    note = models.TextField(blank=True)
    is_held_out = models.BooleanField(default=False)
    """Kept for testing judge prompts; decided when it was made, by a hash of the rollout."""
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["item", "criterion", "user"], name="one_mark_each_of_an_item"
            ),
            models.UniqueConstraint(
                fields=["rollout", "rubric", "criterion", "user"],
                condition=models.Q(item__isnull=True),
                name="one_mark_each",
            ),
            models.CheckConstraint(
                condition=(
                    models.Q(state="scored", value__isnull=False)
                    | (~models.Q(state="scored") & models.Q(value__isnull=True))
                )
                | ~models.Q(preference=""),
                name="mark_value_only_when_scored",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.criterion} of {self.rollout_id}: {self.state}"


class Correction(models.Model):
    """What the answer of a rollout should have been. The answer itself stays as it was."""

    rollout = models.ForeignKey(
        "runs.Rollout", on_delete=models.CASCADE, related_name="corrections"
    )
    user = models.ForeignKey("projects.User", on_delete=models.CASCADE, related_name="corrections")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["rollout", "user"], name="one_correction_per_person")
        ]

    def __str__(self) -> str:
        return f"correction of {self.rollout_id}"


class ReviewComment(models.Model):
    """A word to the other reviewers of an item. Unlike marks, all of them see it at once."""

    item = models.ForeignKey(ReviewItem, on_delete=models.CASCADE, related_name="comments")
    user = models.ForeignKey("projects.User", on_delete=models.CASCADE, related_name="+")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"comment on {self.item_id}"


class Deed(models.TextChoices):
    CREATED = "created", "created the queue"
    ADDED = "added", "added items"
    RESERVED = "reserved", "opened"
    RELEASED = "released", "gave back"
    EXPIRED = "expired", "ran out of time for"
    SKIPPED = "skipped", "skipped"
    REQUEUED = "requeued", "requeued"
    MARKED = "marked", "marked"
    CHANGED = "changed", "changed the marks of"
    ASSIGNED = "assigned", "assigned"
    CORRECTED = "corrected", "corrected the answer of"
    MOVED = "moved", "moved"
    DELETED = "deleted", "deleted"


class ReviewEntry(models.Model):
    """Who did what when. Never changed."""

    queue = models.ForeignKey(ReviewQueue, on_delete=models.CASCADE, related_name="entries")
    item_number = models.PositiveBigIntegerField(null=True)
    """Id of the item; it may be gone."""
    item_name = models.CharField(max_length=200, blank=True)
    user = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    deed = models.CharField(max_length=12, choices=Deed.choices)
    detail = models.JSONField(default=dict)
    """Marks before and after, the other queue, the number of items."""
    at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["queue", "-id"]), models.Index(fields=["item_number"])]

    def __str__(self) -> str:
        return f"{self.deed} {self.item_name}"
