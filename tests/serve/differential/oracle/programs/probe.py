"""Does what the request parameter ``act`` says, on IN (INT32) to OUT; it also has a second output SECOND."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

CODES = [
    "UNKNOWN",
    "INTERNAL",
    "NOT_FOUND",
    "INVALID_ARG",
    "UNAVAILABLE",
    "UNSUPPORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
]


def inner():
    raise KeyError("deep")


def plain(array):
    return [pb_utils.Tensor("OUT", array), pb_utils.Tensor("SECOND", array * 2)]


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            asked = json.loads(request.parameters())
            act = asked.get("act", "")
            array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if act == "raise":
                raise RuntimeError("boom")
            if act == "raise_lines":
                raise ValueError("first\nsecond é")
            if act == "raise_deep":
                inner()
            if act == "raise_triton":
                raise pb_utils.TritonModelException("model exception")
            if act == "too_few":
                continue
            if act == "not_a_response":
                return ["text"] * len(requests)
            if act == "not_a_list":
                return 5
            if act == "division":
                array = 1 // 0
            if act in CODES:
                error = pb_utils.TritonError(f"asked for {act}", getattr(pb_utils.TritonError, act))
                responses.append(pb_utils.InferenceResponse(output_tensors=[], error=error))
                continue
            if act == "error_default":
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("no code")))
                continue
            if act == "error_and_tensors":
                responses.append(pb_utils.InferenceResponse(plain(array), error=pb_utils.TritonError("both")))
                continue
            if act == "too_many":
                responses.append(pb_utils.InferenceResponse(plain(array)))
            tensors = plain(array)
            if act == "empty":
                tensors = []
            if act == "missing":
                tensors = tensors[1:]
            if act == "extra":
                tensors.append(pb_utils.Tensor("EXTRA", array))
            if act == "reversed":
                tensors.reverse()
            if act == "twice":
                tensors.append(pb_utils.Tensor("OUT", array + 1))
            if act == "dtype":
                tensors[0] = pb_utils.Tensor("OUT", array.astype(np.float64))
            if act == "shape":
                tensors[0] = pb_utils.Tensor("OUT", np.zeros((1, 2, 3), np.int32))
            if act == "strided":
                tensors[0] = pb_utils.Tensor("OUT", np.arange(8, dtype=np.int32).reshape(1, 8)[:, ::2])
            if act == "unicode":
                tensors[0] = pb_utils.Tensor("OUT", np.array([["a", "b"]]))
            if act == "objects":
                tensors[0] = pb_utils.Tensor("OUT", np.array([[b"a", "é"]], dtype=object))
            if act == "bytes":
                tensors[0] = pb_utils.Tensor("OUT", np.array([[b"abc", b"d"]]))
            if act == "big":
                tensors[0] = pb_utils.Tensor("OUT", np.full((1, 100000), 7, np.int32))
            if act == "zero":
                tensors[0] = pb_utils.Tensor("OUT", np.zeros((1, 0), np.int32))
            if act == "sender":
                sender = request.get_response_sender()
                sender.send(
                    pb_utils.InferenceResponse(tensors), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                )
                responses.append(None)
                continue
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
