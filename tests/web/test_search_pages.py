"""Pages of Optimise: what they show, who may act on them, and how often they ask the database."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from optimizer.models import Candidate, Proposal, Search
from optimizer.store import store_harness
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.projects.models import User
from tests.base import People
from tests.searches.playing import play, start
from tests.web.build import make_environment, make_rubric
from tests.web.search_rows import SEED, make_running_search, make_search
from tests.web.test_query_counts import FRAME, queries

PAGES = {
    *("searches", "search", "search_proposal", "search_question"),
    *("search_certificate", "certificate_export"),
}
FOR_EDITORS = {"search_new", "search_forecast"}
WRITES = {"search_action", "search_nudge", "search_budget"}


@pytest.fixture
def search(people: People) -> Search:
    return make_search(people.project)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def at(search: Search, name: str, *more: object) -> str:
    return reverse(f"web:{name}", args=[search.project_id, search.pk, *more])


def pages_of(search: Search) -> list[str]:
    proposal = search.proposals.order_by("pk")[1].pk
    certificate = search.comparisons.get(split="select").pk
    return [
        reverse("web:searches", args=[search.project_id]),
        at(search, "search"),
        at(search, "search_proposal", proposal),
        at(search, "search_question", proposal),
        at(search, "search_certificate", certificate),
        at(search, "certificate_export", certificate, "json"),
        at(search, "certificate_export", certificate, "html"),
    ]


def text_of(user: User, url: str, status: int = 200) -> str:
    response = signed_in(user).get(url)
    assert response.status_code == status
    return " ".join(response.content.decode().split())


def test_members_see_every_page_and_strangers_learn_nothing(people: People, search: Search) -> None:
    for url in pages_of(search):
        assert signed_in(people.member).get(url).status_code == 200, url
        assert signed_in(people.stranger).get(url).status_code == 404, url
        assert Client().get(url)["Location"].startswith(reverse("login")), url


def test_a_search_of_another_project_does_not_exist_here(people: People, search: Search) -> None:
    elsewhere = people.stranger.memberships.get().project_id
    for name in ("search",):
        url = reverse(f"web:{name}", args=[elsewhere, search.pk])
        assert signed_in(people.stranger).get(url).status_code == 404


def test_viewers_get_no_form_and_may_change_nothing(people: People, search: Search) -> None:
    html = text_of(people.member, at(search, "search"))
    assert "Approve and release" not in html and 'id="nudge"' not in html
    for url in (
        at(search, "search_action", "approve"),
        at(search, "search_nudge"),
        at(search, "search_budget"),
        at(search, "search_proposal", search.proposals.last().pk),  # type: ignore[union-attr] # it has four
    ):
        assert signed_in(people.member).post(url).status_code == 403
        assert signed_in(people.stranger).post(url).status_code == 404
    for name in ("search_new", "search_forecast"):
        url = reverse(f"web:{name}", args=[people.project.pk])
        assert signed_in(people.member).get(url).status_code == 403
    search.refresh_from_db()
    assert search.state == "awaiting_approval"


def test_without_a_search_the_next_step_is_named(people: People) -> None:
    url = reverse("web:searches", args=[people.project.pk])
    assert "No search yet" in text_of(people.editor, url)
    assert reverse("web:search_new", args=[people.project.pk]) in text_of(people.editor, url)
    assert "An editor of this project can start one" in text_of(people.member, url)


def test_the_list_says_what_is_certified_and_what_waits(people: People, search: Search) -> None:
    make_running_search(people.project)
    html = text_of(people.member, reverse("web:searches", args=[people.project.pk]))
    assert "+21 points on the sealed test" in html and "waits for approval" in html
    assert "Searching: nothing is certified yet" in html and "waits for an answer" in html


def test_the_number_of_queries_is_fixed(people: People, search: Search) -> None:
    client = signed_in(people.owner)
    url = reverse("web:searches", args=[people.project.pk])
    few = queries(client, url)
    for _ in range(3):
        make_running_search(people.project)
    assert queries(client, url) == few <= FRAME + 4
    page = at(search, "search")
    few = queries(client, page)
    for number in range(40):
        add_candidate(search, number, rollouts=2 + number % 8)
    assert queries(client, page) == few <= FRAME + 13


def add_candidate(search: Search, number: int, **fields: Any) -> Candidate:
    harness = store_harness(
        project_id=search.project_id,
        harness=type(SEED)(instructions=f"Variant {number}.\n"),
    )
    return Candidate.objects.create(
        search=search, harness=harness, edits=[f"{number:064x}"], score=0.4, **fields
    )


def test_an_edit_is_shown_with_its_effect_and_how_often_it_was_on(
    people: People, search: Search
) -> None:
    html = text_of(people.member, at(search, "search"))
    assert "+4.1" in html and "[1.2, 7.0]" in html and "212 on / 188 off" in html
    assert "not screened" in html


def test_a_mixture_of_the_screen_is_counted_and_not_ranked(people: People, search: Search) -> None:
    before = text_of(people.member, at(search, "search"))
    add_candidate(search, 1, rollouts=2)
    add_candidate(search, 2, rollouts=20)
    html = text_of(people.member, at(search, "search"))
    n = search.candidates.filter(status="screening", rollouts__lt=5).count()
    assert f"{n} mixtures of edits" in html and f"{n - 1} mixtures of edits" in before
    assert html.count('<li class="t') == before.count('<li class="t') + 1


def test_graves_say_why_and_on_which_evidence(people: People, search: Search) -> None:
    html = text_of(people.member, at(search, "search"))
    assert "copies the answer of a task" in html
    assert "−6.2" in html and "[−10.3, −2.1]" in html and "61 on / 339 off" in html
    assert "Comes back with more than 4 tasks behind it" in html


def test_a_failed_search_keeps_what_it_measured_and_names_the_next_step(people: People) -> None:
    search = make_search(
        people.project, state="failed", phase="search", outcome={}, error="The judge is gone."
    )
    html = text_of(people.editor, at(search, "search"))
    assert "The judge is gone." in html and f"?like={search.pk}" in html
    html = text_of(
        people.editor, f"{reverse('web:search_new', args=[people.project.pk])}?like={search.pk}"
    )
    assert 'value="Terminal files, first search"' in html


def test_a_spent_search_speaks_of_nothing_that_is_not_certified(people: People) -> None:
    search = make_search(people.project, state="completed", outcome={"verdict": "indecisive"})
    search.comparisons.all().delete()
    html = text_of(people.member, at(search, "search"))
    assert "Nothing certified: the seed stays" in html and "0.53 points" not in html


def test_a_failed_proposal_shows_each_raw_answer_and_its_cost(
    people: People, search: Search
) -> None:
    failed = search.proposals.get(state="failed")
    html = text_of(people.member, at(search, "search_proposal", failed.pk))
    assert "I cannot help with th" in html and "1. answer: empty" in html
    assert "2,038" in html and "It cost its budget and nothing else" in html


def test_texts_of_models_are_shown_and_never_run(people: People, search: Search) -> None:
    proposal = search.proposals.get(state="failed")
    Proposal.objects.filter(pk=proposal.pk).update(
        prompt="<script>alert(1)</script>", answers=["</pre><img src=x onerror=alert(2)>"]
    )
    html = text_of(people.member, at(search, "search_proposal", proposal.pk))
    assert "<script>alert" not in html and "<img src=x" not in html


def test_the_certificate_says_what_it_claims_and_what_not(people: People, search: Search) -> None:
    certificate = search.comparisons.get(split="select")
    html = text_of(people.member, at(search, "search_certificate", certificate.pk))
    assert "Were it no better" in html and "What it does not claim" in html
    assert "1/α = 20" in html and "stratum count lines" in html
    assert search.seed_harness.sha256 in html
    assert search.environment_version is not None
    assert search.environment_version.sha256 in html


def test_exports_are_whole_in_themselves_and_agree(people: People, search: Search) -> None:
    certificate = search.comparisons.get(split="select")
    client = signed_in(people.member)
    data = json.loads(client.get(at(search, "certificate_export", certificate.pk, "json")).content)
    assert data["verdict"] == "improved" and data["alpha"] == 0.05
    assert len(data["e_plus"]) == len(certificate.details["e_plus"])
    assert data["tasks"] == certificate.details["tasks"] and data["not_claimed"]
    response = client.get(at(search, "certificate_export", certificate.pk, "html"))
    html = response.content.decode()
    assert response["Content-Disposition"].startswith("attachment")
    assert data["words"] in html and "<style>" in html
    for outside in ("<script", "<link", "src=", "url(", "@import"):
        assert outside not in html


def test_a_guard_that_is_broken_takes_the_claim_away(people: People, search: Search) -> None:
    certificate = search.comparisons.get(split="select")
    search.comparisons.filter(split="test").delete()
    certificate.details["breached"] = ["criterion no_writes"]
    certificate.details["guards"][0]["is_breached"] = True
    certificate.save()
    html = text_of(people.member, at(search, "search_certificate", certificate.pk))
    assert "Better, but held back" in html and "broken" in html
    assert "Held back by" in html and "criterion no_writes" in html
    assert "not promoted" in text_of(people.member, at(search, "search"))


def test_a_certificate_without_its_course_is_still_shown(people: People, search: Search) -> None:
    certificate = search.comparisons.get(split="select")
    certificate.details = {"number": 1}
    certificate.verdict, certificate.difference, certificate.e_value = "indecisive", None, None
    certificate.low = certificate.high = None
    certificate.save()
    html = text_of(people.member, at(search, "search_certificate", certificate.pk))
    assert "The course of this test was not kept" in html and "No decision" in html


def test_an_editor_pauses_resumes_and_cancels(people: People) -> None:
    search = make_running_search(people.project)
    search.fingerprints = {}
    search.save()
    client = signed_in(people.editor)
    for action, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        assert client.post(at(search, "search_action", action)).status_code == 302
        search.refresh_from_db()
        assert search.state == state
    html = client.post(at(search, "search_action", "pause"), follow=True).content.decode()
    assert 'class="notice bad"' in html


def test_what_waits_is_approved_and_rolled_back(people: People, search: Search) -> None:
    winner = search.candidates.get(status="certified").harness
    search.outcome = {**search.outcome, "shipped": winner.pk}
    search.save()
    client = signed_in(people.editor)
    client.post(at(search, "search_action", "approve"))
    release = search.releases.get()
    assert release.harness == winner and release.approved_by == people.editor
    search.refresh_from_db()
    assert search.state == "completed"
    assert "Roll back" in text_of(people.editor, at(search, "search"))
    client.post(at(search, "search_action", "roll-back"))
    release.refresh_from_db()
    assert release.rolled_back_by == people.editor


def test_a_nudge_is_kept_for_the_next_reflection(people: People) -> None:
    search = make_running_search(people.project)
    client = signed_in(people.editor)
    client.post(at(search, "search_nudge"), {"text": "Mind the column names."})
    assert search.nudges.filter(text="Mind the column names.", proposal=None).exists()
    html = client.post(at(search, "search_nudge"), {"text": " "}, follow=True).content.decode()
    assert "2,000 characters" in html


def test_an_answer_that_cannot_be_read_stays_in_the_form(people: People) -> None:
    search = make_running_search(people.project)
    waiting = search.proposals.get(state="waiting")
    url = at(search, "search_proposal", waiting.pk)
    assert "Hand in an answer" in text_of(people.editor, url)
    assert "Hand in an answer" not in text_of(people.member, url)
    response = signed_in(people.editor).post(url, {"answer": "no JSON <here>"})
    assert response.status_code == 422
    assert "no JSON &lt;here&gt;" in response.content.decode()
    waiting.refresh_from_db()
    assert waiting.state == "waiting"


# --- starting


def form_of(people: People, **changes: Any) -> dict[str, Any]:
    version = make_environment(people.project, tasks=24)
    model = ModelEndpoint.objects.create(
        project=people.project, name="tiny", kind=EndpointKind.LOCAL, model="tiny"
    )
    return {
        "name": "First",
        "version": version.pk,
        "rubric": make_rubric(people.project).pk,
        "model": model.pk,
        "engine": "factorial",
        "proposers": ["offline"],
        "rollouts": 600,
        "certify_pairs": 60,
        "twin_pairs": 12,
        "test": "on",
        "test_replicates": 1,
        "alpha": 0.05,
        "max_certificates": 1,
        "margin": 5,
        "cost_weight": 0,
        "concurrency": 32,
        **changes,
    }


def new(people: People) -> str:
    return reverse("web:search_new", args=[people.project.pk])


def test_a_search_is_started_with_what_was_chosen(people: People) -> None:
    sent = form_of(people, tokens=50_000, protected="tools.json, instructions.md")
    response = signed_in(people.editor).post(new(people), sent)
    search = Search.objects.get()
    assert response["Location"] == at(search, "search")
    assert search.created_by == people.editor and search.name == "First"
    assert search.settings["budget"]["tokens"] == 50_000
    assert search.settings["protected"] == ["tools.json", "instructions.md"]
    assert search.settings["margin"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"certify_pairs": 3}, "certify_pairs", "8 straight wins are the shortest way"),
        ({"rollouts": 100}, "rollouts", "smaller than one pass"),
        ({"safety": "manners"}, "safety", "no criterion manners"),
        ({"proposers": []}, "proposers", "required"),
        ({"alpha": 2}, "alpha", "0.5"),
    ],
)
def test_what_cannot_work_is_said_at_its_field(
    people: People, changes: dict[str, Any], field: str, said: str
) -> None:
    response = signed_in(people.editor).post(new(people), form_of(people, **changes))
    assert response.status_code == 422 and not Search.objects.exists()
    form = response.context["form"]
    assert said in " ".join(form.errors[field])
    html = response.content.decode()
    assert f'id="id_{field}-error"' in html and "Nothing was started" in html


def test_the_forecast_names_the_smallest_gain_before_anything_is_spent(people: People) -> None:
    url = reverse("web:search_forecast", args=[people.project.pk])
    html = signed_in(people.editor).get(url, form_of(people)).content.decode()
    assert "you can see ±" in html and "not known yet" in html
    assert "120 to certify" in html and "48 for the sealed test" in html
    html = signed_in(people.editor).get(url, {"rollouts": "x"}).content.decode()
    assert "Choose what is improved" in html
    assert not Search.objects.exists()


def test_the_forecast_button_works_without_scripts(people: People) -> None:
    sent = {**form_of(people), "forecast": "1"}
    response = signed_in(people.editor).post(new(people), sent)
    assert response.status_code == 200 and not Search.objects.exists()
    assert "you can see ±" in response.content.decode()


def test_a_form_without_anything_to_choose_from_names_the_next_step(people: People) -> None:
    html = text_of(people.editor, new(people))
    assert "A search needs an environment, a rubric and a model" in html
    assert reverse("web:environment_new", args=[people.project.pk]) in html


def test_a_search_that_was_played_is_shown_from_its_rows(people: People) -> None:
    search = start(people, budget={"rollouts": 88}, twin_pairs=2, certify_pairs=12)
    play()
    search.refresh_from_db()
    assert search.state == "awaiting_approval"
    html = text_of(people.editor, at(search, "search"))
    for part in ("Certificate 1", "Sealed test", "Agent", "winner", "Noise floor", " on / "):
        assert part in html
    for comparison in search.comparisons.all():
        data = json.loads(
            signed_in(people.member)
            .get(at(search, "certificate_export", comparison.pk, "json"))
            .content
        )
        assert data["verdict"] == comparison.verdict and data["pairs"] == comparison.pairs
        hashes = {part["what"]: part["sha256"] for part in data["parts"]}
        assert hashes["Seed harness"] == search.seed_harness.sha256
        assert hashes["Candidate"] == comparison.details["harness"]
        assert "Candidate" in text_of(
            people.member, at(search, "search_certificate", comparison.pk)
        )
    for proposal in search.proposals.all():
        text_of(people.member, at(search, "search_proposal", proposal.pk))
