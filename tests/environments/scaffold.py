"""The environment that `openenv init` writes: code that nobody here wrote, always at hand."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_INIT = """
import sys
sys.modules["gradio"] = None
sys.argv = ["openenv", "init", sys.argv[1]]
from openenv.cli.__main__ import main
main()
"""


@functools.cache
def _original() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="switchback-scaffold-")
    subprocess.run(
        [sys.executable, "-c", _INIT, "demo_env"],
        cwd=folder.name,
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    return folder


def write_scaffold(folder: Path) -> Path:
    """The folder `demo_env` of a new environment below `folder`."""
    return Path(shutil.copytree(Path(_original().name, "demo_env"), folder / "demo_env"))
