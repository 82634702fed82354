"""Lines for people, as they are: nothing in them is markup, and nothing breaks them."""

from __future__ import annotations

from rich.console import Console


def say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
