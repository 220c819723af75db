"""Finds out which axes of a model's inputs are free, by what is said of them and by trying.

A file of ONNX or ``.pt2`` says which axes are free. A PyTorch module says nothing, so it is asked with other
numbers of rows: the axes on which it takes them are the batch's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from repobuild.errors import InputInvalid
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import Recipe
from repobuild.sources.interface import TensorArgument
from repobuild.tensor_models.feed import BATCH, Axis, TensorFeed, TensorInput
from repobuild.tensor_models.requests import resized
from repobuild.tensors import Array, Batch, DType

MOST_TRIALS = 64
"""Ways of laying the batch axis that are tried on a module."""

MOST_WAYS = 1 << 14

Ask = Callable[[Sequence[Batch]], list[Batch | str]]
Labels = dict[str, dict[int, str]]


@dataclass(frozen=True, slots=True)
class Axes:
    """What the axes turned out to be.

    Attributes:
        feed: The inputs.
        sizes: Further sizes of each free axis, the batch's included, that the model takes.
        bounds: ``(least, most)`` of the batch that the file states.
        notes: What was decided.
    """

    feed: TensorFeed
    sizes: Mapping[str, tuple[int, ...]]
    bounds: tuple[int, int | None]
    notes: tuple[str, ...]


def find_axes(
    recipe: Recipe,
    arguments: Sequence[TensorArgument],
    given: Mapping[str, Array],
    ask: Ask,
    wants_batch: int,
) -> Axes:
    """Find the free axes and the batch axis.

    Args:
        recipe: The recipe, whose ``export: dynamic_axes`` frees axes of modules.
        arguments: The inputs and what their file says of their axes.
        given: The samples, one array an input.
        ask: Asks the model.
        wants_batch: The largest batch that the recipe wants; 0 for none.

    Raises:
        InputInvalid: ``dynamic_axes`` names what is not there, or frees an axis that the model fixes.
    """
    said = _said(recipe, arguments, given)
    declared = {a.name: {k: s for k, s in enumerate(a.shape) if isinstance(s, str)} for a in arguments}
    for name, axes in said.items():
        declared[name] |= axes
    open_ = [a.name for a in arguments if None in a.shape or (a.dtype is None and not a.shape)]
    trial = _Trial(ask, given)
    bounds = {label: b for a in arguments for label, b in a.bounds.items()}
    laid, batch, notes = _batch(trial, arguments, declared, said, open_, given, bounds)
    labels = declared if laid is None else laid
    feed = TensorFeed(
        tuple(
            TensorInput(
                a.name,
                a.sample,
                a.dtype or DType.of(given[a.name].dtype),
                tuple(Axis(n, labels.get(a.name, {}).get(k)) for k, n in enumerate(given[a.name].shape)),
            )
            for a in arguments
        ),
        batch,
    )
    feed, sizes, more = _further_sizes(feed, trial, bounds, said, recipe, wants_batch)
    return Axes(feed, sizes, bounds.get(batch or "", (1, None)), (*notes, *more))


class _Trial:
    """Asks the model once for each request."""

    def __init__(self, ask: Ask, given: Mapping[str, Array]) -> None:
        self._ask = ask
        self.given = given

    def takes(self, requests: Sequence[Batch]) -> bool:
        """Whether the model answers all of the requests, with as many axes as it answers the samples."""
        usual, *found = self._ask([self.given, *requests])
        return all(_ranks(answer) is not None and _ranks(answer) == _ranks(usual) for answer in found)

    def answers(self, requests: Sequence[Batch]) -> list[Batch | str]:
        """The answers themselves."""
        return self._ask(requests)


def _ranks(answer: Batch | str) -> dict[str, int] | None:
    """Number of axes of each part of an answer, ``None`` for a refusal."""
    return None if isinstance(answer, str) else {name: array.ndim for name, array in answer.items()}


def _said(recipe: Recipe, arguments: Sequence[TensorArgument], given: Mapping[str, Array]) -> Labels:
    """The recipe's ``dynamic_axes`` of inputs, checked."""
    shapes = {a.name: a.shape for a in arguments}
    found: Labels = {}
    for name, axes in recipe.export.get("dynamic_axes", {}).items():
        if name not in shapes:
            continue  # outputs may be named too, as in torch.onnx.export; their axes follow from the inputs
        for text, label in axes.items():
            place = recipe_evidence(
                recipe, ("export", "dynamic_axes", name, text), f"axis {text} is '{label}'"
            )
            axis = int(text) if text.lstrip("-").isdigit() else None
            rank = given[name].ndim
            if axis is None or not -rank <= axis < rank:
                raise InputInvalid(
                    "axis-unknown",
                    f"input '{name}' has no axis {text}",
                    (place, recipe_evidence(recipe, ("samples",), f"its samples have {rank} axes")),
                    "axes count from 0; the first one usually is the batch",
                )
            fixed = shapes[name][axis] if shapes[name] else None
            if isinstance(fixed, int):
                raise InputInvalid(
                    "axis-fixed",
                    f"axis {axis} of input '{name}' is fixed to {fixed} in the model's file",
                    (place,),
                    "export the model again with that axis free",
                )
            found.setdefault(name, {})[axis % rank] = label
    sizes: dict[str, tuple[int, str]] = {}
    for name, labelled in found.items():
        for axis, label in labelled.items():
            size, where = sizes.setdefault(label, (given[name].shape[axis], f"{name} axis {axis}"))
            if given[name].shape[axis] != size:
                raise InputInvalid(
                    "axis-sizes",
                    f"axes called '{label}' have different sizes in the samples",
                    (
                        recipe_evidence(
                            recipe,
                            ("export", "dynamic_axes", name, str(axis)),
                            f"{where} has {size}, {name} axis {axis} has {given[name].shape[axis]}",
                        ),
                    ),
                    "axes that share a label have one size; give them different labels",
                )
    return found


