"""Who a sandbox may talk to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.environments.sandbox.policy import (
    Policy,
    is_public,
    matches,
    normalised,
)

POLICY = Policy(("api.example.org", "*.data.example.org", "bücher.example"))


@pytest.mark.parametrize(
    "target",
    [
        "api.example.org:443",
        "API.Example.ORG:443",
        "api.example.org.:443",
        "a.data.example.org:443",
        "a.b.data.example.org:443",
        "xn--bcher-kva.example:443",
    ],
)
def test_allowed_names_are_allowed_in_any_spelling(target: str) -> None:
    assert POLICY.decide("CONNECT", target).action == "allow"


@pytest.mark.parametrize(
    ("method", "target", "reason"),
    [
        ("CONNECT", "example.org:443", "allow-list"),
        ("CONNECT", "data.example.org:443", "allow-list"),
        ("CONNECT", "evildata.example.org:443", "allow-list"),
        ("CONNECT", "api.example.org.evil.net:443", "allow-list"),
        ("CONNECT", "api.example.org:80", "port 443"),
        ("CONNECT", "api.example.org:0443443", "host:port"),
        ("CONNECT", "api.example.org", "host:port"),
        ("CONNECT", "api.example.org:", "host:port"),
        ("CONNECT", "api.example.org..:443", "host name"),
        ("CONNECT", "api.example.org\x00.evil:443", "host name"),
        ("CONNECT", "api.example.org@evil.net:443", "host name"),
        ("CONNECT", "user:api.example.org:443", "host name"),
        ("CONNECT", "1.1.1.1:443", "address"),
        ("CONNECT", "127.1:443", "address"),
        ("CONNECT", "2130706433:443", "address"),
        ("CONNECT", "0x7f000001:443", "address"),
        ("CONNECT", "0177.0.0.1:443", "address"),
        ("CONNECT", "1.1.1.1.:443", "address"),
        ("CONNECT", "[::1]:443", "address"),
        ("CONNECT", "[::ffff:169.254.169.254]:443", "address"),
        ("CONNECT", "localhost:443", "allow-list"),
        ("GET", "http://api.example.org/", "only CONNECT"),
        ("connect", "api.example.org:443", "only CONNECT"),
    ],
)
def test_all_else_is_denied_with_a_reason(method: str, target: str, reason: str) -> None:
    decision = POLICY.decide(method, target)
    assert decision.action == "deny"
    assert reason in decision.reason
    assert decision.host.isprintable()


@given(st.text(max_size=300), st.text(max_size=20))
def test_no_request_raises_and_only_the_list_is_allowed(target: str, method: str) -> None:
    decision = POLICY.decide(method, target)
    assert decision.action == "deny" or any(matches(p, decision.host) for p in POLICY.allowed)
    assert 0 <= decision.port <= 65535 and len(decision.host) <= 253 and len(decision.method) <= 16


@given(st.from_regex(r"[a-z0-9.-]{1,40}", fullmatch=True))
def test_a_pattern_covers_only_what_ends_with_its_dot_and_name(name: str) -> None:
    if matches("*.example.org", name):
        assert name.endswith(".example.org") and name != ".example.org"


@given(st.text(max_size=60))
def test_a_compared_form_is_its_own_compared_form(host: str) -> None:
    name = normalised(host)
    assert name is None or (normalised(name) == name and name == name.lower() and name.isascii())


@pytest.mark.parametrize(
    "pattern", ["", "*", "*.", "1.2.3.4", "a b", "example.org:443", "https://example.org", "[::1]"]
)
def test_a_pattern_that_is_no_name_is_refused_with_the_fix(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"write api\.example\.org"):
        Policy((pattern,))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "0.0.0.1", "224.0.0.1", "255.255.255.255", "168.63.129.16", "198.18.0.1", "240.0.0.1",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1",
        "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
        "2001:db8::1",
    ],
)  # fmt: skip
def test_addresses_inside_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111"])
def test_addresses_of_the_internet_are(address: str) -> None:
    assert is_public(address)
