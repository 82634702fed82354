"""`make sbom`: a bill of materials in CycloneDX JSON, of the product as it is installed.

The pins of the product's requirements, by the reference tool for them, and with these the files
from elsewhere that lie in `static/vendor`. The same input gives the same file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ("base", "env", "ml")
VENDORED = ROOT / "static/vendor/vendor.toml"


def pins(root: Path = ROOT) -> str:
    """All pins once, sorted."""
    lines: set[str] = set()
    for name in REQUIREMENTS:
        text = (root / f"requirements/{name}.txt").read_text(encoding="utf-8")
        lines |= {line.split("#")[0].strip() for line in text.splitlines()} - {""}
    return "\n".join(sorted(lines)) + "\n"


def vendored(text: str) -> list[dict[str, Any]]:
    """Components of `vendor.toml`: one for each package, with the hashes of its files."""
    found: dict[str, dict[str, Any]] = {}
    for file in tomllib.loads(text)["file"]:
        purl = f"pkg:npm/{file['package'].replace('@', '%40', 1)}@{file['version']}"
        component = found.setdefault(
            purl,
            {
                "type": "library",
                "bom-ref": purl,
                "name": file["package"],
                "version": file["version"],
                "purl": purl,
                "licenses": [{"expression": file["licence"]}],
                "components": [],
            },
        )
        component["components"].append(
            {
                "type": "file",
                "bom-ref": f"{purl}#{file['path']}",
                "name": file["path"],
                "hashes": [{"alg": "SHA-256", "content": file["sha256"]}],
            }
        )
    return sorted(found.values(), key=lambda component: component["purl"])


def main() -> None:
    """Usage: sbom.py CYCLONEDX_PY OUT."""
    tool, out = sys.argv[1:]
    made = subprocess.run(
        [tool, "requirements", "--of", "JSON", "--output-reproducible", "-"],
        input=pins(),
        capture_output=True,
        text=True,
        check=True,
    )
    bill = json.loads(made.stdout)
    bill["components"] += vendored(VENDORED.read_text(encoding="utf-8"))
    Path(out).write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{out}: {len(bill['components'])} components")


if __name__ == "__main__":
    main()
