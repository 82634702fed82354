"""What harness search leaves behind: harnesses by content, edits with their estimated effect,
comparisons.

A harness is a map from component to blob, addressed by its hash. A comparison is the evidence for
one claim and is never revised. Searches keep their configuration and seed; everything else about
their progress is a function of the rollouts and proposals that exist (`optimizer.search_plan`).
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


class SearchState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    PAUSED = "paused", "paused"
    AWAITING_APPROVAL = "awaiting_approval", "waits for approval"
    COMPLETED = "completed", "completed"
    FAILED = "failed", "failed"
    CANCELLED = "cancelled", "cancelled"


ENDED_SEARCH_STATES = (SearchState.COMPLETED, SearchState.FAILED, SearchState.CANCELLED)


class SearchPhase(models.TextChoices):
    PREFLIGHT = "preflight", "Preflight"
    EVIDENCE = "evidence", "Watching the seed"
    SEARCH = "search", "Search"
    CERTIFY = "certify", "Certification"
    TEST = "test", "Sealed test"
    DONE = "done", "Done"


class Search(models.Model):
    """One harness search from a seed harness; `settings` and `seed` make it repeatable.

    It stands alone or is the harness rung of a climb. Everything about its progress is a function
    of the rollouts and the proposals that exist.
    """

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="searches"
    )
    stream = models.OneToOneField(
        "events.Stream", null=True, on_delete=models.PROTECT, related_name="search"
    )
    name = models.CharField(max_length=120, blank=True)
    state = models.CharField(max_length=20, choices=SearchState.choices, default=SearchState.QUEUED)
    phase = models.CharField(
        max_length=12, choices=SearchPhase.choices, default=SearchPhase.PREFLIGHT
    )
    environment_version = models.ForeignKey(
        "environments.EnvironmentVersion",
        null=True,
        on_delete=models.PROTECT,
        related_name="searches",
    )
    rubric_version = models.ForeignKey(
        "rubrics.RubricVersion", null=True, on_delete=models.PROTECT, related_name="searches"
    )
    model = models.ForeignKey(
        "agents.ModelEndpoint", null=True, on_delete=models.PROTECT, related_name="searches"
    )
    seed_harness = models.ForeignKey(HarnessVersion, on_delete=models.PROTECT, related_name="+")
    settings = models.JSONField(default=dict)
    """`orchestrator.searches.settings.SearchSettings` as JSON."""
    fingerprints = models.JSONField(default=dict)
    """Hashes of seed harness, tasks by split, rubric, environment; resuming with others is refused.
    """
    seed = models.BigIntegerField()
    progress = models.FloatField(default=0.0)
    """Share of the rollouts at most, 0 to 1."""
    doing = models.CharField(max_length=200, blank=True)
    outcome = models.JSONField(default=dict)
    """Of a finished search: verdict, reason, is_measured, winner, claimed and what was learnt."""
    error = models.TextField(blank=True)
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    resumed_at = models.DateTimeField(null=True)
    """When a person last let it go on; a run that came to nothing before is asked for again."""
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "searches"
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name or f"search {self.pk}"

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_SEARCH_STATES


class SearchRun(models.Model):
    """Which runs a search asked for, and in which phase."""

    search = models.ForeignKey(Search, on_delete=models.CASCADE, related_name="search_runs")
    run = models.OneToOneField("runs.Run", on_delete=models.CASCADE, related_name="search_run")
    phase = models.CharField(max_length=12)
    """Of the engine: evidence, twin, screen, race, certify; or test."""
    left_out = models.JSONField(default=dict)
    """Criteria that nothing is learned from (id -> why), fixed when the run was asked for."""

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.phase} {self.run_id}"


class Proposal(models.Model):
    """One answer of a proposer: what it was asked, what it said, and which edits came of it."""

    class State(models.TextChoices):
        WAITING = "waiting", "waits for an answer"
        ANSWERED = "answered", "answered"
        FAILED = "failed", "failed"

    search = models.ForeignKey(Search, on_delete=models.CASCADE, related_name="proposals")
    round = models.PositiveIntegerField()
    proposer = models.CharField(max_length=64)
    """For instance `demonstrations.reference`, `reflection`, `handed_in`."""
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING)
    request = models.JSONField(default=dict)
    """What it was asked on: parent, terms, and once prepared the tasks and rollouts shown and the
    schema of the answer: see `orchestrator.proposing`.
    """
    prompt = models.TextField(blank=True)
    answers = models.JSONField(default=list)
    """Raw replies, also of the attempts that were no use."""
    edits = models.JSONField(default=list)
    """`optimizer.edits.Edit` as JSON; those that the linter let through."""
    refused = models.JSONField(default=list)
    """[{"edit", "findings": [...]}]."""
    reason = models.TextField(blank=True)
    """The cause it named, or why there is no answer."""
    tokens = models.PositiveIntegerField(default=0)
    cost_usd = models.FloatField(default=0.0)
    seconds = models.FloatField(default=0.0)
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    answered_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["round", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["search", "round", "proposer"], name="proposal_once_in_round"
            )
        ]

    def __str__(self) -> str:
        return f"{self.proposer}, round {self.round}"


class Nudge(models.Model):
    """A person's comment for the next reflection."""

    search = models.ForeignKey(Search, on_delete=models.CASCADE, related_name="nudges")
    text = models.TextField()
    created_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    proposal = models.ForeignKey(
        Proposal, null=True, on_delete=models.SET_NULL, related_name="nudges"
    )
    """That it reached."""

    def __str__(self) -> str:
        return self.text[:60]


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
    proposal = models.ForeignKey(
        Proposal, null=True, on_delete=models.SET_NULL, related_name="edit_rows"
    )

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
    key = models.CharField(max_length=64, blank=True)
    """`optimizer.engines.contract.Candidate.key`: names the set of edits."""
    twin = models.PositiveSmallIntegerField(default=0)
    """Other sets of edits before it that make the same harness."""
    edits = models.JSONField(default=list)
    """Hashes of the edits on top of the seed."""
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.SCREENING)
    parent = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="children"
    )
    relation = models.CharField(max_length=16, blank=True)
    """mutate, merge, prune or model swap."""
    rollouts = models.PositiveIntegerField(default=0)
    """With a score, on train tasks."""
    score = models.FloatField(null=True)
    """Mean on train tasks; what made it win, never what is claimed."""
    estimate = models.FloatField(null=True)
    """What the engine believes of it, its model included."""
    cost_usd = models.FloatField(null=True)
    """Mean of a rollout, US dollars."""
    tokens = models.FloatField(null=True)
    """Mean of a rollout, in and out."""
    latency_s = models.FloatField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["search", "harness", "twin"], name="candidate_once_in_search"
            ),
            models.UniqueConstraint(
                fields=["search", "key"],
                condition=~models.Q(key=""),
                name="candidate_key_in_search",
            ),
        ]

    def __str__(self) -> str:
        return f"candidate {self.pk}"


