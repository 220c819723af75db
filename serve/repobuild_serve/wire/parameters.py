"""Request, input and output parameters (Triton contract, parameters)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from repobuild_serve.core.ticket import SEQUENCE_END, SEQUENCE_START, Scalar
from repobuild_serve.errors import Code, RequestError
from repobuild_serve.wire.access import accepts, checked, wrong_kind
from repobuild_serve.wire.json_data import as_double
from repobuild_serve.wire.plan import InferPlan, Wanted

_UNSIGNED = "unsigned-integer"
_KNOWN = {
    "binary_data_output": ("binary_output", "boolean"),
    "timeout": ("timeout_us", _UNSIGNED),
    "priority": ("priority", _UNSIGNED),
}
UNORDERED = frozenset({"BYTES", "FP16", "BF16", "BOOL"})
"""Types whose values cannot be classified."""
_FLAGS = {"sequence_start": SEQUENCE_START, "sequence_end": SEQUENCE_END}


@dataclass(frozen=True, slots=True)
class RequestParameters:
    """The request parameters.

    Attributes:
        binary_output: Whether outputs that are not named are sent as binary.
        timeout_us: Queue time-out asked for, in microseconds; 0 is none.
        priority: Priority level asked for; 0 is none.
        correlation_id: Id of the sequence; 0 or empty for none.
        flags: ``SEQUENCE_START`` and ``SEQUENCE_END``, or-ed.
        own: The client's own parameters, for the model.
    """

    binary_output: bool = False
    timeout_us: int = 0
    priority: int = 0
    correlation_id: int | str = 0
    flags: int = 0
    own: Mapping[str, Scalar] = field(default_factory=dict)


def request_parameters(document: dict[str, Any]) -> RequestParameters:
    """Read ``parameters`` of a request.

    Raises:
        RequestError: One of E9, E29, E30, E31 of the Triton contract.
    """
    if "parameters" not in document:
        return RequestParameters()
    parameters = document["parameters"]
    if not isinstance(parameters, dict):
        raise RequestError(
            "failed to get request params.: attempt to get members for non-object", Code.INTERNAL
        )
    own: dict[str, Scalar] = {}
    known: dict[str, Any] = {}
    flags = 0
    for key, value in parameters.items():
        if key in _KNOWN:
            name, want = _KNOWN[key]
            known[name] = checked(value, key, want)
        elif key in _FLAGS:
            flags |= _FLAGS[key] if checked(value, key, "boolean") else 0
        elif key == "sequence_id":
            known["correlation_id"] = value if isinstance(value, str) else checked(value, key, _UNSIGNED)
        elif key.startswith("triton_"):
            raise RequestError(
                "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
                "specified."
            )
        else:
            own[key] = own_parameter(key, value)
    return RequestParameters(flags=flags, own=own, **known)


def own_parameter(key: str, value: Any) -> Scalar:
    """The value of a parameter that is meant for the model.

    Raises:
        RequestError: It is of no kind that a parameter can have (E29 of the Triton contract).
    """
    if not isinstance(value, str | int | float):
        raise RequestError(
            f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
        )
    # An integer beyond 64 bits counts as a number (Triton contract, parameters).
    wide = type(value) is int and not -(1 << 63) <= value < 1 << 63
    return as_double(value) if wide else value


def wanted_outputs(
    document: dict[str, Any], plan: InferPlan, *, binary: bool, legacy: bool = False
) -> tuple[Wanted, ...] | None:
    """Read ``outputs`` of a request.

    Args:
        document: The request.
        plan: Its model.
        binary: Whether outputs that are not named are sent as binary.
        legacy: Whether an output may be named twice (V4); the first time counts.

    Returns:
        The outputs to send, in the model's order; None for all as JSON.

    Raises:
        RequestError: One of E9, E22, E33, V4 of the Triton contract.
    """
    items = checked(document.get("outputs", []), "outputs", "array")
    if not items:
        return plan.all_binary if binary else None
    wanted: dict[int, Wanted] = {}
    for item in items:
        if not isinstance(item, dict) or "name" not in item:
            raise RequestError(
                "Unable to parse 'name': attempt to access non-existing object member 'name'", Code.INTERNAL
            )
        name = checked(item["name"], "name", "string")
        index = plan.outputs_by_name.get(name)
        if index is None:
            raise RequestError(f"unexpected inference output '{name}' for model '{plan.name}'")
        if index in wanted and not legacy:
            raise RequestError(f"output '{name}' already exists in request")
        wanted.setdefault(index, _wanted(index, item.get("parameters"), plan))
    if all(not (item.binary or item.classes) for item in wanted.values()) and len(wanted) == len(
        plan.outputs_by_name
    ):
        return None
    return tuple(wanted[index] for index in sorted(wanted))


def _wanted(index: int, parameters: Any, plan: InferPlan) -> Wanted:
    output = plan.settings.outputs[index]
    if not isinstance(parameters, dict):
        # Passed over, as with Triton.
        parameters = {}
    binary = checked(parameters.get("binary_data", False), "binary_data", "boolean")
    classes = parameters.get("classification", 0)
    if not accepts(classes, "unsigned-integer"):
        raise wrong_kind("classification", "unsigned-integer", "Unable to set 'classification'")
    if "shared_memory_region" in parameters:
        if binary:
            raise RequestError("Output can't set both 'shared_memory_region' and 'binary_data'")
        if classes:
            raise RequestError("Output can't set both 'shared_memory_region' and 'classification'")
        raise unknown_region(parameters["shared_memory_region"])
    if classes and output.datatype.wire in UNORDERED:
        raise no_classes(output.datatype.wire)
    if not binary and not classes and output.datatype.wire in {"FP16", "BF16"}:
        raise json_output_refused(output.datatype.wire)
    return Wanted(index, binary, classes)


def unknown_region(name: Any) -> RequestError:
    """The error for a shared-memory region; none can be registered with this server."""
    region = checked(name, "shared_memory_region", "string")
    return RequestError(f"Unable to find shared memory region: '{region}'", Code.NOT_FOUND)


def json_output_refused(wire: str) -> RequestError:
    """The error for an output type that JSON cannot carry (E35)."""
    return RequestError(
        f"sending {wire} data via JSON is not supported. Please use the binary data format for output"
    )


def no_classes(wire: str) -> RequestError:
    """The error for classification of an output whose values have no order (V9)."""
    return RequestError(f"class result not available for output due to unsupported type '{wire}'")
