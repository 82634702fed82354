"""Writes each `NAME.txt` from `NAME.in`: everything that is needed, pinned as installed here.

`make lock`. The versions are those of the running environment, so what is locked is what was
tested. Pins carry no local part (`+cpu`): the builds of a version differ by machine.
"""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent


def requirements(source: Path) -> list[Requirement]:
    lines = (line.split("#")[0].strip() for line in source.read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line]


def closure(roots: list[Requirement]) -> dict[str, str]:
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
        found = distribution(name)
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
        lines = [
            f"{name}=={version}" for name, version in sorted(closure(requirements(source)).items())
        ]
        target = source.with_suffix(".txt")
        header = f"# Made from {source.name} by `make lock`; do not edit."
        target.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
        print(f"{target.name}: {len(lines)} packages")


if __name__ == "__main__":
    main()
