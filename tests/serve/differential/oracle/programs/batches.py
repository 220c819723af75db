"""Waits ``delay_ms`` (of the configuration, or of a request's parameters), then tells the batch it ran in.

OUT is, per item: the items of the execution, its requests, and its serial number in this instance.
"""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.delay = float(parameters.get("delay_ms", {}).get("string_value", "0")) / 1000
        self.batched = json.loads(args["model_config"])["max_batch_size"] > 0
        self.serial = 0

    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        items = [len(array) if self.batched else 1 for array in arrays]
        delay = max(float(json.loads(r.parameters()).get("delay_ms", 0)) / 1000 for r in requests)
        time.sleep(max(delay, self.delay))
        self.serial += 1
        responses = []
        for count in items:
            row = [sum(items), len(requests), self.serial]
            array = np.array([row] * count if self.batched else row, dtype=np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]))
        return responses
