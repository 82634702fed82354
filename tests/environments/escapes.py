"""Run inside a sandbox by Python: attempts that need more than a shell.

Each attempt of `ATTEMPTS` gets what the host knows (`Host`) and returns what it got hold of, or
raises, or returns nothing: only a returned text is an escape. `main` runs them all, one after the
other, and writes one JSON object to standard output. Nothing of the product is imported.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import json
import os
import platform
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable
from typing import Any

Host = dict[str, Any]
"""`port`, `port6`, `unix`, `abstract`, `secret`, `secret_path`, `database`, `tasks`, `pid`,
`listener` (a descriptor's number, or none)."""
ATTEMPTS: dict[str, Callable[[Host], str | None]] = {}
libc = ctypes.CDLL(None, use_errno=True)
X86, ARM = platform.machine() == "x86_64", platform.machine() == "aarch64"


def attempt(function: Callable[[Host], str | None]) -> Callable[[Host], str | None]:
    ATTEMPTS[function.__name__] = function
    return function


def call(x86: int, arm: int, *arguments: object) -> int:
    """A system call by its number. `OSError` if it is refused."""
    result = int(libc.syscall(ctypes.c_long(x86 if X86 else arm), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# --- network -------------------------------------------------------------------------------------


def connect(family: int, address: Any) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(2)
        sock.connect(address)
        return f"connected to {address!r}"


@attempt
def ipv4_to_the_host(host: Host) -> str:
    return connect(socket.AF_INET, ("127.0.0.1", host["port"]))


@attempt
def ipv4_outside(host: Host) -> str:
    return connect(socket.AF_INET, ("1.1.1.1", 443))


@attempt
def ipv6_to_the_host(host: Host) -> str:
    return connect(socket.AF_INET6, ("::1", host["port6"] or host["port"]))


@attempt
def ipv6_outside(host: Host) -> str:
    return connect(socket.AF_INET6, ("2606:4700:4700::1111", 443))


@attempt
def metadata_service(host: Host) -> str:
    return connect(socket.AF_INET, ("169.254.169.254", 80))


@attempt
def unix_socket_of_the_host(host: Host) -> str:
    return connect(socket.AF_UNIX, host["unix"])


@attempt
def abstract_socket_of_the_host(host: Host) -> str:
    return connect(socket.AF_UNIX, "\0" + host["abstract"])


@attempt
def name_resolution(host: Host) -> str:
    return str(socket.getaddrinfo("example.org", 443))


@attempt
def a_question_to_a_name_server(host: Host) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.sendto(b"\0" * 12, ("8.8.8.8", 53))
        return repr(sock.recv(512))


@attempt
def vsock_to_the_hypervisor(host: Host) -> str:
    with socket.socket(getattr(socket, "AF_VSOCK", 40), socket.SOCK_STREAM):
        return "a vsock"


@attempt
def raw_packets(host: Host) -> str:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW):
        return "a packet socket"


@attempt
def kernel_crypto_sockets(host: Host) -> str:
    with socket.socket(38, socket.SOCK_SEQPACKET):
        return "an AF_ALG socket"


@attempt
def disconnecting_an_inherited_socket(host: Host) -> str | None:
    """`connect(AF_UNSPEC)` makes a client of a listening TCP socket, on its own network."""
    found = None
    for fd in inherited():
        sock = socket.socket(fileno=os.dup(fd)) if is_socket(fd) else None
        if sock is None:
            continue
        with sock:
            unspec = struct.pack("=H14x", socket.AF_UNSPEC)
            if libc.connect(sock.fileno(), unspec, len(unspec)) != 0:
                continue
            sock.settimeout(1)
            sock.connect(("127.0.0.1", host["port"]))
            found = f"descriptor {fd} reached the host"
    return found


# --- descriptors, secrets, processes --------------------------------------------------------------


def inherited() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd") if is_open(int(name))]


def is_open(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_GETFD)
    except OSError:
        return False
    return True


def is_socket(fd: int) -> bool:
    return os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")


@attempt
def inherited_descriptors(host: Host) -> str | None:
    """Only the null device, pipes and the listener that was meant."""
    for fd in inherited():
        target = os.readlink(f"/proc/self/fd/{fd}")
        is_meant = fd == host.get("listener") and target.startswith("socket:")
        if not (is_meant or target == "/dev/null" or target.startswith("pipe:")):
            if "/proc/" in target and target.endswith("/fd"):
                continue  # the listing itself
            return f"{fd}: {target}"
    return None


@attempt
def reading_a_secret_by_its_path(host: Host) -> str:
    with open(host["secret_path"]) as file:
        return file.read()


@attempt
def reading_the_database(host: Host) -> str:
    with open(host["database"], "rb") as file:
        return repr(file.read(16))


@attempt
def writing_the_tasks(host: Host) -> str:
    with open(host["tasks"], "r+") as file:
        file.write("x")
    return "tasks written"


@attempt
def reading_the_shadow_file(host: Host) -> str:
    with open("/etc/shadow") as file:
        return file.read(20)


@attempt
def private_keys_of_users(host: Host) -> str | None:
    found = [*glob.glob("/root/.ssh/*"), *glob.glob("/home/*/.ssh/*"), *glob.glob("/var/lib/*")]
    return ", ".join(found) or None


@attempt
def the_environment_of_any_process(host: Host) -> str | None:
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                if host["secret"].encode() in file.read():
                    return path
        except OSError:
            continue
    return None


@attempt
def processes_of_the_host(host: Host) -> str | None:
    """Numbers inside are small: the namespace counts its own."""
    return next((path for path in glob.glob("/proc/[0-9]*") if int(path[6:]) > 100), None)


@attempt
def paths_of_the_host(host: Host) -> str | None:
    """Command lines of the sandbox's own processes, which a careless launcher fills with them."""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with open(path, "rb") as file:
            words = file.read().split(b"\0")
            # Without the attempts' own argument.
            if any(b"spec.json" in word or b"--setenv" in word or b"--ro-bind" in word
                   for word in words):  # fmt: skip
                return path
    return None


@attempt
def the_root_of_another_process(host: Host) -> str | None:
    for path in glob.glob("/proc/[0-9]*/root"):
        if os.path.exists(path + host["secret_path"]):
            return path
    return None


@attempt
def the_memory_of_the_first_process(host: Host) -> str:
    with open("/proc/1/mem", "r+b") as file:
        file.seek(0x1000)
        return repr(file.read(1))


@attempt
def a_signal_to_the_parent(host: Host) -> str:
    os.kill(host["pid"], signal.SIGSTOP)
    return "it was stopped"


# --- system calls ---------------------------------------------------------------------------------


@attempt
def ptrace(host: Host) -> str:
    call(101, 117, 16, 1, 0, 0)
    return "attached to process 1"


@attempt
def reading_another_process(host: Host) -> str:
    buffer = ctypes.create_string_buffer(8)
    vector = struct.pack("PN", ctypes.addressof(buffer), 8)
    call(310, 270, 1, vector, 1, vector, 1, 0)
    return "read"


@attempt
def taking_a_descriptor_of_another_process(host: Host) -> str:
    call(438, 438, os.pidfd_open(1), 0, 0)
    return "taken"


@attempt
def the_keyring(host: Host) -> str:
    call(250, 219, 0, -3, 1)
    return "a keyring"


@attempt
def adding_a_key(host: Host) -> str:
    call(248, 217, b"user", b"name", b"value", 5, -3)
    return "a key"


@attempt
def bpf(host: Host) -> str:
    call(321, 280, 0, ctypes.create_string_buffer(128), 128)
    return "a map"


@attempt
def perf_events(host: Host) -> str:
    call(298, 241, ctypes.create_string_buffer(128), 0, -1, -1, 0)
    return "an event"


@attempt
def userfaultfd(host: Host) -> str:
    call(323, 282, 1)
    return "a descriptor"


@attempt
def io_uring(host: Host) -> str:
    call(425, 425, 4, ctypes.create_string_buffer(256))
    return "a ring"


@attempt
def the_kernels_log(host: Host) -> str:
    call(103, 116, 3, ctypes.create_string_buffer(4096), 4096)
    return "read"


@attempt
def a_nested_user_namespace(host: Host) -> str:
    call(272, 97, 0x10000000)
    return "root inside"


@attempt
def a_clone_with_a_user_namespace(host: Host) -> str:
    pid = call(56, 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "root in a child"


@attempt
def entering_a_namespace(host: Host) -> str:
    call(308, 268, os.open("/proc/1/ns/mnt", os.O_RDONLY), 0)
    return "entered"


@attempt
def mounting(host: Host) -> str:
    call(165, 40, b"tmpfs", b"/tmp", b"tmpfs", 0, None)
    return "mounted"


@attempt
def unmounting(host: Host) -> str:
    call(166, 39, b"/usr/local", 2)
    return "unmounted"


@attempt
def another_root(host: Host) -> str:
    os.chroot("/tmp")
    return "chroot"


@attempt
def files_by_handle(host: Host) -> str:
    """The way out of early Docker: a handle of inode 2 is the root of the host's file system."""
    handle = struct.pack("=IiQ", 8, 1, 2)
    fd = call(304, 265, os.open("/usr", os.O_RDONLY), handle, os.O_RDONLY)
    return repr(os.listdir(fd))


@attempt
def a_device(host: Host) -> str:
    os.mknod(os.path.join(tempfile.gettempdir(), "disk"), 0o600 | 0o060000, os.makedev(8, 0))
    return "made"


@attempt
def keystrokes_into_a_terminal(host: Host) -> str:
    leader, follower = os.openpty()
    try:
        fcntl.ioctl(follower, 0x5412, b"x")
    finally:
        os.close(leader)
        os.close(follower)
    return "pushed"


@attempt
def becoming_root(host: Host) -> str:
    os.setuid(0)
    return "root"


@attempt
def a_program_that_becomes_root(host: Host) -> str | None:
    """Nothing on the way gives rights: no_new_privs, and nobody else exists in the namespace."""
    for line in open("/proc/self/status"):  # noqa: SIM115
        name, _, value = line.partition(":")
        if name == "NoNewPrivs" and value.strip() != "1":
            return line
        if name in ("CapEff", "CapPrm", "CapBnd", "CapAmb") and int(value, 16):
            return line
    return None


@attempt
def calls_by_the_old_numbers(host: Host) -> str | None:
    """x32: the same calls with bit 30 set pass a filter that compares numbers alone."""
    if not X86:
        return None
    call(0x40000000 + 101, 0, 16, 1, 0, 0)
    return "ptrace by its x32 number"


@attempt
def the_clock(host: Host) -> str:
    call(164, 170, struct.pack("qq", 1, 0), None)
    return "set"


@attempt
def the_hosts_name(host: Host) -> str:
    socket.sethostname("mine")
    return "set"


@attempt
def raising_limits(host: Host) -> str:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    try:
        resource.setrlimit(resource.RLIMIT_NPROC, (hard + 100, hard + 100))
    except ValueError as error:  # so does Python say EPERM
        raise PermissionError(str(error)) from error
    return "raised"


@attempt
def escaping_the_memory_killer(host: Host) -> str:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
    return "never chosen"


# --- files ----------------------------------------------------------------------------------------


def write(path: str) -> str:
    with open(path, "w") as file:
        file.write("1")
    return f"{path} written"


@attempt
def the_core_pattern(host: Host) -> str:
    return write("/proc/sys/kernel/core_pattern")


@attempt
def the_system_request_key(host: Host) -> str:
    return write("/proc/sysrq-trigger")


@attempt
def the_host_through_sys(host: Host) -> str | None:
    found = [
        path for path in ("/sys/kernel", "/sys/fs/cgroup", "/sys/class") if os.path.exists(path)
    ]
    return ", ".join(found) or None


@attempt
def control_groups(host: Host) -> str | None:
    for root, _, names in os.walk("/"):
        if root.startswith("/proc"):
            continue
        if "cgroup.procs" in names:
            return root
    return None


@attempt
def kernel_memory(host: Host) -> str | None:
    for path in ("/dev/mem", "/dev/kmem", "/dev/kmsg", "/proc/kcore", "/dev/sda", "/dev/vda"):
        try:
            with open(path, "rb") as file:
                return f"{path}: {file.read(1)!r}"
        except OSError:
            continue
    return None


@attempt
def addresses_of_the_kernel(host: Host) -> str | None:
    with open("/proc/kallsyms") as file:
        first = file.readline().split()
    return " ".join(first) if int(first[0], 16) else None


@attempt
def the_system(host: Host) -> str | None:
    for path in (
        "/usr/x",
        "/usr/bin/x",
        "/bin/x",
        "/lib/x",
        "/etc/x",
        "/x",
        "/dev/x",
        "/usr/local/x",
    ):
        try:
            return write(path)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT):
                raise
    return None


@attempt
def a_hard_link_out(host: Host) -> str:
    os.link("/usr/bin/env", os.path.join(tempfile.gettempdir(), "linked"))
    return "linked"


@attempt
def the_way_up(host: Host) -> str | None:
    for path in ("/task/..", "/tmp/..", "/proc/self/cwd/../..", "/proc/self/root/.."):
        if os.path.exists(path + host["secret_path"]):
            return path
    return None


def main() -> None:
    # Some of these would do harm to whoever succeeds with them.
    if socket.gethostname() != "sandbox" or os.getuid() != 65534:
        raise SystemExit("this runs inside the sandbox alone")
    host: Host = json.loads(sys.argv[1])
    found: dict[str, dict[str, object]] = {}
    for name, function in ATTEMPTS.items():
        try:
            got = function(host)
            found[name] = {"escaped": got is not None, "why": got or "nothing found"}
        except OSError as error:
            found[name] = {"escaped": False, "why": f"{type(error).__name__}: {error}"}
        except Exception as error:  # an attempt that is wrong proves nothing
            found[name] = {"escaped": None, "why": f"{type(error).__name__}: {error}"}
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
