"""What an exporter made of the free axes: fixed, bounded, or as they should be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from repobuild.errors import ConversionFailed, evidence
from repobuild.recipe.types import Recipe
from repobuild.sources.interface import TensorExport
from repobuild.tensor_models.axes import Axes
from repobuild.tensor_models.feed import TensorFeed
from repobuild.tensor_models.load import LoadedTensors

if TYPE_CHECKING:
    from onnx import ModelProto


def refuse_fixed(proto: ModelProto, feed: TensorFeed) -> None:
    """Refuse a graph in which the exporter fixed an axis that is to be free; it writes sizes as text too.

    Raises:
        ConversionFailed: ``export-dims``.
    """
    fixed = []
    for value, item in zip(proto.graph.input, feed.inputs, strict=True):
        dims = value.type.tensor_type.shape.dim
        for axis, dim in enumerate(dims[: len(item.axes)]):
            label = item.axes[axis].label
            if label is not None and (dim.HasField("dim_value") or dim.dim_param.isdigit()):
                fixed.append(
                    f"axis {axis} of '{item.name}' ('{label}') became {dim.dim_value or dim.dim_param}"
                )
    if fixed:
        raise ConversionFailed(
            "export-dims",
            "the exporter fixed an axis that should be free",
            evidence(fixed),
            "look for sizes that are written as numbers in the code, or take the axis out of export:"
            " dynamic_axes",
        )


def narrowed(axes: Axes, exported: TensorExport) -> Axes:
    """The axes with the bounds that the code sets on the batch."""
    low, high = axes.bounds
    for item in axes.feed.inputs:
        for axis, (least, most) in exported.bounds.get(item.name, {}).items():
            if axes.feed.batch is not None and item.axes[axis].label == axes.feed.batch:
                low = max(low, least)
                high = most if high is None else min(high, high if most is None else most)
    return replace(axes, bounds=(low, high))


def bound_notes(feed: TensorFeed, exported: TensorExport) -> list[str]:
    """What clients must know of the sizes that the code takes."""
    found: dict[str, str] = {}
    for item in feed.inputs:
        for axis, (least, most) in exported.bounds.get(item.name, {}).items():
            label = item.axes[axis].label
            if label is None or label == feed.batch:
                continue
            range_ = f"at least {least}" if most is None else f"{least} to {most}"
            found.setdefault(
                label, f"the model takes {range_} along the axis '{label}' ({item.name} axis {axis})"
            )
    return list(found.values())


def fixed_batch(model: LoadedTensors, recipe: Recipe, problem: ConversionFailed) -> Axes | None:
    """The axes with the batch fixed to one row, where the recipe did not ask for it to be free."""
    feed = model.feed
    asked = {label for axes in recipe.export.get("dynamic_axes", {}).values() for label in axes.values()}
    if problem.code != "export-dims" or feed.batch is None or feed.batch in asked:
        return None
    inputs = tuple(
        replace(i, axes=tuple(replace(a, size=1, label=None) if a.label == feed.batch else a for a in i.axes))
        for i in feed.inputs
    )
    sizes = {label: s for label, s in model.axes.sizes.items() if label != feed.batch}
    return replace(model.axes, feed=TensorFeed(inputs, None), sizes=sizes)
