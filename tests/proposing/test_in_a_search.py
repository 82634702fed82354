"""A whole search with a reflector over real HTTP: it fails, the search goes on and says so.

Rollouts are scored by a rule; everything else is real.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from optimizer.models import Budget, Proposal, SearchState
from optimizer.reflection import Mode
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.searches.services import SearchRefused
from tests.base import People
from tests.doubles.model_server import Asked, Raw
from tests.proposing.build import said
from tests.runs.conftest import MakeModel
from tests.searches.build import told
from tests.searches.playing import play, start

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_reflector_that_fails_costs_its_budget_and_the_search_goes_on(
    people: People, make_model: MakeModel
) -> None:
    def reflects(asked: Asked) -> str | Raw:
        """Nonsense and a web page first; then an edit for what it was shown."""
        if len(reflector.asked) <= 3:
            return Raw(200, "<html>") if len(reflector.asked) == 2 else "Try harder."
        body = asked.last.split("<data-")[1].partition(">")[2].split("</data-")[0]
        tasks = [item["task"] for item in json.loads(body)["rollouts"]]
        entry = {
            "op": "append",
            "component": "instructions.md",
            "content": "Look at what there is.",
            "tasks": tasks,
        }
        return said(entry)

    reflector = make_model(reflects)
    row = ModelEndpoint.objects.create(
        project=people.project,
        name="reflector",
        kind=EndpointKind.OPENAI,
        base_url=reflector.url,
        model=reflector.name,
    )
    search = start(
        people,
        proposers=["offline", str(Mode.EDITS)],
        proposer_model=row.pk,
        propose_every=2,
        budget={"rollouts": 104, "proposer_tokens": 1_000_000},
    )
    play()
    search.refresh_from_db()
    assert (search.state, search.error) == (SearchState.AWAITING_APPROVAL, "")
    first, *later = search.proposals.filter(proposer=str(Mode.EDITS))
    assert (first.state, len(first.answers)) == ("failed", 3)
    assert "No usable answer in 3 replies" in first.reason
    assert any("gave no edits" in item["text"] for item in told(search, "decision"))
    assert {proposal.state for proposal in later} == {"answered"}
    assert search.edits.get(operator=str(Mode.EDITS)).proposal in later
    spent = Budget.objects.get(scope=f"search:{search.pk}", role="proposer", unit="tokens")
    assert spent.used == sum(Proposal.objects.values_list("tokens", flat=True)) > 0
    assert spent.reserved == 0


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"max_edit": 3}, "Unknown terms of a proposer: max_edit"),
        ({"failed": "six"}, "failed is a"),
    ],
)
def test_a_search_with_impossible_terms_is_refused(
    people: People, terms: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SearchRefused, match=problem):
        start(people, proposers=["handed_in"], proposer_settings={"handed_in": terms})
