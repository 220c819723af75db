"""An ONNX file inside the child process: ONNX Runtime, with every optimisation off, is the reference."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repobuild.errors import EnvironmentLacking, Evidence, InputInvalid, evidence
from repobuild.tensors import Array, Batch
from repobuild.worker.arrays import writing
from repobuild.worker.loading import first_line
from repobuild.worker.onnx_session import register
from repobuild.worker.tensor_model import Declined

if TYPE_CHECKING:
    from onnx import ModelProto

SHOWN = 400
DATA_FOLDER = "session.model_external_initializers_file_folder_path"
"""Where a session that is made from bytes finds external data (onnxruntime_session_options_config_keys.h)."""


class OnnxModel:
    """A model as its file has it.

    Args:
        proto: The file, external data left on the disk.
        given: The file as the recipe has it.
        inputs: The inputs to feed.
        outputs: The outputs that are tensors.
        session: ONNX Runtime's session on it.
        notes: What was decided.
    """

    def __init__(
        self,
        proto: ModelProto,
        inputs: Sequence[dict[str, Any]],
        outputs: Sequence[str],
        session: Any,
        notes: Sequence[str],
    ) -> None:
        self._proto = proto
        self._inputs = list(inputs)
        self._outputs = list(outputs)
        self._session = session
        self._notes = list(notes)

    def description(self) -> dict[str, Any]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.description`."""
        import onnx
        import onnxruntime

        from repobuild.worker.onnx_checks import float_types

        made_by = f"{self._proto.producer_name} {self._proto.producer_version}".strip()
        opsets = {e.domain or "ai.onnx": e.version for e in self._proto.opset_import}
        return {
            "model": f"ONNX graph {self._proto.graph.name}".strip(),
            "facts": {
                "notes": self._notes,
                "made_by": made_by,
                "opset": opsets,
                "ir_version": self._proto.ir_version,
                "nodes": len(self._proto.graph.node),
                "weights": float_types(self._proto),
            },
            "tools": {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__},
            "inputs": self._inputs,
        }

    def ask(self, request: Batch) -> dict[str, Array]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.ask`."""
        import numpy as np

        feeds = {
            name: array.astype(object) if array.dtype.kind == "U" else array
            for name, array in request.items()
        }
        try:
            values = self._session.run(self._outputs, feeds)
        except Exception as problem:
            raise Declined(first_line(problem)[:SHOWN]) from problem
        return {name: np.asarray(value) for name, value in zip(self._outputs, values, strict=True)}

    def observed(self) -> list[str]:
        """See :meth:`repobuild.worker.tensor_model.TensorModel.observed`; a session keeps nothing."""
        return []

    def export(
        self, opset: int | None, to: Path, example: Batch, free: Mapping[str, Mapping[int, str]]
    ) -> dict[str, Any]:
        """The file itself, see :meth:`repobuild.worker.tensor_model.TensorModel.export`.

        Its external data stays where it is, beside the private copy.
        """
        del opset, example, free
        with writing("the ONNX file"):
            to.write_bytes(self._proto.SerializeToString())
        return {
            "answers": {name: name for name in self._outputs},
            "inputs": {i["name"]: i["name"] for i in self._inputs},
            "notes": [],
            "exporter": "",
        }


def open_onnx(
    path: str,
    given: str,
    options: dict[str, Any],
    layout: dict[str, Any] | None,
    libraries: Sequence[str] = (),
) -> OnnxModel:
    """Load an ONNX file.

    Args:
        path: Private copy.
        given: The file as the recipe has it.
        options: The recipe's ``export:`` section.
        layout: The samples' names, types and shapes.
        libraries: Vouched-for libraries of custom operators.

    Raises:
        InputInvalid: It is no valid model, or has inputs that Triton cannot carry.
        EnvironmentLacking: ONNX Runtime is not installed.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        raise EnvironmentLacking(
            "onnxruntime-missing",
            "ONNX Runtime is not installed",
            (),
            "pip install 'repobuild[cpu]', or 'repobuild[gpu]' on a machine with an NVIDIA GPU (never both)",
        )
    from repobuild.graph.normal import portable_locale
    from repobuild.worker.onnx_checks import carried, check_versions, parse, tensor_outputs, true_inputs
    from repobuild.worker.onnx_versions import lowered, within_runtime

    proto = parse(Path(path), given)
    check_versions(proto, given)
    notes: list[str] = []
    proto = within_runtime(proto, notes, given)
    if portable_locale(proto):
        notes.append("text is lowered in the locale C.UTF-8, since Triton's image has no other")
    notes.extend(true_inputs(proto, options.get("keep_inputs", ()), given))
    outputs = tensor_outputs(proto, notes, given)
    inputs = []
    for value in proto.graph.input:
        kind, shape = carried(value, given)
        inputs.append({"name": value.name, "sample": value.name, "dtype": kind.value, "shape": shape})
    try:
        session = _session(proto, Path(path), given, libraries)
    except InputInvalid:
        older = lowered(proto, notes)
        if older is None:
            raise
        proto, session = older, _session(older, Path(path), given, libraries)
    arrays = [c["name"] for c in (layout or {}).get("columns", ())]
    named = bool((layout or {}).get("named", True))
    _match(inputs, arrays, named, notes, given)
    ranks = {c["name"]: len(c["shape"]) for c in (layout or {}).get("columns", ())}
    for item in inputs:
        if item["shape"] is None:
            item["shape"] = [None] * ranks[item["sample"]]
            notes.append(
                f"the file says no shape of input '{item['name']}'; trying tells which axes are free"
            )
    return OnnxModel(proto, inputs, outputs, session, notes)


def _match(
    inputs: list[dict[str, Any]], arrays: Sequence[str], named: bool, notes: list[str], given: str
) -> None:
    """Which sample array feeds which input: by name, but for the only array of a model with one input."""
    names = [i["name"] for i in inputs]
    if len(inputs) == len(arrays) == 1 and arrays[0] not in names:
        inputs[0]["sample"] = arrays[0]
        if named:
            notes.append(f"the samples' array '{arrays[0]}' feeds the only input, '{names[0]}'")
        return
    missing = [n for n in names if n not in arrays]
    unknown = [a for a in arrays if a not in names]
    if missing or unknown:
        lines = [
            *([f"no array for the inputs {', '.join(missing)}"] if missing else []),
            *([f"no input for the arrays {', '.join(unknown)}"] if unknown else []),
            f"the model takes {', '.join(names) or 'nothing'}",
            f"the samples hold {', '.join(arrays) or 'nothing'}",
        ]
        raise InputInvalid(
            "samples-unfit" if arrays else "samples-needed",
            f"the samples are not named as the inputs of {given}" if arrays else f"{given} needs samples",
            evidence(lines),
            "save them with numpy.savez under the names of the inputs",
        )


def _advice(libraries: Sequence[str]) -> str:
    if not libraries:
        return "operators of other domains need their library: source: {custom_ops: [libname.so]}"
    names = ", ".join(Path(one).name for one in libraries)
    return f"{names} registers other operators or other versions of them; name the library that has these"


def _session(proto: ModelProto, path: Path, given: str, libraries: Sequence[str]) -> Any:
    """A session on the edited graph, saved beside its data, without optimisations.

    Raises:
        InputInvalid: ONNX Runtime refuses it, or a library.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    register(options, libraries)
    options.add_session_config_entry(DATA_FOLDER, str(path.parent))
    try:
        return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as problem:
        from repobuild.worker.onnx_checks import unknown_operators

        text = first_line(problem)
        lines = [*unknown_operators(proto), text[:SHOWN]]
        raise InputInvalid(
            "model-unloadable",
            f"ONNX Runtime does not load {given}",
            tuple(Evidence(line, file=given) for line in lines),
            _advice(libraries)
            if len(lines) > 1
            else "see whether onnxruntime.InferenceSession takes it; export it again",
        ) from problem
