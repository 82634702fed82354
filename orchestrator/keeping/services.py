"""What the sweep asks of this app, at every round: cheap where nothing is due."""

from __future__ import annotations

from orchestrator.keeping import use
from orchestrator.keeping.retention import services as retention


def look_after() -> None:
    """Measures what is kept, and asks for the daily look where there is a rule."""
    use.measure()
    retention.ask_daily()
