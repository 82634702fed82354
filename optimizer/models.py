"""What harness search leaves behind: harnesses by content, edits with their estimated effect,
comparisons.

A harness is a map from component to blob, addressed by its hash. A comparison is the evidence for
one claim and is never revised. Searches keep their configuration and seed; everything else about
their progress is a function of the rollouts that exist (`optimizer.search`).
"""

from __future__ import annotations

from django.db import models


class Blob(models.Model):
    sha256 = models.CharField(max_length=64, primary_key=True)
    text = models.TextField()
    size_bytes = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.sha256[:12]


class HarnessVersion(models.Model):
    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="harnesses"
    )
    sha256 = models.CharField(max_length=64)
    components = models.JSONField()
    """Component key -> sha256 of its blob."""
    label = models.CharField(max_length=120, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "sha256"], name="harness_by_content")
        ]

    def __str__(self) -> str:
        return f"h_{self.sha256[:8]}"

    @property
    def short(self) -> str:
        return f"h_{self.sha256[:8]}"


class Search(models.Model):
    """One harness search from a seed harness; `config` and `seed` make it repeatable."""

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="searches"
    )
    seed_harness = models.ForeignKey(HarnessVersion, on_delete=models.PROTECT, related_name="+")
    config = models.JSONField(default=dict)
    seed = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "searches"

    def __str__(self) -> str:
        return f"search {self.pk}"


class Edit(models.Model):
    """An atomic change and, once screened, its estimated effect on the score (0 to 1 scale)."""

    search = models.ForeignKey(Search, on_delete=models.CASCADE, related_name="edits")
    position = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)
    operator = models.CharField(max_length=64)
    component = models.CharField(max_length=200)
    data = models.JSONField()
    """`optimizer.edits.Edit` as JSON."""
    support = models.PositiveIntegerField(default=0)
    effect_mean = models.FloatField(null=True)
    effect_sd = models.FloatField(null=True)
    probability_positive = models.FloatField(null=True)
    rollouts_with = models.PositiveIntegerField(null=True)
    rollouts_without = models.PositiveIntegerField(null=True)
    in_bundle = models.BooleanField(default=False)

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["search", "sha256"], name="edit_once_in_search")
        ]

    def __str__(self) -> str:
        return f"{self.operator} {self.sha256[:8]}"


class Candidate(models.Model):
    class Status(models.TextChoices):
        SCREENING = "screening", "screening"
        RACING = "racing", "racing"
        REJECTED = "rejected", "rejected"
        CERTIFIED = "certified", "certified"
        NOT_CERTIFIED = "not_certified", "not certified"

    search = models.ForeignKey(Search, on_delete=models.CASCADE, related_name="candidates")
    harness = models.ForeignKey(HarnessVersion, on_delete=models.PROTECT, related_name="+")
    edits = models.JSONField(default=list)
    """Hashes of the edits on top of the seed."""
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.SCREENING)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["search", "harness"], name="candidate_once_in_search")
        ]

    def __str__(self) -> str:
        return f"candidate {self.pk}"


class Comparison(models.Model):
    """Paired evidence for one claim: candidate against base on the same tasks and replicates."""

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="comparisons"
    )
    search = models.ForeignKey(
        Search, null=True, on_delete=models.CASCADE, related_name="comparisons"
    )
    split = models.CharField(max_length=8)
    method = models.CharField(max_length=32)
    """`e_process` or `paired_bootstrap`."""
    verdict = models.CharField(max_length=24)
    pairs = models.PositiveIntegerField()
    coverage = models.FloatField()
    difference = models.FloatField(null=True)
    low = models.FloatField(null=True)
    high = models.FloatField(null=True)
    e_value = models.FloatField(null=True)
    alpha = models.FloatField()
    details = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"c_{self.pk:02d} {self.verdict}" if self.pk else self.verdict


class Budget(models.Model):
    """A cap that cannot be overshot: reserve before spending, settle or refund after."""

    scope = models.CharField(max_length=64)
    """What is budgeted, for instance `climb:7`."""
    role = models.CharField(max_length=16)
    """agent, judge, proposer or trainer."""
    unit = models.CharField(max_length=16)
    """rollouts, tokens, usd or seconds."""
    cap = models.FloatField()
    used = models.FloatField(default=0)
    reserved = models.FloatField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["scope", "role", "unit"], name="one_budget_per_unit"),
            models.CheckConstraint(
                condition=models.Q(used__gte=0) & models.Q(reserved__gte=0),
                name="budget_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.role} {self.unit}"


class LedgerEntry(models.Model):
    class Kind(models.TextChoices):
        RESERVE = "reserve", "reserve"
        SETTLE = "settle", "settle"
        REFUND = "refund", "refund"

    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="entries")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    key = models.CharField(max_length=250)
    """What the amount is for; an entry of a kind exists once per key: a repeat changes nothing."""
    amount = models.FloatField()
    expires_at = models.FloatField(null=True)
    """Of a reservation, seconds since the epoch."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "ledger entries"
        constraints = [
            models.UniqueConstraint(fields=["budget", "kind", "key"], name="ledger_entry_once")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.amount} for {self.key}"
