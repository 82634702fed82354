"""The last look before a draft is frozen as a version."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from orchestrator.grading import queries
from orchestrator.grading.backtest import comparison_of
from orchestrator.grading.diff import difference
from orchestrator.grading.errors import DraftGone, GoldenFailures, Stale
from orchestrator.grading.findings import read
from orchestrator.grading.models import RubricDraft
from orchestrator.grading.publish import backtest_of, golden_of, publish
from orchestrator.grading.regrade import OPEN_STATES
from orchestrator.grading.regrade_queries import n_done
from orchestrator.web import rubric_access as access
from orchestrator.web.frame import page
from orchestrator.web.rubric_tabs import tabs_of
from orchestrator.web.views.regrades import bars_of
from orchestrator.web.views.rubric_editor import rubric_crumbs, user_of
from rubrics.errors import RubricInvalid


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def rubric_publish(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    rubric = access.rubric_for_edit(request.user, project_id, rubric_id)
    draft = queries.draft_of(rubric)
    if draft is None:
        return redirect("web:rubric", project_id, rubric_id)
    problem, refusal = "", ""
    with_judges = "judges" in request.POST
    is_publishing = request.method == "POST" and "ask" not in request.POST
    if is_publishing:
        seen = request.POST.get("revision", "")
        try:
            version = publish(
                draft=draft,
                actor=user_of(request),
                revision=int(seen) if seen.isdecimal() and len(seen) < 10 else -1,
                note=request.POST.get("note", ""),
                anyway="anyway" in request.POST,
                with_judges=with_judges,
            )
        except GoldenFailures as failed:
            refusal = str(failed)
        except (Stale, RubricInvalid) as refused:
            problem = str(refused) if isinstance(refused, Stale) else ""
            draft = queries.draft_of(rubric) or draft
        except DraftGone as gone:
            messages.error(request, str(gone))
            return redirect("web:rubric", project_id, rubric_id)
        else:
            _tell(request, draft, version.number)
            return redirect("web:rubric", project_id, rubric_id)
    versions = queries.versions_of(rubric)
    return page(
        request,
        "web/rubric_publish.html",
        rubric.project,
        "rubrics",
        rubric_crumbs(rubric, "Publish"),
        status=409 if problem else 422 if is_publishing else 200,
        rubric=rubric,
        draft=draft,
        problem=problem,
        refusal=refusal,
        golden=golden_of(draft, with_judges=with_judges),
        with_judges=with_judges,
        note=request.POST.get("note", ""),
        **_tested(draft),
        reading=read(draft.spec),
        next_number=versions[0].number + 1 if versions else 1,
        newest=versions[0] if versions else None,
        found=difference(versions[0].spec if versions else {}, draft.spec),
        tabs=tabs_of(rubric, "web:rubric_edit"),
    )


def _tested(draft: RubricDraft) -> dict[str, Any]:
    """The back-test of just what the draft says, where there is one."""
    tested = backtest_of(draft)
    if tested is None:
        return {"tested": None}
    told = {"tested": tested, "last_seq": tested.stream.last_seq}
    if tested.state in OPEN_STATES:
        return {**told, "is_open": True, "n_done": n_done(tested)}
    found = comparison_of(tested)
    return {**told, "is_open": False, "compared": found, "bars": bars_of(found)}


def _tell(request: HttpRequest, draft: RubricDraft, number: int) -> None:
    if draft.base and draft.base.number == number:
        messages.success(request, f"Nothing had changed: version {number} stays the newest.")
    else:
        messages.success(request, f"Version {number} is published and frozen.")
