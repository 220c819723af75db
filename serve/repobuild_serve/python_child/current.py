"""The one process state that the functions of ``triton_python_backend_utils`` act on."""

from __future__ import annotations

from typing import TYPE_CHECKING, List

from repobuild_serve.python_child.failures import TritonModelException

if TYPE_CHECKING:
    from repobuild_serve.python_child.host import Host

_HOSTS: List[Host] = []


def set_host(host: Host) -> None:
    """Make ``host`` the state of this process."""
    _HOSTS[:] = [host]


def host() -> Host:
    """The state of this process.

    Raises:
        TritonModelException: This is no process of a model.
    """
    if not _HOSTS:
        raise TritonModelException("this works only in a model that the server runs")
    return _HOSTS[0]
