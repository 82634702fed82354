"""Where messages may go: nothing inside the network by accident, by name or by number."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from orchestrator.webhooks.targets import TargetRefused, checked, resolve


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.org/", "begins with https"),
        ("//example.org/", "begins with https"),
        ("https://", "begins with https"),
        ("https://user:word@example.org/", "user name"),
        ("http://example.org/", "in the clear"),
        ("https://example.org/a b", "blanks"),
        ("https://example.org:99999/", "no address"),
        ("https://[::1", "no address"),
        ("https://example.org/" + "a" * 1000, "at most"),
    ],
)
def test_what_is_no_address_for_a_message(url: str, why: str) -> None:
    with pytest.raises(TargetRefused, match=why):
        checked(url)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "10.1.2.3", "169.254.169.254", "[::1]", "[::ffff:10.0.0.1]"],
)
def test_addresses_inside_are_refused_and_the_setting_is_named(host: str) -> None:
    with pytest.raises(TargetRefused, match="SWITCHBACK_WEBHOOK_HOSTS"):
        resolve(f"https://{host}/hook")


def answering(*addresses: str) -> Any:
    def getaddrinfo(name: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    return getaddrinfo


def test_a_name_with_one_address_inside_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", answering("93.184.216.34", "192.168.1.5"))
    with pytest.raises(TargetRefused, match=r"192\.168\.1\.5"):
        resolve("https://both.example/hook")


def test_the_connection_goes_to_the_number_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", answering("93.184.216.34"))
    target = resolve("https://hooks.example/a?b=c")
    assert target.url == "https://93.184.216.34:443/a?b=c"
    assert (target.host, target.name) == ("hooks.example:443", "hooks.example")


def test_an_operator_may_name_a_host_inside(settings: Any) -> None:
    settings.WEBHOOK_HOSTS = ["127.0.0.1:8000"]
    assert resolve("http://127.0.0.1:8000/x").url == "http://127.0.0.1:8000/x"
    with pytest.raises(TargetRefused):
        resolve("http://127.0.0.1:8001/x")
