"""Calls the model of the parameter ``model`` with IN, by ``exec``, ``async_exec`` or several at once."""

import asyncio
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def call(request, asked, tensor, number=0):
    return pb_utils.InferenceRequest(
        request_id=asked.get("as_id", request.request_id()),
        model_name=asked["model"],
        model_version=int(asked.get("version", -1)),
        requested_output_names=asked.get("names", "OUT").split(","),
        inputs=[pb_utils.Tensor(asked.get("input", "IN"), tensor.as_numpy() + number)],
        parameters=json.loads(asked["pass"]) if "pass" in asked else {},
    )


def forward(answer):
    if answer.has_error():
        error = answer.error()
        text = np.array([[f"{error.code()}: {error.message()}"]], dtype=object)
        return pb_utils.InferenceResponse([pb_utils.Tensor("ERROR", text)])
    tensors = [pb_utils.Tensor("OUT", t.as_numpy()) for t in answer.output_tensors()]
    return pb_utils.InferenceResponse(tensors[:1])


class TritonPythonModel:
    async def execute(self, requests):
        responses = []
        for request in requests:
            asked = json.loads(request.parameters())
            tensor = pb_utils.get_input_tensor_by_name(request, "IN")
            way = asked.get("way", "exec")
            if way == "exec":
                answer = call(request, asked, tensor).exec()
            elif way == "async":
                answer = await call(request, asked, tensor).async_exec()
            elif way == "several":
                answers = await asyncio.gather(
                    *(call(request, asked, tensor, number).async_exec() for number in range(3))
                )
                arrays = [a.output_tensors()[0].as_numpy() for a in answers]
                total = pb_utils.Tensor("OUT", sum(arrays[1:], arrays[0]).astype(np.int32))
                responses.append(pb_utils.InferenceResponse([total]))
                continue
            else:
                answers = call(request, asked, tensor).exec(decoupled=True)
                values = [t.as_numpy() for a in answers for t in a.output_tensors()]
                joined = np.concatenate(values).reshape(1, -1).astype(np.int32)
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", joined)]))
                continue
            responses.append(forward(answer))
        return responses
