"""Forms of a try-out with what was typed and what was wrong with it, ready for a template. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.tryouts.forms import RAW, VARIANT, ActionForm, SchemaField

MOST_RADIOS = 4
"""More variants than this are chosen from a list."""


@dataclass(frozen=True)
class ShownField:
    field: SchemaField
    name: str
    value: str
    error: str


@dataclass(frozen=True)
class ShownVariant:
    key: str
    label: str
    help: str
    fields: Sequence[ShownField]
    is_chosen: bool


@dataclass(frozen=True)
class ShownForm:
    variants: Sequence[ShownVariant]
    raw: str
    raw_error: str
    is_raw: bool
    """The raw JSON is what will be sent."""
    error: str
    """Of the whole."""

    @property
    def has_choice(self) -> bool:
        return len(self.variants) > 1

    @property
    def is_long(self) -> bool:
        return len(self.variants) > MOST_RADIOS


def shown_form(
    form: ActionForm, data: Mapping[str, str] | None = None, errors: Mapping[str, str] | None = None
) -> ShownForm:
    """`data`: what was sent and is shown again; None for a fresh form."""
    errors = errors or {}
    chosen = data.get(VARIANT, "") if data else ""
    keys = [variant.key for variant in form.variants]
    if chosen not in (*keys, RAW):
        chosen = keys[0] if keys else RAW
    return ShownForm(
        variants=[
            ShownVariant(
                key=variant.key,
                label=variant.label,
                help=variant.help,
                is_chosen=variant.key == chosen,
                fields=[
                    _shown(field, f"{variant.key}.{field.name}", data, errors)
                    for field in variant.fields
                ],
            )
            for variant in form.variants
        ],
        raw=(data or {}).get(RAW, ""),
        raw_error=errors.get(RAW, ""),
        is_raw=chosen == RAW,
        error=errors.get(VARIANT, ""),
    )


def _shown(
    field: SchemaField, name: str, data: Mapping[str, str] | None, errors: Mapping[str, str]
) -> ShownField:
    value = field.initial if data is None else data.get(name, "")
    return ShownField(field, name, value, errors.get(name, ""))


@dataclass(frozen=True)
class ResetRead:
    params: dict[str, Any]
    errors: Mapping[str, str]


SEED, EXTRA = "seed", "extra"


def read_reset(of_task: Mapping[str, Any], data: Mapping[str, str]) -> ResetRead:
    """Parameters of a reset: the task's, then the seed, then whatever else was typed as JSON."""
    params, errors = dict(of_task), {}
    seed = data.get(SEED, "").strip()
    if seed:
        # OpenEnv refuses negative seeds.
        if seed.isdecimal() and len(seed) < 11:
            params[SEED] = int(seed)
        else:
            errors[SEED] = "a whole number from 0 is needed"
    text = data.get(EXTRA, "").strip()
    if text:
        try:
            extra = json.loads(text)
        except (ValueError, RecursionError) as exc:
            errors[EXTRA] = f"not JSON: {exc}"
        else:
            if isinstance(extra, dict):
                params.update(extra)
            else:
                errors[EXTRA] = 'a JSON object is needed, for instance {"level": 2}'
    return ResetRead(params, errors)


def initial_seed(reset: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """The author's seed, as a run takes it, or 0: a play by hand should be repeatable."""
    return str(reset.get(SEED, seeds[0] if seeds else 0))
