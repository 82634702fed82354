"""Rows for tests, short to write: a role string over targets, as in the ECHO vectors."""

from __future__ import annotations

from random import Random

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


def make_step(
    *, groups: int = 2, attempts: int = 3, shared: int = 12, seed: int = 0, vocabulary: int = 200
) -> list[Row]:
    """Rows of one optimiser step: a shared prompt, a task per group, two turns per attempt."""
    random = Random(seed)

    def tokens(n: int) -> list[int]:
        return [random.randrange(vocabulary) for _ in range(n)]

    instructions = tokens(shared)
    rows = []
    for group in range(groups):
        task = tokens(5)
        for attempt in range(attempts):
            ids, roles = [*instructions, *task], "C" * (shared + 5)
            for _ in range(2):
                turn = f"{'A' * random.randint(1, 4)}SW{'E' * random.randint(1, 5)}S"
                ids += tokens(len(turn))
                roles += turn
            kinds = tuple(ROLES[role] for role in roles)
            is_action = [kind is TokenKind.ACTION for kind in kinds]
            rows.append(
                Row(
                    rollout=f"g{group}-{attempt}",
                    group=f"g{group}",
                    reward=float(attempt % 2),
                    status=RowStatus.OK,
                    ids=tuple(ids),
                    kinds=kinds,
                    logprobs=tuple(-5.0 * acts for acts in is_action),
                    weight_version="v0000",
                )
            )
    return rows
