"""The criterion kinds. To add one: copy a neighbour, and list it here."""

from __future__ import annotations

from collections.abc import Mapping

from rubrics.kinds import (
    contains,
    environment_reward,
    exact,
    forbidden_command,
    json_schema,
    number,
    pattern_match,
    steps,
)
from rubrics.kinds.base import Kind

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        environment_reward.KIND,
        exact.KIND,
        contains.KIND,
        pattern_match.KIND,
        number.KIND,
        json_schema.KIND,
        steps.KIND,
        forbidden_command.KIND,
    )
}
