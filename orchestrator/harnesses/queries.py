"""What pages read of harnesses: the library, one of them, where it was used and what it proved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet

from optimizer.errors import HarnessInvalid
from optimizer.harness import DEMONSTRATIONS, INSTRUCTIONS, TOOLS, Harness
from optimizer.models import Blob, Candidate, Comparison, HarnessVersion, Release
from orchestrator.environments.models import Environment
from orchestrator.prepared import Prepared
from orchestrator.runs.activation import skills_of
from orchestrator.runs.models import Rollout, Run

PER_PAGE = 50
RUNS_SHOWN = 20
GAINED = ("improved", "better")
"""Verdicts of a certificate that stand for a gain: of the betting test, of the sealed test."""


def harness_versions_in(project_id: int) -> QuerySet[HarnessVersion]:
    return HarnessVersion.objects.filter(project_id=project_id)


_harness = Prepared(
    lambda project, pk: harness_versions_in(project).filter(pk=pk), project=int, pk=int
)


def harness_of(project_id: int, pk: int) -> HarnessVersion | None:
    return _harness.first(project=project_id, pk=pk)


# --- the library ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """What a harness is made of, without its texts being read. Tokens are estimates."""

    instructions_tokens: int
    skills: Sequence[str]
    demonstrations_tokens: int
    """0 without any."""
    has_tools: bool

    @property
    def is_plain(self) -> bool:
        return not (
            self.instructions_tokens or self.skills or self.demonstrations_tokens or self.has_tools
        )


@dataclass(frozen=True)
class Use:
    runs: int = 0
    rollouts: int = 0
    environments: Sequence[str] = ()
    last_at: datetime | None = None


@dataclass(frozen=True)
class Proof:
    """The evidence that counts most for a harness: of the sealed test if there is any."""

    comparison: Comparison

    @property
    def is_sealed(self) -> bool:
        return self.comparison.split == "test"

    def is_about(self, environment: Environment) -> bool:
        """Whether it was measured there. Of a climb's comparison nobody knows without its rung."""
        search = self.comparison.search
        version = search.environment_version if search is not None else None
        return version is not None and version.environment_id == environment.pk

    @property
    def points(self) -> tuple[float, float, float]:
        """Gain and its interval, in points."""
        found = self.comparison
        return tuple(100 * (value or 0.0) for value in (found.difference, found.low, found.high))  # type: ignore[return-value] # three


@dataclass(frozen=True)
class HarnessRow:
    version: HarnessVersion
    parts: Parts
    use: Use
    proof: Proof | None
    released: Sequence[Environment]
    """Where it is what counts now."""
    search_id: int | None
    """That made it; None for harnesses of people."""


@dataclass(frozen=True)
class Library:
    rows: Sequence[HarnessRow]
    before_id: int | None
    n_all: int
    """Of the project, whatever the filter."""


SHOW = (
    ("", "of people, released, certified"),
    ("released", "released"),
    ("certified", "certified"),
    ("all", "all, those that searches tried too"),
)


def library(
    project_id: int,
    *,
    show: str = "",
    find: str = "",
    before_id: int | None = None,
    limit: int = PER_PAGE,
) -> Library:
    """Newest first. A number of queries that does not depend on the number of harnesses."""
    everything = HarnessVersion.objects.filter(project_id=project_id)
    query = _shown(everything, project_id, show)
    if find:
        head = find.strip().removeprefix("h_").casefold()
        query = query.filter(Q(label__icontains=find.strip()) | Q(sha256__startswith=head))
    if before_id is not None:
        query = query.filter(pk__lt=before_id)
    versions = list(query.order_by("-pk")[: limit + 1])
    more, versions = len(versions) > limit, versions[:limit]
    return Library(
        rows=_rows(project_id, versions),
        before_id=versions[-1].pk if more else None,
        n_all=everything.count(),
    )


def _shown(query: QuerySet[HarnessVersion], project_id: int, show: str) -> QuerySet[HarnessVersion]:
    released = Exists(Release.objects.filter(harness=OuterRef("pk"), rolled_back_at=None))
    if show == "all":
        return query
    if show == "released":
        return query.filter(released)
    certified = Q(sha256__in=_certified(project_id))
    if show == "certified":
        return query.filter(certified)
    tried = Exists(Candidate.objects.filter(harness=OuterRef("pk")))
    return query.filter(~Q(label="") | certified | Q(released) | ~Q(tried))


