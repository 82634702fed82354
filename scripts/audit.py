"""`make audit`: are there known weaknesses in what we pin?

Exit 1 with their names if there are. Advisories come from the package index; where that has none to
give (a mirror), nothing was audited, which is said and is no success: exit 2, unless CI tells with
`AUDIT_MAY_BE_OFFLINE=1` that it knows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any

from scripts.sbom import pins

TIMEOUT_S = 300


@dataclass
class Found:
    audited: int = 0
    unknown: int = 0
    """Packages of which the index knows nothing."""
    weak: list[str] = field(default_factory=list)


def read(report: dict[str, Any]) -> Found:
    """What pip-audit's JSON says."""
    found = Found()
    for package in report["dependencies"]:
        if "skip_reason" in package:
            found.unknown += 1
            continue
        found.audited += 1
        for weakness in package["vulns"]:
            fixed = ", ".join(weakness["fix_versions"]) or "no version yet"
            found.weak.append(
                f"{package['name']} {package['version']}: {weakness['id']}, mended in {fixed}"
            )
    return found


def verdict(found: Found, *, may_be_offline: bool) -> tuple[int, str]:
    """Exit code and words."""
    if found.weak:
        return 1, "\n".join(found.weak)
    if not found.audited:
        words = "no advisory could be read from the package index: nothing was audited"
        return (0 if may_be_offline else 2), words
    rest = f"; {found.unknown} are not known to the index" if found.unknown else ""
    return 0, f"{found.audited} packages, no known weakness{rest}"


def main() -> None:
    """Usage: audit.py PIP_AUDIT."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(pins())
        file.flush()
        made = subprocess.run(
            [sys.argv[1], "-r", file.name, "--no-deps", "--disable-pip", "--format", "json"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    try:
        found = read(json.loads(made.stdout))
    except ValueError:
        print(made.stderr.strip()[-2000:], file=sys.stderr)
        found = Found()
    code, words = verdict(found, may_be_offline=bool(os.environ.get("AUDIT_MAY_BE_OFFLINE")))
    print(words)
    sys.exit(code)


if __name__ == "__main__":
    main()
