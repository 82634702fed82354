"""What a search may spend: its accounts, opened at the start, and how runs are booked on them.

`search:<id>` has an account for each role and unit that is capped; `search:<id>/<share>` the part
that each share of the work is allowed (`settings.Shares`). A run is booked on both, so that the
search proper cannot eat what is set aside for the certificate and the sealed test.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping

from django.db.models import Max, Sum

from optimizer.harness import Harness
from optimizer.models import Budget, Proposal, Search, SearchRun
from optimizer.skills import estimated_tokens
from orchestrator.environments.models import Split, Task
from orchestrator.judging import accounts
from orchestrator.judging.accounts import MICRO_USD, MILLISECONDS, ROLLOUTS, TOKENS
from orchestrator.proposing.names import HANDED_IN
from orchestrator.runs.models import ENDED_RUN_STATES, Rollout, RolloutState, Run
from orchestrator.runs.purse import CAUSE
from orchestrator.searches.rows import ASKED_AGAIN
from orchestrator.searches.settings import SearchSettings, Shares, shares_of

AGENT, JUDGE, PROPOSER = "agent", "judge", "proposer"
SHARE_OF_PHASE: Mapping[str, str] = {
    "preflight": "search",
    "recheck": "retry",
    "evidence": "search",
    "screen": "search",
    "race": "search",
    "twin": "search",
    "certify": "certify",
    "models": "models",
    "test": "test",
    "retry": "retry",
}
HINT = "Raise the cap on the search's page and resume it, or cancel the search."
HINT_PART = "The search is a part of a climb; start a climb with a larger budget."
SLACK = 1.25
"""Over the largest that was seen, for what a rollout may take."""
LAST_CALL = 3
"""Rollouts' worth of room for what the last call of a run may be held at: bytes for tokens."""
TURN_TOKENS = 500
"""Of what an environment answers to a step, before anything is known."""


def scope_of(search_id: int) -> str:
    return f"search:{search_id}"


def hint_of(settings: SearchSettings) -> str:
    return HINT_PART if settings.is_part else HINT


def shares(search: Search, settings: SearchSettings) -> Shares:
    tests = Task.objects.filter(version_id=search.environment_version_id, split=Split.TEST).count()
    return shares_of(settings, test_tasks=tests)


def open_accounts(search: Search, settings: SearchSettings) -> None:
    """Needs a transaction. Money, tokens and time are divided as the rollouts are."""
    parts, caps = shares(search, settings), caps_of(settings)
    scope = scope_of(search.pk)
    for (role, unit), cap in caps.items():
        accounts.open_account(scope=scope, role=role, unit=unit, cap=cap)
    for (unit, name), cap in share_caps(parts, caps).items():
        accounts.open_account(scope=f"{scope}/{name}", role=AGENT, unit=unit, cap=cap)


def caps_of(settings: SearchSettings) -> dict[tuple[str, str], int]:
    """By role and unit, in whole units; what is not capped is not in it."""
    budget = settings.budget
    found = {
        (AGENT, ROLLOUTS): budget.rollouts,
        (AGENT, TOKENS): budget.tokens,
        (AGENT, MICRO_USD): _micro(budget.usd),
        (AGENT, MILLISECONDS): None if budget.seconds is None else budget.seconds * 1_000,
        (JUDGE, TOKENS): budget.judge_tokens,
        (JUDGE, MICRO_USD): _micro(budget.judge_usd),
        (PROPOSER, TOKENS): budget.proposer_tokens,
        (PROPOSER, MICRO_USD): _micro(budget.proposer_usd),
    }
    return {key: int(cap) for key, cap in found.items() if cap is not None}


