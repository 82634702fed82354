"""Pages that leave the installation: one file with its styles, no script, nothing to fetch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from django.conf import settings
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe


@cache
def styles(*names: str) -> SafeString:
    """Style sheets of the product as an element, without the fonts: they are other files."""
    folder = Path(settings.BASE_DIR) / "static" / "css"
    lines: list[str] = []
    for name in names:
        text = (folder / f"{name}.css").read_text(encoding="utf-8")
        lines += [line for line in text.splitlines() if not line.startswith("@font-face")]
    return format_html("<style>\n{}\n</style>", mark_safe("\n".join(lines)))  # our own files
