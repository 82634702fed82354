"""What the page of a search says of it: headline, phases, budget, noise floor.

Rows in, values for templates out. The headline speaks of certificates and of the sealed test alone;
scores of candidates chose the winner and are never claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.models import Budget, Comparison, Search, SearchPhase, SearchState
from orchestrator.web.figures import MINUS, Bar, stacked

LIVE = (SearchState.QUEUED, SearchState.RUNNING, SearchState.PAUSED)


def points(share: float | None) -> str:
    """Percentage points with a sign."""
    if share is None:
        return "–"
    text = f"{abs(100 * share):.0f}"
    return ("±" if text == "0" else "+" if share > 0 else MINUS) + text


def certificate_of(comparisons: Iterable[Comparison]) -> Comparison | None:
    """The certificate to speak of: the newest that improved, else the newest."""
    tests = [c for c in comparisons if c.method == "e_process"]
    improved = [c for c in tests if c.verdict == "improved" and not c.details.get("breached")]
    found = improved or tests
    return found[-1] if found else None


def sealed_test_of(comparisons: Iterable[Comparison]) -> Comparison | None:
    return next((c for c in reversed(list(comparisons)) if c.split == "test"), None)


def headline(search: Search, comparisons: Sequence[Comparison]) -> str:
    """States only what is certified on select tasks or seen on the sealed test."""
    certificate, test = certificate_of(comparisons), sealed_test_of(comparisons)
    if test is not None and test.difference is not None:
        if test.verdict in ("better", "improved"):
            return f"{points(test.difference)} points on the sealed test"
        if test.verdict == "regressed":
            return f"{points(test.difference)} points on the sealed test: worse than the seed"
    if certificate is not None and certificate.verdict == "improved":
        if certificate.details.get("breached"):
            return "Better on the whole, worse in part: not promoted"
        return f"Certified better, {points(certificate.difference)} points on unseen tasks"
    if search.state in LIVE:
        return {
            SearchState.QUEUED: "Waits for a worker",
            SearchState.PAUSED: "Paused: nothing is certified yet",
        }.get(SearchState(search.state), "Searching: nothing is certified yet")
    if search.state == SearchState.FAILED:
        return "The search stopped before it had a result"
    if search.state == SearchState.CANCELLED:
        return "Cancelled: what was measured stays"
    if certificate is not None and certificate.verdict == "not_improved":
        return "Not better than the seed"
    if search.state == SearchState.AWAITING_APPROVAL:
        return "Nothing certified; the best guess waits for your word"
    return "Nothing certified: the seed stays"


# --- phases


@dataclass(frozen=True)
class PhaseRow:
    key: str
    word: str
    state: str
    """done, running, failed, skipped or pending."""
    doing: str
    share: float | None


def phase_rows(search: Search) -> list[PhaseRow]:
    """The phases in their order; the one under way carries what is being done."""
    order: list[SearchPhase] = [phase for phase in SearchPhase if phase != SearchPhase.DONE]
    # A climb reads the sealed test of its searches itself.
    if not search.settings.get("test", True) or search.settings.get("is_part"):
        order.remove(SearchPhase.TEST)
    at = (
        len(order)
        if search.phase == SearchPhase.DONE or search.phase not in order
        else order.index(SearchPhase(search.phase))
    )
    rows = []
    for index, phase in enumerate(order):
        if index < at:
            state = "done"
        elif index > at or search.state == SearchState.QUEUED:
            state = "pending"
        elif search.state in (SearchState.FAILED, SearchState.CANCELLED):
            state = "failed"
        else:
            state = "running"
        is_here = index == at and state in ("running", "failed")
        rows.append(
            PhaseRow(
                phase.value,
                phase.label,
                state,
                search.doing if is_here else "",
                search.progress if is_here else None,
            )
        )
    return rows


# --- budget

UNITS = {"rollouts": 0, "tokens": 1, "micro_usd": 2, "usd": 2, "milliseconds": 3, "seconds": 3}
ROLES = {"agent": 0, "judge": 1, "proposer": 2, "trainer": 3}
SHARES = {
    "search": "search",
    "certify": "certification",
    "test": "sealed test",
    "models": "choice of model",
    "retry": "repeats",
}


@dataclass(frozen=True)
class BudgetPart:
    """What is cut off for one phase."""

    phase: str
    cap: float
    used: float


@dataclass(frozen=True)
class BudgetLine:
    role: str
    unit: str
    """rollouts, tokens, usd or seconds."""
    cap: float
    used: float
    reserved: float
    bars: Sequence[Bar]
    parts: Sequence[BudgetPart] = ()

    @property
    def share(self) -> float:
        return self.used / self.cap if self.cap else 0.0

    @property
    def left(self) -> float:
        return max(0.0, self.cap - self.used - self.reserved)


def budget_lines(budgets: Iterable[Budget]) -> list[BudgetLine]:
    """One line for each role and unit, rollouts of the agent first; phases within a line."""
    found: dict[tuple[str, str], dict[str, Budget]] = {}
    for budget in budgets:
        _, _, phase = budget.scope.partition("/")
        found.setdefault((budget.role, budget.unit), {})[phase] = budget
    order = sorted(found, key=lambda key: (ROLES.get(key[0], 9), UNITS.get(key[1], 9)))
    return [_line(role, unit, found[role, unit]) for role, unit in order]


def _line(role: str, unit: str, by_phase: Mapping[str, Budget]) -> BudgetLine:
    scale, shown = {"micro_usd": (1e-6, "usd"), "milliseconds": (1e-3, "seconds")}.get(
        unit, (1.0, unit)
    )
    total = by_phase.get("")
    rest = [by_phase[name] for name in sorted(by_phase, key=_phase_order) if name]
    cap = total.cap if total else sum(b.cap for b in rest)
    used = total.used if total else sum(b.used for b in rest)
    reserved = total.reserved if total else sum(b.reserved for b in rest)
    parts = [
        BudgetPart(SHARES.get(name, name), by_phase[name].cap * scale, by_phase[name].used * scale)
        for name in sorted(by_phase, key=_phase_order)
        if name
    ]
    segments = [(name or "search", int(by_phase[name].used)) for name in by_phase if name] or [
        ("search", int(used))
    ]
    counted = sum(amount for _, amount in segments)
    if counted < used:
        segments.append(("search", int(used) - counted))
    segments.sort(key=lambda part: _phase_order(part[0]))
    segments.append(("reserved", int(reserved)))
    return BudgetLine(
        role=role,
        unit=shown,
        cap=cap * scale,
        used=used * scale,
        reserved=reserved * scale,
        bars=stacked(segments, max(1, int(cap))),
        parts=parts,
    )


def _phase_order(name: str) -> int:
    order = ["", *SHARES]
    return order.index(name) if name in order else len(order)


# --- noise


@dataclass(frozen=True)
class Noise:
    """Seed against seed: how far apart the same harness lands by chance."""

    mean: float
    low: float
    high: float
    pairs: int


def noise_of(outcome: Mapping[str, Any]) -> Noise | None:
    data = outcome.get("noise")
    if not isinstance(data, Mapping):
        return None
    mean, low, high = (real(data.get(name)) for name in ("mean", "low", "high"))
    if mean is None or low is None or high is None:
        return None
    return Noise(mean, low, high, whole(data.get("pairs")) or 0)


def real(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def whole(value: Any) -> int | None:
    number = real(value)
    return None if number is None else int(number)
