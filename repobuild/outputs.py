"""What each output of the served model is: a selection of an answer, perhaps as class index, with labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from repobuild.errors import InputInvalid
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import OutputRecipe, Recipe
from repobuild.selection import Selection
from repobuild.tensors import Array, TensorSpec


@dataclass(frozen=True, slots=True)
class Wanted:
    """One output to serve.

    Attributes:
        name: Tensor name.
        selection: The answer it is, or the part of one.
        is_label: Whether it names classes, clusters or outliers, so that only equality is right.
        index_of: The classes whose index is served in place of the class; ``None`` to serve the class.
        labels: Text of each of its elements, for the label file; empty for none.
    """

    name: str
    selection: Selection
    is_label: bool = False
    index_of: tuple[Any, ...] | None = None
    labels: tuple[str, ...] = ()

    def of(self, answers: Mapping[str, Array]) -> Array:
        """The output's values among the model's answers.

        Raises:
            IndexError: The selection does not fit the answer.
        """
        import numpy as np

        found = self.selection.apply(answers[self.selection.answer])
        if self.index_of is None:
            return found
        position = {value: index for index, value in enumerate(self.index_of)}
        flat = [position[v] for v in np.asarray(found).ravel().tolist()]
        return np.array(flat, dtype=np.int64).reshape(found.shape)


class Answering(Protocol):
    """A loaded model that answers under names."""

    @property
    def model(self) -> str:
        """What it is."""

    @property
    def facts(self) -> dict[str, Any]:
        """Facts for the report, among them ``answers``, ``labels`` and perhaps ``classes``."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Its inputs."""


def wanted_outputs(recipe: Recipe, model: Answering) -> tuple[Wanted, ...]:
    """The outputs that a recipe asks for, checked against what the model answers with.

    Raises:
        InputInvalid: The model has no such answer, a name is taken, or there are no classes to label with.
    """
    answers = list(model.facts["answers"])
    known = ", ".join(answers)
    outputs = recipe.outputs or tuple(OutputRecipe(name) for name in answers)
    wanted = []
    indexed = any(o.labels and (o.take or o.name) in model.facts["labels"] for o in outputs)
    for index, output in enumerate(outputs):
        selection = Selection.parse(output.take) if output.take else Selection(output.name)
        if selection.answer not in answers:
            key = "from" if output.take else "name"
            raise InputInvalid(
                "output-unknown",
                f"the model has no answer '{selection.answer}'",
                (recipe_evidence(recipe, ("outputs", index, key), f"{model.model} answers with {known}"),),
                f"take one of {known}, for instance from: {answers[0]}",
            )
        wanted.append(_wanted(recipe, model, index, output, selection, indexed=indexed))
    _refuse_clashes(recipe, model, [w.name for w in wanted])
    return tuple(wanted)


def _wanted(
    recipe: Recipe,
    model: Answering,
    index: int,
    output: OutputRecipe,
    selection: Selection,
    *,
    indexed: bool,
) -> Wanted:
    """One output. Probabilities get a label file when the classes are text, or served as an index beside."""
    label = selection.answer in model.facts["labels"]
    classes = model.facts.get("classes")
    flat = isinstance(classes, list) and not any(isinstance(c, list) for c in classes)
    if output.labels is None:
        named = flat and (indexed or all(isinstance(c, str) for c in classes or ()))
        texts = _texts(classes, selection) if named and selection.answer == "probabilities" else ()
        return Wanted(output.name, selection, label, labels=texts if _writable(texts) else ())
    if not flat or not classes:
        raise InputInvalid(
            "labels-unfit",
            f"output '{output.name}' asks for labels from the classes, and the model has none",
            (recipe_evidence(recipe, ("outputs", index, "labels"), f"{model.model} has no flat classes_"),),
            "leave labels out",
        )
    if label:
        return Wanted(output.name, selection, label, tuple(classes))
    return Wanted(output.name, selection, label, labels=_texts(classes, selection))


def _texts(classes: Any, selection: Selection) -> tuple[str, ...]:
    """The classes that a selection's columns stand for."""
    import numpy as np

    texts = np.array([str(c) for c in classes], dtype=object)
    part = selection.index[1] if len(selection.index) > 1 else slice(None)
    return tuple(np.atleast_1d(np.asarray(texts[part], dtype=object)).tolist())


def _writable(texts: tuple[str, ...]) -> bool:
    """Whether a label file, one label a line, can hold them; decides only where nobody asked for one."""
    return all(t.strip() and len(t.splitlines()) == 1 for t in texts)


def _refuse_clashes(recipe: Recipe, model: Answering, names: list[str]) -> None:
    inputs = {i.name for i in model.inputs}
    for index, name in enumerate(names):
        if name in inputs:
            raise InputInvalid(
                "output-named-as-input",
                f"'{name}' is the name of an input and of an output",
                (recipe_evidence(recipe, ("outputs", index, "name"), "also the name of an input"),),
                "give the output another name",
            )
    for name in recipe.tolerance.by_output:
        if name not in names:
            raise InputInvalid(
                "tolerance-unknown",
                f"tolerance: names '{name}', which is not an output",
                (recipe_evidence(recipe, ("tolerance", name), f"outputs are {', '.join(names)}"),),
                "use the name of an output, or atol and rtol for all outputs",
            )
