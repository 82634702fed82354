"""Secrets at rest: encrypted with a key of the installation, for nobody to read in the database.

Fernet (AES-128-CBC with HMAC-SHA256), its key derived by HKDF from `SECRET_KEY`; whoever changes
that must enter the secrets again. A secret is decrypted where it is sent and nowhere else.
"""

from __future__ import annotations

import base64
import functools

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class SecretUnreadable(RuntimeError):
    """It was written under another `SECRET_KEY`: enter it again."""


def encrypt(secret: str) -> str:
    """Empty stays empty."""
    return _fernet(settings.SECRET_KEY).encrypt(secret.encode()).decode() if secret else ""


def decrypt(kept: str) -> str:
    """Raises SecretUnreadable."""
    if not kept:
        return ""
    try:
        return _fernet(settings.SECRET_KEY).decrypt(kept.encode()).decode()
    except InvalidToken:
        raise SecretUnreadable(
            "A stored secret cannot be read: SECRET_KEY has changed since. Enter it again."
        ) from None


def derived_key(purpose: str) -> bytes:
    """32 bytes that hang on the installation's key and on `purpose`."""
    return _derived(settings.SECRET_KEY, purpose)


@functools.cache
def _fernet(key: str) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(_derived(key, "secrets at rest")))


@functools.cache
def _derived(key: str, purpose: str) -> bytes:
    hkdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=f"switchback: {purpose}".encode())
    return hkdf.derive(key.encode())
