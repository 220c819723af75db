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
    import onnx

    with Workshop(tmp_path / "models") as shop:

        def make(model: Any, *, recipe: dict[str, Any] | None = None, **inputs: Any) -> Any:
            if isinstance(model, str):
                model = onnx.parser.parse_model(model)
            case = Case("model", "node", model, inputs, {}, 1e-3, 1e-7)
            return build(case, shop, tmp_path / "work", **(recipe or {}))

        yield make
