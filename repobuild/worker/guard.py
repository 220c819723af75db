"""Watches, from outside, what limits of single processes cannot hold: how many there are, and the disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

from repobuild.errors import EnvironmentLacking, Evidence, RepobuildError
from repobuild.worker.limits import Limits

LOOK_SECONDS = 1.0
SUDDEN = 64
"""New tasks on the whole system between two looks that make the next look come at once."""

PROC = Path("/proc")
SHARED = Path("/dev/shm")  # noqa: S108 - files there are memory that no process need hold


class Guard:
    """Looks at a process group and at the disk it writes to.

    Args:
        group: Number of the process group.
        folder: A folder on the disk.
        doing: What the group is for, to complete "while ...".
        limits: What it may use.
    """

    def __init__(self, group: int, folder: Path, doing: str, limits: Limits) -> None:
        self._group = group
        self._folder = folder
        self._doing = doing
        self._limits = limits
        self._memory = min(limits.memory, _machine_memory() * 9 // 10)
        self._next = 0.0
        self._tasks = _all_tasks()
        self._free = _free_bytes(folder)
        self._shared = _free_bytes(SHARED)

    def begin(self) -> None:
        """A question begins: space that others took before it does not count."""
        self._free = _free_bytes(self._folder)
        self._shared = _free_bytes(SHARED)

    def trouble(self) -> RepobuildError | None:
        """What went past a limit, if anything did; cheap enough to be asked every few milliseconds."""
        tasks, now = _all_tasks(), time.monotonic()
        if now < self._next and tasks < self._tasks + SUDDEN:
            return None
        self._next, self._tasks = now + LOOK_SECONDS, tasks
        count, memory = _group_use(self._group)
        memory += max(0, self._shared - _free_bytes(SHARED))
        if count > self._limits.processes:
            return EnvironmentLacking(
                "worker-too-many-processes",
                f"more than {self._limits.processes} processes were started while {self._doing}",
                (Evidence(f"there were {count}; all of them were ended"),),
                "code in the model starts processes without end; nothing was written",
            )
        if memory > self._memory:
            return EnvironmentLacking(
                "worker-out-of-memory",
                f"the model and the {count} processes around it need more than"
                f" {self._memory / (1 << 30):.1f} GiB of memory while {self._doing}",
                (Evidence(f"together they hold {memory / (1 << 30):.1f} GiB"),),
                "use fewer samples or a smaller model, or raise REPOBUILD_WORKER_MEMORY",
            )
        taken = self._free - _free_bytes(self._folder)
        allowed = min(self._limits.disk_bytes, self._free * 9 // 10)
        if taken > allowed:
            return EnvironmentLacking(
                "worker-fills-disk",
                f"the disk lost more than {allowed / (1 << 30):.1f} GiB of free space while {self._doing}",
                (Evidence(f"{taken / (1 << 30):.1f} GiB of {self._free / (1 << 30):.1f} GiB are gone"),),
                "code in the model writes files without end, or another program filled the disk",
            )
        return None


def _all_tasks() -> int:
    """Processes and threads of the whole system; 0 where it does not tell."""
    try:
        return int((PROC / "loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def _machine_memory() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_bytes(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _group_use(group: int) -> tuple[int, int]:
    """How many processes a group has, and the bytes of memory that they hold; zeros without /proc."""
    count = memory = 0
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        numbers = [entry.name for entry in PROC.iterdir() if entry.name.isdecimal()]
    except OSError:
        return 0, 0
    for number in numbers:
        try:
            text = (PROC / number / "stat").read_text(errors="replace")
            fields = text.rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] not in "ZX":
                count += 1
                memory += int(fields[21]) * page
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
    return count, memory
