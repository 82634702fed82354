"""The criterion kinds. To add one: copy a neighbour, and list it here."""

from __future__ import annotations

from collections.abc import Mapping

from rubrics.kinds import (
    contains,
    environment_reward,
    exact,
    forbidden_command,
    forbidden_tool,
    imported,
    json_path,
    json_schema,
    judge,
    judge_group,
    number,
    pattern_match,
    python,
    similarity,
    spending,
    state_file,
    state_query,
    steps,
    tool_called,
    tool_order,
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
        json_path.KIND,
        similarity.KIND,
        steps.KIND,
        spending.COST,
        spending.LATENCY,
        spending.TOKENS,
        tool_called.KIND,
        tool_order.KIND,
        forbidden_tool.KIND,
        forbidden_command.KIND,
        state_file.KIND,
        state_query.KIND,
        python.KIND,
        imported.KIND,
        judge.JUDGE,
        judge.PANEL,
        judge_group.KIND,
    )
}
