"""Training rows: from rollouts to flat token sequences, and to and from JSON lines.

Tokens are kept as sampled. A rollout is one row as long as each prompt extends the tokens before it
exactly; otherwise a new row starts and nothing is ever tokenised again. The first prompt is never a
target, so observation kinds before the first action are demoted to context when rows are read.

Tokens that several rows of one rollout share (a branch, a rewritten history) count once: see
`count_once`. Rows of different rollouts never share: each has sampled its tokens for itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from training.errors import RowError
from training.types import Row, RowStatus, TokenKind, TurnCounts

_TRAINED = (TokenKind.ACTION, TokenKind.ENV_OUTPUT, TokenKind.WARNING)
_OBSERVED = (TokenKind.ENV_OUTPUT, TokenKind.WARNING)


def row_from_json(record: Mapping[str, Any], *, where: str) -> Row:
    """Check one JSON record; raises RowError that names `where` and the field.

    A reward that is not finite counts as no score: a failure is never a number.
    """
    try:
        ids = tuple(int(token) for token in record["ids"])
        kinds = tuple(TokenKind(kind) for kind in record["kinds"])
        stored = record.get("logprobs")
        logprobs = None if stored is None else tuple(float(value) for value in stored)
        status = RowStatus(record["status"])
        reward = record.get("reward")
        reward = None if reward is None else float(reward)
        counts = record.get("quality")
        quality = None if counts is None else TurnCounts(**counts)
        rollout, group = str(record["rollout"]), str(record["group"])
    except KeyError as error:
        raise RowError(f"{where}: field {error.args[0]!r} is missing") from error
    except (TypeError, ValueError) as error:
        raise RowError(f"{where}: {error}") from error
    lengths = {"kinds": len(kinds), "logprobs": len(ids) if logprobs is None else len(logprobs)}
    for name, length in lengths.items():
        if length != len(ids):
            raise RowError(f"{where}: {len(ids)} ids but {length} {name}")
    if logprobs is not None:
        for kind, value in zip(kinds, logprobs, strict=True):
            if kind is TokenKind.ACTION and not (math.isfinite(value) and value <= 1e-3):
                raise RowError(f"{where}: log-prob {value} of an action token is not one")
    return Row(
        rollout=rollout,
        group=group,
        reward=reward if reward is not None and math.isfinite(reward) else None,
        status=status,
        ids=ids,
        kinds=kinds,
        logprobs=logprobs,
        weight_version=str(record.get("weight_version", "")),
        quality=quality,
        untrained=tuple(int(index) for index in record.get("untrained", ())),
    )


def row_to_json(row: Row) -> dict[str, Any]:
    """The JSON form of `row_from_json`."""
    record: dict[str, Any] = {
        "rollout": row.rollout,
        "group": row.group,
        "reward": row.reward,
        "status": row.status.value,
        "ids": list(row.ids),
        "kinds": [kind.value for kind in row.kinds],
        "logprobs": None if row.logprobs is None else list(row.logprobs),
        "weight_version": row.weight_version,
    }
    if row.untrained:
        record["untrained"] = list(row.untrained)
    if row.quality is not None:
        record["quality"] = {
            "turns": row.quality.turns,
            "parse_errors": row.quality.parse_errors,
            "clean_turns": row.quality.clean_turns,
        }
    return record


def read_rows(text: str) -> list[Row]:
    """Rows of a JSON-lines text, ready to train: prompts demoted, shared tokens counted once."""
    rows = [
        demote_prompt(row_from_json(json.loads(line), where=f"row {number}"))
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]
    return count_once_by_prefix(rows)


def demote_prompt(row: Row) -> Row:
    """Observation tokens before the first action become context: a prompt is never a target."""
    kinds = list(row.kinds)
    for index, kind in enumerate(kinds):
        if kind is TokenKind.ACTION:
            break
        if kind in _OBSERVED:
            kinds[index] = TokenKind.CONTEXT
    return row if tuple(kinds) == row.kinds else replace(row, kinds=tuple(kinds))


def count_once(rows: Sequence[Row], keys: Sequence[Sequence[Hashable]]) -> list[Row]:
    """Tokens with the same key are one token: the first row that trains it keeps it.

    `keys[i][t]` identifies token t of row i. Where rows disagree, training wins over context.
    """
    owner: dict[Hashable, tuple[int, int]] = {}
    for number, (row, row_keys) in enumerate(zip(rows, keys, strict=True)):
        for index, (kind, key) in enumerate(zip(row.kinds, row_keys, strict=True)):
            if kind in _TRAINED:
                owner.setdefault(key, (number, index))
    result = []
    for number, (row, row_keys) in enumerate(zip(rows, keys, strict=True)):
        kinds = tuple(
            TokenKind.CONTEXT if kind in _TRAINED and owner[key] != (number, index) else kind
            for index, (kind, key) in enumerate(zip(row.kinds, row_keys, strict=True))
        )
        result.append(row if kinds == row.kinds else replace(row, kinds=kinds))
    return result


def count_once_by_prefix(rows: Sequence[Row]) -> list[Row]:
    """`count_once` where a token's key is its rollout and all tokens up to it."""
    by_rollout: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        by_rollout.setdefault(row.rollout, []).append(number)
    result = list(rows)
    for numbers in by_rollout.values():
        if len(numbers) == 1:
            continue
        nodes: dict[tuple[int, int], int] = {}
        keys = [_prefix_nodes(rows[number].ids, nodes) for number in numbers]
        for number, row in zip(numbers, count_once([rows[n] for n in numbers], keys), strict=True):
            result[number] = row
    return result


