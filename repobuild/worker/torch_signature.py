"""Matches the samples' arrays to the arguments of a module's forward, and calls it with them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from repobuild.errors import Evidence, InputInvalid, evidence
from repobuild.tensors import DType

FLOATS = {"bfloat16": "FP32"}
"""Element types that Triton's ONNX Runtime backend cannot carry, and what is sent in their place."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the recipe and its samples say about the arguments.

    Attributes:
        layout: The samples' names, types and shapes, ``None`` without samples.
        options: The recipe's ``export:`` section.
    """

    layout: Mapping[str, Any] | None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arrays(self) -> list[str]:
        """Names of the sample arrays, in the order of the file."""
        return [c["name"] for c in (self.layout or {}).get("columns", ())]

    @property
    def named(self) -> bool:
        """Whether the names mean something."""
        return bool((self.layout or {}).get("named", True))

    @property
    def constants(self) -> Mapping[str, Any]:
        """Arguments of forward that the recipe fixes."""
        found: Mapping[str, Any] = self.options.get("constants", {})
        return found

    @property
    def dict_argument(self) -> str | None:
        """The argument that takes one dict of all inputs."""
        return self.options.get("dict_argument")

    def torch_type(self, name: str) -> str | None:
        """What the recipe says that the module wants of an input, as PyTorch names it, if anything."""
        said: str | None = self.options.get("sample_dtype", {}).get(name)
        return said

    def wire_type(self, name: str) -> str | None:
        """The wire type that follows from it."""
        said = self.torch_type(name)
        if said is None:
            return None
        import numpy as np

        return FLOATS.get(said) or DType.of(np.dtype(said)).value


@dataclass(frozen=True, slots=True)
class Argument:
    """One input and how it reaches forward.

    Attributes:
        name: The input's name.
        sample: The sample array that feeds it.
        keyword: Whether it is passed by name; else by its position.
    """

    name: str
    sample: str
    keyword: bool


@dataclass(frozen=True, slots=True)
class Calling:
    """How forward is called.

    Attributes:
        arguments: The inputs; positional ones come first, in order.
        constants: Fixed keyword arguments.
        dict_argument: The argument that takes all inputs as one dict; ``None`` to pass them one by one.
        notes: What was decided.
    """

    arguments: tuple[Argument, ...]
    constants: Mapping[str, Any]
    dict_argument: str | None
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs' names."""
        return tuple(a.name for a in self.arguments)

    def call(self, module: Any, tensors: Mapping[str, Any]) -> Any:
        """Call a module, or something that is called as it is, with one tensor an input."""
        if self.dict_argument is not None:
            return module(**{self.dict_argument: dict(tensors)}, **self.constants)
        positional = [tensors[a.name] for a in self.arguments if not a.keyword]
        named = {a.name: tensors[a.name] for a in self.arguments if a.keyword}
        return module(*positional, **named, **self.constants)


def match_arguments(parameters: Sequence[inspect.Parameter], given: Given, what: str) -> Calling:
    """Decide which sample array feeds which argument.

    Arrays go by name, never by position, but for the only array of a module that needs one argument.

    Args:
        parameters: Those of forward, without ``self``.
        given: What the recipe says.
        what: The module's class, for messages.

    Raises:
        InputInvalid: An argument is fed by nothing, an array feeds no argument, or both a constant and an
            array are given for one.
    """
    arrays = given.arrays
    named = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    takes_row = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    _refuse_constants(given, named, takes_any, what)
    if given.dict_argument is not None:
        return _one_dict(given, named, what)
    required = [n for n, p in named.items() if p.default is p.empty and n not in given.constants]
    if len(arrays) == 1 and len(required) <= 1 and (not given.named or arrays[0] not in named):
        target = required[0] if required else next((n for n in named if n not in given.constants), None)
        if target is not None and not (takes_any and given.named and not required):
            note = f"the samples' array '{arrays[0]}' feeds the only argument of forward, '{target}'"
            by_name = named[target].kind is not inspect.Parameter.POSITIONAL_ONLY
            return Calling(
                (Argument(target, arrays[0], by_name),),
                given.constants,
                None,
                (note,) if given.named else (),
            )
    unknown = [a for a in arrays if a not in named]
    missing = [n for n in required if n not in arrays]
    if takes_row and not takes_any and unknown and not missing and not any(a in named for a in arrays):
        return Calling(
            tuple(Argument(a, a, False) for a in arrays),
            given.constants,
            None,
            ("forward takes its inputs by position: the arrays of the samples in their order",),
        )
    if missing or (unknown and not takes_any):
        raise _unmatched(missing, unknown, named, given, what)
    if not arrays:
        raise InputInvalid(
            "samples-needed",
            f"only samples tell which shapes and types {what} takes",
            (Evidence(f"forward takes {', '.join(named) or 'nothing'}", key="samples"),),
            "save an npz file with one array for each argument of forward, and name it under samples:",
        )
    ordered = [n for n in named if n in arrays] + unknown
    only = {n for n, p in named.items() if p.kind is p.POSITIONAL_ONLY}
    return Calling(tuple(Argument(n, n, n not in only) for n in ordered), given.constants, None)


def _one_dict(given: Given, named: Mapping[str, Any], what: str) -> Calling:
    argument = given.dict_argument
    assert argument is not None
    if argument not in named:
        raise InputInvalid(
            "option-unfit",
            f"forward of {what} has no argument '{argument}'",
            (Evidence(f"it takes {', '.join(named)}", key="export.dict_argument"),),
            "name the argument that takes the dict",
        )
    others = [
        n for n, p in named.items() if n != argument and p.default is p.empty and n not in given.constants
    ]
    if others:
        raise _unmatched(others, [], named, given, what)
    return Calling(tuple(Argument(a, a, True) for a in given.arrays), given.constants, argument)


def _refuse_constants(given: Given, named: Mapping[str, Any], takes_any: bool, what: str) -> None:
    strange = [c for c in given.constants if c not in named and not takes_any]
    both = [c for c in given.constants if c in given.arrays]
    if strange:
        raise InputInvalid(
            "option-unfit",
            f"forward of {what} has no argument '{strange[0]}'",
            (Evidence(f"it takes {', '.join(named)}", key=f"export.constants.{strange[0]}"),),
            "constants fix arguments of forward",
        )
    if both:
        raise InputInvalid(
            "option-unfit",
            f"'{both[0]}' is a constant and an array of the samples",
            (Evidence("an argument is either fixed or an input", key=f"export.constants.{both[0]}"),),
            "leave one of them out",
        )


def _unmatched(
    missing: Sequence[str], unknown: Sequence[str], named: Mapping[str, Any], given: Given, what: str
) -> InputInvalid:
    lines = [
        *([f"no array for the arguments {', '.join(missing)}"] if missing else []),
        *([f"no argument for the arrays {', '.join(unknown)}"] if unknown else []),
        f"forward of {what} takes {', '.join(_shown(p) for p in named.values()) or 'nothing'}",
        f"the samples hold {', '.join(given.arrays) or 'nothing'}",
    ]
    return InputInvalid(
        "samples-unfit",
        "the samples are not named as the arguments of forward",
        evidence(lines),
        "save them with numpy.savez under the names of the arguments; fix Python values with"
        " export: {constants: {name: value}}",
    )


def _shown(parameter: inspect.Parameter) -> str:
    return (
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"
    )
