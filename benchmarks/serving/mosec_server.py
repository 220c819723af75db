"""The same model behind mosec, with the same batching: 32 requests or 5 ms, one worker process."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnxruntime
import orjson
from mosec import Server, Worker


class RiskModel(Worker):
    """Reads and writes the bodies that the other servers of the comparison read and write."""

    def __init__(self) -> None:
        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            os.environ["BENCH_MODEL"], options, providers=["CPUExecutionProvider"]
        )

    def deserialize(self, data: bytes) -> Any:
        """The row of a request."""
        return orjson.loads(data)["inputs"][0]["data"][0]

    def serialize(self, data: Any) -> bytes:
        """The response to one request."""
        output = {"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 1], "data": data}
        return orjson.dumps({"model_name": "risk_model", "model_version": "1", "outputs": [output]})

    def forward(self, data: list[list[float]]) -> list[list[float]]:
        """Run a batch."""
        rows = np.array(data, dtype=np.float32)
        return self.session.run(["OUTPUT0"], {"INPUT0": rows})[0].tolist()


if __name__ == "__main__":
    server = Server()
    server.append_worker(RiskModel, num=1, max_batch_size=32, max_wait_time=5)
    server.run()
