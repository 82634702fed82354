"""Figures that the project promises, each with its bar: `make bench NAME=live`.

A benchmark is a module with `run() -> Iterable[Figure]`. The runner prints one JSON line per figure
and exits 1 if one misses its bar.
"""
