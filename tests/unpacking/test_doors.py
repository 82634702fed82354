"""Every door for archives refuses the hostile ones, and none has a reader of its own."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from optimizer.errors import HarnessInvalid
from optimizer.harness import import_zip
from orchestrator.environments.authoring.archives import ArchiveRefusedError, unzipped
from orchestrator.harnesses.errors import UploadRefused
from orchestrator.harnesses.uploads import harness_of_zip
from tests.unpacking.hostile import ZIPS, Files, zip_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("orchestrator", "optimizer", "rubrics", "training", "switchback_cli", "unpacking")
HARNESS: Files = {"instructions.md": b"Answer.\n"}
ENVIRONMENT: Files = {"environment.yaml": b"name: Words\nkind: qa\n"}
DOORS: dict[str, tuple[Files, Callable[[bytes], object], type[Exception]]] = {
    "harness": (HARNESS, harness_of_zip, UploadRefused),
    "harness in the engine": (HARNESS, import_zip, HarnessInvalid),
    "environment": (
        ENVIRONMENT,
        lambda content: unzipped(content, marker="environment.yaml"),
        ArchiveRefusedError,
    ),
}
READERS = {
    "unpacking/reading.py",
    "training/prepare.py",  # the wheel that pip fetched and checked; one member of it is copied
    "orchestrator/moving/archive.py",  # the operator's own backups
}


@pytest.mark.parametrize("door", DOORS)
def test_an_innocent_archive_comes_in(door: str) -> None:
    files, read, _ = DOORS[door]
    assert read(zip_of(files))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ZIPS)
def test_hostile_archives_are_refused_at_every_door(door: str, name: str) -> None:
    files, read, refusal = DOORS[door]
    content = ZIPS[name][1](files)
    with pytest.raises(refusal):
        read(content)


def test_no_other_module_opens_archives_to_read_them() -> None:
    found = set()
    for path, call in _calls(("ZipFile", "tarfile", "unpack_archive")):
        name = ast.unparse(call.func)
        modes = {
            node.value
            for node in [*call.args, *(word.value for word in call.keywords)]
            if isinstance(node, ast.Constant)
        }
        is_reader = name.endswith("ZipFile") or name in ("tarfile.open", "tarfile.TarFile")
        if name.endswith("unpack_archive") or (is_reader and not modes & {"w", "x", "w:gz"}):
            found.add(path)
    assert found <= READERS


def test_nothing_is_unpickled() -> None:
    """Weights are safetensors, everything else is JSON: a pickle runs what its maker wants."""
    unsafe = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    for path, tree in _trees(tuple(unsafe)):
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert unsafe.isdisjoint(name.split(".")[0] for name in names), path
    for path, call in _calls(("torch.load", "torch.save", "pickle")):
        name = ast.unparse(call.func)
        words = {word.arg: ast.unparse(word.value) for word in call.keywords}
        assert name not in ("torch.load", "torch.save", "pandas.read_pickle"), path
        assert words.get("allow_pickle", "False") == "False", path


def _trees(words: tuple[str, ...]) -> list[tuple[str, ast.Module]]:
    """Of the files that have one of the words at all: parsing every file takes seconds."""
    return [
        (path.relative_to(ROOT).as_posix(), ast.parse(text))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if any(word in (text := path.read_text("utf-8")) for word in words)
    ]


def _calls(words: tuple[str, ...]) -> list[tuple[str, ast.Call]]:
    return [
        (path, node)
        for path, tree in _trees(words)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]
