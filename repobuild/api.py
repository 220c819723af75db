"""The Python call: ``repobuild.convert(estimator, samples=X, repository="models", name="churn")``."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from repobuild.build import Changes, Order, Refused
from repobuild.errors import InputInvalid, RepobuildError, evidence, from_oserror
from repobuild.handing import write_estimator, write_table
from repobuild.pipeline import convert as build
from repobuild.recipe.implied import Setting, document_digest, made_recipe, pointed, safe_name
from repobuild.report import Report
from repobuild.sources.interface import Trust
from repobuild.watch import Watch


def convert(
    model: Any,
    *,
    samples: Any = None,
    repository: str | os.PathLike[str],
    name: str | None = None,
    labels: Any = None,
    trust: Iterable[str] = (),
    update_config: bool = False,
    allow_schema_change: bool = False,
    bisect: bool = False,
    watch: Watch | None = None,
    **recipe_keys: Any,
) -> Report:
    """Convert a fitted estimator, or a model file, into a version of a Triton model repository.

    An estimator is written to a private temporary folder and loaded from there in a child process, as every
    model is; handing it over vouches for that very file. It is not changed.

    Args:
        model: A fitted estimator, or the path of a model file, which needs ``trust`` as on the command line.
        samples: Real input rows ``[rows, ...]``: an array, a DataFrame, a list of rows, a mapping of names to
            arrays, or the path of a sample file.
        repository: The repository, made if it does not exist.
        name: Model name in it; by default made from the class or the file.
        labels: True targets of the samples, ``[rows]``: an array, a list, a Series, or the path of a file.
        trust: Kinds of code-carrying files that are vouched for: ``pickle``, ``module``, ``torchscript``.
        update_config: Bring a config.pbtxt up to date that was written or edited by hand.
        allow_schema_change: Let the version have other inputs or outputs than the one before it.
        bisect: Let the error of a failed check name the first node where the artifact departs.
        watch: Told of the steps.
        **recipe_keys: Further keys of a recipe: ``serving={"max_batch_size": 8}``. Those of ``source`` are
            joined with what is known of the model.

    Returns:
        The report of the new version, or of the present one when nothing changed.

    Raises:
        RepobuildError: The model was refused, and the repository is as it was.
    """
    vouched = Trust(frozenset((trust,) if isinstance(trust, str) else trust))
    changes = Changes(update_config, allow_schema_change)
    try:
        with tempfile.TemporaryDirectory(prefix="repobuild-") as folder:
            home = Path(folder)
            document = {
                **recipe_keys,
                "name": _name(model) if name is None else name,
                "source": {**_mapping(recipe_keys.get("source")), **_source(model, home)},
            }
            for key, value in (("samples", samples), ("labels", labels)):
                if value is not None:
                    document[key] = write_table(value, home / key, key)
            settings = [Setting((key,), None, f"convert({key}=...)") for key in document if key != "source"]
            try:
                recipe = dataclasses.replace(made_recipe(document), digest=_digest(document))
                return build(Order(recipe, Path(repository), vouched, changes, bisect), watch)
            except Refused as refused:
                raise _in_callers_words(pointed(refused.error, settings), home) from refused
            except RepobuildError as error:
                raise _in_callers_words(pointed(error, settings), home) from error
    except OSError as problem:
        raise from_oserror(problem, "writing the model for its child process") from problem


def _source(model: Any, home: Path) -> dict[str, Any]:
    if isinstance(model, str | os.PathLike):
        return {"path": str(Path(model).absolute())}
    return write_estimator(model, home)


def _in_callers_words(error: RepobuildError, home: Path) -> RepobuildError:
    """The error without the folder of the caller's objects, which is gone when the error is read."""

    def told(text: str) -> str:
        return text.replace(f"{home}{os.sep}", "")

    items = tuple(
        dataclasses.replace(item, text=told(item.text), file=item.file and told(item.file))
        for item in error.evidence
    )
    return type(error)(error.code, told(error.message), items, error.hint and told(error.hint))


def _digest(document: Mapping[str, Any]) -> str:
    """The digest of the recipe without the folders in which its files happen to lie."""
    source = {**document["source"], "path": Path(document["source"]["path"]).name}
    files = {key: Path(document[key]).name for key in ("samples", "labels") if key in document}
    return document_digest({**document, **files, "source": source})


def _name(model: Any) -> str:
    if isinstance(model, str | os.PathLike):
        return safe_name(Path(model).stem)
    return safe_name(type(model).__name__)


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is None or isinstance(value, Mapping):
        return value or {}
    raise InputInvalid(
        "recipe-invalid",
        "source= takes a mapping",
        evidence([f"got {type(value).__name__}"]),
        "for instance source={'method': 'predict_proba'}",
    )
