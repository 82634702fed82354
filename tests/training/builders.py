"""Rows for tests, short to write: a role string over targets, as in the ECHO vectors."""

from __future__ import annotations

from training.types import Row, RowStatus, TokenKind

ROLES = {
    "A": TokenKind.ACTION,
    "E": TokenKind.ENV_OUTPUT,
    "W": TokenKind.WARNING,
    "C": TokenKind.CONTEXT,
    "S": TokenKind.SCAFFOLD,
    "P": TokenKind.PAD,
}


def make_row(
    roles: str,
    *,
    rollout: str = "r0",
    group: str = "g0",
    reward: float | None = 1.0,
    status: RowStatus = RowStatus.OK,
    ids: tuple[int, ...] | None = None,
    logprobs: tuple[float, ...] | None = None,
) -> Row:
    """A row whose targets have `roles`; one context token in front."""
    kinds = (TokenKind.CONTEXT, *(ROLES[role] for role in roles))
    return Row(
        rollout=rollout,
        group=group,
        reward=reward,
        status=status,
        ids=ids or tuple(range(len(kinds))),
        kinds=kinds,
        logprobs=logprobs,
        weight_version="v0",
    )
