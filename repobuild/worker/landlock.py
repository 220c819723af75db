"""Holds writes of the child process to a few folders, and its signals to itself, by Landlock.

Landlock is Linux's own means for processes to give up rights without privileges (<linux/landlock.h>,
Documentation/userspace-api/landlock.rst). Reading is not touched: Python, its packages and the model lie
anywhere.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
CREATE_VERSION = 1
RULE_PATH_BENEATH = 1
WRITE_FILE = 1 << 1
MAKE_AND_REMOVE = 0x1FF0
"""REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, _DIR, _REG, _SOCK, _FIFO, _BLOCK and _SYM: bits 4 to 12."""

REFER, TRUNCATE = 1 << 13, 1 << 14
SCOPE_ABSTRACT_SOCKET, SCOPE_SIGNAL = 1, 2
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - semaphores of joblib's processes are made there


def hold_writes(folders: Sequence[str]) -> str:
    """Allow writes below some folders only, for this process and all that it starts.

    ``prctl(PR_SET_NO_NEW_PRIVS)`` must have been called.

    Args:
        folders: Existing folders; ``/dev/shm`` and the devices that lead nowhere are added.

    Returns:
        What hindered it, or nothing.
    """
    library = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result: int = library.syscall(ctypes.c_long(number), *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    try:
        version = call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(CREATE_VERSION))
        rights = WRITE_FILE | MAKE_AND_REMOVE
        rights |= (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
        scopes = SCOPE_ABSTRACT_SOCKET | SCOPE_SIGNAL if version >= 6 else 0
        wanted = struct.pack("=QQQ", rights, 0, scopes) if scopes else struct.pack("=Q", rights)
        rules = call(CREATE_RULESET, wanted, ctypes.c_size_t(len(wanted)), ctypes.c_uint32(0))
        try:
            of_files = rights & (WRITE_FILE | TRUNCATE)
            for folder in dict.fromkeys([*folders, SHARED_MEMORY, *DEVICES]):
                if not Path(folder).exists():
                    continue
                place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
                try:
                    rule = struct.pack("=Qi", of_files if folder in DEVICES else rights, place)
                    call(
                        ADD_RULE,
                        ctypes.c_int(rules),
                        ctypes.c_int(RULE_PATH_BENEATH),
                        rule,
                        ctypes.c_uint32(0),
                    )
                finally:
                    os.close(place)
            call(RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0))
        finally:
            os.close(rules)
    except OSError as problem:
        return f"no Landlock ({errno.errorcode.get(problem.errno or 0, problem.errno)})"
    return ""
