"""SEEN is a JSON text of everything that the request carries beside its tensors."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            seen = {
                "id": request.request_id(),
                "correlation": request.correlation_id(),
                "parameters": request.parameters(),
                "flags": request.flags(),
                "timeout": request.timeout(),
                "outputs": sorted(request.requested_output_names()),
                "inputs": [
                    [
                        tensor.name(),
                        list(tensor.as_numpy().shape),
                        str(tensor.as_numpy().dtype),
                        tensor.is_cpu(),
                    ]
                    for tensor in request.inputs()
                ],
                "cancelled": request.is_cancelled(),
            }
            array = np.array([[json.dumps(seen)]], dtype=object)
            first = request.inputs()[0].as_numpy()
            tensors = [pb_utils.Tensor("SEEN", array), pb_utils.Tensor("OUT", first)]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
