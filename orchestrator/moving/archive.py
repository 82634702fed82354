"""The file of a backup: a zip whose last member, the manifest, has the hash of all others.

Zip, since one member can be read without the rest and since everybody has a tool for it. A backup
is written beside its name and renamed when it is whole and on the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from orchestrator.moving.errors import DamagedError, MovingError

FORMAT = 1
MANIFEST = "manifest.json"
CHUNK = 1 << 20
_PACKED_ALREADY = {".safetensors", ".gguf", ".gz", ".zip", ".zst", ".png", ".jpg", ".whl"}


@dataclass(frozen=True)
class Member:
    """`size` in bytes, of what was packed; of a link the target is the content."""

    size: int
    sha256: str
    mode: int = 0o644
    is_link: bool = False


@dataclass
class Manifest:
    made_at: str
    version: str
    vendor: str
    """`sqlite` or `postgresql`."""
    data_folder: str
    """Where the files lay: rows and environments name them by path."""
    migrations: list[tuple[str, str]]
    """Applied ones, app and name."""
    rows: dict[str, int]
    """Of each table."""
    key_fingerprint: str
    """Tells whether a SECRET_KEY is the one that the stored secrets need; not the key."""
    columns: dict[str, list[str]] = field(default_factory=dict)
    """Of each table of a PostgreSQL backup, as they stand in its COPY."""
    members: dict[str, Member] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Parts of the installation that the backup does not hold, in words."""
    moved_meanwhile: list[str] = field(default_factory=list)
    """Files that were removed or went on changing while they were read."""
    format: int = FORMAT

    @classmethod
    def parse(cls, text: bytes) -> Manifest:
        data: dict[str, Any] = json.loads(text)
        if data.get("format") != FORMAT:
            raise MovingError(
                f"This backup has format {data.get('format')!r}; this version reads {FORMAT}: "
                "restore it with the version that wrote it."
            )
        members = {name: Member(**member) for name, member in data.pop("members").items()}
        migrations = [(str(app), str(name)) for app, name in data.pop("migrations")]
        return cls(**data, members=members, migrations=migrations)


class Writer:
    def __init__(self, file: zipfile.ZipFile, say: Callable[[str], None]) -> None:
        self._zip, self.say = file, say
        self.members: dict[str, Member] = {}

    @contextmanager
    def open(self, name: str, *, mode: int = 0o644) -> Iterator[Callable[[bytes], None]]:
        """A function that adds bytes to the member `name`."""
        info = _info(name, stat.S_IFREG | mode)
        digest, size = hashlib.sha256(), 0
        with self._zip.open(info, "w", force_zip64=True) as member:

            def write(piece: bytes) -> None:
                nonlocal size
                digest.update(piece)
                size += len(piece)
                member.write(piece)

            yield write
        self.members[name] = Member(size, digest.hexdigest(), mode)

    def add_file(self, name: str, path: Path, *, mode: int = 0o644) -> None:
        with path.open("rb") as source, self.open(name, mode=mode) as write:
            while piece := source.read(CHUNK):
                write(piece)

    def add_link(self, name: str, target: str) -> None:
        content = os.fsencode(target)
        self._zip.writestr(_info(name, stat.S_IFLNK | 0o777), content)
        digest = hashlib.sha256(content).hexdigest()
        self.members[name] = Member(len(content), digest, 0o777, is_link=True)

    def finish(self, manifest: Manifest) -> None:
        manifest.members = self.members
        text = json.dumps(asdict(manifest), indent=1, ensure_ascii=False)
        self._zip.writestr(_info(MANIFEST, stat.S_IFREG | 0o600), text)


def _info(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    info.create_system = 3
    is_packed = PurePosixPath(name).suffix in _PACKED_ALREADY
    info.compress_type = zipfile.ZIP_STORED if is_packed else zipfile.ZIP_DEFLATED
    return info


@contextmanager
def writing(path: Path, say: Callable[[str], None]) -> Iterator[Writer]:
    """Raises MovingError if `path` exists; leaves nothing behind if the block fails."""
    if path.exists():
        raise MovingError(f"{path} exists: name another file.")
    if not path.parent.is_dir():
        raise MovingError(f"The folder {path.parent} does not exist.")
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # Rows and files of all projects are in it: nobody else of the machine may read them.
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w+b") as file:
            with zipfile.ZipFile(file, "w", compresslevel=1, allowZip64=True) as packed:
                yield Writer(packed, say)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    finally:
        draft.unlink(missing_ok=True)


class Reader:
    def __init__(self, file: zipfile.ZipFile, manifest: Manifest) -> None:
        self._zip, self.manifest = file, manifest

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        with self._zip.open(name) as member:
            yield member

    def pieces(self, name: str) -> Iterator[bytes]:
        """The content of a member. Raises DamagedError at its end if it is not what was packed."""
        expected = self.manifest.members[name]
        digest, size = hashlib.sha256(), 0
        try:
            with self._zip.open(name) as member:
                while piece := member.read(CHUNK):
                    digest.update(piece)
                    size += len(piece)
                    yield piece
        except (zipfile.BadZipFile, EOFError, OSError) as error:
            raise DamagedError(f"{name} in the backup cannot be read: {error}") from error
        if (size, digest.hexdigest()) != (expected.size, expected.sha256):
            raise DamagedError(f"{name} in the backup is not what was packed: its hash differs.")

    def extract(self, name: str, target: Path) -> None:
        with target.open("xb") as file:
            for piece in self.pieces(name):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())

    def check(self) -> None:
        """Reads every member. Raises DamagedError."""
        present = [info.filename for info in self._zip.infolist()]
        expected = [*self.manifest.members, MANIFEST]
        if sorted(present) != sorted(expected):
            odd = sorted(set(present) ^ set(expected)) or ["a member stands twice"]
            raise DamagedError(f"The backup and its manifest differ: {', '.join(odd[:5])}.")
        for name in self.manifest.members:
            for _ in self.pieces(name):
                pass


@contextmanager
def reading(path: Path) -> Iterator[Reader]:
    """Raises MovingError: no backup, damaged, or of another format."""
    if not path.is_file():
        raise MovingError(f"{path} is not a file.")
    try:
        with zipfile.ZipFile(path) as packed:
            try:
                manifest = Manifest.parse(packed.read(MANIFEST))
            except (KeyError, TypeError, ValueError) as error:
                raise DamagedError(f"{path} has no manifest of a backup: {error}") from error
            for name in manifest.members:
                checked_name(name)
            yield Reader(packed, manifest)
    except zipfile.BadZipFile as error:
        raise DamagedError(f"{path} is no backup, or was cut off: {error}") from error


def checked_name(name: str) -> PurePosixPath:
    """Raises DamagedError if it would lead out of the folder that it is unpacked into."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise DamagedError(f"The backup has a member that leads out of its folder: {name!r}.")
    return path
