"""A draft becomes a version: frozen, numbered, what scores name.

Nothing is blocked silently: findings and back-tests warn, and golden cases that do not hold take an
explicit yes with a note, which stays with the version.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from orchestrator.grading.drafts import current, stale
from orchestrator.grading.errors import GoldenFailures
from orchestrator.grading.golden import GoldenReport, cases_of, run_golden
from orchestrator.grading.models import Regrade, RegradePurpose, RubricDraft
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from rubrics.models import RubricVersion
from rubrics.versions import create_rubric_version

MAX_NOTE = 2_000


def publish(
    *,
    draft: RubricDraft,
    actor: User,
    revision: int,
    note: str = "",
    anyway: bool = False,
    with_judges: bool = False,
) -> RubricVersion:
    """The new version, or the newest one if the draft says the same. The draft is gone then.

    `anyway`: golden cases need not hold; takes a note. `with_judges`: golden cases that need a
    model are told too.

    Raises:
        RubricInvalid: with every problem.
        DraftGone: published or discarded meanwhile.
        Stale: `revision` is not the stored one; who publishes has not seen what is stored.
        GoldenFailures: golden cases do not hold, and nobody said `anyway` with a note.
    """
    require(actor, draft.rubric.project_id, Role.EDITOR)
    # Before the row is held: grading may take seconds. The revision tells whether it still counts.
    seen = current(draft)
    failed: Sequence[str] = ()
    if seen.revision == revision:
        report = golden_of(seen, with_judges=with_judges)
        failed = [result.case.name for result in report.failed]
        if failed and not (anyway and note.strip()):
            raise GoldenFailures(
                f"{len(failed)} golden case{'s do' if len(failed) > 1 else ' does'} not hold. "
                "Mend the draft, or publish anyway and say why."
            )
    with transaction.atomic():
        # Whoever writes at the same time waits for this row, and finds it gone.
        RubricDraft.objects.select_for_update().filter(pk=draft.pk).first()
        stored = current(draft)
        if stored.revision != revision:
            raise stale(stored)
        newest = stored.rubric.versions.order_by("-number").first()
        version = create_rubric_version(rubric=stored.rubric, spec=stored.spec)
        if newest is None or version.pk != newest.pk:
            version.note, version.failed_golden = note.strip()[:MAX_NOTE], list(failed)
            version.published_by = actor
            version.save(update_fields=["note", "failed_golden", "published_by"])
        stored.delete()
    return version


def golden_of(draft: RubricDraft, *, with_judges: bool = False) -> GoldenReport:
    cases = cases_of(draft.rubric)
    return run_golden(draft.rubric.project_id, draft.spec, cases, with_judges=with_judges)


def backtest_of(draft: RubricDraft) -> Regrade | None:
    """The newest back-test of just what the draft says now."""
    newest = (
        Regrade.objects.filter(rubric=draft.rubric, purpose=RegradePurpose.BACKTEST)
        .select_related("job", "stream")
        .first()
    )
    return newest if newest is not None and newest.spec == draft.spec else None
