"""Who may read metrics and the details of health: monitors with the token, and operators.

Without a token a monitor on this machine may. Behind a proxy everybody comes from this machine, so
that holds only for requests that no proxy has touched, and never where HTTPS says that there is
one.
"""

from __future__ import annotations

import hmac
import ipaddress

from django.conf import settings
from django.db import Error
from django.http import HttpRequest

_PROXY_HEADERS = ("X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Forwarded", "Via")
_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def may_look_inside(request: HttpRequest) -> bool:
    return _has_token(request) or _is_from_here(request) or _is_operator(request)


def _has_token(request: HttpRequest) -> bool:
    if not settings.METRICS_TOKEN:
        return False
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(
        given.strip().encode(), settings.METRICS_TOKEN.encode()
    )


def _is_operator(request: HttpRequest) -> bool:
    # A probe without a cookie must not ask the database who it is: that may be what is away.
    if settings.SESSION_COOKIE_NAME not in request.COOKIES:
        return False
    try:
        return request.user.is_superuser
    except Error:
        return False


def _is_from_here(request: HttpRequest) -> bool:
    if settings.METRICS_TOKEN or settings.SESSION_COOKIE_SECURE:
        return False
    if any(name in request.headers for name in _PROXY_HEADERS):
        return False
    name = request.headers.get("Host", "").rpartition(":")[0] or request.headers.get("Host", "")
    try:
        address = ipaddress.ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    return address.is_loopback and name in _OWN_NAMES
