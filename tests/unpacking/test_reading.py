"""Archives from outside: what is innocent comes out whole, what is made to harm is refused."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unpacking.hostile import TARS, ZIPS, tar_of, zip_of
from unpacking import ArchiveRefused, Limits, is_hidden, open_archive, read_archive

WIDE = Limits(members=100, total_bytes=2**20)
FILES = {"a.md": b"one\n", "deep/b.md": b"two\n" * 100}
paths = st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5}){0,2}\.md", fullmatch=True)


@given(st.dictionaries(paths, st.binary(max_size=200), min_size=1, max_size=8))
def test_what_was_packed_comes_out(files: dict[str, bytes]) -> None:
    assert read_archive(zip_of(files), WIDE) == files
    assert read_archive(tar_of(files), WIDE, tar=True) == files
    assert read_archive(gzip.compress(tar_of(files)), WIDE, tar=True) == files


@pytest.mark.parametrize("name", ZIPS)
def test_hostile_zips_are_refused_by_code(name: str) -> None:
    code, make = ZIPS[name]
    with pytest.raises(ArchiveRefused) as refused:
        read_archive(make(FILES), WIDE)
    assert refused.value.code == code


@pytest.mark.parametrize("name", TARS)
def test_hostile_tars_are_refused_by_code(name: str) -> None:
    code, make = TARS[name]
    with pytest.raises(ArchiveRefused) as refused:
        read_archive(make(FILES), WIDE, tar=True)
    assert refused.value.code == code


def test_a_tar_is_no_zip_where_only_a_zip_is_read() -> None:
    with pytest.raises(ArchiveRefused, match="not a zip file"):
        read_archive(tar_of(FILES), WIDE)


def test_windows_separators_and_folders_are_read_as_paths() -> None:
    packed = zip_of({"deep\\": b"", "deep\\b.md": b"x", "empty/": b""})
    assert read_archive(packed, WIDE) == {"deep/b.md": b"x"}


def test_a_file_where_another_has_its_folder_is_refused() -> None:
    for files in ({"a": b"x", "a/b": b"y"}, {"a/b": b"y", "a": b"x"}, {"a/b/c": b"", "a": b""}):
        with pytest.raises(ArchiveRefused, match="is a file and a folder"):
            read_archive(zip_of(files), WIDE)


def test_what_is_not_wanted_is_passed_over_but_never_followed_outside() -> None:
    files = {**FILES, ".git/config": b"x" * 2**21, "__MACOSX/a.md": b"x"}
    kept = read_archive(zip_of(files), WIDE, keep=lambda path: not is_hidden(path))
    assert kept == FILES
    with pytest.raises(ArchiveRefused, match="leads outside"):
        read_archive(zip_of({"../.git": b"x"}), WIDE, keep=lambda path: not is_hidden(path))


@pytest.mark.parametrize("is_tar", [False, True])
def test_each_limit_is_named(is_tar: bool) -> None:
    def refusal(files: dict[str, bytes], limits: Limits) -> str:
        packed = gzip.compress(tar_of(files)) if is_tar else zip_of(files)
        with pytest.raises(ArchiveRefused) as refused:
            read_archive(packed, limits, tar=is_tar)
        return str(refused.value)

    many = {f"{number}": b"" for number in range(11)}
    # A zip knows their number before it is read, a tar at the first that is too many.
    assert "has 11 entries; at most 10 are read" in refusal(many, Limits(10, 2**20))
    large = {"a": b"x" * 70_000, "b": b"x" * 70_000}
    assert "a: has more than 65,536 bytes unpacked" in refusal(
        large, Limits(10, 2**20, member_bytes=65_536)
    )
    assert "more than 100,000 bytes unpacked" in refusal(large, Limits(10, 100_000))
    assert "The file has" in refusal(large, Limits(10, 2**20, sent_bytes=100))


def test_a_bomb_ends_at_the_ratio_long_before_the_total() -> None:
    bomb = zip_of({"a": bytes(48 * 2**20)})
    assert len(bomb) < 2**16
    sizes: list[int] = []
    with open_archive(bomb, Limits(members=10, total_bytes=2**40)) as archive:
        ((_, chunks),) = archive.streams()
        with pytest.raises(ArchiveRefused, match="more than 200 times the size"):
            sizes.extend(len(chunk) for chunk in chunks)
    assert sum(sizes) <= 33 * 2**20


def test_sizes_that_an_archive_claims_are_not_believed() -> None:
    honest = zip_of({"a": b"0" * 1000})
    lying = honest.replace((1000).to_bytes(4, "little"), (4).to_bytes(4, "little"))
    assert lying != honest
    with pytest.raises(ArchiveRefused) as refused:
        read_archive(lying, WIDE)
    assert refused.value.code == "damaged"


def test_extended_headers_of_a_tar_are_bounded_too() -> None:
    """The standard library reads them into memory, whatever size they claim."""
    info = tarfile.TarInfo("a")
    info.pax_headers = {"comment": "x" * 40 * 2**20}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    with pytest.raises(ArchiveRefused) as refused:
        read_archive(gzip.compress(out.getvalue(), 1), WIDE, tar=True)
    assert refused.value.code == "too-large"


def test_files_are_written_below_one_folder(tmp_path: Path) -> None:
    with open_archive(zip_of(FILES), WIDE) as archive:
        assert sorted(archive.extract(tmp_path / "out")) == sorted(FILES)
    assert (tmp_path / "out/deep/b.md").read_bytes() == FILES["deep/b.md"]
    with pytest.raises(FileExistsError), open_archive(zip_of(FILES), WIDE) as archive:
        archive.extract(tmp_path / "out")


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 255))
def test_damage_is_refused_and_nothing_else_happens(noise: bytes, at: int, value: int) -> None:
    for whole in (zip_of(FILES), tar_of(FILES), gzip.compress(tar_of(FILES), mtime=0)):
        damaged = bytearray(whole)
        damaged[at % len(damaged)] = value
        for content in (bytes(damaged), whole[: at % len(whole)], noise):
            try:
                read_archive(content, WIDE, tar=True)
            except ArchiveRefused:
                continue


def test_zip64_directories_are_read_and_bounded() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("a", "w", force_zip64=True) as file:
        file.write(b"x")
    assert read_archive(out.getvalue(), WIDE) == {"a": b"x"}
