"""Rows for others and from others: role masks of OpenEnv RFC 010, and OpenEnv's TrainingTrace.

`masks`: JSON lines, one row each. `action_mask`, `obs_mask` and `warning_mask` are aligned with
`token_ids` and disjoint; what is in none is context, scaffold or padding, told apart by `roles`
(letters with counts, `C12A3E7`), which others may ignore and which may be missing. With the streams
of a step a row carries its advantage and its weights per token as well.

`trace`: one JSON object per rollout and row, as `openenv.core.harness.training.TrainingTrace`
accepts it. It knows one binary mask, over prompt and completion of each model call, and requires
log-prob and mask of observations to be 0; so roles travel in the metadata of the calls. A trace
that comes without them has actions and context only: what the environment said cannot be told from
scaffold, and nothing is guessed.

Ids are never touched: what is read back is what was written. Pure; openenv is not imported.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from training.errors import RowError
from training.losses import RowStream, Streams
from training.rows import RowBuilder, count_once_by_prefix, demote_prompt, read_rows, row_to_json
from training.types import Row, RowStatus, TokenKind, TurnCounts

LETTERS = {
    TokenKind.CONTEXT: "C",
    TokenKind.ACTION: "A",
    TokenKind.ENV_OUTPUT: "E",
    TokenKind.WARNING: "W",
    TokenKind.SCAFFOLD: "S",
    TokenKind.PAD: "P",
}
_KINDS = {letter: kind for kind, letter in LETTERS.items()}
MASKS = {
    "action_mask": TokenKind.ACTION,
    "obs_mask": TokenKind.ENV_OUTPUT,
    "warning_mask": TokenKind.WARNING,
}
_OWN = "switchback"
"""Name of our part of a call's metadata."""


# Roles


def pack_roles(kinds: Sequence[TokenKind]) -> str:
    """Letters with counts: `C12A3`."""
    return "".join(f"{LETTERS[kind]}{len(list(run))}" for kind, run in groupby(kinds))


def unpack_roles(text: str, *, where: str) -> tuple[TokenKind, ...]:
    """The kinds that `pack_roles` wrote; raises RowError."""
    if not re.fullmatch(r"(?:[CAEWSP]\d+)*", text):
        raise RowError(f"{where}: roles {text[:40]!r} are not letters of CAEWSP with counts")
    runs = re.findall(r"([CAEWSP])(\d+)", text)
    return tuple(kind for letter, count in runs for kind in [_KINDS[letter]] * int(count))


# RFC 010


def to_masks(row: Row, stream: RowStream | None = None) -> dict[str, Any]:
    """The row with its role masks; with its advantage and weights if its stream is given."""
    record: dict[str, Any] = {
        "rollout": row.rollout,
        "group": row.group,
        "reward": row.reward,
        "status": row.status.value,
        "weight_version": row.weight_version,
        "token_ids": list(row.ids),
        **{name: [k is kind for k in row.kinds] for name, kind in MASKS.items()},
        "roles": pack_roles(row.kinds),
        "logprobs": None if row.logprobs is None else list(row.logprobs),
    }
    if row.untrained:
        record["untrained"] = list(row.untrained)
    if row.quality is not None:
        record["quality"] = {
            "turns": row.quality.turns,
            "parse_errors": row.quality.parse_errors,
            "clean_turns": row.quality.clean_turns,
        }
    if stream is not None:
        record["advantage"] = stream.advantage
        record["rl_weights"] = _per_token(row, stream.rl_targets, stream.rl_weights)
        record["ce_weights"] = _per_token(row, stream.env_targets, stream.env_weights)
    return record


