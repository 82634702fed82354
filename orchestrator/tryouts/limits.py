"""What a tryout may take. It holds a slot of a worker, so it must never starve runs."""

from __future__ import annotations

from django.conf import settings

PER_PROJECT = 2
"""Live tryouts of a project at a time."""
MOST_PENDING = 20
"""Commands of one tryout that wait for their turn."""
IDLE_S = 600.0
"""Without a command for so long, a tryout is closed."""
LONGEST_S = 3600.0
"""Closed at the latest after so long, used or not."""
POLL_S = 0.1
"""How soon a command is noticed; a person feels a second, not a tenth."""
KEPT_CHARS = 20_000
"""Of a text in an event. Longer ones are shortened and say so."""
LONGEST_PLAY = 200
"""Steps of one episode by hand; each is drawn on the page and played again by an undo."""


def in_all() -> int:
    """Live tryouts of the whole installation: half of the workers' slots stay free for runs."""
    return max(1, settings.WORKER_SLOTS // 2)
