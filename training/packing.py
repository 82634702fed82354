"""Packs: rows of a step that share their beginning, within a token budget.

Rows of a group start with the same prompt, and rows of all groups with the same instructions and
demonstrations. A pack computes the longest common prefix of its rows once; gradients are those of
separate rows. A row is only as long as its last target needs, and a row without targets is in no
pack at all.

A row joins a pack while that costs no more tokens than leaving it alone: one row with another task
would shorten the prefix for all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training.errors import ConfigurationError
from training.losses import RowStream

DEFAULT_BUDGET_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Pack:
    """Inputs of one forward pass; flat order: the prefix, then each row's suffix."""

    prefix: tuple[int, ...]
    rows: tuple[int, ...]
    """Indices into the rows of the step."""
    suffixes: tuple[tuple[int, ...], ...]

    @property
    def n_tokens(self) -> int:
        """Tokens the network sees."""
        return len(self.prefix) + sum(len(suffix) for suffix in self.suffixes)

    def flat_positions(self, member: int, targets: Sequence[int]) -> list[int]:
        """Where in the flat hidden states the `member`-th row's targets are predicted.

        Target t is predicted by input t, which may lie in the shared prefix.
        """
        shared = len(self.prefix)
        start = shared + sum(len(suffix) for suffix in self.suffixes[:member])
        return [t if t < shared else start + t - shared for t in targets]


def needed_inputs(stream: RowStream) -> int:
    """How many tokens of a row the network must see to predict all its targets."""
    last = -1
    for targets in (stream.rl_targets, stream.env_targets):
        if targets:
            last = max(last, targets[-1])
    return last + 1


def pack_rows(
    ids_R: Sequence[Sequence[int]],
    needed_R: Sequence[int],
    *,
    budget_tokens: int = DEFAULT_BUDGET_TOKENS,
) -> list[Pack]:
    """Packs that cover every row with a target exactly once; deterministic.

    A single row above the budget gets a pack of its own: a row is never cut here.
    """
    if budget_tokens < 1:
        raise ConfigurationError(f"budget_tokens: {budget_tokens} is not positive")
    inputs = {i: tuple(ids_R[i][:n]) for i, n in enumerate(needed_R) if n > 0}
    # Neighbours in this order share the longest prefixes.
    order = sorted(inputs, key=lambda i: (inputs[i], i))
    packs: list[Pack] = []
    members: list[int] = []
    shared = total = 0
    for i in order:
        row = inputs[i]
        if members:
            new_shared = min(shared, _common(inputs[members[0]], row))
            lengths = sum(len(inputs[m]) - new_shared for m in members)
            new_total = new_shared + lengths + len(row) - new_shared
            if new_total <= budget_tokens and new_total <= total + len(row):
                members.append(i)
                shared, total = new_shared, new_total
                continue
            packs.append(_finish(members, shared, inputs))
        members, shared, total = [i], len(row), len(row)
    if members:
        packs.append(_finish(members, shared, inputs))
    return packs


def shared_root(
    ids_R: Sequence[Sequence[int]], needed_R: Sequence[int], first_R: Sequence[int]
) -> int:
    """Length of the beginning that all rows with targets share, before any of their targets.

    `first_R`: the input that predicts a row's first target. 0 if no row has a target.
    """
    used = [i for i, n in enumerate(needed_R) if n > 0]
    if not used:
        return 0
    low = min((ids_R[i] for i in used), key=tuple)
    high = max((ids_R[i] for i in used), key=tuple)
    # All lie between the two in lexicographic order, so they share what these share.
    return min(_common(low, high), *(first_R[i] for i in used))


def first_input(stream: RowStream) -> int:
    """The input that predicts the first target of a row; 0 for a row without targets."""
    firsts = [targets[0] for targets in (stream.rl_targets, stream.env_targets) if targets]
    return min(firsts, default=0)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def _finish(members: list[int], shared: int, inputs: dict[int, tuple[int, ...]]) -> Pack:
    return Pack(
        prefix=inputs[members[0]][:shared],
        rows=tuple(members),
        suffixes=tuple(inputs[m][shared:] for m in members),
    )
