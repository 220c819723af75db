"""What the child process gives up before any code of a model runs: the network, and ways out.

Means of Linux, none of which needs privileges where the system allows it at all:

- a network namespace of its own, with a user namespace around it where that is needed;
- a seccomp filter, which refuses sockets other than streams of ``AF_UNIX`` and all ``connect``, io_uring
  (through which sockets could be made too), new sessions and process groups (so that whatever the model
  starts ends with its group), new namespaces and mounts, looking into other processes and changing their
  limits, and changing the mode, owner, times and attributes of files, which Landlock does not hold;
- Landlock, which holds writes to the build's own folders (:mod:`repobuild.worker.landlock`).

All are inherited by everything the process starts, and none can be undone. What was reached is said, not
assumed: a socket is tried.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from repobuild.worker.landlock import hold_writes

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET} of <linux/sched.h>; clone cannot ask for CLONE_NEWTIME."""

RET_KILL, RET_ERRNO, RET_ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN, AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
AT_NUMBER, AT_ARCHITECTURE, AT_ARGUMENT, ARGUMENT_BYTES = 0, 4, 16, 8
SOCKET_TYPE = 0xF
"""The bits of a socket's type; SOCK_CLOEXEC and SOCK_NONBLOCK lie above them (SOCK_TYPE_MASK of Linux)."""
X32 = 0x40000000


@dataclass(frozen=True, slots=True)
class Architecture:
    """How the kernel numbers system calls on one kind of machine.

    Attributes:
        audit: ``AUDIT_ARCH_*`` of <linux/audit.h>.
        numbers: System call numbers of <asm/unistd.h>.
        x32: Whether numbers from :data:`X32` on are a second ABI.
    """

    audit: int
    numbers: Mapping[str, int]
    x32: bool = False


SAME = MappingProxyType(
    {
        "clone3": 435,
        "io_uring_setup": 425,
        "io_uring_enter": 426,
        "io_uring_register": 427,
        "pidfd_getfd": 438,
        "open_tree": 428,
        "move_mount": 429,
        "fsopen": 430,
        "fsmount": 432,
        "fspick": 433,
        "mount_setattr": 442,
        "process_madvise": 440,
        "memfd_secret": 447,
        "fchmodat2": 452,
        "setxattrat": 463,
        "removexattrat": 466,
    }
)
ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": Architecture(
        0xC000003E,
        {
            "socket": 41, "connect": 42, "socketpair": 53, "clone": 56, "ptrace": 101, "setpgid": 109,
            "setsid": 112, "mount": 165, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
            "perf_event_open": 298, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311,
            "bpf": 321, "userfaultfd": 323, "umount2": 166, "pivot_root": 155, "chroot": 161,
            "memfd_create": 319, "prlimit64": 302, "setpriority": 141, "ioprio_set": 251,
            "sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203, "sched_setattr": 314,
            "migrate_pages": 256, "move_pages": 279, "fchmod": 91, "fchmodat": 268, "fchown": 93,
            "fchownat": 260, "utimensat": 280, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190,
            "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, "chmod": 90, "chown": 92,
            "lchown": 94, "utime": 132, "utimes": 235, "futimesat": 261, **SAME,
        },
        x32=True,
    ),
    "aarch64": Architecture(
        0xC00000B7,
        {
            "socket": 198, "connect": 203, "socketpair": 199, "clone": 220, "ptrace": 117, "setpgid": 154,
            "setsid": 157, "mount": 40, "add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97,
            "perf_event_open": 241, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271,
            "bpf": 280, "userfaultfd": 282, "umount2": 39, "pivot_root": 41, "chroot": 51,
            "memfd_create": 279, "prlimit64": 261, "setpriority": 140, "ioprio_set": 30,
            "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122, "sched_setattr": 274,
            "migrate_pages": 238, "move_pages": 239, "fchmod": 52, "fchmodat": 53, "fchown": 55,
            "fchownat": 54, "utimensat": 88, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7,
            "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16, **SAME,
        },
    ),
}  # fmt: skip
REFUSED = (
    "setsid", "setpgid", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "unshare", "setns",
    "mount", "io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "perf_event_open", "userfaultfd",
    "add_key", "request_key", "keyctl", "open_tree", "move_mount", "fsopen", "fsmount", "fspick",
    "mount_setattr", "umount2", "pivot_root", "chroot", "memfd_create", "memfd_secret", "process_madvise",
    "setpriority", "ioprio_set", "migrate_pages", "move_pages", "chmod", "fchmod", "fchmodat", "fchmodat2",
    "chown", "fchown", "lchown", "fchownat", "utime", "utimes", "futimesat", "utimensat", "setxattr",
    "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat",
)  # fmt: skip
"""Calls that reach other processes, or files that Landlock's rules of writing leave out: their modes, owners,
times and attributes. Memory that no limit counts is refused too."""

OF_ITSELF = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
"""Calls whose first argument is a process, allowed where that is 0, the caller itself."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What was reached.

    Attributes:
        network: ``cut by network namespace``, ``cut by seccomp filter``, or ``not cut: <why>``.
        processes: ``kept in one group by seccomp filter``, or ``not kept in one group: <why>``.
        writes: ``held to the build's folders by Landlock``, or ``anywhere: <why>``.
    """

    network: str
    processes: str
    writes: str

    def to_dict(self) -> dict[str, str]:
        """A JSON-ready form for the report."""
        return asdict(self)


