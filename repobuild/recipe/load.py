"""From a recipe file to a :class:`~repobuild.recipe.types.Recipe`, with every mistake at once."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repobuild.errors import Evidence, InputInvalid, RepobuildError
from repobuild.recipe.tensorflow import refuse_saved_model
from repobuild.recipe.types import (
    DEFAULT_ATOL,
    DEFAULT_RTOL,
    Bounds,
    Budget,
    InputRecipe,
    OutputRecipe,
    Recipe,
    SourceRecipe,
    TargetRecipe,
    Tolerance,
)
from repobuild.recipe.yamlfile import KeyPath, YamlDocument, read_yaml
from repobuild.tensors import DType

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from repobuild.recipe.schema import RecipeDocument, TargetSection, ToleranceSection

RECIPE_FILE = "recipe.yaml"
SHOWN_MISTAKES = 100


def find_recipe(path: Path) -> Path:
    """The recipe file itself, or ``recipe.yaml`` of the folder that was named.

    Raises:
        ConversionFailed: The folder is a model of TensorFlow.
    """
    if path.is_dir() and not (path / RECIPE_FILE).exists():
        refuse_saved_model(path, str(path))
    return path / RECIPE_FILE if path.is_dir() else path


def load_recipe(path: Path) -> Recipe:
    """Read and check a recipe.

    Args:
        path: A recipe file, or a folder with a ``recipe.yaml``.

    Raises:
        InputInvalid: The recipe is not usable. The evidence lists every mistake with its line and key path.
        EnvironmentLacking: The file cannot be read.
    """
    path = find_recipe(path)
    return recipe_from(read_yaml(path), path)


def recipe_from(document: YamlDocument, path: Path) -> Recipe:
    """Check a recipe that has been read, or made of words of a command line.

    Args:
        document: The recipe as plain values.
        path: Where it was read, for errors; its paths are relative to the folder of this file.

    Raises:
        InputInvalid: The recipe is not usable. The evidence lists every mistake with its line and key path.
    """
    from pydantic import ValidationError

    from repobuild.recipe.schema import RecipeDocument
    from repobuild.serving import serving_mistakes

    if not isinstance(document.value, dict):
        raise _mistakes(path, [Evidence("a recipe is a mapping of keys to values", file=str(path), line=1)])
    if "ensemble" in document.value:
        return _ensemble_from(document, path)
    found: list[tuple[KeyPath, str]] = []
    checked = None
    try:
        checked = RecipeDocument.model_validate(document.value)
    except ValidationError as problem:
        found.extend(_pydantic_mistakes(problem, RecipeDocument))
    serving = document.value.get("serving")
    if isinstance(serving, dict):
        found.extend((("serving", *at), text) for at, text in serving_mistakes(serving))
    found.extend(_source_mistakes(document.value.get("source")))
    found.extend(_target_mistakes(document.value.get("targets")))
    found.extend(_output_mistakes(document.value.get("outputs")))
    found.extend(_twice(document.value, "inputs"))
    found.extend(_twice(document.value, "outputs"))
    if not found and isinstance(serving, dict):
        found.extend(_whole_serving_mistakes(serving))
    if found or checked is None:
        raise _mistakes(path, _placed(found, document.lines, path))
    return recipe_of(checked, path.absolute().parent, path, document.digest, document.lines)


def _ensemble_from(document: YamlDocument, path: Path) -> Recipe:
    """The recipe of an ensemble, with the recipes of its steps."""
    from pydantic import ValidationError

    from repobuild.recipe.ensemble_load import ensemble_mistakes, ensemble_of
    from repobuild.recipe.ensemble_schema import EnsembleDocument
    from repobuild.serving import serving_mistakes

    assert isinstance(document.value, dict)
    folder = path.absolute().parent
    found: list[tuple[KeyPath, str]] = []
    checked = None
    try:
        checked = EnsembleDocument.model_validate(document.value)
    except ValidationError as problem:
        found.extend(_pydantic_mistakes(problem, EnsembleDocument))
    serving = document.value.get("serving")
    if isinstance(serving, dict):
        found.extend((("serving", *at), text) for at, text in serving_mistakes(serving))
    recipes: dict[int, Recipe | RepobuildError] = {}
    if checked is not None:
        for index, step in enumerate(checked.ensemble.steps):
            if step.recipe is not None:
                recipes[index] = _step_recipe(folder / step.recipe, path)
        found.extend(ensemble_mistakes(checked, recipes))
    if found or checked is None:
        raise _mistakes(path, _placed(found, document.lines, path))
    usable = {index: recipe for index, recipe in recipes.items() if isinstance(recipe, Recipe)}
    return Recipe(
        name=checked.name,
        source=SourceRecipe(path, path.name, "ensemble"),
        samples=folder / checked.samples,
        samples_given=checked.samples,
        tolerance=_tolerance(checked.tolerance),
        serving=dict(serving or {}),
        target=checked.target.triton if checked.target else None,
        folder=folder,
        file=path,
        digest=document.digest,
        lines=document.lines,
        ensemble=ensemble_of(checked, folder, usable),
    )


def _step_recipe(path: Path, whole: Path) -> Recipe | RepobuildError:
    """The recipe of a step, or why it is not usable; an ensemble that names itself has no end."""
    from repobuild.errors import UsageProblem

    file = find_recipe(path)
    if file.exists() and whole.exists() and file.samefile(whole):
        return UsageProblem("recipe-invalid", "it is the recipe of the ensemble itself", (), None)
    try:
        document = read_yaml(file)
        if isinstance(document.value, dict) and "ensemble" in document.value:
            return UsageProblem("recipe-invalid", "it is the recipe of an ensemble", (), None)
        return recipe_from(document, file)
    except RepobuildError as problem:
        return problem


def recipe_evidence(recipe: Recipe, at: KeyPath, text: str) -> Evidence:
    """Evidence that points at a key of the recipe, for mistakes that only the model or samples show."""
    line = next((recipe.lines[at[:n]] for n in range(len(at), 0, -1) if at[:n] in recipe.lines), None)
    return Evidence(text, file=str(recipe.file) if recipe.file else None, line=line, key=key_text(at))


def key_text(at: Iterable[str | int]) -> str:
    """``outputs[0].from`` for ``("outputs", 0, "from")``."""
    text = ""
    for part in at:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def recipe_of(
    document: RecipeDocument, folder: Path, file: Path | None, digest: str, lines: Mapping[KeyPath, int]
) -> Recipe:
    """The recipe that a checked document describes.

    Args:
        document: The document.
        folder: Folder that its paths are relative to, absolute.
        file: The recipe file, ``None`` when there is none.
        digest: sha256 of the file, empty when there is none.
        lines: Line of each key path, for errors found later.
    """
    source = document.source
    options = document.export.model_dump(exclude_defaults=True, exclude={"opset"})
    return Recipe(
        name=document.name,
        source=SourceRecipe(
            folder / source.path,
            source.path,
            source.kind,
            source.sha256,
            source.method,
            tuple(source.custom_ops),
            source.module.model_dump(by_alias=True, exclude_none=True) if source.module else None,
            source.environment.model_dump() if source.environment else None,
        ),
        samples=None if document.samples is None else folder / document.samples,
        samples_given=document.samples or "",
        inputs=tuple(
            InputRecipe(
                i.name, DType(i.dtype) if i.dtype else None, None if i.dims is None else tuple(i.dims)
            )
            for i in document.inputs
        ),
        outputs=tuple(OutputRecipe(o.name, o.take, o.labels) for o in document.outputs),
        tolerance=_tolerance(document.tolerance),
        serving=document.serving,
        opset=document.export.opset,
        labels=None if document.labels is None else folder / document.labels,
        labels_given=document.labels or "",
        budget=Budget(**document.budget.model_dump()),
        target=document.target.triton if document.target else None,
        targets=tuple(_target(t) for t in document.targets),
        export=options,
        folder=folder,
        file=file,
        digest=digest,
        lines=lines,
    )


def _target(item: TargetSection) -> TargetRecipe:
    return TargetRecipe(item.kind, item.model_dump(exclude_defaults=True, exclude={"kind"}))


def _tolerance(section: ToleranceSection) -> Tolerance:
    atol = DEFAULT_ATOL if section.atol is None else section.atol
    rtol = DEFAULT_RTOL if section.rtol is None else section.rtol
    by_output = {
        name: Bounds(atol if own.atol is None else own.atol, rtol if own.rtol is None else own.rtol)
        for name, own in (section.__pydantic_extra__ or {}).items()
    }
    stated = section.atol is not None or section.rtol is not None
    return Tolerance(Bounds(atol, rtol), by_output, stated)


def _pydantic_mistakes(problem: ValidationError, model: type[BaseModel]) -> Iterator[tuple[KeyPath, str]]:
    for error in problem.errors(include_url=False):
        at: KeyPath = tuple(error["loc"])
        if error["type"] == "extra_forbidden":
            yield at, _unknown(at, model)
        elif error["type"] == "missing":
            yield at, "this key is required"
        else:
            text = error["msg"].removeprefix("Value error, ")
            yield at, f"{text}, got {_short(error['input'])}"


def _unknown(at: KeyPath, model: type[BaseModel]) -> str:
    """``unknown key``, with the keys that the section has and the nearest of them."""
    from typing import get_args

    from pydantic import BaseModel

    fields: Mapping[str, Any] = model.model_fields
    for part in at[:-1]:
        if isinstance(part, int) or part not in fields:
            continue
        annotation = fields[part].annotation
        inner = next((a for a in (annotation, *get_args(annotation)) if isinstance(a, type)), None)
        if inner is not None and issubclass(inner, BaseModel):
            fields = inner.model_fields
    names = sorted(f.alias or name for name, f in fields.items())
    near = difflib.get_close_matches(str(at[-1]), names, 1)
    return f"unknown key; did you mean '{near[0]}'?" if near else f"unknown key; known are {', '.join(names)}"


def _whole_serving_mistakes(serving: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """What only shows when the fields come together, such as two schedulers."""
    from repobuild.serving import serving_config

    try:
        serving_config(serving)
    except InputInvalid as problem:
        yield ("serving",), "; ".join(e.text for e in problem.evidence)


def _source_mistakes(source: Any) -> Iterator[tuple[KeyPath, str]]:
    from repobuild.plugins import KNOWN_SOURCES, SOURCES

    kind = source.get("kind") if isinstance(source, dict) else None
    if not isinstance(kind, str) or kind in ("auto", *KNOWN_SOURCES):
        return
    if SOURCES.find(kind) is None:
        yield ("source", "kind"), f"no source reads kind '{kind}'; there are {', '.join(SOURCES.names())}"


def _target_mistakes(targets: Any) -> Iterator[tuple[KeyPath, str]]:
    from repobuild.plugins import COMPILERS
    from repobuild.recipe.planned import PLANNED

    known = sorted({*COMPILERS.names(), *PLANNED})
    seen: set[str] = set()
    for index, item in enumerate(targets if isinstance(targets, list) else ()):
        kind = item.get("kind") if isinstance(item, dict) else item
        if not isinstance(kind, str):
            continue
        if kind not in known:
            yield ("targets", index), f"no compiler '{kind}'; there are {', '.join(known)}"
        if kind in seen:
            yield ("targets", index), f"'{kind}' is named twice"
        seen.add(kind)


def _output_mistakes(outputs: Any) -> Iterator[tuple[KeyPath, str]]:
    from repobuild.selection import Selection

    for index, item in enumerate(outputs if isinstance(outputs, list) else ()):
        text = item.get("from") if isinstance(item, dict) else None
        if isinstance(text, str):
            try:
                Selection.parse(text)
            except ValueError as problem:
                yield ("outputs", index, "from"), str(problem)


def _twice(value: Mapping[str, Any], section: str) -> Iterator[tuple[KeyPath, str]]:
    items = value.get(section)
    names = [i.get("name") for i in items if isinstance(i, dict)] if isinstance(items, list) else []
    for name, count in Counter(n for n in names if isinstance(n, str)).items():
        if count > 1:
            last = len(names) - 1 - names[::-1].index(name)
            yield (section, last, "name"), f"'{name}' is used {count} times; tensor names must differ"


def _placed(found: Iterable[tuple[KeyPath, str]], lines: Mapping[KeyPath, int], path: Path) -> list[Evidence]:
    placed = []
    for at, text in found:
        line = next((lines[at[:n]] for n in range(len(at), -1, -1) if at[:n] in lines), 1)
        placed.append(Evidence(text, file=str(path), line=line, key=key_text(at)))
    return sorted(placed, key=lambda e: (e.line or 0, e.key or ""))


def _mistakes(path: Path, items: list[Evidence]) -> InputInvalid:
    count = "1 mistake" if len(items) == 1 else f"{len(items)} mistakes"
    if len(items) > SHOWN_MISTAKES:
        rest = len(items) - SHOWN_MISTAKES
        items = [*items[:SHOWN_MISTAKES], Evidence(f"and {rest} more mistakes", file=str(path))]
    return InputInvalid(
        "recipe-invalid",
        f"the recipe has {count}",
        tuple(items),
        "the format is described in docs/recipes.md",
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
