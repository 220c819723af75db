"""The API of python models, under the name by which they import it (Triton contract, python backend)."""

from __future__ import annotations

from typing import Any, Dict, Optional

import numpy as np

from repobuild_serve.python_child import current, strings
from repobuild_serve.python_child.calls import ResponseIterator, is_model_ready, load_model, unload_model
from repobuild_serve.python_child.custom_metrics import Metric, MetricFamily, MetricKind
from repobuild_serve.python_child.datatypes import NUMPY, WIRE_NAMES
from repobuild_serve.python_child.failures import TritonModelException
from repobuild_serve.python_child.logger import Logger
from repobuild_serve.python_child.model_config import ModelConfig
from repobuild_serve.python_child.requests import InferenceRequest, InferenceTrace, PreferredMemory
from repobuild_serve.python_child.responses import InferenceResponse, InferenceResponseSender, TritonError
from repobuild_serve.python_child.tensor import Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_GPU = 0
TRITONSERVER_MEMORY_CPU = 1

_BYTES = 13
TRITON_STRING_TO_NUMPY = {
    "TYPE_STRING" if name == "BYTES" else f"TYPE_{name}": bool if name == "BOOL" else NUMPY[number]
    for number, name in enumerate(WIRE_NAMES)
    if number in NUMPY
}

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "Metric",
    "MetricFamily",
    "MetricKind",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]

# As in Triton, where these classes come from the process that embeds the interpreter.
for _class in (
    InferenceRequest,
    InferenceResponse,
    InferenceResponseSender,
    InferenceTrace,
    Logger,
    Metric,
    MetricFamily,
    MetricKind,
    PreferredMemory,
    ResponseIterator,
    Tensor,
    TritonError,
):
    _class.__module__ = "c_python_backend_utils"


def get_model_dir() -> str:
    """The folder of the model's version."""
    return current.host().model_folder


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Optional[Tensor]:
    """The input called so; None if the request has none."""
    return next((tensor for tensor in inference_request.inputs() if tensor.name() == name), None)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Optional[Tensor]:
    """The output called so; None if the response has none."""
    return next((tensor for tensor in inference_response.output_tensors() if tensor.name() == name), None)


def get_input_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """The properties of an input; None if the config has none called so."""
    return next((item for item in model_config.get("input", ()) if item["name"] == name), None)


def get_output_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """The properties of an output; None if the config has none called so."""
    return next((item for item in model_config.get("output", ()) if item["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: Dict[str, Any]) -> bool:
    """Whether the model may answer a request any number of times."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_to_numpy_type(data_type: int) -> Any:
    """The NumPy type with this number; None if there is none."""
    return NUMPY.get(data_type)


def numpy_to_triton_type(data_type: Any) -> Optional[int]:
    """The number of a NumPy type; None if Triton has none."""
    dtype = np.dtype(data_type)
    number = next((number for number, kind in NUMPY.items() if np.dtype(kind) == dtype), None)
    return _BYTES if number is None and dtype.type is np.bytes_ else number


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """The NumPy type of a config's data type.

    Raises:
        KeyError: It has none.
    """
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def serialize_byte_tensor(input_tensor: np.ndarray[Any, Any]) -> Any:
    """Pack an array of objects or of ``S``: a 4-byte length, then the bytes of each element.

    Returns:
        The bytes; an empty tuple for an empty array; None for an array of another type.
    """
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype == np.object_ or input_tensor.dtype.type is np.bytes_:
        return strings.pack(input_tensor)
    return None


def deserialize_bytes_tensor(encoded_tensor: Any) -> np.ndarray[Any, Any]:
    """Take packed elements apart, into a flat array of ``bytes``."""
    return strings.unpack(encoded_tensor)
