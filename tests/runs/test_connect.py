"""Connecting a server: what the form says when it cannot be, and what is kept when it can."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from orchestrator.environments import services
from orchestrator.environments.errors import EnvironmentProbeError
from orchestrator.environments.models import Environment, EnvironmentKind, EnvironmentVersion
from orchestrator.environments.services import connect_environment
from orchestrator.runs import queries
from orchestrator.runs.models import RunState
from tests.base import People
from tests.doubles.openenv_servers import silent_port
from tests.live import free_port
from tests.runs.conftest import MakeModel, MakeServer
from tests.runs.drive import execute, make_run
from tests.runs.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)


def connect(people: People, base_url: str, name: str = "Mine") -> EnvironmentVersion:
    return connect_environment(
        actor=people.editor, project=people.project, name=name, base_url=base_url
    )


def refused(people: People, base_url: str) -> str:
    """The message for the form; nothing is stored."""
    with pytest.raises(EnvironmentProbeError) as caught:
        connect(people, base_url)
    assert not Environment.objects.exists()
    return str(caught.value)


def test_a_running_server_is_connected_and_can_be_used(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    version = connect(people, fault_url)
    assert version.environment.kind == EnvironmentKind.URL
    assert version.source["base_url"] == fault_url
    assert (version.source["seed"], version.source["is_random"]) == ("honoured", False)
    run = execute(make_run(people.project, version=version, model_url=make_model().url))
    assert run.state == RunState.COMPLETED
    assert queries.tally(run.pk).mean == 1.0


@pytest.mark.parametrize("base_url", ["", "localhost:8000", "ftp://host/", "http://", "ws://a:1"])
def test_an_address_that_is_none_says_what_an_address_is(people: People, base_url: str) -> None:
    assert "http(s)://host:port" in refused(people, base_url)


def test_a_port_that_is_none(people: People) -> None:
    assert refused(people, "http://localhost:eighty")


def test_a_dead_server_is_named_with_what_to_check(people: People) -> None:
    port = free_port()
    message = refused(people, f"http://127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in message
    assert "Check that the OpenEnv server" in message


def test_a_silent_server_is_told_within_its_limit(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert services.PROBE_SETTINGS.connect_timeout_s <= 5
    short = replace(services.PROBE_SETTINGS, connect_timeout_s=0.4)
    monkeypatch.setattr(services, "PROBE_SETTINGS", short)
    started = time.monotonic()
    with serving(silent_port()) as port:
        message = refused(people, f"http://127.0.0.1:{port}")
    assert "within 0.4 s" in message
    assert time.monotonic() - started < 5


def test_a_server_whose_environment_cannot_be_created(
    people: People, make_server: MakeServer
) -> None:
    server = make_server(env={"FAULT_FACTORY": "1"})
    assert "could not be created" in refused(people, server.base_url)


def test_a_name_that_is_taken_is_refused(people: People, fault_url: str) -> None:
    connect(people, fault_url)
    with pytest.raises(EnvironmentProbeError, match="already has an environment named Mine"):
        connect(people, fault_url)
    assert Environment.objects.count() == 1


def test_only_editors_connect(people: People) -> None:
    for actor, refusal in ((people.member, PermissionDenied), (people.stranger, Http404)):
        with pytest.raises(refusal):
            connect_environment(
                actor=actor, project=people.project, name="Mine", base_url="http://127.0.0.1:9"
            )
