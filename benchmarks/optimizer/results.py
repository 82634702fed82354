"""Runs of engines in worlds: started two at a time, and kept where they need not be run again.

A rival's run depends on its version, on the world and on the seed, so it is kept in
`optimizer-rivals.jsonl` under the user's cache folder. The key holds a hash of all files that
decide it; our own engines are always run. Delete the file to run everything anew.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from benchmarks.children import tied
from benchmarks.optimizer.engines import is_rival
from benchmarks.optimizer.worlds import Setting

ROOT = Path(__file__).parents[2]
RIVAL_PYTHON = Path(os.environ.get("BENCH_PYTHON", ROOT / ".venv/bench/bin/python"))
CHUNK = 15
"""Worlds that one process plays; small enough that two processes end at about the same time."""
_SHARED = ("worlds.py", "proposer.py", "work.py")

Result = dict[str, Any]
"""A line of `benchmarks.optimizer.work`."""


@dataclass(frozen=True)
class Cell:
    name: str
    setting: Setting | None
    budget: int


@dataclass(frozen=True)
class Chunk:
    """What one process runs."""

    engine: str
    cell: Cell
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Bench:
    """Everything that decides the results."""

    world: str
    cells: tuple[Cell, ...]
    engines: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Mapping[str, Any]
    """Of our engine."""


class RunFailed(Exception):
    """A process that plays worlds ended badly."""


def results(
    bench: Bench, *, jobs: int, say: Any, use_cache: bool = True
) -> Iterator[tuple[str, str, Result]]:
    """(engine, cell, result) as they come; `say` is told how far it is.

    Raises RunFailed, after what was running has ended.
    """
    cache = Cache(bench.world) if use_cache else None
    chunks: list[Chunk] = []
    kept: list[tuple[str, str, Result]] = []
    for engine in bench.engines:
        for cell in bench.cells:
            missing = []
            for seed in bench.seeds:
                known = cache.get(engine, cell, seed) if cache and is_rival(engine) else None
                if known is None:
                    missing.append(seed)
                else:
                    kept.append((engine, cell.name, known))
            chunks += [
                Chunk(engine, cell, tuple(missing[at : at + CHUNK]))
                for at in range(0, len(missing), CHUNK)
            ]
    total = len(kept) + sum(len(chunk.seeds) for chunk in chunks)
    say(f"{total} runs, of which {len(kept)} are kept from earlier")
    yield from kept
    done = len(kept)
    for chunk, line in _in_parallel(bench, chunks, jobs):
        if cache and is_rival(chunk.engine):
            cache.put(chunk.engine, chunk.cell, line)
        done += 1
        if done % 20 == 0 or done == total:
            say(f"{done} of {total} runs ({chunk.engine}, {chunk.cell.name})")
        yield chunk.engine, chunk.cell.name, line


def _in_parallel(
    bench: Bench, chunks: Sequence[Chunk], jobs: int
) -> Iterator[tuple[Chunk, Result]]:
    lines: Queue[tuple[Chunk, Result] | RunFailed | None] = Queue()

    def play(chunk: Chunk) -> None:
        try:
            for line in _play(bench, chunk):
                lines.put((chunk, line))
            lines.put(None)
        except RunFailed as error:
            lines.put(error)

    with ThreadPoolExecutor(jobs) as pool:
        for chunk in chunks:
            pool.submit(play, chunk)
        open_chunks = len(chunks)
        while open_chunks:
            item = lines.get()
            if isinstance(item, RunFailed):
                pool.shutdown(wait=False, cancel_futures=True)
                raise item
            if item is None:
                open_chunks -= 1
            else:
                yield item


def _play(bench: Bench, chunk: Chunk) -> Iterator[Result]:
    python = str(RIVAL_PYTHON) if is_rival(chunk.engine) else sys.executable
    command = [
        *(python, "-m", "benchmarks.optimizer.work", "--engine", chunk.engine),
        *("--world", bench.world, "--budget", str(chunk.cell.budget)),
        *("--seeds", *map(str, chunk.seeds)),
    ]
    if chunk.cell.setting is not None:
        command += ["--setting", json.dumps(asdict(chunk.cell.setting))]
    if bench.settings and not is_rival(chunk.engine):
        command += ["--settings", json.dumps(dict(bench.settings))]
    paths = [str(ROOT), os.getcwd(), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        # Matrices here are small; threads would only be in the way of the other process.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        tied(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            yield json.loads(line)
        _, errors = process.communicate()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode:
        raise RunFailed(f"{chunk.engine} in {chunk.cell.name} failed:\n{errors[-4000:]}")


class Cache:
    """Results of rivals, by everything that decides them."""

    def __init__(self, world: str, path: Path | None = None) -> None:
        self._world = world
        self._path = path or _cache_folder() / "optimizer-rivals.jsonl"
        self._hashes: dict[str, str] = {}
        self._known: dict[str, Result] = {}
        if self._path.exists():
            for text in self._path.read_text().splitlines():
                try:
                    line = json.loads(text)
                    self._known[line["key"]] = line["result"]
                except (ValueError, KeyError, TypeError):
                    continue  # a line cut off by a kill is run again

    def get(self, engine: str, cell: Cell, seed: int) -> Result | None:
        return self._known.get(self._key(engine, cell, seed))

    def put(self, engine: str, cell: Cell, result: Result) -> None:
        key = self._key(engine, cell, result["seed"])
        self._known[key] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = {"key": key, "engine": engine, "world": self._world, "cell": cell.name}
        with self._path.open("a") as file:
            file.write(json.dumps({**line, "result": result}) + "\n")

    def _key(self, engine: str, cell: Cell, seed: int) -> str:
        setting = None if cell.setting is None else asdict(cell.setting)
        parts = [engine, self._hash(engine), self._world, setting, cell.budget, seed]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _hash(self, engine: str) -> str:
        if engine not in self._hashes:
            here = Path(__file__).parent
            module = "rival_skillopt.py" if engine == "skillopt" else "rival_gepa.py"
            files = [here / name for name in (*_SHARED, module)]
            files.append(ROOT / "requirements/bench.txt")
            found = importlib.util.find_spec(self._world.partition(":")[0])
            if found is not None and found.origin is not None:
                files.append(Path(found.origin))
            contents = "\n".join(map(_content, files))
            self._hashes[engine] = hashlib.sha256(contents.encode()).hexdigest()
        return self._hashes[engine]


def _content(file: Path) -> str:
    """What a file says; how Python is laid out, and its comments, say nothing."""
    text = file.read_text()
    return ast.dump(ast.parse(text)) if file.suffix == ".py" else text


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "switchback"
