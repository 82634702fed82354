"""What the content security policy refuses, and what is not ours, does not get into a template."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command

from orchestrator.web.icons import ICONS
from orchestrator.web.vendoring import problems

TEMPLATES = sorted((Path(settings.BASE_DIR) / "templates").rglob("*.html"))
STATIC = Path(settings.BASE_DIR) / "static"
CSS = sorted((STATIC / "css").glob("*.css"))
JS = sorted((STATIC / "js").glob("*.js"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda p: str(p.relative_to(settings.BASE_DIR)))
def test_a_template_holds_no_inline_style_handler_or_script(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\sstyle\s*=", text), "use a class"
    assert not re.search(r"\son[a-z]+\s*=", text), "use a module"
    assert "<style" not in text
    for opening in re.findall(r"<script\b[^>]*>", text):
        assert 'type="module"' in opening and "src=" in opening
    assert not re.search(r"(src|href)=\"(https?:)?//", text), "nothing from another machine"


@pytest.mark.parametrize("path", [*CSS, *JS], ids=lambda p: p.name)
def test_a_static_file_loads_nothing_from_outside(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(url\(|import\s+[\"'(])\s*[\"']?(https?:)?//", text)
    assert "eval(" not in text and "new Function" not in text


def test_each_stylesheet_is_in_a_layer() -> None:
    for path in CSS:
        assert "@layer" in path.read_text(encoding="utf-8"), path.name


def test_icons_are_paths_without_markup() -> None:
    for name, path in ICONS.items():
        assert re.fullmatch(r"[MmLlHhVvCcSsQqTtAaZz0-9eE.,\s-]+", path), name


def test_the_vendored_files_are_as_written() -> None:
    call_command("vendor", "--check")


def test_a_changed_a_missing_and_a_stray_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "vendor.toml").write_text(
        "\n".join(
            f'[[file]]\nname="{n}"\npackage="p"\nversion="1"\nsource="s"\npath="{n}"\n'
            f'sha256="00"\nlicence="MIT"\n'
            for n in ("changed.js", "missing.js")
        )
    )
    (tmp_path / "changed.js").write_text("x")
    (tmp_path / "stray.js").write_text("x")
    found = " ".join(problems(tmp_path))
    assert "changed.js has changed" in found
    assert "missing.js is listed and missing" in found
    assert "stray.js is not in" in found
