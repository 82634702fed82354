"""Which waiting job gets which free device. Pure; called again whenever something changes.

One job per device. Higher priority first; a job that has waited six hours counts as one higher, so
nothing waits for ever. Among equals the project that has had least of the devices in the last day
goes first, counting what it holds, then the job that was submitted first. Quotas pass a project
over. A job that no free device suits lets the next one go ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

AGES_AFTER_S = 6 * 3600.0
HELD_COUNTS_S = 3600.0
"""What a device that a project holds counts as, at least: else whoever starts two at once would be
ahead of whoever has had one for a minute."""


@dataclass(frozen=True, slots=True)
class Device:
    """One slot. `name` is torch's, after that of the host if there are several: `cpu`, `cuda:0`,
    `gpu1/cuda:0`."""

    name: str
    memory_mb: float | None = None
    """None: unknown, and nothing is refused for it."""

    @property
    def kind(self) -> str:
        """`cpu` or `cuda`."""
        return self.name.rpartition("/")[2].partition(":")[0]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job without a device."""

    job: int
    project: int
    priority: int
    submitted_s: float
    """Seconds since the epoch."""
    kind: str
    """Of device, or empty for any."""
    memory_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Running:
    """A job with a device."""

    job: int
    project: int
    device: str


@dataclass(frozen=True, slots=True)
class Quota:
    """Of one project; None: no limit."""

    max_running: int | None = None
    device_s_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens now, and why the rest waits."""

    assigned: Mapping[int, str]
    """Job to device."""
    waits: Mapping[int, str]
    """Job to a sentence, in the order in which they would go."""


@dataclass(slots=True)
class _Books:
    held: Counter[int] = field(default_factory=Counter)
    used_s: dict[int, float] = field(default_factory=dict)


def plan(
    *,
    devices: Sequence[Device],
    running: Sequence[Running],
    waiting: Sequence[Waiting],
    used_s: Mapping[int, float],
    quotas: Mapping[int, Quota],
    now_s: float,
) -> Plan:
    """`used_s`: device seconds of each project in the last day, running jobs included."""
    books = _Books(Counter(job.project for job in running), dict(used_s))
    taken = {job.device for job in running}
    free = [device for device in devices if device.name not in taken]
    left = list(waiting)
    assigned: dict[int, str] = {}
    waits: dict[int, str] = {}
    while left:
        job = min(left, key=lambda each: _rank(each, books, now_s))
        left.remove(job)
        why = _refusal(job, devices, free, books, quotas.get(job.project, Quota()), running)
        if why:
            waits[job.job] = why
            continue
        device = next(each for each in free if _suits(each, job))
        free.remove(device)
        assigned[job.job] = device.name
        books.held[job.project] += 1
    return Plan(assigned, waits)


def _rank(job: Waiting, books: _Books, now_s: float) -> tuple[float, float, float, int]:
    age = int(max(0.0, now_s - job.submitted_s) // AGES_AFTER_S)
    share = books.used_s.get(job.project, 0.0) + HELD_COUNTS_S * books.held[job.project]
    return -(job.priority + age), share, job.submitted_s, job.job


def _suits(device: Device, job: Waiting) -> bool:
    if job.kind and device.kind != job.kind:
        return False
    return device.memory_mb is None or job.memory_mb <= device.memory_mb


def _refusal(
    job: Waiting,
    devices: Sequence[Device],
    free: Sequence[Device],
    books: _Books,
    quota: Quota,
    running: Sequence[Running],
) -> str:
    kind = [each for each in devices if not job.kind or each.kind == job.kind]
    if not kind:
        names = ", ".join(each.name for each in devices) or "none"
        return f"No device of kind {job.kind}; there are: {names}. Ask an operator for one."
    if not any(_suits(each, job) for each in kind):
        most = max(each.memory_mb or 0.0 for each in kind)
        return (
            f"It needs about {job.memory_mb:,.0f} MB and the largest device has {most:,.0f} MB: "
            "take smaller packs (batch.budget_tokens) or recompute blocks."
        )
    if quota.max_running is not None and books.held[job.project] >= quota.max_running:
        return f"The project holds {books.held[job.project]} of its {quota.max_running} devices."
    used = books.used_s.get(job.project, 0.0)
    if quota.device_s_per_day is not None and used >= quota.device_s_per_day:
        return (
            f"The project has had {used / 60:.0f} of its {quota.device_s_per_day / 60:.0f} minutes "
            "of devices within 24 hours."
        )
    if not any(_suits(each, job) for each in free):
        holders = {each.device: each.job for each in running}
        held = [
            f"{each.name} has job {holders[each.name]}" for each in kind if each.name in holders
        ]
        return f"Waits for a device: {'; '.join(held) or 'another job goes first'}."
    return ""
