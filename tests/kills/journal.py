"""What the product has acknowledged, kept outside of it.

Records go in when the answer has been read, so whatever is missing in the database afterwards was
lost. It also remembers what had ended and how, which may never change.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from orchestrator.invariants.finding import Finding


class Journal:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.items: dict[str, set[str]] = defaultdict(set)
        """Names of ingested events by rollout."""
        self.objects: dict[str, set[int]] = defaultdict(set)
        """Ids by kind, from answers 202."""
        self.heard: dict[str, int] = defaultdict(int)
        """How often the receiver answered 200, by message id of a webhook."""
        self.ended: dict[int, tuple[Any, ...]] = {}
        """Rollouts that have ended: state, score, attempt."""

    def ingested(self, rollout: str, names: list[str]) -> None:
        with self._lock:
            self.items[rollout].update(names)

    def accepted(self, kind: str, pk: int) -> None:
        with self._lock:
            self.objects[kind].add(pk)

    def hear(self, message_id: str) -> None:
        with self._lock:
            self.heard[message_id] += 1

    def totals(self) -> dict[str, int]:
        with self._lock:
            return {
                "ingested events": sum(map(len, self.items.values())),
                **{f"accepted {kind}": len(ids) for kind, ids in sorted(self.objects.items())},
                "webhooks heard": sum(self.heard.values()),
                "ended rollouts": len(self.ended),
            }

    # --- against the database -------------------------------------------------------------------

    def check(self) -> Iterator[Finding]:
        """Nothing acknowledged is missing; nothing that had ended has changed."""
        yield from self._check_items()
        yield from self._check_objects()
        yield from self._check_ended()

    def _check_items(self) -> Iterator[Finding]:
        from orchestrator.traces.models import OutsideEvent

        with self._lock:
            items = {rollout: set(names) for rollout, names in self.items.items()}
        for rollout, names in items.items():
            keys = {sha256(f'"{name}"'.encode()).hexdigest(): name for name in names}
            stored = set(
                OutsideEvent.objects.filter(owner__name=f'"{rollout}"').values_list(
                    "key", flat=True
                )
            )
            if lost := [name for key, name in keys.items() if key not in stored]:
                yield Finding(
                    "acknowledged", f"ingest {rollout}", f"{len(lost)} events are lost: {lost[:3]}"
                )

    def _check_objects(self) -> Iterator[Finding]:
        from optimizer.models import Search
        from orchestrator.climbs.models import Climb
        from orchestrator.gates.models import Gate
        from orchestrator.grading.models import Regrade
        from orchestrator.runs.models import Run
        from training.models import TrainingJob

        models: dict[str, Any] = {
            **{"run": Run, "re-grade": Regrade, "search": Search, "climb": Climb},
            **{"training": TrainingJob, "gate": Gate},
        }
        with self._lock:
            objects = {kind: set(ids) for kind, ids in self.objects.items()}
        for kind, ids in objects.items():
            found = set(models[kind].objects.filter(pk__in=ids).values_list("pk", flat=True))
            for pk in sorted(ids - found):
                yield Finding("acknowledged", f"{kind} {pk}", "it was accepted and is lost")

    def _check_ended(self) -> Iterator[Finding]:
        from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout

        rows = Rollout.everything.filter(outside=None).exclude(state__in=OPEN_ROLLOUT_STATES)
        now = {pk: tuple(row) for pk, *row in rows.values_list("pk", "state", "score", "attempt")}
        for pk, before in self.ended.items():
            if now.get(pk) != before:
                yield Finding(
                    "acknowledged", f"rollout {pk}", f"it had ended as {before}, now {now.get(pk)}"
                )
        self.ended |= now

    def check_heard(self) -> Iterator[Finding]:
        """When all is at rest: each end was told, and what is marked as delivered was heard."""
        from orchestrator.runs.models import ENDED_RUN_STATES, Run
        from orchestrator.webhooks.models import Delivery, DeliveryState

        ended = Run.objects.filter(state__in=ENDED_RUN_STATES).exclude(
            rollouts__outside__isnull=False
        )
        n_ended, n_told = ended.count(), Delivery.objects.filter(topic="run.ended").count()
        if n_ended != n_told:
            yield Finding("acknowledged", "webhooks", f"{n_ended} runs ended, {n_told} were told")
        for pk, message_id, state in Delivery.objects.values_list("pk", "message_id", "state"):
            times = self.heard.get(f"msg_{message_id.hex}", 0)
            if state == DeliveryState.DELIVERED and not times:
                yield Finding("acknowledged", f"delivery {pk}", "delivered, and never heard")
            if state == DeliveryState.FAILED:
                yield Finding("acknowledged", f"delivery {pk}", "given up, though somebody listens")
