"""What the server holds while nothing is under way, and whether that grows."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.soak.server import Server

MIB = 1 << 20
_SETTLE_SECONDS = 20

LIMITS = {
    "rss_mib": 48.0,
    "children_rss_mib": 48.0,
    "fds": 4.0,
    "children_fds": 4.0,
    "threads": 4.0,
    "children": 0.0,
    "shared_memory": 0.0,
    "temporary": 0.0,
}
"""By how much each number may be higher at the end than after the warm-up.

Memory: allocators keep what they once needed, and tables of known request headers and layouts fill up to
their bounds; both are flat well below this. Threads and files: connections that the server is just closing.
"""


@dataclass(frozen=True)
class Holdings:
    """What the server and the processes of its python instances hold.

    Attributes:
        rss_mib: Resident memory of the server, MiB.
        children_rss_mib: Of its children together, MiB.
        fds: Open files of the server.
        children_fds: Of its children together.
        threads: Threads of the server.
        children: Number of children.
        shared_memory: Entries of /dev/shm that the server or a child has open or mapped.
        temporary: Entries in the server's TMPDIR, at any depth.
    """

    rss_mib: float
    children_rss_mib: float
    fds: int
    children_fds: int
    threads: int
    children: int
    shared_memory: int
    temporary: int


def holdings(server: Server) -> Holdings:
    """Count what is held now."""
    process = psutil.Process(server.process.pid)
    children = process.children(recursive=True)
    everyone = [process, *children]
    return Holdings(
        round(process.memory_info().rss / MIB, 1),
        round(sum(child.memory_info().rss for child in children) / MIB, 1),
        process.num_fds(),
        sum(child.num_fds() for child in children),
        process.num_threads(),
        len(children),
        len({path for one in everyone for path in _shared_memory(one.pid)}),
        sum(1 for _ in server.scratch.rglob("*")),
    )


async def settled(server: Server) -> Holdings:
    """What is held once that changes no more: what is just being closed has been closed."""
    gc.collect()
    last = None
    for _ in range(_SETTLE_SECONDS):
        await asyncio.sleep(1)
        seen = holdings(server)
        counts = (seen.fds, seen.children_fds, seen.threads, seen.children, seen.temporary)
        if counts == last:
            return seen
        last = counts
    return holdings(server)


def _shared_memory(pid: int) -> set[str]:
    found = set()
    maps = Path(f"/proc/{pid}/maps").read_text()
    found |= {line.split()[5] for line in maps.splitlines() if " /dev/shm/" in line}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith("/dev/shm/"):
            found.add(target)
    return found


def grown(before: Holdings, after: Holdings) -> list[str]:
    """In words, what has grown beyond its limit."""
    old, new = asdict(before), asdict(after)
    return [
        f"leak: {name} was {old[name]} after the warm-up and is {new[name]}; {limit:g} more are allowed"
        for name, limit in LIMITS.items()
        if new[name] - old[name] > limit
    ]
