"""Refusals that only the API has; those of the product are told by `problems`."""

from __future__ import annotations

from rest_framework.exceptions import APIException


class Conflict(APIException):
    status_code = 409
    default_detail = "The request does not fit the present state."


class Changed(APIException):
    status_code = 412
    default_detail = (
        "Somebody has changed this since you read it; read it again and send its new ETag."
    )


class Unguarded(APIException):
    status_code = 428
    default_detail = "Name what you read: send its ETag as `If-Match`."


class Refused(APIException):
    """The request is well formed and cannot be done; `field` is the one to change."""

    status_code = 422

    def __init__(self, field: str, message: str) -> None:
        super().__init__({field: [message]})
