"""Writes each `NAME.txt` from `NAME.in`: everything that is needed, pinned as installed here.

`make lock`. The versions are those of the running environment, so what is locked is what was
tested. Pins carry no local part (`+cpu`): the builds of a version differ by machine. What has an
environment of its own is locked from there, and left alone where that is not installed.
"""

from __future__ import annotations

import sys
from importlib.metadata import Distribution, PackageNotFoundError, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = {
    "audit": HERE.parent / ".venv/audit",
    "bench": HERE.parent / ".venv/bench",
}


def requirements(source: Path) -> list[Requirement]:
    lines = (line.split("#")[0].strip() for line in source.read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line]


def installed(name: str, path: list[str]) -> Distribution:
    for found in distributions(name=name, path=path):
        return found
    raise PackageNotFoundError(name)


def closure(roots: list[Requirement], path: list[str]) -> dict[str, str]:
    """Name to version of the roots and all that they need on this machine."""
    pinned: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(root, extra) for root in roots for extra in ("", *root.extras)]
    while waiting:
        wanted, extra = waiting.pop()
        name = canonicalize_name(wanted.name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        found = installed(name, path)
        if not wanted.specifier.contains(found.version, prereleases=True):
            raise SystemExit(f"{wanted} is asked for, {found.version} is installed")
        pinned[name] = found.version.split("+")[0]
        for line in found.requires or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(needed, part) for part in ("", *needed.extras)]
    return pinned


def main() -> None:
    for source in sorted(HERE.glob("*.in")):
        if source.stem == "bench-training":
            continue  # lies over the product's packages; its own few are pinned by hand
        path = sys.path
        if source.stem in ENVIRONMENTS:
            path = [str(p) for p in ENVIRONMENTS[source.stem].glob("lib/python*/site-packages")]
            if not path:
                print(f"{source.stem}: not installed here, left as it is")
                continue
        pinned = closure(requirements(source), path)
        lines = [f"{name}=={version}" for name, version in sorted(pinned.items())]
        target = source.with_suffix(".txt")
        header = f"# Made from {source.name} by `make lock`; do not edit."
        target.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
        print(f"{target.name}: {len(lines)} packages")


if __name__ == "__main__":
    main()
