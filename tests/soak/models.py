"""The models of the soak: every answer is the input times the version's number, so that it can be checked."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper

PYTHON = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.factor = float(args["model_version"])

    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        rows = sum(len(array) for array in arrays)
        return [
            pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor("OUT", (array * np.float32(self.factor)).astype(np.float32)),
                    pb_utils.Tensor("ROWS", np.full((len(array), 1), rows, np.int32)),
                    pb_utils.Tensor("PID", np.full((len(array), 1), os.getpid(), np.int32)),
                ]
            )
            for array in arrays
        ]
"""

DECOUPLED = """
import threading
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.factor = float(args["model_version"])

    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().ravel()[0])
            sender = request.get_response_sender()
            threading.Thread(target=self.answer, args=(count, sender)).start()

    def answer(self, count, sender):
        for index in range(count):
            out = pb_utils.Tensor("OUT", np.array([(index + 1) * self.factor], np.float32))
            sender.send(pb_utils.InferenceResponse([out]))
            if index % 5 == 4:
                time.sleep(0.002)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

LAG = '''
"""A backend for the soak: the input times the number in the model's file, after a while."""
import time


class Instance:
    def __init__(self, settings, factor):
        self.factor = factor
        self.delay = float(settings.parameters.get("delay_ms", "0")) / 1000
        self.uneven = settings.parameters.get("uneven", "") == "yes"

    def run(self, inputs):
        (array,) = inputs.values()
        share = float(abs(array.ravel()[0])) % 4 / 3 if self.uneven else 1
        time.sleep(self.delay * share)
        return [array * self.factor]

    def close(self):
        pass


class Backend:
    platform = ""
    default_filename = "model.txt"
    default_count = 1

    def complete(self, config, path):
        pass

    def open(self, settings, path, instance_name):
        import numpy as np

        return Instance(settings, np.float32(path.read_text()))
