"""Small installations of their own: a data folder with a database beside that of the tests."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections

ALIAS = "moved"


@dataclass(frozen=True)
class Installation:
    data: Path
    alias: str = ALIAS

    @property
    def database(self) -> Path:
        return Path(str(connections[self.alias].settings_dict["NAME"]))


@contextmanager
def database(alias: str, **changes: Any) -> Iterator[str]:
    """A further connection, as the default one is set, with `changes`.

    It is not entered among the databases, so that the isolation of tests leaves it alone.
    """
    connections.databases[alias] = {**copy.deepcopy(connections.databases["default"]), **changes}
    try:
        connections[alias] = connections.create_connection(alias)
    finally:
        del connections.databases[alias]
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections[alias]


@contextmanager
def sqlite_installation(data: Path) -> Iterator[Installation]:
    data.mkdir(parents=True, exist_ok=True)
    with database(
        ALIAS,
        ENGINE="django.db.backends.sqlite3",
        NAME=data / "db.sqlite3",
        OPTIONS=settings.SQLITE_OPTIONS,
    ):
        yield Installation(data)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("db.sqlite3")
    }


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with closing(target.open("wb")) as file:
            file.write(content)
