"""One ONNX Runtime session and the arrays it takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from repobuild_serve.backends.onnx_errors import onnx_text
from repobuild_serve.backends.strings import decoded
from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.errors import Code, RequestError

if TYPE_CHECKING:
    import numpy as np


class OnnxInstance:
    """An instance of the ``onnxruntime`` backend.

    Args:
        session: A checked session.
        settings: The model's configuration.
        run_options: Options of every run, or None.
    """

    def __init__(self, session: Any, settings: ModelSettings, run_options: Any) -> None:
        self._session = session
        self._outputs = [item.name for item in settings.outputs]
        self._strings = frozenset(item.name for item in settings.inputs if item.datatype.wire == "BYTES")
        nodes = [*session.get_inputs(), *session.get_overridable_initializers()]
        self._scalars = [node.name for node in nodes if not node.shape]
        ranks = {node.name: len(node.shape) for node in session.get_outputs()}
        self._scalar_outputs = {
            index: item.model_dims for index, item in enumerate(settings.outputs) if not ranks[item.name]
        }
        self._run_options = run_options

    def run(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        """See ``Instance.run``."""
        feed = dict(inputs)
        for name in self._strings & feed.keys():
            feed[name] = decoded(name, feed[name])
        for name in self._scalars:
            if name in feed and feed[name].size == 1:
                feed[name] = feed[name].reshape(())
        try:
            result: list[np.ndarray[Any, Any]] = self._session.run(self._outputs, feed, self._run_options)
        except Exception as exc:
            text = onnx_text(exc)
            if text is None:
                raise
            raise RequestError(text, Code.INTERNAL, plain=True) from exc
        for index, dims in self._scalar_outputs.items():
            if result[index].ndim == 0:
                result[index] = result[index].reshape(dims)
        return result

    def close(self) -> None:
        """See ``Instance.close``."""
        self._session = None
