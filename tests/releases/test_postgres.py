"""The same on PostgreSQL: both databases hold the same rows in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.apps import apps
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor

from orchestrator.envvars import postgres_options
from orchestrator.moving import copying, schema
from tests.moving.installations import Installation, database, sqlite_installation
from tests.postgres import postgres_server
from tests.releases.releases import NAMES, unpack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.stack,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="brings a PostgreSQL of its own"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(params=NAMES)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    with sqlite_installation(tmp_path) as installation:
        unpack(request.param, installation.database)
        yield installation


def test_both_databases_become_the_same(server: str, release: Installation) -> None:
    point = schema.applied(release.alias)
    loader = MigrationExecutor(connections[release.alias]).loader
    models_then = loader.project_state([key for key in point if key in loader.graph.nodes]).apps
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS release WITH (FORCE)")
        admin.execute("CREATE DATABASE release")
    before, _, query = server.partition("?")
    url = f"{before.rpartition('/')[0]}/release{'?' if query else ''}{query}"
    options = postgres_options(url, pool_size=1)
    options["OPTIONS"].pop("pool")
    with database("release", **options) as alias:
        schema.bring_to(alias, point)
        copying.copy(release.alias, alias, models_then)
        for each in (alias, release.alias):
            executor = MigrationExecutor(connections[each])
            executor.migrate(executor.loader.graph.leaf_nodes())
        assert copying.survey(alias, apps).tables == copying.survey(release.alias, apps).tables