def _prefix_nodes(ids: Sequence[int], nodes: dict[tuple[int, int], int]) -> list[int]:
    """Node numbers of a prefix tree that grows as rows are added; equal node, equal prefix."""
    path, parent = [], -1
    for token in ids:
        parent = nodes.setdefault((parent, token), len(nodes))
        path.append(parent)
    return path


@dataclass(frozen=True, slots=True)
class Node:
    """A message of a transcript as a span of tokens."""

    role: str
    is_sampled: bool
    n_tokens: int
    content: tuple[bool, ...] | None = None
    """Per token: message content (True) or template scaffold; None means all content."""


def node_weights(nodes: Iterable[Node], role_weights: Mapping[str, float]) -> list[float]:
    """Cross-entropy weight per token: by role, content only, and only after the first sampled node.

    Source of the selection: prime-rl's ECHO algorithm (unit tests of August 2026).
    """
    weights: list[float] = []
    has_sampled = False
    for node in nodes:
        has_sampled = has_sampled or node.is_sampled
        weight = 0.0
        if has_sampled and not node.is_sampled:
            weight = float(role_weights.get(node.role, 0.0))
        content = node.content if node.content is not None else (True,) * node.n_tokens
        if len(content) != node.n_tokens:
            raise RowError(f"{node.role}: {node.n_tokens} tokens but {len(content)} content flags")
        weights.extend(weight if is_content else 0.0 for is_content in content)
    return weights


@dataclass(slots=True)
class _Open:
    ids: list[int] = field(default_factory=list)
    kinds: list[TokenKind] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@dataclass(slots=True)
class RowBuilder:
    """Turns of one rollout, merged by prefix extension.

    Call `add_turn` per model call with the prompt exactly as the sampler saw it. If the prompt does
    not extend the row so far, a new row starts whose whole prompt is context: what it repeats was
    trained where it first stood.
    """

    rollout: str
    group: str
    weight_version: str = ""
    _rows: list[_Open] = field(default_factory=list)

    def add_turn(
        self,
        *,
        prompt_ids: Sequence[int],
        prompt_kinds: Sequence[TokenKind],
        action_ids: Sequence[int],
        action_logprobs: Sequence[float],
        is_trained: Sequence[bool] | None = None,
    ) -> None:
        """Append the new part of the prompt, then the sampled tokens.

        Sampled tokens whose `is_trained` is false are context.
        """
        if len(prompt_ids) != len(prompt_kinds) or len(action_ids) != len(action_logprobs):
            raise RowError(f"rollout {self.rollout}: ids and kinds or log-probs differ in length")
        if is_trained is not None and len(is_trained) != len(action_ids):
            raise RowError(f"rollout {self.rollout}: ids and mask differ in length")
        known = len(self._rows[-1].ids) if self._rows else 0
        if self._rows and list(prompt_ids[:known]) == self._rows[-1].ids:
            row = self._rows[-1]
            row.kinds.extend(prompt_kinds[known:])
        else:
            row, known = _Open(), 0
            self._rows.append(row)
            row.kinds.extend([TokenKind.CONTEXT] * len(prompt_ids))
        row.ids.extend(prompt_ids[known:])
        row.logprobs.extend([0.0] * (len(prompt_ids) - known))
        row.ids.extend(action_ids)
        row.kinds.extend(
            TokenKind.ACTION if is_kept else TokenKind.CONTEXT
            for is_kept in is_trained or [True] * len(action_ids)
        )
        row.logprobs.extend(action_logprobs)

    def add_observation(self, *, ids: Sequence[int], kinds: Sequence[TokenKind]) -> None:
        """Append tokens that no further action followed (the last observation counts too)."""
        if not self._rows:
            self._rows.append(_Open())
        row = self._rows[-1]
        row.ids.extend(ids)
        row.kinds.extend(kinds)
        row.logprobs.extend([0.0] * len(ids))

    def rows(self, *, reward: float | None, status: RowStatus) -> list[Row]:
        """The finished rows, all with the rollout's reward and status."""
        return [
            demote_prompt(
                Row(
                    rollout=self.rollout,
                    group=self.group,
                    reward=reward,
                    status=status,
                    ids=tuple(row.ids),
                    kinds=tuple(row.kinds),
                    logprobs=tuple(row.logprobs),
                    weight_version=self.weight_version,
                )
            )
            for row in self._rows
        ]
