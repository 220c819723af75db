"""ARGS is a JSON text of what ``initialize`` was given."""

import json
import os
import sys

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.args = dict(args)

    def execute(self, requests):
        seen = {
            "args": self.args,
            "model_dir": pb_utils.get_model_dir(),
            "module": __name__,
            "file": os.path.basename(__file__),
            "path": [os.path.basename(entry) for entry in sys.path[-3:]],
            "decoupled": pb_utils.using_decoupled_model_transaction_policy(
                json.loads(self.args["model_config"])
            ),
        }
        array = np.array([[json.dumps(seen)]], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("ARGS", array)]) for _ in requests]
