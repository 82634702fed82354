"""What a browser sends becomes a harness, or is refused with the file and the fix. Pure."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.harness import Harness, export_zip
from orchestrator.harnesses import uploads
from orchestrator.harnesses.errors import UploadRefused
from orchestrator.harnesses.uploads import harness_of, harness_of_zip
from tests.optimizer.build import SKILL, demonstration, harness

WHOLE = harness(
    skills=(SKILL,),
    demonstrations=(demonstration(),),
    tools=({"name": "bash", "description": "Runs a command."},),
    files={"skills/count-lines/references/wc.md": "wc counts.\n"},
)


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def in_folder(subject: Harness, folder: str) -> dict[str, str | bytes]:
    return {f"{folder}/{path}": text for path, text in subject.components().items()}


def test_an_export_is_read_back_as_the_same_harness() -> None:
    assert harness_of_zip(export_zip(WHOLE)).sha256 == WHOLE.sha256


def test_a_folder_around_it_and_what_archivers_add_is_passed_over() -> None:
    extras: dict[str, str | bytes] = {
        "mine/.DS_Store": b"\xff",
        "__MACOSX/mine/._instructions.md": b"\xff",
        "mine/.git/config": "[core]",
    }
    assert harness_of_zip(zipped(in_folder(WHOLE, "mine") | extras)).sha256 == WHOLE.sha256


def test_files_of_a_folder_are_read_with_their_paths() -> None:
    files = [(path, str(text).encode()) for path, text in in_folder(WHOLE, "mine").items()]
    assert harness_of(files).sha256 == WHOLE.sha256
    windows = [(path.replace("/", "\\"), content) for path, content in files]
    assert harness_of(windows).sha256 == WHOLE.sha256
    marked = [("instructions.md", b"\xef\xbb\xbfHi.\n")]
    assert harness_of(marked).instructions == "Hi.\n"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "no file in it. A harness has at least instructions.md"),
        ({"../instructions.md": "x"}, "'../instructions.md': leads outside of the folder"),
        ({"/etc/instructions.md": "x"}, "leads outside of the folder"),
        ({"C:/instructions.md": "x"}, "leads outside of the folder"),
        ({"skills/a/../../b": "x"}, "leads outside of the folder"),
        ({"instructions.md": b"caf\xe9"}, "instructions.md: is not text in UTF-8 (byte 4)"),
        ({"instructions.md": "x", "notes.txt": "y"}, "notes.txt: not part of a harness"),
        ({"instructions.md": "x", "harness.yaml": "sampling: {temprature: 1}"}, "temprature"),
        ({"instructions.md": "x", "skills/a/SKILL.md": "no head"}, "skills/a/SKILL.md"),
        ({"instructions.md": "x", "skills/a/evil.sh": "y"}, "skills/a/evil.sh"),
        ({"instructions.md": "x", "tools.json": "{"}, "tools.json"),
        ({"demonstrations.jsonl": '{"id": 3}'}, "demonstrations.jsonl line 1"),
    ],
)
def test_a_mistake_is_named_with_its_file(files: dict[str, str | bytes], told: str) -> None:
    with pytest.raises(UploadRefused) as refused:
        harness_of_zip(zipped(files))
    assert told in str(refused.value)


def test_what_is_no_archive_is_refused() -> None:
    for content in (b"", b"PK\x03\x04 but not really", b"instructions"):
        with pytest.raises(UploadRefused, match="not a zip file"):
            harness_of_zip(content)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = zipped({"instructions.md": b"0" * (uploads.MAX_BYTES + 1)})
    assert len(bomb) < uploads.MAX_UPLOAD_BYTES // 100
    with pytest.raises(UploadRefused, match=r"instructions\.md: .* 16 MiB unpacked"):
        harness_of_zip(bomb)
    # One that lies of its size is found out while it is read.
    small = zipped({"instructions.md": b"0" * 1000})
    lying = small.replace((1000).to_bytes(4, "little"), (4).to_bytes(4, "little"))
    with pytest.raises(UploadRefused, match=r"instructions\.md"):
        harness_of_zip(lying)


def test_many_entries_and_large_files_are_refused_with_the_limit() -> None:
    many = {f".hidden/{number}": "" for number in range(uploads.MAX_ENTRIES + 1)}
    with pytest.raises(UploadRefused, match="1,001 entries; at most 1,000"):
        harness_of_zip(zipped(many))
    with pytest.raises(UploadRefused, match="limit is 8 MiB"):
        harness_of_zip(b"0" * (uploads.MAX_UPLOAD_BYTES + 1))


def test_links_are_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo("instructions.md")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(UploadRefused, match="is a link, and links are not followed"):
        harness_of_zip(buffer.getvalue())


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_rare_compression_is_refused(method: int) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("instructions.md", "Hi.\n")
    with pytest.raises(UploadRefused, match=r"instructions\.md: is packed in a way"):
        harness_of_zip(buffer.getvalue())


def test_a_file_that_is_there_twice_is_refused() -> None:
    with pytest.raises(UploadRefused, match="is there twice"):
        harness_of([("instructions.md", b"a"), ("./instructions.md", b"b")])


@given(st.binary(max_size=300))
def test_foreign_bytes_are_refused_and_nothing_else_happens(content: bytes) -> None:
    with pytest.raises(UploadRefused):
        harness_of_zip(content)
    damaged = bytearray(export_zip(WHOLE))
    for at, byte in enumerate(content):
        damaged[(at * 37 + byte) % len(damaged)] ^= byte
    # Of a damaged one something may still be readable; anything else is refused.
    with suppress(UploadRefused):
        harness_of_zip(bytes(damaged))
