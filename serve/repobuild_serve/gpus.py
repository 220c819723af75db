"""The GPUs of this machine, as the driver tells them."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_LOG = logging.getLogger(__name__)
MIN_COMPUTE_CAPABILITY = 6.0
"""What a GPU must offer to be used, if the command line does not say (as Triton's builds have it)."""
_DRIVER = "libcuda.so.1"
# Values of the CUDA driver API.
_NO_DEVICE = 100
_MAJOR, _MINOR = 75, 76


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU.

    Attributes:
        number: Its number among the visible ones.
        capability: Its compute capability, e.g. ``"8.6"``.
    """

    number: int
    capability: str


def visible_gpus(minimum: float = MIN_COMPUTE_CAPABILITY) -> tuple[Gpu, ...]:
    """The GPUs that this process may use (``CUDA_VISIBLE_DEVICES`` is honoured), by number.

    Args:
        minimum: Compute capability that a GPU must have to count.

    Returns:
        Empty without a driver or a device; a driver that fails is logged.
    """
    try:
        driver = load_driver()
    except OSError:
        return ()
    try:
        found = _ask(driver)
    except _DriverError as exc:
        _LOG.warning("no GPU is used: %s of the CUDA driver failed with status %d", *exc.args)
        return ()
    small = [gpu for gpu in found if float(gpu.capability) < minimum]
    for gpu in small:
        _LOG.warning(
            "GPU %d is not used: compute capability %s, less than %g", gpu.number, gpu.capability, minimum
        )
    return tuple(gpu for gpu in found if gpu not in small)


def numbers(gpus: Sequence[Gpu]) -> frozenset[int]:
    """Their numbers."""
    return frozenset(gpu.number for gpu in gpus)


class _DriverError(Exception):
    """Raised with the name of a function and the status it returned."""


def load_driver() -> Any:
    """The CUDA driver's library.

    Raises:
        OSError: There is none.
    """
    return ctypes.CDLL(_DRIVER)


def _ask(driver: Any) -> list[Gpu]:
    status = driver.cuInit(0)
    if status == _NO_DEVICE:
        return []
    _check("cuInit", status)
    count = ctypes.c_int()
    _check("cuDeviceGetCount", driver.cuDeviceGetCount(ctypes.byref(count)))
    return [
        Gpu(number, f"{_attribute(driver, number, _MAJOR)}.{_attribute(driver, number, _MINOR)}")
        for number in range(count.value)
    ]


def _attribute(driver: Any, number: int, which: int) -> int:
    device, value = ctypes.c_int(), ctypes.c_int()
    _check("cuDeviceGet", driver.cuDeviceGet(ctypes.byref(device), number))
    status = driver.cuDeviceGetAttribute(ctypes.byref(value), which, device)
    _check("cuDeviceGetAttribute", status)
    return value.value


def _check(function: str, status: int) -> None:
    if status:
        raise _DriverError(function, status)
