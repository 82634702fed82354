"""tools.json: what the model is told of the environment's tools and of their parameters.

    [{"name": "search", "description": "Finds invoices.",
      "parameters": {"properties": {"query": {"description": "Words of the subject."}}}}]

Only descriptions count: the environment says which tools and parameters there are, and what is said
of others is not told to anybody. A tool may have any further fields; they are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.canonical import read_json
from optimizer.errors import HarnessInvalid

TOOLS = "tools.json"
Tool = Mapping[str, Any]


def parse_tools(text: str) -> tuple[Tool, ...]:
    """The tools of the file; none for an empty one. Raises HarnessInvalid."""
    if not text.strip():
        return ()
    try:
        tools = read_json(text)
    except ValueError as error:
        raise HarnessInvalid(f"{TOOLS}: not JSON: {error}") from error
    if not isinstance(tools, list) or not all(
        isinstance(tool, dict)
        and isinstance(tool.get("name"), str)
        and tool["name"].strip()
        and isinstance(tool.get("description", ""), str)
        for tool in tools
    ):
        raise HarnessInvalid(f"{TOOLS}: accepts a list of objects with name and description")
    names = [tool["name"] for tool in tools]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise HarnessInvalid(f"{TOOLS}: name used twice: {', '.join(repeated)}")
    for tool in tools:
        _check_parameters(tool)
    return tuple(tools)


def tools_text(tools: Sequence[Tool]) -> str:
    return json.dumps(list(tools), ensure_ascii=False, indent=1) + "\n"


def parameters_of(tool: Tool) -> dict[str, str]:
    """Parameter -> its description; empty where it has none."""
    properties = tool.get("parameters", {}).get("properties", {})
    return {name: schema.get("description", "") for name, schema in properties.items()}


def split_anchor(anchor: str, names: Sequence[str]) -> tuple[str, str]:
    """Tool and parameter in `tool` or `tool.parameter`; a known name may itself have dots in it."""
    for name in sorted(names, key=len, reverse=True):
        if anchor == name:
            return name, ""
        if anchor.startswith(f"{name}."):
            return name, anchor.removeprefix(f"{name}.")
    tool, _, parameter = anchor.partition(".")
    return tool, parameter


def described(tools: Sequence[Tool], anchor: str, description: str) -> tuple[Tool, ...]:
    """The tools with a new description of the tool or parameter at the anchor.

    What the file did not speak of so far is added: the environment's own description stands until
    somebody writes a better one.
    """
    changed = [json.loads(json.dumps(tool)) for tool in tools]
    name, parameter = split_anchor(anchor, [tool["name"] for tool in changed])
    found = next((tool for tool in changed if tool["name"] == name), None)
    if found is None:
        found = {"name": name}
        changed.append(found)
    if parameter:
        properties = found.setdefault("parameters", {}).setdefault("properties", {})
        found = properties.setdefault(parameter, {})
    found["description"] = description
    return tuple(changed)


def undescribed(tools: Sequence[Tool], anchor: str) -> tuple[Tool, ...]:
    """The tools without the description at the anchor; the environment's own counts again."""
    changed = [json.loads(json.dumps(tool)) for tool in tools]
    name, parameter = split_anchor(anchor, [tool["name"] for tool in changed])
    for tool in changed:
        if tool["name"] != name:
            continue
        if parameter:
            properties = tool.get("parameters", {}).get("properties", {})
            properties.get(parameter, {}).pop("description", None)
            if properties.get(parameter) == {}:
                del properties[parameter]
            if tool.get("parameters") == {"properties": {}}:
                del tool["parameters"]
        else:
            tool.pop("description", None)
    return tuple(tool for tool in changed if tool != {"name": name})


def _check_parameters(tool: Tool) -> None:
    where = f"{TOOLS}: {tool['name']}"
    parameters = tool.get("parameters", {})
    properties = parameters.get("properties", {}) if isinstance(parameters, dict) else None
    if not isinstance(properties, dict) or not all(
        isinstance(schema, dict) for schema in properties.values()
    ):
        raise HarnessInvalid(f"{where}: parameters accepts a JSON schema with properties")
    for name, schema in properties.items():
        if not isinstance(schema.get("description", ""), str):
            raise HarnessInvalid(f"{where}.{name}: description accepts text")
