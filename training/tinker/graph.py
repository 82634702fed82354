"""A client's traced loss, rebuilt from its graph with what this list allows and nothing else.

The graph is data of a client: names of functions, methods and arguments. It may compute with
tensors of one datum and cannot reach anything beside them: no attribute, no module, no name that is
not written here. Format 1 of the SDK's `CustomLossGraph`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from training.errors import ConfigurationError


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ELEMENTWISE = _words(
    "abs exp expm1 log log1p sigmoid tanh sqrt square neg sign relu isnan isfinite isinf "
    "nan_to_num minimum maximum where clamp add sub mul div pow logical_and logical_or "
    "logical_not logaddexp"
)
_REDUCING = _words("sum mean max min amax amin cumsum logsumexp")
_ARITHMETIC = _words(
    "add sub mul truediv floordiv pow neg pos abs lt le gt ge eq ne and_ or_ invert getitem"
)
_METHODS = frozenset(
    {
        *_ELEMENTWISE,
        *_REDUCING,
        *_words("detach float double long bool to clone numel dim size masked_fill"),
    }
) - {"where"}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"torch.{name}": getattr(torch, name) for name in (*_ELEMENTWISE, *_REDUCING)},
    **{f"torch.{name}": getattr(torch, name) for name in ("zeros_like", "ones_like", "full_like")},
    "torch.nn.functional.relu": torch.nn.functional.relu,
    "torch.nn.functional.logsigmoid": torch.nn.functional.logsigmoid,
    "torch.nn.functional.softplus": torch.nn.functional.softplus,
    **{f"operator.{name}": getattr(operator, name) for name in _ARITHMETIC},
    **{f"math.{name}": getattr(math, name) for name in ("exp", "log", "sqrt")},
}
DTYPES = {name: getattr(torch, name) for name in ("float32", "float64", "int64", "bool")}
MOST_NODES = 500


@dataclass(frozen=True)
class TracedLoss:
    """A loss of one datum: `inputs` by name, log-probabilities first."""

    name: str
    inputs: tuple[str, ...]
    nodes: tuple[Mapping[str, Any], ...]

    def __call__(self, logprobs: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        """The loss. Raises ConfigurationError where an input is missing or no scalar comes out."""
        values: dict[str, Any] = {}
        for node in self.nodes:
            op, target = node["op"], str(node["target"])
            if op == "placeholder":
                values[node["name"]] = logprobs if target == "logprobs" else _given(given, target)
                continue
            args = [_decoded(arg, values) for arg in node.get("args", ())]
            kwargs = {k: _decoded(arg, values) for k, arg in node.get("kwargs", {}).items()}
            if op == "call_function":
                values[node["name"]] = FUNCTIONS[target](*args, **kwargs)
            elif op == "call_method":
                values[node["name"]] = getattr(args[0], target)(*args[1:], **kwargs)
            else:
                loss = args[0][0]
                if not isinstance(loss, Tensor) or loss.ndim != 0:
                    raise ConfigurationError(f"loss {self.name}: it gives no scalar")
                return loss
        raise ConfigurationError(f"loss {self.name}: the graph has no output")


def read_loss(name: str, inputs: Sequence[Mapping[str, Any]], graph: Any) -> TracedLoss:
    """Checks a graph. Raises ConfigurationError that names what is not allowed."""
    if graph.get("format", 1) != 1:
        raise ConfigurationError(f"loss {name}: format {graph['format']} is not 1")
    nodes = graph.get("nodes", [])
    if len(nodes) > MOST_NODES:
        raise ConfigurationError(f"loss {name}: {len(nodes)} nodes are more than {MOST_NODES}")
    for node in nodes:
        op, target = node["op"], str(node["target"])
        is_allowed = {
            "placeholder": True,
            "call_function": target in FUNCTIONS,
            "call_method": target in _METHODS,
            "output": True,
        }.get(op, False)
        if not is_allowed:
            raise ConfigurationError(f"loss {name}: {op} {target!r} is not run here")
    return TracedLoss(name, tuple(str(each["name"]) for each in inputs), tuple(nodes))


def _given(given: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in given:
        raise ConfigurationError(f"loss_fn_inputs: {name} is missing")
    return given[name]


def _decoded(arg: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(arg, list):
        return [_decoded(each, values) for each in arg]
    if not isinstance(arg, Mapping):
        return arg
    ((kind, value),) = arg.items()
    match kind:
        case "ref":
            return values[value]
        case "tuple":
            return tuple(_decoded(each, values) for each in value)
        case "dict":
            return {key: _decoded(each, values) for key, each in value.items()}
        case "slice":
            return slice(*(_decoded(each, values) for each in value))
        case "ellipsis":
            return ...
        case "float":
            return float(value)
        case "dtype":
            if value in DTYPES:
                return DTYPES[value]
    raise ConfigurationError(f"argument {kind}: {value!r} is not taken here")
