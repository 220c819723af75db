"""The configuration that verification runs under where the bundled server cannot run the emitted one.

What is emitted stays what the user asked for; the copy that is verified differs in what no answer depends on,
and each difference is told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from repobuild.artifact import Library
from repobuild.errors import from_oserror
from repobuild.triton import format_config

LONGEST_DELAY = 20_000
"""Microseconds that a request of the verification may wait for others."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """A configuration for verification.

    Attributes:
        config: The ModelConfig message.
        notes: How it differs from the emitted one; empty when it does not.
    """

    config: Any
    notes: tuple[str, ...]


def stand_in(config: Any, folder: Path, libraries: Sequence[Library] = ()) -> StandIn:
    """The configuration to verify under.

    Args:
        config: The emitted ModelConfig message; it is not changed.
        folder: The staged model folder.
        libraries: What the model takes its custom operators from.
    """
    copy = type(config)()
    copy.CopyFrom(config)
    notes = [note for change in _CHANGES if (note := change(copy))]
    notes.extend(_with_libraries_here(copy, folder, libraries))
    return StandIn(copy, tuple(notes))


@contextlib.contextmanager
def standing_in(file: Path, verified: StandIn) -> Iterator[None]:
    """Let a staged config.pbtxt be the stand-in for the length of a block, and what it was afterwards.

    Raises:
        EnvironmentLacking: The file system refuses.
    """
    if not verified.notes:
        yield
        return
    emitted = _replaced(file, format_config(verified.config).encode())
    try:
        yield
    finally:
        _replaced(file, emitted)


def _replaced(file: Path, data: bytes) -> bytes:
    """Write a file and give what was in it."""
    try:
        before = file.read_bytes()
        file.write_bytes(data)
    except OSError as problem:
        raise from_oserror(problem, "writing the configuration for verification") from problem
    return before


def _on_the_cpu(config: Any) -> str:
    on_gpu = [g for g in config.instance_group if g.kind == type(g).KIND_GPU]
    for group in on_gpu:
        group.kind = type(group).KIND_CPU
        group.ClearField("gpus")
    if not on_gpu:
        return ""
    return "instance_group asks for KIND_GPU: the answers were verified on the CPU, running on a GPU was not"


def _short_delay(config: Any) -> str:
    batching = config.dynamic_batching
    if not config.HasField("dynamic_batching") or batching.max_queue_delay_microseconds <= LONGEST_DELAY:
        return ""
    wanted = batching.max_queue_delay_microseconds
    batching.max_queue_delay_microseconds = LONGEST_DELAY
    return (
        f"max_queue_delay_microseconds is {wanted}: verified with {LONGEST_DELAY}, since each lone request"
        " waits that long"
    )


def _without_cache(config: Any) -> str:
    if not config.response_cache.enable:
        return ""
    config.ClearField("response_cache")
    return "response_cache was left out of the verification: the bundled server has none"


def _without_priorities(config: Any) -> str:
    batching = config.dynamic_batching
    named = [f for f in ("priority_levels", "default_priority_level") if getattr(batching, f)]
    if batching.priority_queue_policy:
        named.append("priority_queue_policy")
    for field in named:
        batching.ClearField(field)
    return (
        f"{', '.join(named)}: left out of the verification, the bundled server has no priorities"
        if named
        else ""
    )


def _without_accelerators(config: Any) -> str:
    if not config.optimization.HasField("execution_accelerators"):
        return ""
    config.optimization.ClearField("execution_accelerators")
    return "execution_accelerators were left out of the verification: it ran on ONNX Runtime's CPU provider"


def _with_libraries_here(config: Any, folder: Path, libraries: Sequence[Library]) -> Iterator[str]:
    """Libraries as they lie in the staged folder, or as the recipe gave them where they are not staged."""
    files = config.model_operations.op_library_filename
    given = {one.name: one.path for one in libraries}
    for index, stated in enumerate(files):
        name = PurePosixPath(stated).name
        here = folder / name
        if here.is_file():
            files[index] = str(here)
        elif name in given:
            files[index] = str(given[name])
        if files[index] != stated:
            yield f"op_library_filename is {stated}: verified with that library from where it lies here"


_CHANGES: tuple[Callable[[Any], str], ...] = (
    _on_the_cpu,
    _short_delay,
    _without_cache,
    _without_priorities,
    _without_accelerators,
)
