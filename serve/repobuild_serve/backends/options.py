"""Settings of whole backends: ``--backend-config=<backend>,<key>=<value>``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from repobuild_serve.backends.table import backend_named, backend_names
from repobuild_serve.errors import StartError

_LOG = logging.getLogger(__name__)
_EVERY = ""
_FORM = "write --backend-config=<backend>,<key>=<value>, or --backend-config=<key>=<value> for every backend"
# What may be said to every backend, and what to those that know it.
_SHARED = frozenset({"default-max-batch-size"})


def read_backend_options(given: Sequence[str]) -> dict[str, dict[str, str]]:
    """Sort the values of ``--backend-config`` by backend, as Triton reads them.

    Args:
        given: The values, e.g. ``onnxruntime,default-max-batch-size=8``; a later one wins over an earlier.

    Returns:
        Value by key, by backend name; the empty name holds what is said to every backend.

    Raises:
        StartError: A value has another form.
    """
    found: dict[str, dict[str, str]] = {}
    for text in given:
        backend, comma, setting = text.partition(",")
        # A comma behind the equals sign belongs to the value.
        named = bool(comma) and "=" not in backend
        if not named:
            backend, setting = _EVERY, text
        key, equals, value = setting.partition("=")
        if not (equals and key and value):
            raise StartError(
                "backend-config-invalid",
                f"--backend-config has the form '<backend name>,<setting>=<value>'. Got {text}",
                hint=_FORM,
                exit_code=2,
            )
        found.setdefault(backend, {})[key] = value
    return found


def configure_backends(options: Mapping[str, Mapping[str, str]]) -> None:
    """Hand every backend its settings; called once, before any model loads.

    A backend that is not there takes none, which is logged: no model can be loaded that they would change.

    Args:
        options: As ``read_backend_options`` returns them.

    Raises:
        StartError: A key is unknown to the backend, or a value is of the wrong kind.
    """
    shared = options.get(_EVERY, {})
    unknown = sorted(shared.keys() - _SHARED)
    if unknown:
        raise StartError(
            "backend-config-invalid",
            f"there is no setting '{unknown[0]}' of every backend",
            hint=f"{_FORM}; the settings of every backend are {', '.join(sorted(_SHARED))}",
            exit_code=2,
        )
    known = backend_names()
    for name in sorted(options.keys() - known - {_EVERY}):
        _LOG.warning("--backend-config: there is no backend '%s' here; its settings have no effect", name)
    for name in sorted(known):
        own = options.get(name, {})
        if shared or own:
            backend_named(name).configure(own, shared)
