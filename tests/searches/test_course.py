"""A search from its preflight to its release, with every part real but the model."""

from __future__ import annotations

import pytest

from optimizer.models import Budget, Candidate, Comparison, Release, SearchState
from optimizer.store import load_harness
from orchestrator.environments.models import Split
from orchestrator.runs.limits import set_limits
from orchestrator.runs.models import Rollout
from orchestrator.searches import releases
from orchestrator.searches.services import approve, resume_search
from tests.base import People
from tests.climbs.ladder import N_TEST, follows_demonstrations
from tests.runs.conftest import MakeModel
from tests.runs.drive import assert_gapless
from tests.searches.build import make_search, told, work

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_helps_is_found_certified_tested_and_released_on_approval(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(follows_demonstrations)
    search = make_search(people, base_url=fault_url, model_url=model.url)
    work()
    search.refresh_from_db()
    assert (search.state, search.error) == (SearchState.AWAITING_APPROVAL, "")
    phases = [payload["phase"] for payload in told(search, "phase")]
    assert phases == ["evidence", "search", "certify", "test", "done"]
    assert search.outcome["verdict"] == "improved"
    assert search.outcome["is_promotable"]

    certificate = search.comparisons.get(split=Split.SELECT)
    assert certificate.verdict == "improved"
    assert len(certificate.details["e_plus"]) == len(certificate.details["pairs"])
    sealed = search.comparisons.get(split=Split.TEST)
    assert (sealed.verdict, sealed.pairs) == ("better", N_TEST)
    winner = search.candidates.get(status=Candidate.Status.CERTIFIED)
    assert load_harness(winner.harness).demonstrations
    assert winner.harness_id == search.outcome["shipped"]
    assert search.edits.filter(in_bundle=True).count() == len(winner.edits)

    # What was reserved was spent, to the rollout.
    budgets = {b.scope: b for b in Budget.objects.filter(role="agent", unit="rollouts")}
    spent = {scope.rpartition("/")[2]: b.used for scope, b in budgets.items()}
    total = budgets[f"search:{search.pk}"]
    assert (total.used, total.reserved) == (Rollout.objects.count(), 0)
    assert total.used == spent["search"] + spent["certify"] + spent["test"] + spent["retry"]
    assert spent["test"] == 2 * N_TEST

    release = approve(actor=people.editor, search=search, note="looks right")
    search.refresh_from_db()
    assert search.state == SearchState.COMPLETED
    assert release.certificate == certificate
    assert search.environment_version is not None
    environment = search.environment_version.environment
    assert releases.current(environment) == release
    assert releases.roll_back(actor=people.editor, release=release) is None
    assert Release.objects.get().rolled_back_by == people.editor
    assert Comparison.objects.count() == 2
    assert_gapless()


def test_at_the_days_cap_a_search_pauses_with_the_reason_and_goes_on_when_let(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    model = make_model(follows_demonstrations)
    project_id = people.project.pk
    set_limits(actor=people.owner, project_id=project_id, rollouts_per_day=1, usd_per_day=None)
    search = make_search(people, base_url=fault_url, model_url=model.url)
    work()
    search.refresh_from_db()
    assert search.state == SearchState.PAUSED
    assert "rollouts are asked for; the project may start 1 a day" in search.error
    assert Rollout.objects.count() <= 1
    set_limits(actor=people.owner, project_id=project_id, rollouts_per_day=None, usd_per_day=None)
    resume_search(actor=people.editor, search=search)
    work()
    search.refresh_from_db()
    assert (search.state, search.error) == (SearchState.AWAITING_APPROVAL, "")
    assert_gapless()
