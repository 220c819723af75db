"""TensorFlow's and Keras's models, which are refused with the two commands that make ONNX of them.

The commands are those of tf2onnx (https://github.com/onnx/tensorflow-onnx, README) and of Keras 3
(``Model.export``, keras/src/export/onnx.py, which uses tf2onnx where TensorFlow is the backend).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from repobuild.errors import ConversionFailed, Evidence

GRAPH_FILES = ("saved_model.pb", "saved_model.pbtxt")
"""What lies in the folder of a SavedModel (tensorflow/python/saved_model/constants.py)."""

WITH_TF2ONNX = "pip install tensorflow tf2onnx"
_BY_FLAG: Mapping[str, str] = {"savedmodel": "--saved-model", "tflite": "--tflite"}


def is_saved_model(path: Path) -> bool:
    """Whether a path is a folder with a SavedModel of TensorFlow."""
    return path.is_dir() and any((path / name).is_file() for name in GRAPH_FILES)


def commands(kind: str, given: str) -> tuple[str, str] | None:
    """The two commands that make ONNX of a file; ``None`` for kinds that are not TensorFlow's.

    Args:
        kind: ``savedmodel``, ``tflite``, ``keras`` or ``hdf5``.
        given: The file or folder, as the user wrote it.
    """
    to = f"{Path(given).name.rpartition('.')[0] or Path(given).name}.onnx"
    if kind in _BY_FLAG:
        line = ["python", "-m", "tf2onnx.convert", _BY_FLAG[kind], given, "--output", to, "--opset", "17"]
        return WITH_TF2ONNX, shlex.join(line)
    if kind in ("keras", "hdf5"):
        code = f"import keras; keras.models.load_model({given!r}).export({to!r}, format='onnx')"
        return f"{WITH_TF2ONNX} keras", f"KERAS_BACKEND=tensorflow {shlex.join(['python', '-c', code])}"
    return None


def refuse_saved_model(folder: Path, given: str) -> None:
    """Refuse a folder of TensorFlow where a recipe or a model file should be.

    Raises:
        ConversionFailed: ``source-tensorflow``.
    """
    if is_saved_model(folder):
        raise tensorflow_refused("savedmodel", "a SavedModel of TensorFlow", given)


def tensorflow_refused(kind: str, what: str, given: str) -> ConversionFailed:
    """The error for a model of TensorFlow or Keras.

    Args:
        kind: See :func:`commands`.
        what: What it is, in words.
        given: The file or folder, as the user wrote it.
    """
    found = commands(kind, given)
    assert found is not None
    first, second = found
    return ConversionFailed(
        "source-tensorflow",
        f"{given} is {what}, which is not converted: make ONNX of it first",
        (Evidence(first, key="first"), Evidence(second, key="then")),
        "run the two commands where the model was made, and convert the ONNX file",
    )
