"""Where a message may go: public addresses, unless the operator names others.

A name is resolved once and the connection goes to what was checked, so that a name which answers
differently the second time (DNS rebinding) reaches nothing inside. Redirects are not followed.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

from orchestrator.environments.sandbox.policy import is_public

MAX_URL = 1000


class TargetRefused(ValueError):
    """The address cannot be used; the text says why and what can be done."""


@dataclass(frozen=True)
class Target:
    """An address that was checked, and the number it stands for."""

    url: str
    """With the number in place of the name."""
    host: str
    """For the header `Host`, with its port."""
    name: str
    """For TLS."""


def checked(url: str) -> None:
    """What can be said of an address without asking the network. Raises TargetRefused."""
    _parts(url)


def resolve(url: str) -> Target:
    """Raises TargetRefused, also where the name cannot be resolved."""
    scheme, name, port, rest = _parts(url)
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise TargetRefused(f"{name} cannot be resolved: {error}.") from error
    addresses = [str(info[4][0]) for info in found]
    if not _is_named(name, port):
        for address in addresses:
            if not is_public(address):
                raise TargetRefused(
                    f"{name} is {address}, an address inside this network. An operator who means "
                    f"it adds {name}:{port} to SWITCHBACK_WEBHOOK_HOSTS."
                )
    number = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    shown = f"[{name}]" if ":" in name else name
    return Target(url=f"{scheme}://{number}:{port}{rest}", host=f"{shown}:{port}", name=name)


def _is_named(name: str, port: int) -> bool:
    return name in settings.WEBHOOK_HOSTS or f"{name}:{port}" in settings.WEBHOOK_HOSTS


def _parts(url: str) -> tuple[str, str, int, str]:
    """Scheme, name, port, and the rest from the path on."""
    if len(url) > MAX_URL or any(ord(char) < 33 or ord(char) == 127 for char in url):
        raise TargetRefused(f"An address has at most {MAX_URL} characters and no blanks.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise TargetRefused(f"This is no address: {error}.") from error
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise TargetRefused("Give an address that begins with https:// (or http://).")
    if parts.username is not None or parts.password is not None:
        raise TargetRefused("Leave user name and password out: messages are signed.")
    port = port or (443 if parts.scheme == "https" else 80)
    if parts.scheme == "http" and not _is_named(parts.hostname, port):
        raise TargetRefused(
            "http:// sends what it says in the clear. Use https://, or have an operator add "
            f"{parts.hostname}:{port} to SWITCHBACK_WEBHOOK_HOSTS."
        )
    rest = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme, parts.hostname, port, rest
