"""Secrets at rest: encrypted with a key of the installation, for nobody to read in the database.

Fernet (AES-128-CBC with HMAC-SHA256), its key derived by HKDF from `SECRET_KEY`. While an older key
stands in `SECRET_KEY_FALLBACKS`, what it encrypted is still read; `rotated` writes it under the
new one (`manage.py rotate_secrets`), after which the older key can go. A secret is decrypted where
it is sent and nowhere else.
"""

from __future__ import annotations

import base64
import functools

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class SecretUnreadable(RuntimeError):
    """It was written under a `SECRET_KEY` that is not known any more: enter it again."""


def encrypt(secret: str) -> str:
    """Empty stays empty."""
    return _fernets().encrypt(secret.encode()).decode() if secret else ""


def decrypt(kept: str) -> str:
    """Raises SecretUnreadable."""
    if not kept:
        return ""
    try:
        return _fernets().decrypt(kept.encode()).decode()
    except InvalidToken:
        raise _unreadable() from None


def rotated(kept: str) -> str:
    """The same secret under the newest key. Raises SecretUnreadable."""
    if not kept:
        return ""
    try:
        return _fernets().rotate(kept.encode()).decode()
    except InvalidToken:
        raise _unreadable() from None


def _unreadable() -> SecretUnreadable:
    return SecretUnreadable(
        "A stored secret cannot be read: SECRET_KEY has changed since, and the key before it is "
        "not in SECRET_KEY_PREVIOUS. Enter it again."
    )


def derived_key(purpose: str) -> bytes:
    """32 bytes that hang on the installation's key and on `purpose`."""
    return _derived(settings.SECRET_KEY, purpose)


def _fernets() -> MultiFernet:
    """The first encrypts, all decrypt."""
    return MultiFernet(
        [_fernet(key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    )


@functools.cache
def _fernet(key: str) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(_derived(key, "secrets at rest")))


@functools.cache
def _derived(key: str, purpose: str) -> bytes:
    hkdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=f"switchback: {purpose}".encode())
    return hkdf.derive(key.encode())
