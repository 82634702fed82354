"""What a search writes on its stream."""

from __future__ import annotations

from optimizer.models import Search
from orchestrator.events.services import Fence, NewEvent, append
from orchestrator.searches.signals import search_said


def tell(search: Search, event: NewEvent, fence: Fence | None = None) -> None:
    """Needs a transaction."""
    assert search.stream_id is not None
    append(stream_id=search.stream_id, items=[event], fence=fence)


def say(search: Search, text: str, fence: Fence | None = None) -> None:
    """One sentence on why the search turned. Needs a transaction."""
    tell(search, NewEvent("decision", {"text": text}), fence)
    search_said.send(sender=Search, search=search, text=text)


def tell_state(search: Search, state: str, error: str = "", fence: Fence | None = None) -> None:
    tell(search, NewEvent("search.state", {"state": state, "error": error}), fence)
