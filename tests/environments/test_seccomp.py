"""The filter of system calls, executed by a second reading of classic BPF."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.environments.sandbox import seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
HEADERS = (
    Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    Path("/usr/include/asm-generic/unistd.h"),
)


def verdict(code: bytes, arch: int, number: int, *arguments: int) -> int:
    """What the kernel would return. Source: seccomp(2), "struct seccomp_data" and `man 4 bpf`."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=IIQ6Q", number, arch, 0, *padded)
    steps = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    at = accumulator = 0
    for _ in range(len(steps)):
        operation, if_true, if_false, constant = steps[at]
        at += 1
        if operation == 0x06:
            return int(constant)
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, constant)
            continue
        holds = {
            0x15: accumulator == constant,
            0x25: accumulator > constant,
            0x35: accumulator >= constant,
            0x45: bool(accumulator & constant),
        }[operation]
        at += if_true if holds else if_false
    raise AssertionError("the program does not end")


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name: str = request.param
    monkeypatch.setattr("platform.machine", lambda: name)
    seccomp.program.cache_clear()
    yield name
    seccomp.program.cache_clear()


def numbers(machine: str, name: str) -> int:
    found = {**seccomp.CALLS, **seccomp._SPECIAL}[name][machine != "x86_64"]
    assert found is not None
    return found


def test_listed_calls_fail_and_common_ones_pass(machine: str) -> None:
    code = seccomp.program()
    assert code is not None
    for name, pair in seccomp.CALLS.items():
        number = pair[machine != "x86_64"]
        if number is not None:
            assert verdict(code, ARCH[machine], number) == 0x50000 | errno.EPERM, name
    common = {"x86_64": (0, 1, 2, 9, 57, 59, 202, 257, 302), "aarch64": (56, 63, 64, 98, 221, 261)}
    for number in common[machine]:  # read, write, open, mmap, fork, execve, futex, …
        assert verdict(code, ARCH[machine], number) == ALLOW, number


def test_arguments_decide_where_a_call_has_two_faces(machine: str) -> None:
    code = seccomp.program()
    assert code is not None

    def told(name: str, *arguments: int) -> int:
        return verdict(code or b"", ARCH[machine], numbers(machine, name), *arguments)

    assert told("clone", 0x003D0F00) == ALLOW, "a thread"
    assert told("clone", 17) == ALLOW, "a fork"
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert told("clone", flag | 17) == 0x50000 | errno.EPERM
    assert told("clone3", 0) == 0x50000 | errno.ENOSYS
    for family in (1, 2, 10, 16):
        assert told("socket", family, 1) == ALLOW
    for family in (0, 3, 17, 38, 40, 44, 2**32 - 1):
        assert told("socket", family, 1) == 0x50000 | errno.EAFNOSUPPORT
    assert told("ioctl", 0, 0x5412) == 0x50000 | errno.EPERM
    # The kernel looks at the lower half of the number alone.
    assert told("ioctl", 0, 0x5412 | 1 << 32) == 0x50000 | errno.EPERM
    assert told("ioctl", 0, 0x5401) == ALLOW


def test_other_numberings_do_not_pass(machine: str) -> None:
    code = seccomp.program()
    assert code is not None
    assert verdict(code, 0x40000003, 1) == KILL, "32-bit x86"
    assert verdict(code, ARCH[machine], 0x40000000 | 1) == 0x50000 | errno.ENOSYS, "x32"
    assert verdict(code, ARCH[machine], 100_000) == 0x50000 | errno.ENOSYS


@given(number=st.integers(0, 2**32 - 1), arguments=st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_every_call_gets_an_answer(number: int, arguments: list[int]) -> None:
    code = seccomp.program()
    if code is not None:
        for arch in ARCH.values():
            assert verdict(code, arch, number, *arguments) in (
                ALLOW,
                KILL,
                *(0x50000 | e for e in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT)),
            )


def test_an_unknown_machine_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    seccomp.program.cache_clear()
    try:
        assert seccomp.program() is None
        assert seccomp.program_fd() == -1
    finally:
        seccomp.program.cache_clear()


@pytest.mark.skipif(not all(path.exists() for path in HEADERS), reason="no kernel headers here")
def test_the_numbers_are_those_of_the_kernel() -> None:
    tables = []
    for path in HEADERS:
        found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text())
        tables.append({name: int(number) for name, number in reversed(found)})
    for name, pair in {**seccomp.CALLS, **seccomp._SPECIAL}.items():
        for table, number in zip(tables, pair, strict=True):
            if name in table:
                assert table[name] == number, name
