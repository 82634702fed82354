"""What an operator can set wrongly: each check has a fixed id and a hint that names the fix."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register

from orchestrator import tracing

STACKS = ("embedded", "scale")

# File systems on which SQLite's write-ahead log does not work between processes or hosts.
_NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"}


@register(Tags.compatibility)
def check_stack(**_: Any) -> list[CheckMessage]:
    if settings.STACK not in STACKS:
        return [
            Error(
                f"STACK={settings.STACK!r} is unknown.",
                hint=f"Set STACK to one of: {', '.join(STACKS)}.",
                id="switchback.E001",
            )
        ]
    if settings.STACK == "embedded":
        return []
    found: list[CheckMessage] = []
    if not settings.DATABASE_URL:
        found.append(
            Error(
                "STACK=scale needs DATABASE_URL.",
                hint="Set DATABASE_URL=postgresql://user:password@host:5432/name (PostgreSQL 15+).",
                id="switchback.E002",
            )
        )
    if not settings.BROKER_URL:
        found.append(
            Error(
                "STACK=scale needs BROKER_URL.",
                hint="Set BROKER_URL=redis://host:6379/0 (Redis or Valkey).",
                id="switchback.E003",
            )
        )
    return found


@register(Tags.compatibility)
def check_data_folder(**_: Any) -> list[CheckMessage]:
    folder: Path = settings.DATA_DIR
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return [
            Error(
                f"The data folder {folder} is missing or not writable.",
                hint="Make it, or point SWITCHBACK_DATA at a folder that this user may write.",
                id="switchback.E004",
            )
        ]
    kind = file_system_of(folder)
    if settings.STACK == "embedded" and kind in _NETWORK_FILE_SYSTEMS:
        return [
            Error(
                f"The data folder {folder} is on a network file system ({kind}).",
                hint="SQLite's WAL needs a local disk: set SWITCHBACK_DATA, or use STACK=scale.",
                id="switchback.E005",
            )
        ]
    return []


@register(Tags.database)
def check_database_settings(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    database = settings.DATABASES["default"]
    if settings.STACK == "embedded" and sqlite3.sqlite_version_info < (3, 35):
        found.append(
            Error(
                f"SQLite {sqlite3.sqlite_version} is too old: RETURNING came with 3.35.",
                hint="Use a Python built with a newer SQLite, or STACK=scale.",
                id="switchback.E006",
            )
        )
    if database.get("ATOMIC_REQUESTS"):
        found.append(
            Error(
                "ATOMIC_REQUESTS is on: each page view would take SQLite's only write lock.",
                hint="Remove it; services own their transactions.",
                id="switchback.E007",
            )
        )
    if database.get("CONN_MAX_AGE", 0) != 0:
        found.append(
            Error(
                "CONN_MAX_AGE must be 0.",
                hint="Under ASGI a kept connection is never used again and leaks; use the pool.",
                id="switchback.E008",
            )
        )
    return found


@register(Tags.compatibility)
def check_time_zone(**_: Any) -> list[CheckMessage]:
    if settings.TIME_ZONE == "UTC" and settings.USE_TZ:
        return []
    return [
        Error(
            "TIME_ZONE must be UTC and USE_TZ true.",
            hint="Instants are stored as aware UTC; browsers show local time.",
            id="switchback.E009",
        )
    ]


@register(Tags.security)
def check_secret_key(**_: Any) -> list[CheckMessage]:
    if len(settings.SECRET_KEY) >= 32:
        return []
    return [
        Error(
            "SECRET_KEY is shorter than 32 characters: sessions could be forged.",
            hint="Unset it to have one made in the data folder, or give a long random one.",
            id="switchback.E010",
        )
    ]


@register(Tags.security)
def check_sign_in_provider(**_: Any) -> list[CheckMessage]:
    """TLS stands in for the signature of its tokens: see `orchestrator.projects.sso`."""
    issuer = urlsplit(settings.OIDC_ISSUER)
    if not settings.OIDC_ISSUER or issuer.scheme == "https":
        return []
    if issuer.scheme == "http" and issuer.hostname in ("127.0.0.1", "::1", "localhost"):
        return []
    return [
        Error(
            "SWITCHBACK_OIDC_ISSUER is not an https address: anybody on the way could sign in.",
            hint="Give the provider's https address; http is for a provider on this machine.",
            id="switchback.E011",
        )
    ]


@register(Tags.compatibility)
def check_tracing(**_: Any) -> list[CheckMessage]:
    if not tracing.is_wanted() or tracing.is_installed():
        return []
    return [
        Error(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and OpenTelemetry is not installed.",
            hint="pip install -r requirements/otel.txt, or unset it.",
            id="switchback.E012",
        )
    ]


@register(Tags.security, deploy=True)
def check_https(**_: Any) -> list[CheckMessage]:
    if settings.SESSION_COOKIE_SECURE:
        return []
    return [
        Warning(
            "Cookies are sent over plain HTTP.",
            hint="Behind a TLS proxy set SWITCHBACK_HTTPS=true and SWITCHBACK_HOSTS.",
            id="switchback.W001",
        )
    ]


def file_system_of(
    folder: Path, read_mounts: Callable[[], str] = lambda: Path("/proc/mounts").read_text()
) -> str | None:
    """The type of the file system that holds `folder`; None where the system does not tell."""
    try:
        lines = read_mounts().splitlines()
    except OSError:
        return None
    best: tuple[int, str] | None = None
    for line in lines:
        _, mount_point, kind, *_ = line.split()
        point = Path(mount_point.replace("\\040", " "))
        if folder.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), kind)
    return best[1] if best else None
