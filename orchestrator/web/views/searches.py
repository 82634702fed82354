from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from optimizer.models import HarnessVersion, Proposal, Search, SearchState
from orchestrator.projects.access import project_for_view
from orchestrator.projects.models import User
from orchestrator.proposing.errors import AnswerRefused
from orchestrator.proposing.handing import answer, handed_out
from orchestrator.proposing.names import HANDED_IN
from orchestrator.searches import releases, services
from orchestrator.searches.proposers import outside as asks_outside
from orchestrator.web import access, search_queries
from orchestrator.web import queries as page_queries
from orchestrator.web.certificates import title_of
from orchestrator.web.frame import Crumb, page
from orchestrator.web.optimise_tabs import tabs_of
from orchestrator.web.search_edits import (
    edit_cards,
    effect_rows,
    graves,
    proposal_rows,
    refused_cards,
    replies_of,
)
from orchestrator.web.search_figures import NARROW, WIDE, effect_spans, pareto_figure
from orchestrator.web.search_form import CapsForm, caps_of, rollouts_of
from orchestrator.web.search_page import (
    LIVE,
    budget_lines,
    certificate_of,
    headline,
    noise_of,
    phase_rows,
    sealed_test_of,
)
from orchestrator.web.search_tree import (
    PRICES,
    candidate_tree,
    pareto_points,
    price_chosen,
    winner_of,
)

EFFECTS_SHOWN = 12
"""Edits shown at once, strongest first; the rest is folded."""
RUNS_SHOWN = 10
"""Newest first; the rest is folded."""
PRICE_WORDS = (("cost", "cost"), ("tokens", "tokens"), ("latency", "latency"))


@dataclass(frozen=True)
class Action:
    """Something that a person may do to a search, in the states where it makes sense."""

    key: str
    word: str
    icon: str
    states: Sequence[str]
    said: str
    confirm: str = ""
    is_primary: bool = False
    is_danger: bool = False


ACTIONS = {
    action.key: action
    for action in (
        Action(
            "resume",
            "Resume",
            "play",
            (SearchState.PAUSED, SearchState.FAILED),
            "The search goes on where it stopped.",
            is_primary=True,
        ),
        Action(
            "pause",
            "Pause",
            "pause",
            (SearchState.QUEUED, SearchState.RUNNING),
            "The search pauses after the work in hand. Nothing is lost.",
        ),
        Action(
            "approve",
            "Approve and release",
            "check",
            (SearchState.AWAITING_APPROVAL,),
            "Released: the project works with the new harness in this environment.",
            confirm=(
                "Release the winning harness? Runs and climbs in this environment start from it; "
                "it can be rolled back with one press."
            ),
            is_primary=True,
        ),
        Action(
            "decline",
            "Decline",
            "cross",
            (SearchState.AWAITING_APPROVAL,),
            "Declined: the seed stays. What was measured stays too.",
            confirm="Decline what was found? The seed stays, and so does what was measured.",
        ),
        Action(
            "roll-back",
            "Roll back",
            "undo",
            (SearchState.COMPLETED,),
            "Rolled back: the harness of before counts again.",
            confirm="Roll the release back? The harness of before counts again.",
            is_danger=True,
        ),
        Action(
            "cancel",
            "Cancel search",
            "stop",
            LIVE,
            "The search is cancelled. What was measured stays.",
            confirm="Cancel this search? What was measured stays; the run under way is given up.",
            is_danger=True,
        ),
    )
}


UNCERTIFIED = replace(
    ACTIONS["approve"],
    word="Release although not certified",
    confirm=(
        "Nothing is certified: chance alone may have made this harness look better. Release it all "
        "the same?"
    ),
    is_primary=False,
)
"""In the place of *approve* where the evidence did not decide."""