class Tombstone(models.Model):
    """A buried edit: it returns only with more support than it had then."""

    search = models.ForeignKey(Search, on_delete=models.CASCADE, related_name="tombstones")
    edit_sha256 = models.CharField(max_length=64)
    edit = models.JSONField()
    """`optimizer.edits.Edit` as JSON."""
    reason = models.TextField()
    evidence = models.JSONField(default=dict)
    """Effect, interval and rollouts at the time, or the linter's findings."""
    support = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["search", "edit_sha256"], name="tombstone_once")
        ]

    def __str__(self) -> str:
        return f"{self.edit_sha256[:8]}: {self.reason}"


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


class Release(models.Model):
    """Which harness a project works with in an environment, who approved it and on what evidence.

    The newest release that was not rolled back counts.
    """

    project = models.ForeignKey(
        "projects.Project", on_delete=models.CASCADE, related_name="releases"
    )
    environment = models.ForeignKey(
        "environments.Environment", on_delete=models.CASCADE, related_name="releases"
    )
    harness = models.ForeignKey(HarnessVersion, on_delete=models.PROTECT, related_name="releases")
    search = models.ForeignKey(
        Search, null=True, on_delete=models.SET_NULL, related_name="releases"
    )
    certificate = models.ForeignKey(
        Comparison, null=True, on_delete=models.SET_NULL, related_name="releases"
    )
    previous = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="+")
    note = models.TextField(blank=True)
    approved_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    rolled_back_by = models.ForeignKey(
        "projects.User", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    rolled_back_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"release {self.pk} of {self.harness}"


class Budget(models.Model):
    """A cap that cannot be overshot: reserve before spending, settle or refund after."""

    scope = models.CharField(max_length=64)
    """What is budgeted, for instance `climb:7`, or a part of it, `search:7/certify`."""
    role = models.CharField(max_length=16)
    """agent, judge, proposer or trainer."""
    unit = models.CharField(max_length=16)
    """rollouts, tokens, micro_usd or milliseconds."""
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
