"""What a provider tells of somebody, and what follows from it. No database, no allauth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_ODD = re.compile(r"[^\w.@+-]")


def username_of(claims: Mapping[str, Any]) -> str:
    """The name that a user gets, if it is free."""
    for claim in ("preferred_username", "email", "name", "sub"):
        if isinstance(told := claims.get(claim), str) and (name := _ODD.sub("-", told.strip())):
            return name[:150]
    return "user"


def may_enter(claims: Mapping[str, Any], domains: list[str]) -> bool:
    """Whether an address, checked by the provider, is of one of the domains; none: everybody."""
    if not domains:
        return True
    address = claims.get("email")
    if not isinstance(address, str) or claims.get("email_verified") is not True:
        return False
    return address.rpartition("@")[2].lower() in {domain.lower() for domain in domains}


def claims_of(extra: Mapping[str, Any]) -> dict[str, Any]:
    """What the provider told, of which the signed token counts before the answer of userinfo."""
    if "userinfo" in extra or "id_token" in extra:
        return {**(extra.get("userinfo") or {}), **(extra.get("id_token") or {})}
    return dict(extra)