def enter(writable: Sequence[str] = ()) -> Sandbox:
    """Give up the network, the ways out of the process group, and writes; call it before any thread starts.

    Nothing is raised where the system refuses: the answer says so.

    Args:
        writable: Folders that may be written to; nothing is held where there are none.
    """
    if not sys.platform.startswith("linux"):
        why = f"{platform.system()} has neither network namespaces nor seccomp"
        return Sandbox(f"not cut: {why}", f"not kept in one group: {why}", f"anywhere: {why}")
    namespace = _leave_network()
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    free = hold_writes(writable) if writable else "no folders were named"
    trouble = _install_filter()
    writes = f"anywhere: {free}" if free else "held to the build's folders by Landlock"
    processes = f"not kept in one group: {trouble}" if trouble else "kept in one group by seccomp filter"
    if not namespace:
        return Sandbox("cut by network namespace", processes, writes)
    if trouble:
        return Sandbox(f"not cut: {namespace}; {trouble}", processes, writes)
    return Sandbox("cut by seccomp filter", processes, writes)


def _leave_network() -> str:
    """Move into an empty network namespace; what hindered it, or nothing."""
    owner, group = os.getuid(), os.getgid()
    first = _call("unshare", CLONE_NEWNET)
    if not first:
        return ""
    second = _call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
    if second:
        return f"no network namespace ({first}; in a user namespace {second})"
    with contextlib.suppress(OSError):  # without the maps, everything works as user 65534
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{owner} {owner} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return ""


def _install_filter() -> str:
    """Install the filter and try it; what hindered it, or nothing."""
    machine = platform.machine()
    known = ARCHITECTURES.get(machine)
    if known is None or sys.byteorder != "little" or sys.maxsize < 1 << 32:
        return f"no seccomp filter for {machine}"
    code = filter_program(known)
    program = ctypes.create_string_buffer(code, len(code))
    head = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(program)))
    for option, *values in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(head), 0, 0),
    ):
        trouble = _call("prctl", option, *values)
        if trouble:
            return f"no seccomp filter ({trouble})"
    return "" if _socket_refused() else "the seccomp filter has no effect"


def _socket_refused() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
    except PermissionError:
        return True
    except OSError as problem:
        return problem.errno == errno.EAFNOSUPPORT
    return False


def _call(function: str, *arguments: int) -> str:
    """Call a function of the C library; the name of its error, or nothing."""
    library = ctypes.CDLL(None, use_errno=True)
    try:
        called = getattr(library, function)
    except AttributeError:
        return f"there is no {function}"
    result = called(*(ctypes.c_ulong(a) if n else ctypes.c_int(a) for n, a in enumerate(arguments)))
    if result == 0:
        return ""
    number = ctypes.get_errno()
    return f"{function}: {errno.errorcode.get(number, number)}"


def filter_program(architecture: Architecture) -> bytes:
    """The filter as classic BPF, 8 bytes an instruction (``struct sock_filter`` of <linux/filter.h>).

    System calls of another ABI end the process, since their numbers mean something else.
    """
    numbers = architecture.numbers
    lines: list[tuple[int, int, int, int]] = [
        (LOAD, 0, 0, AT_ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, architecture.audit),
        (RETURN, 0, 0, RET_KILL),
        (LOAD, 0, 0, AT_NUMBER),
    ]
    if architecture.x32:
        lines += [(JUMP_AT_LEAST, 0, 1, X32), (RETURN, 0, 0, RET_KILL)]
    for name in REFUSED:
        if name in numbers:
            lines += _answer(numbers[name], [(RETURN, 0, 0, RET_ERRNO | errno.EPERM)])
    for name in OF_ITSELF:
        lines += _answer(
            numbers[name],
            [
                (LOAD, 0, 0, AT_ARGUMENT),
                (JUMP_EQUAL, 1, 0, 0),
                (RETURN, 0, 0, RET_ERRNO | errno.EPERM),
                (RETURN, 0, 0, RET_ALLOW),
            ],
        )
    lines += _answer(numbers["connect"], [(RETURN, 0, 0, RET_ERRNO | errno.EACCES)])
    # clone3 hides its flags in memory; the C library falls back to clone, whose flags can be looked at.
    lines += _answer(numbers["clone3"], [(RETURN, 0, 0, RET_ERRNO | errno.ENOSYS)])
    for name in ("socket", "socketpair"):
        lines += _answer(
            numbers[name],
            [
                (LOAD, 0, 0, AT_ARGUMENT),
                (JUMP_EQUAL, 1, 0, socket.AF_UNIX),
                (RETURN, 0, 0, RET_ERRNO | errno.EACCES),
                # datagrams go to any socket without a connect
                (LOAD, 0, 0, AT_ARGUMENT + ARGUMENT_BYTES),
                (AND, 0, 0, SOCKET_TYPE),
                (JUMP_EQUAL, 1, 0, socket.SOCK_STREAM),
                (RETURN, 0, 0, RET_ERRNO | errno.EACCES),
                (RETURN, 0, 0, RET_ALLOW),
            ],
        )
    lines += _answer(
        numbers["clone"],
        [
            (LOAD, 0, 0, AT_ARGUMENT),
            (JUMP_ANY_BIT, 0, 1, NEW_NAMESPACES),
            (RETURN, 0, 0, RET_ERRNO | errno.EPERM),
            (RETURN, 0, 0, RET_ALLOW),
        ],
    )
    lines.append((RETURN, 0, 0, RET_ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _answer(number: int, what: Sequence[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Instructions that run ``what`` for one system call and step over it for others."""
    return [(JUMP_EQUAL, 0, len(what), number), *what]
