"""Signing in through a provider: a real one on the loopback, and a web process of its own."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.projects.sso_claims import username_of
from tests.doubles.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
ADA = {"sub": "1", "preferred_username": "ada", "email": "ada@example.org", "email_verified": True}


class Site:
    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url

    def users(self) -> list[tuple[str, bool, bool]]:
        """Name, operator or not, and whether a password opens it."""
        with sqlite3.connect(self.folder / "db.sqlite3") as database:
            rows = database.execute("SELECT username, is_superuser, password FROM projects_user")
            return [(name, bool(boss), not word.startswith("!")) for name, boss, word in rows]

    def sign_in(self) -> tuple[httpx.Response, httpx.Client]:
        """As a browser: the button, the provider, and back."""
        client = httpx.Client(follow_redirects=True, timeout=60)
        page = client.get(f"{self.url}/accounts/login/").text
        assert "Sign in with Example ID" in page
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token is not None
        answer = client.post(
            f"{self.url}/accounts/sso/oidc/oidc/login/?next=/accounts/password/",
            data={"csrfmiddlewaretoken": token[1]},
            headers={"Referer": f"{self.url}/accounts/login/"},
        )
        return answer, client


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with OidcProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def site(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("sso")
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith("SWITCHBACK_")},
        "DJANGO_SETTINGS_MODULE": "orchestrator.settings",
        "SWITCHBACK_DATA": str(folder),
        "STACK": "embedded",  # whichever these tests run on: `users` reads the file
        "SWITCHBACK_OIDC_ISSUER": provider.url,
        "SWITCHBACK_OIDC_CLIENT_ID": CLIENT_ID,
        "SWITCHBACK_OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "SWITCHBACK_OIDC_NAME": "Example ID",
        "SWITCHBACK_OIDC_DOMAINS": "example.org",
    }
    manage = [sys.executable, "manage.py"]
    subprocess.run([*manage, "migrate", "-v0"], cwd=ROOT, env=environ, check=True, timeout=300)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    fd = str(listener.fileno())
    log = folder / "web.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "orchestrator.asgi:application", "--fd", fd],
            cwd=ROOT,
            env=environ,
            pass_fds=[int(fd)],
            stdout=out,
            stderr=out,
        )
    found = Site(folder, f"http://127.0.0.1:{port}")

    def answers() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            return httpx.get(f"{found.url}/accounts/login/", timeout=60).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(answers, limit_s=120, what="the sign-in page")
        yield found
    finally:
        process.terminate()
        process.wait(60)
        listener.close()
    assert CLIENT_SECRET not in log.read_text()


def test_who_the_provider_names_comes_in_once_and_without_rights(
    site: Site, provider: OidcProvider
) -> None:
    provider.claims, provider.faults = dict(ADA), set()
    for _ in range(2):
        answer, client = site.sign_in()
        assert (answer.status_code, answer.url.path) == (200, "/accounts/password/")
        assert "make demo" in client.get(f"{site.url}/").text  # no project yet
    assert site.users() == [("ada", False, False)]


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "2", "email": "eve@elsewhere.org", "email_verified": True},
        {"sub": "2", "email": "eve@example.org", "email_verified": False},
        {"sub": "2", "preferred_username": "eve"},
        # Ada has left the domain: what she was let in for is asked each time.
        {**ADA, "email": "ada@elsewhere.org"},
    ],
)
def test_who_is_of_no_known_domain_stays_out(
    site: Site, provider: OidcProvider, claims: dict[str, Any]
) -> None:
    provider.claims, provider.faults = claims, set()
    before = site.users()
    answer, client = site.sign_in()
    assert answer.status_code == 403
    assert "Not let in" in answer.text
    assert client.get(f"{site.url}/").url.path == "/accounts/login/"
    assert site.users() == before


def test_a_token_for_somebody_else_opens_nothing(site: Site, provider: OidcProvider) -> None:
    provider.claims, provider.faults = {**ADA, "sub": "3"}, {"audience"}
    before = site.users()
    answer, client = site.sign_in()
    assert "Sign-in did not succeed" in answer.text
    assert client.get(f"{site.url}/").url.path == "/accounts/login/"
    assert site.users() == before


def test_another_person_with_a_known_name_is_another_user(
    site: Site, provider: OidcProvider
) -> None:
    provider.claims, provider.faults = {**ADA, "sub": "4"}, set()
    before = site.users()
    answer, _ = site.sign_in()
    assert answer.status_code == 200
    (new,) = set(site.users()) - set(before)
    assert new[0].startswith("ada") and new[0] != "ada"


@given(
    st.dictionaries(
        st.sampled_from(["preferred_username", "email", "name", "sub"]),
        st.text() | st.none() | st.integers(),
    )
)
def test_every_claim_gives_a_name_that_a_user_can_have(claims: dict[str, Any]) -> None:
    name = username_of(claims)
    assert re.fullmatch(r"[\w.@+-]{1,150}", name)
