r"""Takes out of the Kubernetes API's JSON schema what the manifests of `deploy/` use.

    python -m scripts.kubernetes_schema DEFINITIONS tests/deploy/schemas/kubernetes-1.31.json.xz \
        KIND…

DEFINITIONS is a strict `_definitions.json` of one version, as kubernetes-validate carries it; each
KIND is written `apps/v1:Deployment`. Descriptions are left out.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from pathlib import Path
from typing import Any

_REFERENCE = re.compile(r'"#/\$defs/([^"]+)"')


def main(arguments: list[str]) -> int:
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    source, target, *kinds = arguments
    text = Path(source).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text.replace("_definitions.json#/", "#/"))["$defs"]
    roots = {
        f"{'/'.join(filter(None, (of['group'], of['version'])))}:{of['kind']}": name
        for name, schema in found.items()
        for of in schema.get("x-kubernetes-group-version-kind", [])
    }
    kept: dict[str, Any] = {}
    waiting = [roots[kind] for kind in kinds]
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept[name] = _bare(found[name])
            waiting += _REFERENCE.findall(json.dumps(kept[name]))
    text = json.dumps(
        {"kinds": {kind: roots[kind] for kind in kinds}, "$defs": kept}, sort_keys=True
    )
    Path(target).write_bytes(lzma.compress(text.encode(), preset=9))
    print(f"{len(kept)} definitions")
    return 0


def _bare(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: _bare(value)
            for key, value in schema.items()
            # A property may be called `description`, too.
            if not (key == "description" and isinstance(value, str))
            and not key.startswith("x-kubernetes-")
        }
    return [_bare(value) for value in schema] if isinstance(schema, list) else schema


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