def from_masks(record: Mapping[str, Any], *, where: str) -> Row:
    """The row of `to_masks`, ours or another's; raises RowError that names `where` and the field.

    Observations before the first action become context. Advantage and weights are not read: they
    belong to the step that they were computed for.
    """
    try:
        ids = tuple(int(token) for token in record["token_ids"])
        masks = {name: [bool(flag) for flag in record[name]] for name in MASKS}
        reward = record.get("reward")
        reward = None if reward is None else float(reward)
        stored = record.get("logprobs")
        logprobs = None if stored is None else tuple(float(value) for value in stored)
        counts = record.get("quality")
        row = Row(
            rollout=str(record.get("rollout", where)),
            group=str(record.get("group", record.get("rollout", where))),
            reward=reward if reward is not None and math.isfinite(reward) else None,
            status=RowStatus(record.get("status", "ok")),
            ids=ids,
            kinds=_kinds_of(masks, len(ids), record.get("roles"), where),
            logprobs=logprobs,
            weight_version=str(record.get("weight_version", "")),
            quality=None if counts is None else TurnCounts(**counts),
            untrained=tuple(int(index) for index in record.get("untrained", ())),
        )
    except KeyError as error:
        raise RowError(f"{where}: field {error.args[0]!r} is missing") from error
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, RowError) else RowError(f"{where}: {error}") from error
    if logprobs is not None and len(logprobs) != len(ids):
        raise RowError(f"{where}: {len(ids)} token_ids but {len(logprobs)} logprobs")
    return demote_prompt(row)


def _kinds_of(
    masks: Mapping[str, Sequence[bool]], length: int, roles: str | None, where: str
) -> tuple[TokenKind, ...]:
    for name, mask in masks.items():
        if len(mask) != length:
            raise RowError(f"{where}: {length} token_ids but {len(mask)} entries in {name}")
    kinds = [TokenKind.CONTEXT] * length
    for index in range(length):
        names = [name for name, mask in masks.items() if mask[index]]
        if len(names) > 1:
            raise RowError(
                f"{where}: token {index} is in {' and '.join(names)}; masks are disjoint"
            )
        if names:
            kinds[index] = MASKS[names[0]]
    if roles is None:
        return tuple(kinds)
    exact = unpack_roles(roles, where=where)
    masked = set(MASKS.values())
    if [k if k in masked else TokenKind.CONTEXT for k in exact] != kinds:
        raise RowError(f"{where}: roles and masks disagree")
    return exact


def _per_token(row: Row, targets: Sequence[int], weights: Sequence[float]) -> list[float]:
    values = [0.0] * len(row.ids)
    for target, weight in zip(targets, weights, strict=True):
        values[target + 1] = weight
    return values


# TrainingTrace


def to_trace(row: Row) -> dict[str, Any]:
    """The row as a TrainingTrace in JSON; one call per run of sampled tokens.

    Raises RowError where the row has no log-probs or no token before its first action: the contract
    has no place for either.
    """
    if row.logprobs is None:
        raise RowError(f"rollout {row.rollout}: a training trace needs the sampler's log-probs")
    runs = list(_action_runs(row.kinds))
    if runs and runs[0][0] == 0:
        raise RowError(f"rollout {row.rollout}: no prompt before its first action")
    turns = []
    for number, (start, stop) in enumerate(runs):
        is_last = number == len(runs) - 1
        own: dict[str, Any] = {"roles": pack_roles(row.kinds[:stop])}
        if is_last:
            own |= {
                "group": row.group,
                "reward": row.reward,
                "status": row.status.value,
                "weight_version": row.weight_version,
                "after_ids": list(row.ids[stop:]),
                "after_roles": pack_roles(row.kinds[stop:]),
            }
        turns.append(
            {
                "node_id": f"{row.rollout}/{number}",
                "prompt_token_ids": list(row.ids[:start]),
                "completion_token_ids": list(row.ids[start:stop]),
                # A rounding above 0 is refused there.
                "per_token_logps": [min(lp, 0.0) for lp in row.logprobs[start:stop]],
                "loss_mask": [0] * start + [1] * (stop - start),
                "metadata": {_OWN: {"rollout": row.rollout, **own}},
            }
        )
    return {"schema_version": 1, "turns": turns}


