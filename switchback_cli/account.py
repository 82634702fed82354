"""Which server, token and project: from options, the environment, or what `login` has kept."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from switchback_cli.client import Server
from switchback_cli.errors import CommandFailed


def kept_at() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "switchback" / "login.json"


@dataclass(frozen=True)
class Kept:
    url: str = ""
    token: str = ""

    def write(self) -> Path:
        """Readable by its owner alone."""
        path = kept_at()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(json.dumps({"url": self.url, "token": self.token}), encoding="utf-8")
        return path


def kept() -> Kept:
    try:
        told = json.loads(kept_at().read_text(encoding="utf-8"))
        return Kept(str(told["url"]), str(told["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Kept()


def server_of(url: str | None, token: str | None, **options: Any) -> Server:
    """Raises CommandFailed."""
    known = kept()
    url, token = url or known.url, token or known.token
    if not url:
        raise CommandFailed("No server: give --url, set SWITCHBACK_URL, or run `switchback login`.")
    if not token:
        raise CommandFailed("No token: set SWITCHBACK_TOKEN, or run `switchback login`.")
    if not url.startswith(("http://", "https://")):
        raise CommandFailed(f"{url} is no address; it begins with https:// or http://.")
    return Server(url, token, **options)


def project_id(server: Server, told: str | None) -> int:
    """By id or name; without either the one that the token is of. Raises CommandFailed."""
    if told and told.isdecimal():
        return int(told)
    projects = server.get("projects", limit=200)["items"]
    if not told:
        if len(projects) == 1:
            return int(projects[0]["id"])
        raise CommandFailed("Which project? Give --project or set SWITCHBACK_PROJECT.")
    for project in projects:
        if project["name"] == told:
            return int(project["id"])
    names = ", ".join(project["name"] for project in projects) or "none"
    raise CommandFailed(f"There is no project {told!r} for this token; there is: {names}.")
