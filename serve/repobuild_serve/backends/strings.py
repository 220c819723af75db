"""Arrays of bytes as arrays of text, for libraries that only take text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from repobuild_serve.wire.strings import not_text

if TYPE_CHECKING:
    import numpy as np


def decoded(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An object array of ``str`` with the shape of ``array``, an object array of ``bytes``.

    Raises:
        RequestError: An element of the input called ``name`` is not UTF-8.
    """
    import numpy as np

    texts = np.empty(array.shape, dtype=object)
    try:
        texts.ravel()[:] = [element.decode("utf-8") for element in array.ravel()]
    except UnicodeDecodeError as exc:
        raise not_text(name, exc) from exc
    return texts
