"""A run's colour: its own wherever it is shown, told apart, and readable on both grounds."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

from orchestrator.web.colours import N_COLOURS, colour_of

TOKENS = (Path(settings.BASE_DIR) / "static/css/tokens.css").read_text(encoding="utf-8")


def test_twenty_in_a_row_all_look_different() -> None:
    for first in (1, 7, 95, 10_000):
        assert len({colour_of(first + i) for i in range(20)}) == 20
    assert colour_of(41) == colour_of(61)


def test_each_colour_reaches_three_to_one_on_the_grounds_of_cards() -> None:
    grounds = [
        ground
        for name in ("surface", "raised")
        for ground in re.findall(rf"--{name}: light-dark\((#\w+), (#\w+)\)", TOKENS)[0]
    ]
    assert len(grounds) == 4
    for slot in range(N_COLOURS):
        colour = re.findall(rf"--run-{slot}: (#\w+);", TOKENS)[0]
        for ground in grounds:
            assert _contrast(colour, ground) >= 3, (slot, colour, ground)


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
