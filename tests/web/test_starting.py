"""Models are kept when they answer; a run is started from a form; sealed tasks stay sealed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments import folders
from orchestrator.jobs.models import Job
from orchestrator.projects.secrets import decrypt
from orchestrator.runs.models import Rollout, Run
from tests.base import People
from tests.doubles.model_server import Raw, ScriptedModel
from tests.web.build import make_environment, make_rollout, make_rubric, make_run, tasks_of

pytestmark = pytest.mark.django_db(transaction=True)


def url(people: People, name: str, *arguments: Any) -> str:
    return reverse(f"web:{name}", args=[people.project.pk, *arguments])


def client(people: People, who: str = "editor") -> Client:
    browser = Client()
    browser.force_login(getattr(people, who))
    return browser


def fields(model: ScriptedModel, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "openai",
        "name": "judge-1",
        "base_url": f"{model.url}/v1/",
        "model": model.name,
        "api_key": "sk-secret",
        "price_in": "2",
        "price_out": "",
        **changes,
    }


def test_an_endpoint_that_answers_is_kept_with_its_key_encrypted(people: People) -> None:
    browser = client(people)
    with ScriptedModel(lambda asked: "ready") as model:
        assert browser.post(url(people, "models"), fields(model)).status_code == 302
    kept = ModelEndpoint.objects.get()
    assert (kept.base_url, kept.model) == (model.url, model.name)
    assert decrypt(kept.secret) == "sk-secret"
    html = browser.get(url(people, "models")).content.decode()
    assert "judge-1" in html
    assert "sk-secret" not in html
    assert kept.secret not in html


def test_one_that_does_not_answer_is_refused_with_its_words(people: People) -> None:
    with ScriptedModel(lambda asked: Raw(401, '{"error": {"message": "bad key"}}')) as model:
        answer = client(people).post(url(people, "models"), fields(model))
    assert answer.status_code == 422
    assert "bad key" in answer.content.decode()
    assert "judge-1" in answer.content.decode(), "what was typed stays"
    assert "sk-secret" not in answer.content.decode()
    assert not ModelEndpoint.objects.exists()


def test_one_judge_at_a_time_and_used_models_stay(people: People) -> None:
    browser = client(people)
    run = make_run(people.project)
    other = ModelEndpoint.objects.create(
        project=people.project, name="b", kind="openai", base_url="http://x", model="m"
    )
    for endpoint in (run.model, other):
        browser.post(url(people, "model_change", endpoint.pk, "judge"))
    assert list(ModelEndpoint.objects.filter(is_judge=True)) == [other]
    said = browser.post(url(people, "model_change", run.model.pk, "remove"), follow=True)
    assert "runs were made with it" in said.content.decode()
    browser.post(url(people, "model_change", other.pk, "remove"))
    assert list(ModelEndpoint.objects.all()) == [run.model]


def test_viewers_see_models_and_change_none(people: People) -> None:
    run = make_run(people.project)
    viewer = client(people, "member")
    assert viewer.get(url(people, "models")).status_code == 200
    assert viewer.post(url(people, "model_change", run.model.pk, "judge")).status_code == 403
    assert viewer.post(url(people, "model_bundled")).status_code == 403
    assert client(people, "stranger").get(url(people, "models")).status_code == 404


def test_a_run_is_started_from_the_form(people: People) -> None:
    version, rubric = make_environment(people.project), make_rubric(people.project)
    browser = client(people)
    assert "A run needs" in browser.get(url(people, "run_start")).content.decode()
    browser.post(url(people, "model_bundled"))
    model = ModelEndpoint.objects.get()
    page = browser.get(url(people, "run_start") + f"?environment={version.environment.slug}")
    assert page.context["form"].initial["version"] == version.pk
    asked = {
        "version": version.pk,
        "split": "train",
        "rubric": rubric.pk,
        "model": model.pk,
        "n_tasks": 2,
        "replicates": 2,
        "concurrency": 4,
    }
    answer = browser.post(url(people, "run_start"), asked)
    run = Run.objects.get()
    assert answer["Location"] == url(people, "run", run.pk)
    assert Rollout.objects.filter(run=run).count() == 4
    assert len(set(Rollout.objects.values_list("seed", flat=True))) == 4
    assert Job.objects.get().pk == run.job_id


def test_what_came_with_an_example_is_proposed_for_its_first_run(people: People) -> None:
    examples = Path(settings.BASE_DIR, "examples")
    for name in ("questions", "terminal-files"):
        stored = folders.store(
            actor=people.editor,
            project=people.project,
            environment=folders.read_folder(examples / name),
        )
        assert stored.rubric is not None
        assert stored.harness is not None
        asked = url(people, "run_start") + f"?environment={name}"
        initial = client(people).get(asked).context["form"].initial
        assert (initial["version"], initial["rubric"], initial["harness"]) == (
            stored.version.pk,
            stored.rubric.pk,
            stored.harness.pk,
        )


def test_the_sealed_split_is_not_offered_and_not_taken(people: People) -> None:
    run = make_run(people.project)
    make_rollout(run, tasks_of(run)[0])
    asked = {
        "version": run.environment_version_id,
        "split": "test",
        "rubric": run.rubric_version_id,
        "model": run.model_id,
        "replicates": 1,
        "concurrency": 1,
    }
    answer = client(people).post(url(people, "run_start"), asked)
    assert answer.status_code == 422
    assert Run.objects.count() == 1


def test_a_viewer_starts_nothing(people: People) -> None:
    make_run(people.project)
    assert client(people, "member").get(url(people, "run_start")).status_code == 403
    assert client(people, "stranger").get(url(people, "run_start")).status_code == 404
