"""`python -m benchmarks NAME…`: runs the named benchmarks; without a name all but those that take
hours.

Options behind one name go to that benchmark: `python -m benchmarks optimizer --worlds 20`.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import benchmarks
from benchmarks.children import tied

_NOT_BENCHMARKS = {
    *("__main__", "figures", "live_writer", "rollouts_client", "rollouts_server", "stack"),
    "children",
    *("past_rollouts", "optimizer_llm_room"),
    *("ui_traces", "ui_proxy", "ui_charts", "ui_lists"),  # parts of `ui`
    *("dataset", "dataset_copies"),
    *("ui_peers", "ui_peers_sender"),  # needs an environment with the peers
    *("durability_spans", "durability_stack", "durability_watchers", "durability_peers"),
    *("durability_soak", "durability_workers"),
    "gpu",  # a script of its own, for a CUDA device
}
_ONLY_BY_NAME = {"optimizer_llm", "durability", "scale_events"}
"""They take hours."""


def names() -> list[str]:
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in found if name not in _NOT_BENCHMARKS)


def main(words: list[str]) -> int:
    options_at = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    wanted, options = words[:options_at], words[options_at:]
    if options and len(wanted) != 1:
        print(f"options ({' '.join(options)}) need the name of one benchmark before them")
        return 2
    if unknown := set(wanted) - set(names()):
        print(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
        return 2
    wanted = wanted or [name for name in names() if name not in _ONLY_BY_NAME]
    if len(wanted) > 1:
        # A process each: settings, and with them the data folder, are read once per process.
        codes = [
            subprocess.call(tied([sys.executable, "-m", "benchmarks", name])) for name in wanted
        ]
        return max(codes)
    run = importlib.import_module(f"benchmarks.{wanted[0]}").run
    figures = run(options) if options else run()
    is_missed = False
    for figure in figures:
        print(figure.line(), flush=True)
        is_missed |= not figure.ok
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
