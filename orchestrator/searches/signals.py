"""Tells a climb what its search does. Receivers run in the transaction of the news: be short."""

from __future__ import annotations

from django.dispatch import Signal

run_asked = Signal()
"""Sent with `search_run` when a run was made and before it is queued. A receiver may raise
BudgetExceeded: then nothing was made.
"""

search_said = Signal()
"""Sent with `search` and `text`: a decision, for the log of whoever stands above."""

search_stopped = Signal()
"""Sent with `search` when it has ended, or waits for a person: paused, or for approval."""
