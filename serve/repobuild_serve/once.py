"""Things that are made once in the process, whichever thread asks first."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


def made_once(make: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """``functools.cache`` for what must be the same object in every thread.

    Two threads that fill a plain cache at once each get an object of their own. What raises is tried again.
    """
    cached = cast("Callable[Arguments, Made]", functools.cache(make))
    lock = threading.RLock()

    @functools.wraps(make)
    def once(*arguments: Arguments.args, **named: Arguments.kwargs) -> Made:
        with lock:
            return cached(*arguments, **named)

    return once
