"""Exact distributions of sums, for the bootstrap and the sign-flip test.

Values are put on a lattice of integers with one common denominator, and a distribution is a
polynomial whose coefficients are counts. Polynomials are multiplied by packing them into one big
number (Kronecker substitution): big integers where shifting is enough, `decimal` where general
products are needed, because its multiplication is a number-theoretic transform.
"""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

MAX_DIGITS = 40_000_000
"""Largest packed distribution, about ten seconds of work; wider data are left to resampling."""
MAX_BITS = 8 * MAX_DIGITS
"""The same for a distribution that is packed into bits."""


class TooWide(ValueError):
    """The lattice is too fine for exact counting."""


@dataclass(frozen=True)
class Lattice:
    """Integers `points` with the value point / denominator."""

    points: tuple[int, ...]
    denominator: int


def on_lattice(values: Sequence[Fraction]) -> Lattice:
    denominator = lcm(*(value.denominator for value in values)) if values else 1
    return Lattice(tuple(int(value * denominator) for value in values), denominator)


def resampled_sums(points: Sequence[int]) -> dict[int, int]:
    """Sum -> number of the n**n resamples of n units (with replacement) that have it."""
    n, low = len(points), min(points)
    width = len(str(n**n))
    span = max(points) - low
    if n * span * width > MAX_DIGITS:
        raise TooWide(f"{n} units over {span} steps")
    counts = Counter(point - low for point in points)
    packed = decimal.Decimal(
        "".join(str(counts.get(i, 0)).zfill(width) for i in range(span, -1, -1))
    )
    exact = decimal.Context(
        prec=decimal.MAX_PREC if n * span * width > 1_000 else 20_000,
        Emax=decimal.MAX_EMAX,
        Emin=decimal.MIN_EMIN,
        traps=[decimal.Inexact],
    )
    with decimal.localcontext(exact):
        power, result, exponent = packed, decimal.Decimal(1), n
        while exponent:
            if exponent & 1:
                result *= power
            exponent >>= 1
            if exponent:
                power *= power
    digits = format(result, "f")
    digits = digits.zfill(-(-len(digits) // width) * width)
    slots = len(digits) // width
    found = {}
    for slot in range(slots):
        count = int(digits[slot * width : (slot + 1) * width])
        if count:
            found[n * low + slots - 1 - slot] = count
    return dict(sorted(found.items()))


def flipped_sums(points: Sequence[int], *, most_bits: int = MAX_BITS) -> dict[int, int]:
    """Sum -> number of the 2**n ways to choose the units' signs that have it.

    Raises TooWide above `most_bits`.
    """
    sizes = [abs(point) for point in points]
    width = len(sizes) + 1
    if width * 2 * sum(sizes) > most_bits:
        raise TooWide(f"{len(sizes)} units over {sum(sizes)} steps")
    packed = 1
    for size in sizes:
        packed += packed << (2 * size * width)
    mask, found, total = (1 << width) - 1, {}, sum(sizes)
    data = packed.to_bytes((packed.bit_length() + 7) // 8, "little")
    for slot in range(2 * total + 1):
        first = slot * width
        window = int.from_bytes(data[first // 8 : (first + width) // 8 + 1], "little")
        count = (window >> (first % 8)) & mask
        if count:
            found[slot - total] = count
    return found
