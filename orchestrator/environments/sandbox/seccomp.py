"""A filter of system calls: what no agent's program needs and what attacks on kernels begin with.

A list of refusals, not of permissions: foreign programs must run. Refused calls fail with an error
(EPERM, or ENOSYS where libraries then take another way), they do not kill. Beside the list:
`clone` with any new namespace, sockets of other families than UNIX, IPv4, IPv6 and netlink
(AF_VSOCK reaches a virtual machine's host whatever the network namespace), keystrokes pushed into
a terminal, calls that are younger than the list, and calls by another architecture's numbers.

The program is classic BPF, as `bwrap --seccomp` reads it; numbers are from the kernel's
`unistd_64.h` and `asm-generic/unistd.h`. Other machines than x86-64 and 64-bit ARM get no filter,
and `Isolation` says so.
"""

from __future__ import annotations

import errno
import functools
import os
import platform
import socket
import struct

CALLS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
"""Refused always: number on x86-64, number on 64-bit ARM."""
_SPECIAL = {"clone": (56, 220), "clone3": (435, 435), "socket": (41, 198), "ioctl": (16, 29)}
_YOUNGEST = 462
"""`mseal` of Linux 6.10, the last one looked at."""

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # <linux/audit.h>
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET of <linux/sched.h>."""
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_NETLINK, socket.AF_INET6)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

# <linux/bpf_common.h>, <linux/seccomp.h>; offsets are those of struct seccomp_data.
_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_GT, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06
_NUMBER, _ARCH, _ARG0, _ARG1 = 0, 4, 16, 24
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


@functools.cache
def program() -> bytes | None:
    """The filter for this machine; None where there is none."""
    found = _ARCHITECTURES.get(platform.machine())
    if found is None:
        return None
    column, arch = found
    refused = [numbers[column] for numbers in CALLS.values() if numbers[column] is not None]
    clone, clone3, socket_, ioctl = (_SPECIAL[n][column] for n in _SPECIAL)
    steps = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQ, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    steps += _unless(_JUMP_GE, _X32, errno.ENOSYS)
    steps += _unless(_JUMP_GT, _YOUNGEST, errno.ENOSYS)
    steps += _unless(_JUMP_EQ, clone3, errno.ENOSYS)
    for number in refused:
        steps += _unless(_JUMP_EQ, number or 0, errno.EPERM)
    steps += _on(clone, [(_LOAD, 0, 0, _ARG0), *_unless(_JUMP_SET, _NEW_NAMESPACES, errno.EPERM)])
    families = [(_JUMP_EQ, len(_FAMILIES) - i, 0, int(f)) for i, f in enumerate(_FAMILIES)]
    steps += _on(
        socket_, [(_LOAD, 0, 0, _ARG0), *families, (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT)]
    )
    keys = [
        step for code in (_TIOCSTI, _TIOCLINUX) for step in _unless(_JUMP_EQ, code, errno.EPERM)
    ]
    steps += _on(ioctl, [(_LOAD, 0, 0, _ARG1), *keys])
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def program_fd() -> int:
    """A new descriptor to read the filter from; the caller closes it. -1 where there is none."""
    code = program()
    if code is None:
        return -1
    fd = os.memfd_create("seccomp")
    os.write(fd, code)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


_Step = tuple[int, int, int, int]
"""Code, steps to skip if true, steps to skip if false, constant."""


def _unless(test: int, constant: int, error: int) -> list[_Step]:
    """Refuse with an error if the test holds of what was loaded."""
    return [(test, 0, 1, constant), (_RETURN, 0, 0, _ERRNO | error)]


def _on(number: int, steps: list[_Step]) -> list[_Step]:
    """Steps for one call, which end it: none of them may load and go on to others."""
    steps = [*steps, (_RETURN, 0, 0, _ALLOW)]
    return [(_JUMP_EQ, 0, len(steps), number), *steps]