def _certified(project_id: int) -> list[str]:
    found = Comparison.objects.filter(project_id=project_id, verdict__in=GAINED)
    hashes = found.values_list("details__harness", flat=True)
    return sorted({sha for sha in hashes if isinstance(sha, str)})


def _rows(project_id: int, versions: Sequence[HarnessVersion]) -> list[HarnessRow]:
    pks = [version.pk for version in versions]
    parts, uses = parts_of(versions), uses_of(pks)
    proofs = proofs_of(project_id, [version.sha256 for version in versions])
    released: dict[int, list[Environment]] = defaultdict(list)
    for release in current_releases(project_id):
        released[release.harness_id].append(release.environment)
    searches = dict(
        Candidate.objects.filter(harness_id__in=pks, parent__isnull=False)
        .order_by("-search_id")
        .values_list("harness_id", "search_id")
    )
    return [
        HarnessRow(
            version=version,
            parts=parts[version.pk],
            use=uses.get(version.pk, Use()),
            proof=proofs.get(version.sha256),
            released=released[version.pk],
            search_id=searches.get(version.pk),
        )
        for version in versions
    ]


def parts_of(versions: Sequence[HarnessVersion]) -> dict[int, Parts]:
    hashes = {sha for version in versions for sha in version.components.values()}
    sizes = dict(Blob.objects.filter(sha256__in=hashes).values_list("sha256", "size_bytes"))

    def tokens(version: HarnessVersion, path: str) -> int:
        return (sizes.get(version.components.get(path, ""), 0) + 3) // 4

    return {
        version.pk: Parts(
            instructions_tokens=tokens(version, INSTRUCTIONS),
            skills=skills_of(version),
            demonstrations_tokens=tokens(version, DEMONSTRATIONS),
            has_tools=TOOLS in version.components,
        )
        for version in versions
    }


def uses_of(harness_ids: Iterable[int]) -> dict[int, Use]:
    """Two queries."""
    rollouts = Rollout.objects.filter(harness_id__in=list(harness_ids))
    names: dict[int, list[str]] = defaultdict(list)
    pairs = rollouts.order_by("harness_id", "run__environment_version__environment__name")
    for pk, name in pairs.values_list(
        "harness_id", "run__environment_version__environment__name"
    ).distinct():
        names[pk].append(name)
    counted = (
        rollouts.order_by()
        .values("harness_id")
        .annotate(
            runs=Count("run", distinct=True), rollouts=Count("pk"), last_at=Max("run__created_at")
        )
    )
    return {
        row["harness_id"]: Use(
            row["runs"], row["rollouts"], names[row["harness_id"]], row["last_at"]
        )
        for row in counted
    }


def proofs_of(project_id: int, hashes: Sequence[str]) -> dict[str, Proof]:
    """By hash of the harness: the gain on the sealed test, else the best certificate."""
    found = Comparison.objects.filter(
        project_id=project_id, verdict__in=GAINED, details__harness__in=list(hashes)
    ).select_related("search__environment_version")
    best: dict[str, Comparison] = {}
    for comparison in found.order_by("pk"):
        sha = comparison.details["harness"]
        if sha not in best or _strength(comparison) > _strength(best[sha]):
            best[sha] = comparison
    return {sha: Proof(comparison) for sha, comparison in best.items()}


def _strength(comparison: Comparison) -> tuple[bool, float]:
    return comparison.split == "test", comparison.difference or 0.0


def harnesses_of_run(run_id: int) -> list[HarnessVersion]:
    """One query; several while a search screens candidates."""
    used = Rollout.objects.filter(run_id=run_id).order_by().values("harness_id").distinct()
    return list(HarnessVersion.objects.filter(pk__in=used).order_by("pk"))


# --- one harness ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contents:
    """The texts of a harness and, where they can be read, what they mean."""

    texts: Mapping[str, str]
    harness: Harness | None
    problem: str = ""
    """Why the texts are no harness, though they are kept as one."""


