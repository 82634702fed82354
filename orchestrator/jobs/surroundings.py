"""Faults that are nobody's mistake and pass: a database that restarts, a disk that is full.

A handler that meets one has not failed: its work is there again once the database answers, or there
is room. So its job is tried again, as if the handler had asked for it, and fails with the reason
only when its attempts are used up.
"""

from __future__ import annotations

import errno

from django.db import InterfaceError, OperationalError, connection

_OF_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})

_AWAY = ("08", "53", "57", "58")
"""Classes of SQLSTATE: no connection, no resources, shut down by an operator, fault of the system.
"""
_AWAY_ON_SQLITE = ("is full", "disk I/O", "readonly database", "unable to open", "is locked")


def fault_of_surroundings(error: BaseException) -> BaseException | None:
    """The first one that `error` is, or that a group of errors holds; None if there is none."""
    return next((leaf for leaf in leaves(error) if _passes(leaf)), None)


def is_away(error: BaseException) -> bool:
    """Whether the database could not be reached or written, whatever was asked of it."""
    if isinstance(error, InterfaceError):
        return True
    if not isinstance(error, OperationalError):
        return False
    if connection.vendor == "postgresql":
        state = getattr(error.__cause__, "sqlstate", None)
        return state is None or state[:2] in _AWAY
    return any(words in str(error) for words in _AWAY_ON_SQLITE)


def reason_of(error: BaseException) -> str:
    """In words; of a group of errors what its first one says."""
    first = leaves(error)[0]
    return f"{type(first).__name__}: {first}"


def leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in leaves(inner)]


def _passes(error: BaseException) -> bool:
    if isinstance(error, OperationalError | InterfaceError):
        return True
    return isinstance(error, OSError) and error.errno in _OF_THE_DISK
