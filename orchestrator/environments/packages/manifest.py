"""What `openenv.yaml` says of an environment, as far as it matters here.

Most manifests have name and app alone. The `validation` block declares the range of rewards, the
time of an episode and the network; the last is a wish, which nothing here grants by itself.
What is unknown is ignored; what is known and unusable is told with its field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orchestrator.environments.errors import SourceError

FILE = "openenv.yaml"
MAX_BYTES = 256 * 1024
_APP = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.\w+)*")


@dataclass(frozen=True)
class Manifest:
    name: str = ""
    app: str = ""
    """`module:attribute`, or empty."""
    summary: str = ""
    reward_range: tuple[float, float] | None = None
    episode_timeout_s: float | None = None
    network: str = ""
    """`public`, `no-network`, `allowlist`, or empty."""
    allowed_hosts: tuple[str, ...] = ()
    memory_mb: int | None = None

    def episode_settings(self) -> dict[str, Any]:
        """What it declares in the words of `EnvironmentVersion.settings`."""
        return {"reward_range": list(self.reward_range)} if self.reward_range else {}

    def declared(self) -> dict[str, Any]:
        """What it asks for, for people to compare with what it gets."""
        asked = {
            "episode_timeout_s": self.episode_timeout_s,
            "memory_mb": self.memory_mb,
            "network": self.network,
            "allowed_hosts": list(self.allowed_hosts),
        }
        return {name: value for name, value in asked.items() if value}


def is_app(text: str) -> bool:
    """Whether it reads like `module:attribute`."""
    return _APP.fullmatch(text) is not None


def read_manifest(folder: Path) -> Manifest | None:
    """None where there is no manifest. `SourceError` for one that cannot be used."""
    path = folder / FILE
    if not path.is_file():
        return None
    if path.stat().st_size > MAX_BYTES:
        raise SourceError(f"{FILE}: above {MAX_BYTES} bytes")
    try:
        return parse_manifest(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as exc:
        raise SourceError(f"{FILE}: not UTF-8") from exc


def parse_manifest(text: str) -> Manifest:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        problem = " ".join(str(exc).split())
        raise SourceError(f"{FILE}: not YAML: {problem[:300]}") from exc
    except RecursionError as exc:
        raise SourceError(f"{FILE}: nested too deeply") from exc
    if not isinstance(content, Mapping):
        raise SourceError(f"{FILE}: a mapping with name and app was expected")
    app = content.get("app") or ""
    if not isinstance(app, str) or (app and not is_app(app)):
        raise SourceError(f"{FILE}: app: {app!r:.80} is not module:attribute")
    declared = _mapping(content, "validation")
    network = _mapping(declared, "network", "validation.")
    resources = _mapping(declared, "resources", "validation.")
    return Manifest(
        name=str(content.get("name") or ""),
        app=app,
        summary=str(content.get("description") or "")[:1000],
        reward_range=_range(_mapping(declared, "reward", "validation.").get("range")),
        episode_timeout_s=_number(resources, "episode_timeout_s"),
        network=str(network.get("mode") or ""),
        allowed_hosts=_hosts(network.get("allowed_hosts")),
        memory_mb=None if (mb := _number(resources, "memory_mb")) is None else math.ceil(mb),
    )


def _mapping(content: Mapping[Any, Any], name: str, above: str = "") -> Mapping[Any, Any]:
    value = content.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SourceError(f"{FILE}: {above}{name}: a mapping was expected")
    return value


def _number(content: Mapping[Any, Any], name: str) -> float | None:
    value = content.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise SourceError(f"{FILE}: validation.resources.{name}: a positive number was expected")
    return float(value)


def _range(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    if (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(n, int | float) and not isinstance(n, bool) for n in value)
        and math.isfinite(value[0])
        and math.isfinite(value[1])
        and value[0] <= value[1]
    ):
        return float(value[0]), float(value[1])
    raise SourceError(f"{FILE}: validation.reward.range: [lowest, highest] was expected")


def _hosts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, list) and all(isinstance(host, str) for host in value):
        return tuple(value)
    raise SourceError(f"{FILE}: validation.network.allowed_hosts: a list of names was expected")