def contents_of(version: HarnessVersion) -> Contents:
    blobs = dict(
        Blob.objects.filter(sha256__in=version.components.values()).values_list("sha256", "text")
    )
    texts = {path: blobs.get(sha, "") for path, sha in sorted(version.components.items())}
    try:
        return Contents(texts, Harness.from_components(texts))
    except HarnessInvalid as error:
        return Contents(texts, None, str(error))


@dataclass(frozen=True)
class RunUse:
    run: Run
    rollouts: int


@dataclass(frozen=True)
class Story:
    """Where a harness comes from and where it went."""

    runs: Sequence[RunUse]
    """The newest ones."""
    use: Use
    candidates: Sequence[Candidate]
    """Its places in searches, newest first, each with its search and parent; a seed has none."""
    comparisons: Sequence[Comparison]
    """Claims about it, newest first."""
    releases: Sequence[Release]


def story_of(version: HarnessVersion) -> Story:
    counted = (
        Rollout.objects.filter(harness=version)
        .values("run_id")
        .annotate(n=Count("pk"))
        .order_by("-run_id")
        .values_list("run_id", "n")[:RUNS_SHOWN]
    )
    counts = dict(counted)
    runs = Run.objects.filter(pk__in=counts).select_related("environment_version__environment")
    return Story(
        runs=[RunUse(run, counts[run.pk]) for run in runs.order_by("-pk")],
        use=uses_of([version.pk]).get(version.pk, Use()),
        candidates=list(
            Candidate.objects.filter(harness=version)
            .select_related("search", "parent__harness")
            .order_by("-search_id")[:RUNS_SHOWN]
        ),
        comparisons=list(
            Comparison.objects.filter(
                project_id=version.project_id, details__harness=version.sha256
            )
            .select_related("search")
            .order_by("-pk")[:RUNS_SHOWN]
        ),
        releases=list(
            Release.objects.filter(harness=version)
            .select_related("environment", "approved_by", "rolled_back_by")
            .order_by("-pk")
        ),
    )


def choices(project_id: int, *, limit: int = 200) -> list[HarnessVersion]:
    """To compare with: the library as it is shown at first, newest first."""
    everything = HarnessVersion.objects.filter(project_id=project_id)
    return list(_shown(everything, project_id, "").order_by("-pk")[:limit])


# --- releases -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EnvironmentReleases:
    environment: Environment
    history: Sequence[Release]
    """Newest first."""
    current: Release | None = field(default=None)

    @property
    def before(self) -> Release | None:
        """What a roll-back of the current one brings back."""
        older = [
            each
            for each in self.history
            if each.rolled_back_at is None
            and self.current is not None
            and each.pk < self.current.pk
        ]
        return older[0] if older else None


def current_releases(project_id: int) -> list[Release]:
    """What counts in each environment: the newest that was not rolled back. One query."""
    newest = (
        Release.objects.filter(project_id=project_id, rolled_back_at=None)
        .order_by()
        .values("environment")
        .annotate(newest=Max("pk"))
        .values("newest")
    )
    return list(
        Release.objects.filter(pk__in=newest).select_related(
            "environment", "harness", "approved_by"
        )
    )


def releases_of(project_id: int) -> list[EnvironmentReleases]:
    """Of each environment that has any, by name."""
    found: dict[int, list[Release]] = defaultdict(list)
    rows = Release.objects.filter(project_id=project_id).select_related(
        "environment", "harness", "search", "certificate", "approved_by", "rolled_back_by"
    )
    for release in rows.order_by("environment__name", "environment_id", "-pk"):
        found[release.environment_id].append(release)
    return [
        EnvironmentReleases(
            environment=listed[0].environment,
            history=listed,
            current=next((each for each in listed if each.rolled_back_at is None), None),
        )
        for listed in found.values()
    ]


def releases_in(project_id: int) -> QuerySet[Release]:
    """Those that were rolled back too."""
    releases = Release.objects.filter(project_id=project_id)
    return releases.select_related("environment", "harness", "approved_by", "rolled_back_by")


def environments_of(project_id: int) -> list[Environment]:
    return list(Environment.objects.filter(project_id=project_id).order_by("name"))
