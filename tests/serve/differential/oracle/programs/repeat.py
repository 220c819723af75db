"""Decoupled: one response per value of IN; ``act`` asks for other things."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def response(value):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value], np.int32))])


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            act = json.loads(request.parameters()).get("act", "")
            sender = request.get_response_sender()
            values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().ravel().tolist()
            if act == "raise":
                raise RuntimeError("boom")
            if act == "error_first":
                sender.send(
                    pb_utils.InferenceResponse(
                        error=pb_utils.TritonError("first", pb_utils.TritonError.NOT_FOUND)
                    )
                )
            if act == "with_last":
                for value in values[:-1]:
                    sender.send(response(value))
                sender.send(response(values[-1]), flags=FINAL)
                continue
            for value in values:
                sender.send(response(value))
            if act == "error_last":
                error = pb_utils.TritonError("late", pb_utils.TritonError.UNAVAILABLE)
                sender.send(pb_utils.InferenceResponse(error=error))
            if act == "empty_response":
                sender.send(pb_utils.InferenceResponse([]))
            sender.send(flags=FINAL)
            if act == "after_final":
                try:
                    sender.send(response(0))
                except Exception as error:
                    raise RuntimeError(f"refused: {error}") from None