def from_trace(
    trace: Mapping[str, Any], *, rollout: str, group: str = "", reward: float | None = None
) -> list[Row]:
    """Rows of a TrainingTrace in JSON, ours or another's.

    Calls merge by prefix extension; where a prompt does not extend what came before, a row starts.
    `reward` is the environment's, which a trace does not carry; ours remembers it. Raises RowError.
    """
    turns = trace.get("turns")
    if not isinstance(turns, Sequence) or not turns:
        raise RowError(f"rollout {rollout}: a trace without turns")
    own = _own_part(turns[-1])
    builder = RowBuilder(
        rollout=str(own.get("rollout", rollout)),
        group=str(own.get("group", group or rollout)),
        weight_version=str(own.get("weight_version", "")),
    )
    for number, turn in enumerate(turns):
        where = f"rollout {rollout}, call {number}"
        try:
            prompt = [int(token) for token in turn["prompt_token_ids"]]
            sampled = [int(token) for token in turn["completion_token_ids"]]
            logps = [float(value) for value in turn["per_token_logps"]]
            mask = [int(bit) for bit in turn["loss_mask"]]
        except (KeyError, TypeError, ValueError) as error:
            raise RowError(f"{where}: {error!r}") from error
        if len(logps) != len(sampled) or len(mask) != len(prompt) + len(sampled):
            raise RowError(f"{where}: ids, log-probs and mask differ in length")
        roles = _own_part(turn).get("roles")
        kinds = (
            unpack_roles(roles, where=where)[: len(prompt)]
            if roles is not None
            else (TokenKind.CONTEXT,) * len(prompt)
        )
        if len(kinds) != len(prompt):
            raise RowError(f"{where}: {len(prompt)} prompt ids but {len(kinds)} roles")
        builder.add_turn(
            prompt_ids=prompt,
            prompt_kinds=kinds,
            action_ids=sampled,
            action_logprobs=logps,
            is_trained=[bool(bit) for bit in mask[len(prompt) :]],
        )
    if own.get("after_ids"):
        builder.add_observation(
            ids=[int(token) for token in own["after_ids"]],
            kinds=unpack_roles(str(own["after_roles"]), where=f"rollout {rollout}"),
        )
    score = own.get("reward", reward)
    return builder.rows(
        reward=None if score is None else float(score), status=RowStatus(own.get("status", "ok"))
    )


def _own_part(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    part = (turn.get("metadata") or {}).get(_OWN)
    return part if isinstance(part, Mapping) else {}


def _action_runs(kinds: Sequence[TokenKind]) -> Iterator[tuple[int, int]]:
    position = 0
    for kind, run in groupby(kinds):
        length = len(list(run))
        if kind is TokenKind.ACTION:
            yield position, position + length
        position += length


# Files


def write(rows: Sequence[Row], form: str, *, streams: Streams | None = None) -> str:
    """JSON lines in the form `rows` (ours), `masks` or `trace`."""
    per_row: Iterable[RowStream | None] = streams.rows if streams else [None] * len(rows)
    pairs = zip(rows, per_row, strict=True)
    match form:
        case "rows":
            records = [row_to_json(row) for row in rows]
        case "masks":
            records = [to_masks(row, stream) for row, stream in pairs]
        case "trace":
            records = [to_trace(row) for row in rows]
        case _:
            raise RowError(f"form {form!r} is not one of rows, masks, trace")
    return "".join(json.dumps(record) + "\n" for record in records)


def read(text: str, form: str) -> list[Row]:
    """Rows of such a text, ready to train: prompts demoted, shared tokens counted once."""
    if form == "rows":
        return read_rows(text)
    rows: list[Row] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise RowError(f"row {number}: {error}") from error
        if form == "masks":
            rows.append(from_masks(record, where=f"row {number}"))
        elif form == "trace":
            rows.extend(from_trace(record, rollout=f"row {number}"))
        else:
            raise RowError(f"form {form!r} is not one of rows, masks, trace")
    return count_once_by_prefix(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m training.exchange --from rows --to masks FILE`; the result on standard output."""
    parser = argparse.ArgumentParser(prog="python -m training.exchange")
    forms = ("rows", "masks", "trace")
    parser.add_argument("file", type=Path)
    parser.add_argument("--from", dest="source", choices=forms, default="rows")
    parser.add_argument("--to", dest="target", choices=forms, default="masks")
    options = parser.parse_args(argv)
    try:
        rows = read(options.file.read_text(encoding="utf-8"), options.source)
        sys.stdout.write(write(rows, options.target))
    except (OSError, RowError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