def _batch(
    trial: _Trial,
    arguments: Sequence[TensorArgument],
    declared: Labels,
    said: Labels,
    open_: Sequence[str],
    given: Mapping[str, Array],
    bounds: Mapping[str, tuple[int, int | None]],
) -> tuple[Labels | None, str | None, list[str]]:
    """Lay the batch axis where the model takes other numbers of rows.

    Returns:
        Labels of the free axes, ``None`` if it can be laid nowhere; what the batch axis is called; and notes.
    """
    refused: list[str] = []
    for tried, (laid, label) in enumerate(_layings(arguments, declared, said, open_, given)):
        if tried >= MOST_TRIALS:
            break
        count = next(
            given[n].shape[k] for n, axes in laid.items() for k, have in axes.items() if have == label
        )
        low, high = bounds.get(label, (1, None))
        sizes = [
            s
            for s in sorted({max(low, 1), max(low, 1) + 1, count - 1, count + 1, count + 2} - {count})
            if low <= s and s >= 1 and (high is None or s <= high)
        ]
        answers = trial.answers([resized(given, laid, label, size) for size in sizes])
        wrong = [(s, a) for s, a in zip(sizes, answers, strict=True) if isinstance(a, str)]
        if not wrong:
            odd = [n for n, axes in laid.items() if label in axes.values() and axes.get(0) != label]
            without = [a.name for a in arguments if label not in laid.get(a.name, {}).values()]
            notes = []
            if odd:
                notes.append(
                    f"the batch is on another axis than the first in {', '.join(odd)} (a state?), so Triton"
                    " cannot join requests into batches: max_batch_size is 0, and clients send the batch axis"
                )
            if without:
                notes.append(
                    f"no axis of {', '.join(without)} holds the batch, so Triton cannot join requests into"
                    " batches: max_batch_size is 0"
                )
            return laid, label, notes
        size, error = wrong[0]
        refused.append(f"at {size} in place of {count} on {_places(laid, label)} it says: {error}")
    if not refused:
        return None, None, ["no batch dimension: the batch axis is fixed (static)"]
    others = f" (and at every other place that was tried, {len(refused) - 1})" if refused[1:] else ""
    return (
        None,
        None,
        [f"no batch dimension: the model itself fails at other batch sizes; {refused[0]}{others}"],
    )


def _places(labels: Mapping[str, Mapping[int, str]], label: str) -> str:
    """The axes of a label, as a reader finds them in the samples."""
    return ", ".join(
        f"axis {axis} of '{name}'"
        for name, axes in labels.items()
        for axis, have in axes.items()
        if have == label
    )


def _layings(
    arguments: Sequence[TensorArgument],
    declared: Labels,
    said: Labels,
    open_: Sequence[str],
    given: Mapping[str, Array],
) -> Iterator[tuple[Labels, str]]:
    """Ways to lay the batch axis, the most usual first, and what it is called."""
    choices: list[list[int | None]] = []
    known = {have for axes in said.values() for have in axes.values()}
    stated = BATCH if BATCH in known else None
    for argument in arguments:
        array, axes = given[argument.name], declared[argument.name]
        if stated and stated in axes.values():
            choices.append([next(k for k, have in axes.items() if have == stated)])
        elif argument.name in open_:
            choices.append([*(k for k in range(array.ndim) if k not in axes or k == 0), None])
        elif 0 in axes:
            choices.append([0, *(k for k in axes if k), None])
        else:
            choices.append([*axes, None])
    if math.prod(map(len, choices)) > MOST_WAYS:
        choices = [[c for c in found if c in (0, None)] or found[:1] for found in choices]
    ways = sorted(itertools.islice(itertools.product(*choices), MOST_WAYS), key=_unusual)
    for way in ways:
        if all(axis is None for axis in way):
            continue
        laid: Labels = {a.name: dict(declared[a.name]) for a in arguments}
        label = _label(laid, arguments, way)
        if len({given[a.name].shape[k] for a, k in zip(arguments, way, strict=True) if k is not None}) > 1:
            continue
        for argument, axis in zip(arguments, way, strict=True):
            if axis is not None:
                laid[argument.name][axis] = label
        yield laid, label