@login_required
@require_safe
def search_list(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    searches = search_queries.list_searches(project.pk)
    budgets = search_queries.budgets_by_search([search.pk for search in searches])
    return page(
        request,
        "web/searches.html",
        project,
        "optimise",
        [Crumb("Optimise")],
        tabs=tabs_of(project.pk, "web:searches"),
        rows=[_list_row(search, budgets.get(search.pk, [])) for search in searches],
        is_cut=len(searches) == search_queries.SHOWN,
    )


def _list_row(search: Search, budgets: Sequence[Any]) -> dict[str, Any]:
    comparisons = list(search.comparisons.all())
    shown = sealed_test_of(comparisons) or certificate_of(comparisons)
    return {
        "search": search,
        "headline": headline(search, comparisons),
        "shown": shown,
        "span": _span(shown),
        "is_live": search.state in LIVE,
        "rollouts": budgets[0] if budgets else None,
        "climb": search_queries.climb_of(search),
    }


def _span(comparison: Any) -> Any:
    if comparison is None or None in (comparison.difference, comparison.low, comparison.high):
        return None
    return effect_spans([(comparison.difference, comparison.low, comparison.high)])[0]


@login_required
@require_safe
def search_page(request: HttpRequest, project_id: int, search_id: int) -> HttpResponse:
    found = access.search_for_view(request.user, project_id, search_id)
    # Read before everything else: what is appended meanwhile comes again by the feed.
    last_seq = page_queries.last_seq(found.stream_id) if found.stream_id else 0
    view = search_queries.search_view(found.pk)
    search = view.search
    winner = winner_of(view.candidates, view.comparisons, found_in(search))
    tree = candidate_tree(
        view.candidates,
        view.edits,
        winner,
        lambda harness: _diff_url(project_id, search.seed_harness, harness),
    )
    price = price_chosen(view.candidates, request.GET.get("price", ""))
    points = pareto_points(view.candidates, price, winner)
    _, show, price_name = PRICES[price]
    figures = [
        pareto_figure(points, frame, price_name=price_name, show=show)
        for frame in ((WIDE, NARROW) if len(points) > 1 else ())
    ]
    effects = effect_rows(view.edits, view.tombstones)
    return page(
        request,
        "web/search.html",
        search.project,
        "optimise",
        [
            Crumb("Optimise", reverse("web:searches", args=[project_id])),
            Crumb(str(search), copy=str(search.pk)),
        ],
        search=search,
        view=view,
        climb=search_queries.climb_of(search),
        is_live=search.state in LIVE,
        may_nudge=search.state in LIVE and bool(asks_outside(search.settings.get("proposers", ()))),
        headline=headline(search, view.comparisons),
        actions=_actions(search, view),
        diff_url=_diff_url(project_id, search.seed_harness, winner.harness if winner else None),
        phases=phase_rows(search),
        certificates=[
            {"comparison": c, "title": title_of(c), "span": _span(c)} for c in view.comparisons
        ],
        noise=noise_of(search.outcome),
        budget=budget_lines(view.budgets),
        caps=CapsForm(initial=caps_of(search)),
        may_cap=not search.has_ended and not search.settings.get("is_part", False),
        tree=tree,
        price=price,
        prices=PRICE_WORDS,
        price_name=price_name,
        pareto=figures[0] if figures else None,
        pareto_narrow=figures[1] if figures else None,
        effects_first=effects[:EFFECTS_SHOWN],
        effects_rest=effects[EFFECTS_SHOWN:],
        graves=graves(view.tombstones),
        proposals=proposal_rows(view.proposals),
        runs_first=view.runs[:RUNS_SHOWN],
        runs_rest=view.runs[RUNS_SHOWN:],
        last_seq=last_seq,
    )


def found_in(search: Search) -> int | None:
    """Id of the harness that the search ended with: what is shipped, else what was tested."""
    shipped = search.outcome.get("shipped")
    if shipped is not None and shipped != search.seed_harness_id:
        return int(shipped)
    winner = search.outcome.get("winner")
    return int(winner) if isinstance(winner, int) else None


def _actions(search: Search, view: search_queries.SearchView) -> list[Action]:
    """None for a part of a climb, which is steered on the climb's page."""
    if search.settings.get("is_part"):
        return []
    released = any(release.rolled_back_at is None for release in view.releases)
    found = [
        action
        for action in ACTIONS.values()
        if search.state in action.states and (action.key != "roll-back" or released)
    ]
    if search.outcome.get("is_promotable", True):
        return found
    return [UNCERTIFIED if action.key == "approve" else action for action in found]


def _diff_url(project_id: int, before: HarnessVersion, after: HarnessVersion | None) -> str:
    if after is None or after.pk == before.pk:
        return ""
    return reverse("web:harness_diff", args=[project_id, before.pk, after.pk])


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def search_proposal(
    request: HttpRequest, project_id: int, search_id: int, proposal_id: int
) -> HttpResponse:
    """What was asked and answered; a POST hands an answer in."""
    if request.method != "POST":
        search = access.search_for_view(request.user, project_id, search_id)
        return _proposal_page(request, search, _proposal(search, proposal_id))
    search = access.search_for_edit(request.user, project_id, search_id)
    proposal, text = _proposal(search, proposal_id), request.POST.get("answer", "")
    try:
        answer(actor=_user(request), proposal=proposal, text=text)
    except AnswerRefused as refused:
        return _proposal_page(request, search, proposal, given=text, refused=refused)
    messages.success(request, "Handed in. Its edits are measured like all others.")
    return redirect("web:search_proposal", project_id, search_id, proposal_id)


@login_required
@require_safe
def search_question(
    request: HttpRequest, project_id: int, search_id: int, proposal_id: int
) -> HttpResponse:
    """The proposal as a file that a person or an agent can work on."""
    search = access.search_for_view(request.user, project_id, search_id)
    try:
        question = handed_out(_proposal(search, proposal_id))
    except AnswerRefused as refused:
        messages.error(request, str(refused))
        return redirect("web:search_proposal", project_id, search_id, proposal_id)
    response = JsonResponse(question, json_dumps_params={"indent": 2, "ensure_ascii": False})
    name = f"proposal-{proposal_id}-search-{search_id}.json"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _proposal(search: Search, proposal_id: int) -> Proposal:
    proposal = search_queries.proposal_of(search, proposal_id)
    if proposal is None:
        raise Http404("The search has no such proposal.")
    return proposal


def _proposal_page(
    request: HttpRequest,
    search: Search,
    proposal: Proposal,
    *,
    given: str = "",
    refused: AnswerRefused | None = None,
) -> HttpResponse:
    is_waiting = (
        proposal.state == Proposal.State.WAITING
        and proposal.proposer == HANDED_IN
        and search.state in LIVE
    )
    return page(
        request,
        "web/search_proposal.html",
        search.project,
        "optimise",
        [
            Crumb("Optimise", reverse("web:searches", args=[search.project_id])),
            Crumb(str(search), reverse("web:search", args=[search.project_id, search.pk])),
            Crumb(f"Proposal {proposal.pk}", copy=str(proposal.pk)),
        ],
        status=422 if refused else 200,
        search=search,
        proposal=proposal,
        kept=edit_cards(proposal.edits),
        refused=refused_cards(proposal.refused),
        replies=replies_of(proposal.answers),
        is_waiting=is_waiting,
        given=given,
        problem=refused,
    )


@login_required
@require_POST
def search_nudge(request: HttpRequest, project_id: int, search_id: int) -> HttpResponse:
    search = access.search_for_edit(request.user, project_id, search_id)
    try:
        services.nudge(actor=_user(request), search=search, text=request.POST.get("text", ""))
    except services.SearchRefused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, "Noted. The next reflection reads it.")
    return redirect("web:search", project_id, search_id)


