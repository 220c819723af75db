"""Fails, or is slow, to load, as its configuration's parameters say."""

import json
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        time.sleep(float(parameters.get("load_ms", {}).get("string_value", "0")) / 1000)
        if "fail" in parameters:
            raise RuntimeError(parameters["fail"]["string_value"])
        self.mark = int(parameters.get("mark", {}).get("string_value", "0"))

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor(
                        "OUT",
                        pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() + self.mark,
                    )
                ]
            )
            for request in requests
        ]