def share_caps(parts: Shares, caps: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """(unit, share) -> cap of the agent's accounts."""
    rollouts = {
        "search": parts.search,
        "certify": parts.certify,
        "test": parts.test,
        "retry": parts.retry,
        "models": parts.models,
    }
    if not parts.models:
        del rollouts["models"]
    found = {(ROLLOUTS, name): max(0, n) for name, n in rollouts.items()}
    for unit in (TOKENS, MICRO_USD):
        cap = caps.get((AGENT, unit))
        if cap is not None:
            for name, n in rollouts.items():
                found[unit, name] = cap * max(0, n) // max(1, parts.total)
    return found


def _micro(usd: float | None) -> int | None:
    return None if usd is None else accounts.micro_usd(usd)


# --- runs ---------------------------------------------------------------------------------------


def reserve_run(
    *, search: Search, settings: SearchSettings, key: str, phase: str, n: int, what: str
) -> None:
    """Needs a transaction. Raises BudgetExceeded: one of the caps would be passed."""
    amounts = {unit: math.ceil(amount) for unit, amount in _bounds(search, n).items()}
    accounts.reserve(
        scopes=_scopes(search.pk, phase),
        role=AGENT,
        key=key,
        amounts={**amounts, ROLLOUTS: n},
        what=what,
        hint=hint_of(settings),
    )


def settle_run(*, search_run: SearchRun) -> None:
    """Books what a run that has ended really took; rollouts that never started are free again."""
    accounts.settle(
        scopes=_scopes(search_run.search_id, search_run.phase),
        role=AGENT,
        key=search_run.run.key or "",
        amounts=_taken_by(search_run.run),
    )


def _taken_by(run: Run) -> dict[str, int]:
    totals = Rollout.everything.filter(run=run).aggregate(
        given=Sum("tokens_in"), taken=Sum("tokens_out"), usd=Sum("cost_usd")
    )
    return {
        ROLLOUTS: _counted(run),
        TOKENS: (totals["given"] or 0) + (totals["taken"] or 0),
        MICRO_USD: accounts.micro_usd(totals["usd"] or 0.0),
        MILLISECONDS: round(1e3 * _wall_s(run)),
    }


def _bounds(search: Search, n: int) -> dict[str, float]:
    """What n rollouts may take, by unit."""
    most = most_of(search)
    bounds = {unit: n * amount for unit, amount in most.items()}
    # What was too little before is doubled, so that a search comes to its end or to its cap.
    too_little = search.search_runs.filter(run__rollouts__cause=CAUSE).distinct().count()
    is_known = Rollout.objects.filter(run__search_run__search=search, tokens_in__gt=0).exists()
    # One call is held at more than it takes (`runs.purse`), which the last one needs room for.
    room = n + (LAST_CALL if is_known else 0)
    for unit in (TOKENS, MICRO_USD):
        bounds[unit] = room * most[unit] * 2**too_little
    return bounds


def _counted(run: Run) -> int:
    """Without those that never ended for a reason of ours: they are asked for again."""
    begun = run.rollouts.filter(attempt__gt=0)
    return begun.exclude(state=RolloutState.CANCELLED).exclude(cause__in=ASKED_AGAIN).count()


def most_of(search: Search) -> dict[str, float]:
    """What one rollout may take at most, judged by those that the search has seen."""
    seen = Rollout.objects.filter(run__search_run__search=search, ended_at__isnull=False)
    most = seen.aggregate(given=Max("tokens_in"), taken=Max("tokens_out"), usd=Max("cost_usd"))
    tokens = (most["given"] or 0) + (most["taken"] or 0)
    runs = [row.run for row in search.search_runs.select_related("run") if row.run.has_ended]
    n = sum(run.rollouts.count() for run in runs) if runs else 0
    seconds = sum(_wall_s(run) for run in runs) / n if n else 0.0
    if not tokens:
        return _before_any(search) | {MILLISECONDS: max(1.0, 1e3 * seconds)}
    return {
        TOKENS: SLACK * tokens,
        MICRO_USD: SLACK * 1e6 * (most["usd"] or 0.0),
        MILLISECONDS: SLACK * 1e3 * seconds,
    }


def _before_any(search: Search) -> dict[str, float]:
    """From the limits of the seed harness: every turn sends all that came before."""
    from optimizer.store import load_harness

    harness: Harness = load_harness(search.seed_harness)
    steps, model = harness.limits.max_steps, search.model
    assert model is not None
    prompt = sum(estimated_tokens(m["content"]) for m in harness.messages("")) + TURN_TOKENS
    taken = steps * harness.sampling.max_tokens
    given = steps * prompt + (harness.sampling.max_tokens + TURN_TOKENS) * steps * (steps - 1) / 2
    usd = given * model.price_in_usd_per_mtok + taken * model.price_out_usd_per_mtok
    return {TOKENS: given + taken, MICRO_USD: usd}


def _wall_s(run: Run) -> float:
    if run.started_at is None or run.ended_at is None:
        return 0.0
    return (run.ended_at - run.started_at).total_seconds()


def _scopes(search_id: int, phase: str) -> list[str]:
    scope = scope_of(search_id)
    return [scope, f"{scope}/{SHARE_OF_PHASE[phase]}"]


def raise_caps(search: Search, before: SearchSettings, after: SearchSettings) -> str:
    """Needs a transaction. Why a cap cannot be changed so; empty when all are."""
    scope, parts, caps = scope_of(search.pk), shares(search, after), caps_of(after)
    old = caps_of(before)
    new = caps.keys() - old.keys()
    if problem := _added_too_late(search, new):
        return problem
    spent = _spent(search) if new else {}
    for role, unit in old.keys() - caps.keys():
        Budget.objects.filter(scope__in=_family(scope), role=role, unit=unit).delete()
    wanted = [(scope, role, unit, cap) for (role, unit), cap in caps.items()]
    wanted += [
        (f"{scope}/{name}", AGENT, unit, cap)
        for (unit, name), cap in share_caps(parts, caps).items()
    ]
    for account, role, unit, cap in wanted:
        budget = accounts.open_account(scope=account, role=role, unit=unit, cap=cap)
        if (role, unit) in new:
            # A cap is of the whole search: it counts what was taken before there was one.
            budget.used = spent.get((account, role, unit), 0)
            budget.save(update_fields=["used"])
        if not accounts.raise_cap(scope=account, role=role, unit=unit, cap=cap):
            return (
                f"{accounts.shown(unit, cap)} is less than the {role} has spent or set aside "
                f"({account.removeprefix(scope).strip('/') or 'in all'})."
            )
    return ""


def _added_too_late(search: Search, new: Collection[tuple[str, str]]) -> str:
    """What was on its way without a cap would not be booked; what judges took nobody has noted."""
    # Whoever asks for a run holds the same row.
    Search.objects.select_for_update().only("pk").get(pk=search.pk)
    roles = {role for role, _ in new}
    asked = search.search_runs.all()
    if JUDGE in roles and asked.exists():
        return "Judges were not capped from the start; what they have taken so far is not known."
    if AGENT in roles and asked.exclude(run__state__in=ENDED_RUN_STATES).exists():
        return "A run is under way that was not capped so. Pause the search and wait for its end."
    waiting = search.proposals.filter(state=Proposal.State.WAITING).exclude(proposer=HANDED_IN)
    if PROPOSER in roles and waiting.exists():
        return "A proposer is at work that was not capped so. Pause the search and wait for it."
    return ""


def _spent(search: Search) -> dict[tuple[str, str, str], int]:
    """By account, role and unit: of the agent in all its runs, and of the proposers."""
    found: Counter[tuple[str, str, str]] = Counter()
    for search_run in search.search_runs.select_related("run"):
        for unit, amount in _taken_by(search_run.run).items():
            for scope in _scopes(search.pk, search_run.phase):
                found[scope, AGENT, unit] += amount
    proposed = search.proposals.aggregate(tokens=Sum("tokens"), usd=Sum("cost_usd"))
    scope = scope_of(search.pk)
    found[scope, PROPOSER, TOKENS] = proposed["tokens"] or 0
    found[scope, PROPOSER, MICRO_USD] = accounts.micro_usd(proposed["usd"] or 0.0)
    return found


def _family(scope: str) -> list[str]:
    return [scope, *(f"{scope}/{name}" for name in set(SHARE_OF_PHASE.values()))]