@login_required
@require_POST
def search_budget(request: HttpRequest, project_id: int, search_id: int) -> HttpResponse:
    """Other caps for the rest of the search."""
    search = access.search_for_edit(request.user, project_id, search_id)
    form = CapsForm(request.POST)
    if not form.is_valid():
        for name, errors in form.errors.items():
            said = " ".join(str(error) for error in errors)
            messages.error(request, f"{form[name].label}: {said}")
        return redirect("web:search", project_id, search_id)
    try:
        services.set_budget(
            actor=_user(request), search=search, budget=form.budget(rollouts_of(search))
        )
    except services.SearchRefused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, "The caps are changed; a search that paused can be resumed.")
    return redirect("web:search", project_id, search_id)


@login_required
@require_POST
def search_action(
    request: HttpRequest, project_id: int, search_id: int, action: str
) -> HttpResponse:
    search = access.search_for_edit(request.user, project_id, search_id)
    try:
        DEEDS[action](_user(request), search, request.POST.get("note", ""))
    except (services.SearchRefused, releases.ReleaseRefused) as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, ACTIONS[action].said)
    return redirect("web:search", project_id, search_id)


def _roll_back(actor: User, search: Search, note: str) -> None:
    release = search_queries.release_of(search)
    if release is None:
        raise releases.ReleaseRefused("The search has no release that counts.")
    releases.roll_back(actor=actor, release=release)


DEEDS: dict[str, Callable[[User, Search, str], object]] = {
    "pause": lambda actor, search, note: services.pause_search(actor=actor, search=search),
    "resume": lambda actor, search, note: services.resume_search(actor=actor, search=search),
    "cancel": lambda actor, search, note: services.cancel_search(actor=actor, search=search),
    "approve": lambda actor, search, note: services.approve(actor=actor, search=search, note=note),
    "decline": lambda actor, search, note: services.decline(actor=actor, search=search, note=note),
    "roll-back": _roll_back,
}


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # login_required
    return request.user
