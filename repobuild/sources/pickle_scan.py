"""Reads a pickle's opcodes without running them, and says what loading it would import and call.

The scanner keeps a symbolic stack (:mod:`repobuild.sources.opcodes`), so that names put together from strings
(``STACK_GLOBAL``) are found, and so that the raw array bytes that joblib writes between opcodes can be
stepped over.

It runs on files that nobody vouched for, so a file decides neither its time nor its memory: arguments that
cannot matter are skipped over rather than read, containers hold only what is read later, and all pickles
nested in one file share one budget.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from repobuild.sources.opcodes import limits
from repobuild.sources.opcodes.arrays import WRAPPER
from repobuild.sources.opcodes.machine import Budget, Ended, Found, Lost, Machine, Malformed
from repobuild.sources.opcodes.steps import TABLE
from repobuild.sources.streams import CountingStream, StreamEnded, StreamTooLarge, StreamUnreadable


@dataclass(frozen=True, slots=True)
class PickleScan:
    """What a pickle would do when loaded.

    Attributes:
        imports: ``module.name`` of everything it would import, sorted; what was found so far when the scan is
            not ``complete``.
        calls: Those of them that it would call while loading, sorted.
        complete: Whether the stream was followed to its end.
        trouble: Why it was not, in words; empty when ``complete``.
        truncated: Whether the trouble is that the file ends too early.
        malformed: Whether the trouble is that no unpickler could read on either.
        versions: ``{package: versions}`` that it was made with, as far as it tells: ``1.2.2`` where it holds
            the version itself, ``<2`` or ``>=3.11,<3.13`` where only some versions write such a file.
        code: Functions and classes whose code it carries itself, as cloudpickle writes them.
    """

    imports: tuple[str, ...]
    calls: tuple[str, ...]
    complete: bool
    trouble: str = ""
    truncated: bool = False
    malformed: bool = False
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    code: tuple[str, ...] = ()

    @property
    def flavour(self) -> str:
        """``joblib``, ``cloudpickle`` or ``pickle``, by what wrote it; only joblib reads what it wraps."""
        if WRAPPER in self.imports:
            return "joblib"
        if any(name.partition(".")[0] == "cloudpickle" for name in self.imports):
            return "cloudpickle"
        return "pickle"


def scan_pickle(stream: CountingStream, budget: Budget | None = None) -> PickleScan:
    """Follow a pickle from its first opcode to its last without running any of it.

    Args:
        stream: The decompressed bytes, at their start.
        budget: What is left for the file that the pickle is a part of; a whole one by default.
    """
    found = Found()
    trouble, truncated, malformed = "", False, False
    try:
        Machine(stream, TABLE, found, whole_budget() if budget is None else budget).follow()
    except Ended as problem:
        trouble, truncated = str(problem), True
    except StreamEnded:
        trouble, truncated = "the file ends in the middle of the pickle", True
    except EOFError as problem:
        trouble, truncated = f"the compressed stream is cut off: {problem}", True
    except (lzma.LZMAError, zlib.error, OSError) as problem:
        trouble = f"the compressed stream cannot be read: {problem}"
    except StreamTooLarge:
        trouble = "it is larger than what the scan reads (16 GiB, or 4 GiB after decompression)"
    except StreamUnreadable:
        trouble = "it is compressed in a way that only joblib reads"
    except Malformed as problem:
        trouble, malformed = str(problem), True
    except Lost as problem:
        trouble = str(problem)
    except MemoryError:
        trouble = "the scan of it ran out of memory"
    except RecursionError:
        trouble = "its parts are nested too deeply"
    return PickleScan(
        tuple(sorted(found.imports)),
        tuple(sorted(found.calls)),
        not trouble,
        trouble,
        truncated,
        malformed,
        {package: tuple(sorted(versions)) for package, versions in sorted(found.versions.items())},
        tuple(sorted(found.code)),
    )


def whole_budget() -> Budget:
    """What the scan of one file may spend."""
    return Budget(limits.MAX_OPCODES, limits.MAX_KEPT_BYTES)
