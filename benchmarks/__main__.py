"""`python -m benchmarks NAME…`: runs the named benchmarks, all of them without a name."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import benchmarks

_NOT_BENCHMARKS = {
    *("__main__", "figures", "live_writer", "rollouts_client", "rollouts_server", "stack"),
    "past_rollouts",
}


def names() -> list[str]:
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in found if name not in _NOT_BENCHMARKS)


def main(wanted: list[str]) -> int:
    if unknown := set(wanted) - set(names()):
        print(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
        return 2
    wanted = wanted or names()
    if len(wanted) > 1:
        # A process each: settings, and with them the data folder, are read once per process.
        codes = [subprocess.call([sys.executable, "-m", "benchmarks", name]) for name in wanted]
        return max(codes)
    figures = importlib.import_module(f"benchmarks.{wanted[0]}").run()
    is_missed = False
    for figure in figures:
        print(figure.line(), flush=True)
        is_missed |= not figure.ok
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
