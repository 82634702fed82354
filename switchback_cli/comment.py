"""`switchback comment`: one comment on a pull or merge request, which the next takes the place of.

Where to is told by the environment of the job: GitHub (`GITHUB_REPOSITORY`, `GITHUB_TOKEN`) or
GitLab (`CI_PROJECT_ID`, `GITLAB_TOKEN`), any address of either. The comment is found again by its
first line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer
from rich.console import Console

from switchback_cli import origin
from switchback_cli.errors import CommandFailed
from switchback_cli.speech import say

PER_PAGE = 100
MOST_PAGES = 50
TIMEOUT_S = 30.0


def comment(
    path: Annotated[Path, typer.Argument(help="Markdown that `switchback gate` has written.")],
    pull: Annotated[str | None, typer.Option(help="Number of the request; else the job's.")] = None,
) -> None:
    """Posts the comment of a gate on the request that this job is of, in place of the last one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}.") from error
    number = pull or origin.source_of(os.environ).get("pull_request")
    if not number:
        say(Console(stderr=True), "This job is of no pull request: nothing to comment on.")
        return
    try:
        where = _put(_forge_of(os.environ, number), text)
    except httpx.HTTPStatusError as error:
        told = error.response.text[:300]
        raise CommandFailed(
            f"The comment was refused: HTTP {error.response.status_code} {told}"
        ) from error
    except httpx.HTTPError as error:
        raise CommandFailed(f"The comment could not be posted: {error}") from error
    say(Console(stderr=True), where)


class _Forge:
    """Comments of one request."""

    def __init__(self, list_at: str, edit_at: str, headers: Mapping[str, str], verb: str) -> None:
        self.list_at, self.edit_at, self.verb = list_at, edit_at, verb
        self.http = httpx.Client(headers=dict(headers), timeout=TIMEOUT_S)

    def comments(self) -> Iterator[Mapping[str, Any]]:
        for page in range(1, MOST_PAGES + 1):
            answer = self.http.get(self.list_at, params={"per_page": PER_PAGE, "page": page})
            found = answer.raise_for_status().json()
            yield from found
            if len(found) < PER_PAGE:
                return

    def write(self, text: str, old: Mapping[str, Any] | None) -> Mapping[str, Any]:
        if old is None:
            answer = self.http.post(self.list_at, json={"body": text})
        else:
            answer = self.http.request(
                self.verb, self.edit_at.format(old["id"]), json={"body": text}
            )
        made: Mapping[str, Any] = answer.raise_for_status().json()
        return made


def _put(forge: _Forge, text: str) -> str:
    mark = text.partition("\n")[0]
    if not mark.startswith("<!-- switchback-gate"):
        raise CommandFailed("The file has no mark in its first line; `switchback gate` writes one.")
    mine = (c for c in forge.comments() if str(c["body"]).partition("\n")[0].strip() == mark)
    old = next(mine, None)
    made = forge.write(text, old)
    return str(made.get("html_url") or ("Comment renewed." if old else "Comment posted."))


def _forge_of(environ: Mapping[str, str], number: str) -> _Forge:
    repository, project = environ.get("GITHUB_REPOSITORY"), environ.get("CI_PROJECT_ID")
    if repository:
        base = environ.get("GITHUB_API_URL", "https://api.github.com")
        at = f"{base}/repos/{quote(repository)}/issues"
        headers = {
            "Authorization": f"Bearer {_needed(environ, 'GITHUB_TOKEN')}",
            "Accept": "application/vnd.github+json",
        }
        return _Forge(f"{at}/{quote(number)}/comments", f"{at}/comments/{{}}", headers, "PATCH")
    if project:
        base = environ.get("CI_API_V4_URL", "https://gitlab.com/api/v4")
        at = f"{base}/projects/{quote(project, safe='')}/merge_requests/{quote(number)}/notes"
        return _Forge(at, f"{at}/{{}}", {"PRIVATE-TOKEN": _needed(environ, "GITLAB_TOKEN")}, "PUT")
    raise CommandFailed(
        "Which repository? Set GITHUB_REPOSITORY and GITHUB_TOKEN, or CI_PROJECT_ID and "
        "GITLAB_TOKEN."
    )


def _needed(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise CommandFailed(f"{name} is not set: it may write comments on requests.")
    return value