def _label(laid: Labels, arguments: Sequence[TensorArgument], way: Sequence[int | None]) -> str:
    """What the batch axis is called: as the file says, if it says one name, and only there."""
    names = {
        laid[a.name][axis]
        for a, axis in zip(arguments, way, strict=True)
        if axis is not None and axis in laid[a.name]
    }
    elsewhere = {
        have for a, axis in zip(arguments, way, strict=True) for k, have in laid[a.name].items() if k != axis
    }
    name = names.pop() if len(names) == 1 else BATCH
    return name if name not in elsewhere else f"{BATCH}_rows"


def _unusual(way: Sequence[int | None]) -> tuple[int, int, tuple[int, ...]]:
    """Rows on axis 0 everywhere are most usual, then on any axis, then inputs without rows."""
    return (
        sum(axis is None for axis in way),
        sum(axis not in (0, None) for axis in way),
        tuple(-1 if axis is None else axis for axis in way),
    )


def _further_sizes(
    feed: TensorFeed,
    trial: _Trial,
    bounds: Mapping[str, tuple[int, int | None]],
    said: Labels,
    recipe: Recipe,
    wants_batch: int,
) -> tuple[TensorFeed, dict[str, tuple[int, ...]], list[str]]:
    """For each free axis a smaller and a larger size that the model takes; an axis without becomes fixed."""
    free = feed.free()
    asked = {have for axes in said.values() for have in axes.values()}
    found: dict[str, tuple[int, ...]] = {}
    notes: list[str] = []
    for label in (*([feed.batch] if feed.batch else []), *feed.labels):
        size = feed.sizes()[label]
        low, high = bounds.get(label, (1, None))
        most = wants_batch if label == feed.batch and wants_batch else 4 * size + 8
        smaller = [s for s in (size - 1, size // 2, size - 2, size - 4, 1) if max(low, 1) <= s < size]
        larger = [s for s in (size + 1, size * 2, size + 2, size + 3, size + 4, size * 3) if s > size]
        if label == feed.batch:
            smaller = [s for s in (max(low, 1),) if s < size]
            larger = [max(size + 1, min(most, high or most, 64)), size + 1]
        larger = [s for s in larger if high is None or s <= high]
        good = [s for s in (_first(trial, free, label, smaller), _first(trial, free, label, larger)) if s]
        if good:
            found[label] = tuple(good)
            continue
        why = _why(trial, free, label, (*larger, *smaller))
        if label in asked:
            raise InputInvalid(
                "axis-fixed",
                f"the axis '{label}' is to be free, and the model takes no other size of it than {size}",
                (recipe_evidence(recipe, ("export", "dynamic_axes"), why or "its bounds allow no other"),),
                "take the axis out of dynamic_axes, or change the module",
            )
        notes.append(
            f"the file says that the axis '{label}' is free, and no other size than {size} could be tried; it"
            f" is served as fixed{f' ({why})' if why else ''}"
        )
    tried = set(found)
    inputs = tuple(
        TensorInput(
            i.name,
            i.sample,
            i.dtype,
            tuple(a if a.label in tried else Axis(a.size) for a in i.axes),
        )
        for i in feed.inputs
    )
    batch = feed.batch if feed.batch in tried else None
    return TensorFeed(inputs, batch), found, notes


def _first(
    trial: _Trial, free: Mapping[str, Mapping[int, str]], label: str, sizes: Sequence[int]
) -> int | None:
    """The first size that the model takes."""
    for size in dict.fromkeys(sizes):
        if trial.takes([resized(trial.given, free, label, size)]):
            return size
    return None


def _why(trial: _Trial, free: Mapping[str, Mapping[int, str]], label: str, sizes: Sequence[int]) -> str:
    """Why the model does not take the first of some sizes; empty where there is none."""
    if not sizes:
        return ""
    (answer,) = trial.answers([resized(trial.given, free, label, sizes[0])])
    how = f"says: {answer}" if isinstance(answer, str) else "answers with another number of axes"
    return f"at size {sizes[0]} of {_places(free, label)} the model {how}"
