"""What the judges of a search's runs may take, beside the caps of the project."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.models import Budget, Search, SearchRun
from orchestrator.judging import accounts
from orchestrator.judging.budget import most_of
from orchestrator.judging.judges import PurseHeld
from orchestrator.judging.purses import ScopePurse, purse_of_run
from rubrics.errors import CriterionFailed
from tests.base import People
from tests.judging.test_judges import question
from tests.runs.drive import make_endpoint, make_harness
from tests.web.build import make_run

pytestmark = pytest.mark.django_db(transaction=True)
SCOPE = "search:77"


@pytest.fixture
def row(people: People) -> Any:
    return make_endpoint(people.project, "http://127.0.0.1:9", price_in_usd_per_mtok=1.0)


def cap(tokens: int) -> None:
    accounts.open_account(scope=SCOPE, role="judge", unit="tokens", cap=tokens)


def test_a_call_beyond_the_cap_is_refused_with_its_name(row: Any) -> None:
    cap(most_of(question(), row)["tokens"] - 1)
    with pytest.raises(CriterionFailed, match=r"judge budget of .* Raise the judges' cap"):
        ScopePurse(SCOPE).reserve("a", question(), row)
    assert Budget.objects.get().reserved == 0


def test_near_the_cap_a_call_waits_for_those_on_their_way(row: Any) -> None:
    most = most_of(question(), row)["tokens"]
    cap(most + 10)
    purse = ScopePurse(SCOPE)
    purse.reserve("a", question(), row)
    with pytest.raises(PurseHeld):
        purse.reserve("b", question(), row)
    purse.settle("a", 0.0, 8)
    purse.settle("a", 0.0, 8)
    purse.reserve("b", question(), row)
    purse.settle("b", 0.0, 1)
    budget = Budget.objects.get()
    assert (budget.used, budget.reserved) == (9, 0)


def test_only_runs_of_a_capped_search_have_such_a_purse(people: People) -> None:
    run = make_run(people.project)
    assert purse_of_run(run.pk) is None
    search = Search.objects.create(
        project=people.project, seed_harness=make_harness(people.project), seed=1
    )
    SearchRun.objects.create(search=search, run=run, phase="screen")
    assert purse_of_run(run.pk) is None
    accounts.open_account(scope=f"search:{search.pk}", role="judge", unit="micro_usd", cap=5)
    purse = purse_of_run(run.pk)
    assert isinstance(purse, ScopePurse)
    assert purse.scope == f"search:{search.pk}"