'''


@dataclass(frozen=True)
class Model:
    """A model of the soak.

    Attributes:
        name: Model name.
        backend: ``onnxruntime``, ``lag``, ``python``, ``decoupled`` or ``ensemble``.
        batch: ``max_batch_size``.
        rules: What its config says beside tensors and backend.
        strings: Whether its tensors are BYTES, which come back as they are.
        largest: Most elements of a row.
        fixed: Whether a row always has ``largest`` elements.
        queued: Which refusals its queue may give: any of ``full`` and ``expired``.
    """

    name: str
    backend: str = "onnxruntime"
    batch: int = 8
    rules: str = ""
    strings: bool = False
    largest: int = 40
    fixed: bool = False
    queued: frozenset[str] = frozenset()

    @property
    def python(self) -> bool:
        """Whether processes answer for it that may be killed."""
        return self.backend in {"python", "decoupled", "ensemble"}


def _instances(count: int) -> str:
    return f"instance_group [{{ count: {count} kind: KIND_CPU }}]\n"


def _lag(milliseconds: int, more: str = "") -> str:
    return f'parameters {{ key: "delay_ms" value {{ string_value: "{milliseconds}" }} }}\n{more}'


MODELS = (
    Model("scale", rules="dynamic_batching { }\n" + _instances(2)),
    Model("large", batch=4, largest=60_000, rules=_instances(2)),
    Model("words", strings=True, rules="dynamic_batching { max_queue_delay_microseconds: 500 }\n"),
    Model("tuned", rules=""),
    Model("visitor", rules="dynamic_batching { preferred_batch_size: [ 2, 4 ] }\n"),
    Model(
        "impatient",
        "lag",
        rules=_lag(8) + "dynamic_batching { default_queue_policy { timeout_action: REJECT "
        "default_timeout_microseconds: 12000 allow_timeout_override: true } }\n",
        queued=frozenset({"expired"}),
    ),
    Model(
        "patient",
        "lag",
        rules=_lag(5) + "dynamic_batching { default_queue_policy { timeout_action: DELAY "
        "default_timeout_microseconds: 5000 } }\n",
    ),
    Model(
        "narrow",
        "lag",
        batch=2,
        rules=_lag(20) + "dynamic_batching { default_queue_policy { max_queue_size: 1 } }\n",
        queued=frozenset({"full"}),
    ),
    Model(
        "ranked",
        "lag",
        batch=2,
        rules=_lag(4) + "dynamic_batching { priority_levels: 3 default_priority_level: 2\n"
        "priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 3000 } } "
        "priority_queue_policy { key: 3 value { timeout_action: REJECT default_timeout_microseconds: 20000 "
        "max_queue_size: 3 } } }\n",
        queued=frozenset({"full", "expired"}),
    ),
    Model(
        "ordered",
        "lag",
        batch=4,
        rules=_lag(12, 'parameters { key: "uneven" value { string_value: "yes" } }\n')
        + "dynamic_batching { preserve_ordering: true }\n"
        + _instances(3),
    ),
    Model(
        "snake",
        "python",
        fixed=True,
        largest=8,
        rules="dynamic_batching { max_queue_delay_microseconds: 500 }\n" + _instances(3),
    ),
    Model("burst", "decoupled", batch=0, fixed=True, largest=1, rules=_instances(2)),
    Model("chain", "ensemble", fixed=True, largest=8),
)

MEMBERS = ("scale", "snake")
"""What the ensemble ``chain`` is made of."""
TUNED_INSTANCES = 2


def tuned_rules(instances: int, delay: int) -> str:
    """What the config of ``tuned`` says; another ``delay`` (microseconds) takes a reload."""
    return f"dynamic_batching {{ max_queue_delay_microseconds: {delay} }}\n{_instances(instances)}"


class Repository:
    """A model repository that changes the way a careful deployment changes it: by renaming.

    Args:
        path: The folder.
        parts: A folder on the same file system, to build in.
    """

    def __init__(self, path: Path, parts: Path) -> None:
        self.path = path
        self._parts = parts
        path.mkdir()
        parts.mkdir()

    def add(self, model: Model) -> None:
        """Write version 1 of a model."""
        folder = self._parts / model.name
        folder.mkdir()
        rules = tuned_rules(TUNED_INSTANCES, 300) if model.name == "tuned" else model.rules
        (folder / "config.pbtxt").write_text(config(model, rules))
        _write_version(model, folder, 1)
        folder.rename(self.path / model.name)

    def add_version(self, model: Model, version: int) -> None:
        """Write a version of a model that is there."""
        _write_version(model, self._parts, version)
        (self._parts / str(version)).rename(self.path / model.name / str(version))

    def add_broken_version(self, model: Model, version: int) -> None:
        """Write a version that cannot be loaded."""
        self.add_version(model, version)
        file = next((self.path / model.name / str(version)).iterdir())
        file.write_bytes(b"def execute(:\n" if file.suffix == ".py" else b"nothing")

    def remove_version(self, model: Model, version: int) -> None:
        """Remove a version in one step."""
        gone = self._parts / "gone"
        (self.path / model.name / str(version)).rename(gone)
        shutil.rmtree(gone)

    def write_config(self, model: Model, text: str) -> None:
        """Replace a config in one step."""
        part = self._parts / "config.pbtxt"
        part.write_text(text)
        part.rename(self.path / model.name / "config.pbtxt")

    def hide(self, model: Model) -> None:
        """Take a model's folder away."""
        (self.path / model.name).rename(self._parts / f"hidden_{model.name}")

    def show(self, model: Model) -> None:
        """Put it back."""
        (self._parts / f"hidden_{model.name}").rename(self.path / model.name)


def config(model: Model, rules: str) -> str:
    """The text of a model's config.pbtxt."""
    if model.backend == "ensemble":
        return _chain(model)
    kind = "TYPE_STRING" if model.strings else "TYPE_FP32"
    dims = model.largest if model.fixed else -1
    backend = "python" if model.python else model.backend
    outputs = [f'{{ name: "OUT" data_type: {kind} dims: [ {dims} ] }}']
    if model.backend == "python":
        outputs += [f'{{ name: "{name}" data_type: TYPE_INT32 dims: [ 1 ] }}' for name in ("ROWS", "PID")]
    if model.backend == "decoupled":
        rules += "model_transaction_policy { decoupled: true }\n"
    return (
        f'backend: "{backend}"\nmax_batch_size: {model.batch}\n'
        f'input [{{ name: "IN" data_type: {kind} dims: [ {dims} ] }}]\n'
        f"output [{', '.join(outputs)}]\n{rules}"
    )


def _chain(model: Model) -> str:
    return textwrap.dedent(f"""\
        platform: "ensemble"
        max_batch_size: {model.batch}
        input [{{ name: "IN" data_type: TYPE_FP32 dims: [ {model.largest} ] }}]
        output [{{ name: "MIDDLE" data_type: TYPE_FP32 dims: [ {model.largest} ] }},
                {{ name: "OUT" data_type: TYPE_FP32 dims: [ {model.largest} ] }}]
        ensemble_scheduling {{ step [
          {{ model_name: "{MEMBERS[0]}" model_version: -1
            input_map {{ key: "IN" value: "IN" }} output_map {{ key: "OUT" value: "MIDDLE" }} }},
          {{ model_name: "{MEMBERS[1]}" model_version: -1
            input_map {{ key: "IN" value: "MIDDLE" }} output_map {{ key: "OUT" value: "OUT" }} }} ] }}
        """)


def _write_version(model: Model, folder: Path, version: int) -> None:
    target = folder / str(version)
    target.mkdir()
    if model.backend == "onnxruntime":
        onnx.save(_graph(model, version), target / "model.onnx")
    elif model.backend == "lag":
        (target / "model.txt").write_text(str(version))
    elif model.backend in {"python", "decoupled"}:
        (target / "model.py").write_text(PYTHON if model.backend == "python" else DECOUPLED)


def _graph(model: Model, version: int) -> onnx.ModelProto:
    kind = TensorProto.STRING if model.strings else TensorProto.FLOAT
    tensors = [helper.make_tensor_value_info(name, kind, ["batch", "size"]) for name in ("IN", "OUT")]
    if model.strings:
        nodes, constants = [helper.make_node("Identity", ["IN"], ["OUT"])], []
    else:
        nodes = [helper.make_node("Mul", ["IN", "FACTOR"], ["OUT"])]
        constants = [helper.make_tensor("FACTOR", TensorProto.FLOAT, [], [float(version)])]
    graph = helper.make_graph(nodes, "soak", tensors[:1], tensors[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_backend(folder: Path) -> None:
    """Make a folder for PYTHONPATH that registers the ``lag`` backend through the entry-point group."""
    folder.mkdir()
    (folder / "soak_lag_backend.py").write_text(LAG)
    info = folder / "soak_lag_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: soak-lag-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[repobuild_serve.backends]\nlag = soak_lag_backend:Backend\n")
