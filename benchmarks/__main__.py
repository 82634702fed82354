"""`python -m benchmarks NAME…`: runs the named benchmarks, all of them without a name."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks

_NOT_BENCHMARKS = {"__main__", "figures", "live_writer", "stack"}


def names() -> list[str]:
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in found if name not in _NOT_BENCHMARKS)


def main(wanted: list[str]) -> int:
    if unknown := set(wanted) - set(names()):
        print(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
        return 2
    is_missed = False
    for name in wanted or names():
        for figure in importlib.import_module(f"benchmarks.{name}").run():
            print(figure.line(), flush=True)
            is_missed |= not figure.ok
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
