from __future__ import annotations

import lzma
from pathlib import Path

FOLDER = Path(__file__).parent / "fixtures"
NAMES = sorted(path.name.removesuffix(".sqlite3.xz") for path in FOLDER.glob("*.sqlite3.xz"))


def unpack(name: str, target: Path) -> None:
    target.write_bytes(lzma.decompress((FOLDER / f"{name}.sqlite3.xz").read_bytes()))
