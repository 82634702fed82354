"""What ends a command without a verdict, and the exit codes of all commands."""

from __future__ import annotations

BETTER, REGRESSED, INCONCLUSIVE, INFRASTRUCTURE = range(4)
"""Of `gate`. Other commands: 0 done, 1 failed or cancelled, 3 everything that is no answer."""
EXIT_CODES = {
    "better": BETTER,
    "regressed": REGRESSED,
    "inconclusive": INCONCLUSIVE,
    "infrastructure": INFRASTRUCTURE,
}


class CommandFailed(Exception):
    """No verdict: the message says what to do. Exit code 3, also for wrong arguments, since 1 and 2
    are words on the change.
    """


class Ended(Exception):
    """The command came to its end with this exit code, and has said so."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class Refused(CommandFailed):
    """The server understood the request and will not do it."""
