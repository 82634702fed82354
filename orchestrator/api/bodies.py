"""Bodies that are not forms and not small JSON: read up to a limit, opened up to a limit.

A compressed body is opened piece by piece, so that one of 100 kB that would become gigabytes costs
no more memory than the limit says.
"""

from __future__ import annotations

import zlib

from rest_framework.exceptions import APIException, UnsupportedMediaType, ValidationError
from rest_framework.request import Request


class TooLarge(APIException):
    status_code = 413


def read_body(request: Request, *, limit: int, named: str) -> bytes:
    """At most `limit` bytes, after `Content-Encoding`. `named`: what sets the limit.

    Raises TooLarge, ValidationError, UnsupportedMediaType.
    """
    # Read here: Django's own limit is meant for forms.
    body: bytes = request._request.read(limit + 1)
    if len(body) > limit:
        raise TooLarge(_told(limit, named))
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise UnsupportedMediaType(coding, "Content-Encoding: accepts gzip, deflate or identity.")
    opened = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        content = opened.decompress(body, limit + 1)
    except zlib.error as error:
        raise ValidationError({"body": [f"is not {coding}: {error}"]}) from error
    if len(content) > limit:
        raise TooLarge(_told(limit, named))
    if not opened.eof:
        raise ValidationError({"body": [f"ends before its {coding} does"]})
    return content


def _told(limit: int, named: str) -> str:
    return f"The body takes more than {limit:,} bytes ({named}); send less at once."
