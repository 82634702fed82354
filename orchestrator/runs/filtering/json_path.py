"""A number or a text at a place in a JSON column, the same on SQLite and PostgreSQL.

What has another type there counts as absent for a number; a text reads `true`, `false` and numbers
as they are written. So `sampling.temperature > 0.5` never compares a text with a number, which each
database would order in its own way.
"""

from __future__ import annotations

import json
from typing import Any

from django.db.models import FloatField, Func, TextField

Compiled = tuple[str, tuple[Any, ...]]
"""SQL and its parameters."""


class _AtPath(Func):
    def __init__(self, column: str, path: tuple[str, ...]) -> None:
        super().__init__(column)
        self.path = path

    @property
    def _sqlite_path(self) -> str:
        return "$" + "".join(f".{json.dumps(name)}" for name in self.path)

    def _identity(self) -> Any:
        return (*super().identity, self.path)

    @property
    def identity(self) -> Any:
        return self._identity()


class JsonNumber(_AtPath):
    output_field = FloatField()

    def as_sqlite(self, compiler: Any, connection: Any, **_: Any) -> Compiled:
        column, params = compiler.compile(self.source_expressions[0])
        place = self._sqlite_path
        return (
            f"CASE WHEN JSON_TYPE({column}, %s) IN ('integer', 'real')"
            f" THEN JSON_EXTRACT({column}, %s) END",
            (*params, place, *params, place),
        )

    def as_postgresql(self, compiler: Any, connection: Any, **_: Any) -> Compiled:
        column, params = compiler.compile(self.source_expressions[0])
        place = list(self.path)
        return (
            f"CASE WHEN jsonb_typeof({column} #> %s) = 'number'"
            f" THEN ({column} #>> %s)::double precision END",
            (*params, place, *params, place),
        )


class JsonText(_AtPath):
    output_field = TextField()

    def as_sqlite(self, compiler: Any, connection: Any, **_: Any) -> Compiled:
        column, params = compiler.compile(self.source_expressions[0])
        place = self._sqlite_path
        return (
            f"CASE JSON_TYPE({column}, %s) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false'"
            f" WHEN 'null' THEN NULL ELSE CAST(JSON_EXTRACT({column}, %s) AS TEXT) END",
            (*params, place, *params, place),
        )

    def as_postgresql(self, compiler: Any, connection: Any, **_: Any) -> Compiled:
        column, params = compiler.compile(self.source_expressions[0])
        return f"({column} #>> %s)", (*params, list(self.path))
