"""The two ways from a source to a graph: for models that take rows of a table, and named tensors."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from repobuild.compilers.interface import Form
from repobuild.errors import InputInvalid
from repobuild.export import Graph, export_graph
from repobuild.loaded import Loaded, LoadedSamples
from repobuild.prepare import load_model, refuse_inapplicable
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.releases import Release
from repobuild.samples.fit import Samples
from repobuild.sources.interface import RowsSource, Source, TensorSource
from repobuild.tensor_models.fit import TensorSamples
from repobuild.tensor_models.graph import export_tensors
from repobuild.tensor_models.load import LoadedTensors, load_tensors
from repobuild.tensor_models.script import export_script


def load_any(recipe: Recipe, source: Source) -> tuple[Loaded, LoadedSamples]:
    """Load the model, and read the samples that fit it.

    Raises:
        RepobuildError: The model does not load, an option does not apply, or the samples do not fit.
    """
    refuse_inapplicable(recipe, source)
    if source.takes == "tensors":
        return load_tensors(recipe, cast("TensorSource", source))
    return load_model(recipe, cast("RowsSource", source))


def export_any(
    source: Source,
    model: Loaded,
    recipe: Recipe,
    samples: LoadedSamples,
    release: Release,
    folder: Path,
    form: Form,
) -> Graph:
    """Bring the model into a form that compilers take, and ask the model itself for its answers.

    Raises:
        RepobuildError: The model cannot be exported.
    """
    if isinstance(model, LoadedTensors):
        assert isinstance(samples, TensorSamples)
        tensors = cast("TensorSource", source)
        if form == "onnx":
            return export_tensors(tensors, model, recipe, samples, release, folder)
        if tensors.script_ways():
            return export_script(tensors, model, recipe, samples, release, folder)
    if form != "onnx" or isinstance(model, LoadedTensors):
        kind = recipe.targets[0].kind
        raise InputInvalid(
            "target-source",
            f"the target '{kind}' is made of PyTorch models, and {model.model} is none",
            (recipe_evidence(recipe, ("targets", 0), kind),),
            "serve the ONNX model: targets: [onnxruntime]",
        )
    assert isinstance(samples, Samples)
    return export_graph(cast("RowsSource", source), model, recipe, samples, release, folder)
