"""Documents of other formats as events from outside, and back again without loss. Pure.

Each becomes a rollout: an event for the document (`trajectory`, with all that is not a step), and
one for each message, tool call, result or model call, so that the trace page, search and exports
know its parts. Nothing is dropped or put twice: from the events the document is made again, value
for value. Numbers stay as they were written (`orchestrator.traces.exact`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.traces.exact import Number

ATIF, TRAINING_TRACE = "atif", "training_trace"
HEAD = "trajectory"
"""Kind of the event that stands for the document."""
_SOURCES = {"agent": "model_call", "user": "user", "system": "system"}
_KINDS = {kind: source for source, kind in _SOURCES.items()}
Event = dict[str, Any]


class NotReadable(ValueError):
    """A document that is not what it says; names the place."""


# ATIF


def is_atif(value: Any) -> bool:
    return isinstance(value, dict) and str(value.get("schema_version", "")).startswith("ATIF-")


def atif_name(document: Mapping[str, Any]) -> str:
    """The producer's name of the trajectory; empty if it has none."""
    for key in ("trajectory_id", "session_id"):
        if isinstance(name := document.get(key), str) and name:
            return name
    return ""


def from_atif(document: Mapping[str, Any], *, rollout: str, prefix: str = HEAD) -> list[Event]:
    """Raises NotReadable. Embedded trajectories of subagents stay in the document's own event."""
    steps = document.get("steps")
    if not isinstance(steps, list) or not steps:
        raise NotReadable("steps: a trajectory has at least one step")
    agent = document.get("agent")
    name = agent.get("name") if isinstance(agent, dict) else None
    rest = {key: value for key, value in document.items() if key != "steps"}
    events: list[Event] = [
        {"id": prefix, "kind": HEAD, "name": name or "", "data": {"format": ATIF, "head": rest}}
    ]
    for index, step in enumerate(steps):
        events += _of_step(step, f"{prefix}/{index + 1}", f"steps[{index}]")
    return _numbered(events, rollout)


def _of_step(step: Any, place: str, where: str) -> Iterator[Event]:
    if not isinstance(step, dict):
        raise NotReadable(f"{where}: a step is an object")
    kind = _SOURCES.get(str(step.get("source")))
    if kind is None:
        raise NotReadable(f"{where}.source: accepts system, user or agent")
    calls = _objects(step, "tool_calls", f"{where}.tool_calls")
    observation = step.get("observation")
    if observation is not None and not isinstance(observation, dict):
        raise NotReadable(f"{where}.observation: an observation is an object")
    results = _objects(observation or {}, "results", f"{where}.observation.results")
    rest = {k: v for k, v in step.items() if k not in ("source", "message", "timestamp")}
    if calls:
        del rest["tool_calls"]
    if results:
        assert observation is not None
        rest["observation"] = {k: v for k, v in observation.items() if k != "results"}
    yield {"id": place, "kind": kind, **_moved(step, message="content", timestamp="started_at")} | (
        {"data": rest} if rest else {}
    )
    by_call: dict[str, str] = {}
    for index, call in enumerate(calls):
        own = f"{place}/call-{index + 1}"
        by_call.setdefault(str(call.get("tool_call_id")), own)
        yield _part(call, own, place, "tool_call", function_name="name", arguments="content")
    for index, result in enumerate(results):
        parent = by_call.get(str(result.get("source_call_id")), place)
        own = f"{place}/result-{index + 1}"
        yield _part(result, own, parent, "observation", content="content")


def to_atif_again(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The document that `from_atif` read; events in their order."""
    head = events[0]
    document = dict(_data(head)["head"])
    steps: list[dict[str, Any]] = []
    for event in events[1:]:
        kind = event["kind"]
        if kind in _KINDS:
            data = _data(event)
            if isinstance(data.get("observation"), dict):
                data["observation"] = dict(data["observation"])
            back = _back(event, content="message", started_at="timestamp")
            steps.append({"source": _KINDS[kind], **back, **data})
        elif kind == "tool_call":
            call = {**_back(event, name="function_name", content="arguments"), **_data(event)}
            steps[-1].setdefault("tool_calls", []).append(call)
        else:
            observation = steps[-1]["observation"]
            result = {**_back(event, content="content"), **_data(event)}
            observation.setdefault("results", []).append(result)
    return {**document, "steps": steps}


# TrainingTrace of OpenEnv


def is_training_trace(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("turns"), list)


def from_training_trace(
    trace: Mapping[str, Any], *, rollout: str, prefix: str = HEAD, first: int = 0
) -> list[Event]:
    """One event per model call. Raises NotReadable."""
    turns = trace["turns"]
    if not turns:
        raise NotReadable("turns: a training trace has at least one model call")
    rest = {key: value for key, value in trace.items() if key != "turns"}
    events: list[Event] = [
        {"id": prefix, "kind": HEAD, "data": {"format": TRAINING_TRACE, "head": rest}}
    ]
    for index, turn in enumerate(turns):
        if not isinstance(turn, dict):
            raise NotReadable(f"turns[{index}]: a model call is an object")
        own = f"{prefix}/{index + 1}"
        events.append(_part(turn, own, prefix, "model_call", node_id="name"))
    return _numbered(events, rollout, first)


def to_training_traces_again(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The traces that `from_training_trace` read into this rollout."""
    traces: list[dict[str, Any]] = []
    for event in events:
        if event["kind"] == HEAD:
            traces.append({**_data(event)["head"], "turns": []})
        else:
            traces[-1]["turns"].append({**_back(event, name="node_id"), **_data(event)})
    return traces


# Our own download


def is_own_line(value: Any) -> bool:
    """A line of a trace's download as JSON lines."""
    wanted = ("rollout", "seq", "kind", "at", "payload")
    return isinstance(value, dict) and "id" not in value and all(name in value for name in wanted)


def from_own_line(record: Mapping[str, Any]) -> Event:
    rollout, seq = record["rollout"], record["seq"]
    return {
        "rollout": f"rollout {rollout.token}" if isinstance(rollout, Number) else rollout,
        "id": seq.token if isinstance(seq, Number) else seq,
        "seq": seq,
        "kind": record["kind"],
        "started_at": record["at"],
        "content": record["payload"],
    }


# Parts


def format_of(events: Iterable[Mapping[str, Any]]) -> str:
    """Which format these events were read from; empty for events that were sent as such."""
    for event in events:
        data = event.get("data")
        if event.get("kind") == HEAD and isinstance(data, dict) and set(data) == {"format", "head"}:
            return str(data["format"])
        return ""
    return ""


def _objects(owner: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    found = owner.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise NotReadable(f"{where}: accepts a list of objects")
    return found


def _part(source: Mapping[str, Any], own: str, parent: str, kind: str, **names: str) -> Event:
    rest = {key: value for key, value in source.items() if key not in names}
    made = {"id": own, "parent": parent, "kind": kind, **_moved(source, **names)}
    return {**made, "data": rest} if rest else made


def _moved(source: Mapping[str, Any], **names: str) -> dict[str, Any]:
    return {new: source[old] for old, new in names.items() if old in source}


_back = _moved


def _data(event: Mapping[str, Any]) -> dict[str, Any]:
    return dict(event.get("data") or {})


def _numbered(events: Iterable[Event], rollout: str, first: int = 0) -> list[Event]:
    return [
        {"rollout": rollout, **event, "seq": Number(str(number))}
        for number, event in enumerate(events, start=first)
    ]
