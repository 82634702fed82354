from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from optimizer.archives import MAX_BYTES
from optimizer.errors import HarnessInvalid
from optimizer.harness import Harness, export_zip, import_zip, load_folder, save_folder
from tests.optimizer.arbitrary import harness_of
from tests.optimizer.build import harness


def packed(files: dict[str, bytes | str], twice: str = "") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        if twice:
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr(twice, "again")
    return buffer.getvalue()


@pytest.mark.parametrize("seed", range(5))
def test_folder_and_archive_hold_the_same_harness(tmp_path: Path, seed: int) -> None:
    subject = harness_of(seed)
    save_folder(subject, tmp_path / "h")
    assert load_folder(tmp_path / "h") == subject
    assert import_zip(export_zip(load_folder(tmp_path / "h"))) == subject
    assert export_zip(subject) == export_zip(import_zip(export_zip(subject)))


def test_a_packed_folder_is_read_without_its_name() -> None:
    files: dict[str, bytes | str] = {
        f"mine/{name}": text for name, text in harness().components().items()
    }
    files |= {"mine/.DS_Store": b"\xff", "__MACOSX/mine/._instructions.md": b"\xff"}
    assert import_zip(packed(files)) == harness()


def test_a_harness_of_skills_alone_keeps_its_folder() -> None:
    text = "---\nname: a\ndescription: x\n---\nDo.\n"
    (skill,) = import_zip(packed({"skills/a/SKILL.md": text})).skills
    assert skill.name == "a"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a zip file"),
        (b"PK\x03\x04 and then nothing", "not a zip file"),
        (packed({"/instructions.md": "x"}), "leads outside"),
        (packed({"a/../../instructions.md": "x"}), "leads outside"),
        (packed({"instructions.md": b"\xff\xfe"}), "not UTF-8"),
        (packed({"instructions.md": "x" * 1_000_001}), "more than 1,000,000 bytes"),
        (packed({f"{i}.md": "" for i in range(501)}), "at most 500"),
        (
            packed({f"{i}.md": "x" * 999_999 for i in range(MAX_BYTES // 999_999 + 1)}),
            "more than 19.1 MiB",
        ),
        (packed({"instructions.md": "x\x00y"}), "NUL character at position 1"),
        (packed({"skills/a/references/deep/x.md": "x"}), "references/ .one level deep"),
    ],
)
def test_what_is_no_harness_is_refused_with_its_reason(data: bytes, message: str) -> None:
    with pytest.raises(HarnessInvalid, match=message):
        import_zip(data)


def test_a_file_that_is_there_twice_is_refused() -> None:
    with pytest.raises(HarnessInvalid, match="in the archive twice"):
        import_zip(packed({"instructions.md": "x"}, twice="instructions.md"))


def test_a_cut_or_locked_archive_is_refused() -> None:
    whole = bytearray(packed({"instructions.md": "x" * 500}))
    for offset in range(30, len(whole) - 60, 7):
        broken = bytes(whole[:offset]) + b"\x00\xff\x55" + bytes(whole[offset + 3 :])
        try:
            import_zip(broken)
        except HarnessInvalid:
            continue
    whole[6] |= 1  # says that it is encrypted
    at = bytes(whole).index(b"PK\x01\x02")
    whole[at + 8] |= 1
    with pytest.raises(HarnessInvalid, match="is encrypted"):
        import_zip(bytes(whole))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"harness.yaml": "model: " + "[" * 900_000}, "not YAML: above 50,000 characters"),
        ({"harness.yaml": "model: " + "[" * 5_000}, "not YAML: above 500 brackets"),
        ({"harness.yaml": 'model: "\\ud83d"'}, "half of a character pair"),
        ({"harness.yaml": "model: 2024-13-45"}, "not YAML"),
        ({"harness.yaml": "sampling: 3"}, "sampling accepts fields"),
        ({"harness.yaml": "limits: []"}, "limits accepts fields"),
        ({"tools.json": "[" * 100_000}, "not JSON: nested too deeply"),
        ({"tools.json": '[{"name": "a", "x": NaN}]'}, "NaN is not JSON"),
        ({"demonstrations.jsonl": '{"id": "a", "messages": "\\ud83d"}'}, "half of a character"),
        ({"instructions.md": "\ud83d"}, "half of a character pair"),
    ],
)
def test_texts_that_break_parsers_are_named(files: dict[str, str], message: str) -> None:
    with pytest.raises(HarnessInvalid, match=message):
        Harness.from_components(files)


def test_odd_line_ends_do_not_change_the_address() -> None:
    texts = {"instructions.md": "a\r\r\nb\r\nc\rd\n", "skills/a/references/x.md": "x\r\n"}
    texts["skills/a/SKILL.md"] = "\ufeff---\r\nname: a\r\ndescription: x\r\n---\r\nDo.\r\n"
    subject = Harness.from_components(texts)
    assert subject.instructions == "a\nb\nc\rd\n"
    assert Harness.from_components(subject.components()).sha256 == subject.sha256


def test_skills_are_told_in_one_order() -> None:
    text = "---\nname: {0}\ndescription: x\n---\n"
    subject = Harness.from_components(
        {f"skills/{name}/SKILL.md": text.format(name) for name in ("a-b", "a")}
    )
    assert [skill.name for skill in subject.skills] == ["a", "a-b"]
