"""One text for one value: YAML that reads back as what was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def yaml_text(values: Mapping[str, Any]) -> str:
    """YAML in the order of the fields, with letters of all scripts where that is safe.

    PyYAML writes some characters (for instance U+0085) plainly and then reads them as line ends.
    Such values are written in ASCII with escapes.
    """
    readable = _dump(values, allow_unicode=True)
    if yaml.safe_load(readable) == values:
        return readable
    return _dump(values, allow_unicode=False)


def _dump(values: Mapping[str, Any], *, allow_unicode: bool) -> str:
    text: str = yaml.safe_dump(
        dict(values), sort_keys=False, allow_unicode=allow_unicode, width=1_000_000
    )
    return text
