"""Makes ONNX files of a few lines and brings them through the builder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from repobuild.emit.workshop import Workshop
from tests.conformance.build import build
from tests.conformance.cases import Case


@pytest.fixture
def built(tmp_path) -> Iterator[Any]:
    """``built(text or model, x=array, ...)``: the staged model, checked against the file itself."""
    import itertools

    import onnx

    count = itertools.count(1)
    with Workshop(tmp_path / "models") as shop:

        def make(model: Any, *, recipe: dict[str, Any] | None = None, **inputs: Any) -> Any:
            if isinstance(model, str):
                model = onnx.parser.parse_model(model)
            number = next(count)
            case = Case("model" if number == 1 else f"model{number}", "node", model, inputs, {}, 1e-3, 1e-7)
            return build(case, shop, tmp_path / f"work{number}", **(recipe or {}))

        yield make
