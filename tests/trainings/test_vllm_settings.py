"""A training knows where its rollouts are sampled."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.management.commands.up import FirstPage, model_spec
from orchestrator.trainings.errors import TrainingRefused
from tests.base import People
from tests.trainings.build import make_version, parts, start

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def behind(settings: Any) -> None:
    settings.VLLM_URL = "http://gpu:8000"
    settings.VLLM_MODEL = "org/base"
    settings.VLLM_PROCESSED = True


@pytest.mark.usefixtures("behind")
def test_the_manifest_names_the_server_behind_the_model_server(people: People) -> None:
    made = parts(people.project, model_url="")
    sampler = start(people, made).manifest["sampler"]
    assert (sampler["kind"], sampler["base_url"]) == ("vllm", "http://gpu:8000")
    assert (sampler["model"], sampler["max_mismatch"]) == ("org/base", 0.5)
    # A server of one's own is asked where it is.
    other = parts(people.project) | {"environment_version": make_version(people.project)}
    assert start(people, other).manifest["sampler"]["kind"] == "server"


@pytest.mark.usefixtures("behind")
def test_whole_models_are_not_sent_there(people: People) -> None:
    made = parts(people.project, model_url="")
    with pytest.raises(TrainingRefused, match="adapters by URL, not whole models"):
        start(people, made, full_weights=True)


@pytest.mark.usefixtures("behind")
def test_the_model_server_is_started_in_front_of_it() -> None:
    command = model_spec(FirstPage("127.0.0.1", 1, print)).command
    at = command.index("--vllm")
    assert command[at:] == [
        *("--vllm", "http://gpu:8000", "--vllm-model", "org/base", "--vllm-processed")
    ]
