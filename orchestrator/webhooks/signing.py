"""Signatures by the Standard Webhooks specification, v1 (symmetric). No database.

    webhook-signature: v1,base64(HMAC-SHA256(secret, id + "." + timestamp + "." + body))

with the timestamp in seconds since 1970. Who receives compares in constant time and refuses
timestamps that are minutes off, which is what keeps a caught message from being played again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
TOLERANCE_S = 300


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signature(secret: str, *, message_id: str, timestamp_s: int, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def headers_of(secret: str, *, message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    signed = signature(secret, message_id=message_id, timestamp_s=timestamp_s, body=body)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": signed,
    }


def is_genuine(
    secret: str, *, message_id: str, timestamp_s: int, body: bytes, given: str, now_s: float
) -> bool:
    """What who receives has to ask. `given` may hold several signatures, separated by spaces."""
    if abs(now_s - timestamp_s) > TOLERANCE_S:
        return False
    right = signature(secret, message_id=message_id, timestamp_s=timestamp_s, body=body)
    return any(hmac.compare_digest(right, one) for one in given.split())
