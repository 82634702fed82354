"""An author's Python functions as tools.

The source is executed anew for each episode, so that nothing which one episode leaves in a module
variable is seen by another. Public functions are tools: arguments are checked and converted by
their types, docstrings are what agents read. A parameter `state` gets the episode's state and is
hidden from agents.

A call works on a copy of the state, which takes its place when the function has returned: one that
raises, or that is given up after its time, changes nothing.
"""

from __future__ import annotations

import copy
import ctypes
import inspect
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo

from orchestrator.environments.tools.outcome import Outcome, ToolInfo, failed, shown
from orchestrator.environments.tools.tasks import GRADE, STATE

END_GRACE_S = 1.0
# What is not a number is refused, not turned into null.
_JSON: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))


class FunctionTools:
    """The tools of one episode."""

    def __init__(self, source: str, state: Mapping[str, Any], timeout_s: float) -> None:
        self.state: dict[str, Any] = copy.deepcopy(dict(state))
        self._timeout_s = timeout_s
        namespace = executed(source, "functions.py")
        self._functions = {
            name: _Function(name, value)
            for name, value in namespace.items()
            if inspect.isfunction(value)
            and value.__module__ == namespace["__name__"]
            and not name.startswith("_")
            and name != GRADE
        }
        self.grade = namespace.get(GRADE)

    def tools(self) -> list[ToolInfo]:
        return [function.info for function in self._functions.values()]

    def call(self, name: str, arguments: Mapping[str, Any]) -> Outcome:
        """The result or the failure; never raises for what the function does."""
        function = self._functions.get(name)
        if function is None:
            return failed("tool_not_found", f"there is no tool {name!r:.80}")
        try:
            values = function.checked(arguments)
        except ValidationError as exc:
            return failed("invalid_args", _first_error(exc))
        work = copy.deepcopy(self.state)
        try:
            result = limited(lambda: function.run(values, work), self._timeout_s)
            text = shown(result)
        except TimeoutError:
            return failed("timeout", f"{name} took longer than {self._timeout_s:g} s")
        except Exception as exc:  # boundary: the author's code; told to the agent
            return failed("execution_error", f"{type(exc).__name__}: {exc}"[:2000])
        self.state = work
        return text

    def close(self) -> None:
        """Nothing is held."""


class _Function:
    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._function = function
        parameters = inspect.signature(function, eval_str=True).parameters
        self._takes_state = STATE in parameters
        fields: dict[str, Any] = {}
        for parameter in parameters.values():
            if parameter.name != STATE:
                has_default = parameter.default is not inspect.Parameter.empty
                default = FieldInfo(default=parameter.default) if has_default else FieldInfo()
                fields[parameter.name] = (parameter.annotation, default)
        # Strictness would refuse "3" for an int, which models write.
        self._model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        schema = self._model.model_json_schema()
        schema.pop("title", None)
        for about in schema.get("properties", {}).values():
            about.pop("title", None)
        self.info = ToolInfo(name, inspect.getdoc(function) or "", schema)

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """`ValidationError` names the argument."""
        model = self._model.model_validate(dict(arguments))
        return {name: getattr(model, name) for name in type(model).model_fields}

    def run(self, values: Mapping[str, Any], state: dict[str, Any]) -> Any:
        known = {STATE: state} if self._takes_state else {}
        result = self._function(**values, **known)
        return _JSON.dump_python(result, mode="json")


def executed(source: str, name: str) -> dict[str, Any]:
    """The names that the source defines, in a module of its own."""
    namespace: dict[str, Any] = {"__name__": f"author_{name.partition('.')[0]}"}
    exec(compile(source, name, "exec"), namespace)  # noqa: S102 - the author's, in the sandbox
    return namespace


def limited(work: Callable[[], Any], timeout_s: float) -> Any:
    """What `work` returns or raises; `TimeoutError` after the limit.

    It runs in a thread of its own. One that goes on after the limit gets an exception, which ends
    loops; it is not waited for beyond a second.
    """
    box: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            box.append((True, work()))
        except BaseException as exc:  # boundary: handed to the caller
            box.append((False, exc))

    thread = threading.Thread(target=run, name="tool", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        ident = ctypes.c_ulong(thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
        thread.join(END_GRACE_S)
        raise TimeoutError
    is_result, value = box[0]
    if is_result:
        return value
    if isinstance(value, Exception):
        raise value
    raise RuntimeError(f"{type(value).__name__}: {value}")  # sys.exit() in a function


def _first_error(exc: ValidationError) -> str:
    parts = []
    for error in exc.errors(include_url=False)[:3]:
        where = ".".join(str(part) for part in error["loc"]) or "arguments"
        parts.append(f"{where}: {error['msg']}")
    return json.dumps("; ".join(parts), ensure_ascii=False)[1:-1]
