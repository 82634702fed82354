"""Who a sandbox may talk to: the rules of the egress proxy, without any input or output.

CONNECT to port 443 of a named host, nothing else. Names are compared in one form (lower case,
ASCII, no final dot). `*.example.org` covers `api.example.org`, neither `example.org` nor
`evilexample.org`. Address literals are refused in all their spellings, and an allowed name that
resolves to an address that is not public is refused too: else whoever owns the name could point it
at a metadata service or a neighbour.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal

PORT = 443
MAX_HOST = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)")
_NEVER = frozenset(
    {
        ipaddress.ip_address("168.63.129.16"),  # Azure's platform service, a public address
    }
)

Action = Literal["allow", "deny"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Decision:
    """One request and what became of it."""

    host: str
    """In the form that was compared, or as asked for, shortened, where it has none."""
    port: int
    method: str
    action: Action
    reason: str


@dataclass(frozen=True)
class Policy:
    """What is allowed; all else is not."""

    allowed: tuple[str, ...]
    """Names, or patterns that begin with `*.`."""

    def __post_init__(self) -> None:
        for pattern in self.allowed:
            check_pattern(pattern)

    def decide(self, method: str, target: str) -> Decision:
        """On a request line's method and target, before names are resolved."""
        method = _shown(method, 16)
        if method != "CONNECT":
            return Decision(_shown(target), 0, method, "deny", "only CONNECT is served: use https")
        host, separator, port_text = target.rpartition(":")
        if not separator or not re.fullmatch(r"[0-9]{1,5}", port_text):
            return Decision(_shown(target), 0, method, "deny", "no host:port")
        # The field of the log takes no more than a port.
        port = min(int(port_text), 65535)
        name = normalised(host)
        if name is None:
            reason = "an address, not a name" if is_address(host) else "not a host name"
            return Decision(_shown(host), port, method, "deny", reason)
        if port != PORT:
            return Decision(name, port, method, "deny", f"only port {PORT} is open")
        if not any(matches(pattern, name) for pattern in self.allowed):
            return Decision(name, port, method, "deny", "not on the allow-list")
        return Decision(name, port, method, "allow", "")


def check_pattern(pattern: str) -> None:
    """`ValueError` that says what a usable pattern is."""
    name = pattern.removeprefix("*.")
    if normalised(name) is None:
        raise ValueError(
            f"allowed host {pattern!r} is no host name: write api.example.org, or *.example.org "
            "for the names below it; addresses and ports are not allowed"
        )


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern covers a name in compared form."""
    if pattern.startswith("*."):
        suffix = normalised(pattern[2:])
        return suffix is not None and name.endswith(f".{suffix}")
    return normalised(pattern) == name


def normalised(host: str) -> str | None:
    """A host name in compared form; None for what is not one, addresses included."""
    host = host.removesuffix(".")
    try:
        name = (host if host.isascii() else host.encode("idna").decode("ascii")).lower()
    except UnicodeError:
        return None
    labels = name.split(".")
    if not 0 < len(name) <= MAX_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        return None
    # Resolvers read `127.1`, `2130706433` and `0x7f.1` as addresses.
    return None if _NUMERIC.fullmatch(labels[-1]) else name


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return _NUMERIC.fullmatch(host.removesuffix(".").rpartition(".")[2].lower()) is not None
    return True


def is_public(text: str) -> bool:
    """Whether a resolved address is one of the public internet.

    Addresses that carry another one (mapped, 6to4, Teredo, NAT64) are judged by that too.
    """
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    inner: list[Address] = []
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
        inner += [address.sixtofour] if address.sixtofour else []
        inner += list(address.teredo) if address.teredo else []
        if address in ipaddress.ip_network("64:ff9b::/96"):
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    is_global = address.is_global and not address.is_multicast and not address.is_reserved
    return is_global and address not in _NEVER and all(is_public(str(other)) for other in inner)


def _shown(text: str, limit: int = 200) -> str:
    """Foreign text for a log of lines."""
    return "".join(c if c.isprintable() else "?" for c in text)[:limit]
