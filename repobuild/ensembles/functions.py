"""Python steps: the user's function in its child process, and the folder that Triton gets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from repobuild.artifact import Tool, file_digest
from repobuild.build import Ledger
from repobuild.compare import compare
from repobuild.ensembles.interface import Made
from repobuild.ensembles.packages import check_requirements
from repobuild.ensembles.requests import alone, nan_note, pieces
from repobuild.errors import CheckFailed, Evidence, InputInvalid, SourceUntrusted, from_oserror
from repobuild.recipe.ensemble_types import DeclaredTensor, PythonStep
from repobuild.recipe.load import recipe_evidence
from repobuild.recipe.types import EXACT, Recipe, Tolerance
from repobuild.recipe.wiring import STEPS
from repobuild.recipe.yamlfile import KeyPath
from repobuild.report import Check, Fail, Pass
from repobuild.sources.interface import Trust
from repobuild.templates import render
from repobuild.tensors import Batch, rows, take
from repobuild.worker.asking import exchange
from repobuild.worker.host import Worker

FILES = "files"
MODEL_FILE = "model.py"
STEP_FILE = "step.json"
TEMPLATE = "step_model.py.j2"
SHOWN_ROWS = 4


def refuse_untrusted(recipe: Recipe, trust: Trust) -> None:
    """Make sure that somebody vouches for the python files.

    Raises:
        SourceUntrusted: Nobody does.
    """
    assert recipe.ensemble is not None
    code = [s for s in recipe.ensemble.steps if isinstance(s, PythonStep)]
    if code and "module" not in trust.kinds:
        raise SourceUntrusted(
            "source-untrusted",
            "python steps are code that runs here and on the server, and nobody vouched for it",
            tuple(recipe_evidence(recipe, (*STEPS, s.index, "python", "file"), s.given) for s in code),
            "if you trust these files, pass --trust module",
        )


def gather(recipe: Recipe, step: PythonStep, folder: Path) -> dict[str, str]:
    """Copy the step's files into a private folder; ``{name: sha256}``.

    Raises:
        InputInvalid: One is missing, empty or no regular file.
        EnvironmentLacking: One cannot be read or copied.
    """
    at = (*STEPS, step.index, "python")
    places: list[tuple[Path, KeyPath]] = [(step.file, (*at, "file"))]
    places.extend((f, (*at, "files", i)) for i, f in enumerate(step.files))
    if step.requirements is not None:
        places.append((step.requirements, (*at, "requirements")))
    digests = {}
    try:
        folder.mkdir()
        for file, place in places:
            why = "there is no such file"
            if file.exists():
                why = "" if file.is_file() else "it is no regular file"
                why = why or (
                    "" if file.stat().st_size else "it is empty, and object stores drop empty files"
                )
            if why:
                raise InputInvalid(
                    "step-file",
                    f"{file.name} cannot be used",
                    (recipe_evidence(recipe, place, why),),
                    "paths in a recipe are relative to its folder",
                )
            shutil.copyfile(file, folder / file.name)
            digests[file.name] = file_digest(folder / file.name)
    except OSError as problem:
        raise from_oserror(problem, f"copying the files of step '{step.name}'") from problem
    return digests


def make_function(
    recipe: Recipe, step: PythonStep, feeds: Batch, ledger: Ledger, folder: Path, largest: int
) -> Made:
    """Run the function on what the steps before made of the samples, and find out how it behaves.

    Args:
        recipe: The recipe of the ensemble.
        step: The step.
        feeds: Its inputs, all samples in one array each.
        ledger: Where findings go.
        folder: Existing private folder.
        largest: max_batch_size; 0 without a batch dimension.

    Raises:
        InputInvalid: The file does not import, the function raises, or answers with something else than the
            recipe declares.
        CheckFailed: It answers differently when it is asked again.
        EnvironmentLacking: A package is missing, or the function crashed, hung or ate the memory.
    """
    batched = largest > 0
    with ledger.step("load") as done:
        digests = gather(recipe, step, folder / FILES)
        if step.requirements is not None:
            check_requirements(recipe, step, folder / FILES / step.requirements.name)
        function = _Function(recipe, step, folder, batched)
        done.say(f"{step.file.name}, {len(digests)} file{'s' if len(digests) > 1 else ''}")
    with function, ledger.step("run") as done:
        takes_parameters = function.open()
        _describe(ledger, step, digests, batched=batched, count=len(next(iter(feeds.values()))))
        chosen, single = alone(feeds, largest)
        parts = pieces(feeds, largest)
        first, second, *more = function.ask([feeds, feeds, *parts, *single])
        answers = function.expect(first, feeds)
        ledger.checks.append(_repeats(step, answers, function.expect(second, feeds)))
        served = [(p, function.expect(a, p)) for p, a in zip(parts, more[: len(parts)], strict=True)]
        lone = [function.expect(a, p) for a, p in zip(more[len(parts) :], single, strict=True)]
        (folder / STEP_FILE).write_text(_step_file(step, batched, takes_parameters), encoding="utf-8")
        alike = all(
            compare(name, one[name], answers[name][row : row + 1], EXACT).holds
            for row, one in zip(chosen, lone, strict=True)
            for name in answers
        )
        if not alike:
            told = "its answer to a row depends on the other rows of the request"
            ledger.found_notes((f"{told}; the whole is checked for that",))
        for name, array in answers.items():
            ledger.found_notes(nan_note(name, array, batched))
        failed = [c for c in ledger.checks if isinstance(c.verdict, Fail)]
        if failed:
            raise CheckFailed(
                "check-failed",
                "the function does not answer alike when it is asked again",
                tuple(Evidence(c.detail, key=c.name) for c in failed),
                "a step must keep no state between requests, and draw no random numbers",
            )
        done.say(f"{len(parts) + len(single) + 2} requests answered")
    signature = step.signature(batched=batched)
    return Made(
        step,
        signature.inputs,
        signature.outputs,
        answers,
        tuple(served),
        Tolerance(),
        ledger,
        wholes=alike,
    )


def write_version(ensemble: str, step: PythonStep, folder: Path, to: Path) -> None:
    """Fill a version folder: model.py, step.json, and the step's own files.

    Raises:
        OSError: The file system refuses.
    """
    to.mkdir(parents=True)
    for file in sorted((folder / FILES).iterdir()):
        shutil.copyfile(file, to / file.name)
    shutil.copyfile(folder / STEP_FILE, to / STEP_FILE)
    text = render(TEMPLATE, {"step": step.name, "ensemble": ensemble})
    (to / MODEL_FILE).write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why there is no answer: the function ``raised``, or its answer is ``unfit``."""

    kind: str
    text: str


class _Function:
    """The function in its child process."""

    def __init__(self, recipe: Recipe, step: PythonStep, folder: Path, batched: bool) -> None:
        self._recipe = recipe
        self._step = step
        self._folder = folder
        self._batched = batched
        self._worker = Worker(folder, f"running step '{step.name}'")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    def open(self) -> bool:
        """Import the file; whether the function takes the parameters."""
        reply = self._worker.call(
            "open_step",
            folder=str(self._folder / FILES),
            file=self._step.file.name,
            function=self._step.function,
            parameters=dict(self._step.parameters),
            inputs=[_plain(t) for t in self._step.inputs],
            outputs=[_plain(t) for t in self._step.outputs],
            batched=self._batched,
        )
        return bool(reply["takes_parameters"])

    def ask(self, requests: Sequence[Batch]) -> list[Batch | _Fault]:
        """The answers, or what was raised."""
        return exchange(self._worker, "ask_step", self._folder, requests, lambda error: _Fault(**error))

    def expect(self, answer: Batch | _Fault, request: Batch) -> Batch:
        """The answer to a request.

        Raises:
            InputInvalid: There is none; the rows at fault are named.
        """
        if not isinstance(answer, _Fault):
            return answer
        place = (*STEPS, self._step.index, "python")
        lines = (
            Evidence(f"{self._asked(request)}{answer.text}"),
            *self._rows_at_fault(request),
            recipe_evidence(self._recipe, place, f"function {self._step.function}"),
        )
        if answer.kind == "unfit":
            raise InputInvalid(
                "step-output",
                "the function answers with something else than the recipe declares for the samples",
                lines,
                "give the arrays the declared type and shape, or declare what they are",
            )
        raise InputInvalid(
            "step-failed",
            "the function raises an error for the samples",
            lines,
            "let the function answer every sample, or leave out what it should refuse",
        )

    def _asked(self, request: Batch) -> str:
        count = rows(request) if self._batched else 0
        return f"asked with {count} row{'s' if count > 1 else ''}: " if count else ""

    def _rows_at_fault(self, request: Batch) -> list[Evidence]:
        if not self._batched:
            return []
        count = rows(request)
        if count == 1:
            return []
        told = self.ask([take(request, i, i + 1) for i in range(count)])
        bad = [(i, a.text) for i, a in enumerate(told) if isinstance(a, _Fault)]
        shown = [Evidence(f"sample row {i} alone: {text}") for i, text in bad[:SHOWN_ROWS]]
        if len(bad) > SHOWN_ROWS:
            shown.append(Evidence(f"and {len(bad) - SHOWN_ROWS} more of {count} rows"))
        return shown or [Evidence("each row alone is answered; only rows together are not")]


def _describe(
    ledger: Ledger, step: PythonStep, digests: dict[str, str], *, batched: bool, count: int
) -> None:
    import platform

    import numpy as np

    source: dict[str, Any] = {
        "path": step.given if not Path(step.given).is_absolute() else step.file.name,
        "kind": "python",
        "model": f"function {step.function} of {step.file.name}",
        "sha256": digests[step.file.name],
        "files": digests,
    }
    samples = {"path": "tensors of the ensemble", "rows": count}
    tools = (Tool("python", platform.python_version()), Tool("numpy", np.__version__))
    ledger.found_parts(source, samples, step.signature(batched=batched), tools=tools)


def _repeats(step: PythonStep, first: Batch, second: Batch) -> Check:
    title = "function repeats itself"
    for name, array in first.items():
        outcome = compare(name, second[name], array, EXACT)
        if not outcome.holds:
            told = f"asked twice, step '{step.name}' answers differently: {outcome.worst or outcome.why}"
            return Check(title, Fail(told), outcome.worst)
    return Check(title, Pass("two calls, equal answers"))


def _plain(tensor: DeclaredTensor) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype.value, "dims": list(tensor.dims)}


def _step_file(step: PythonStep, batched: bool, takes_parameters: bool) -> str:
    document = {
        "format": 1,
        "name": step.name,
        "file": step.file.name,
        "function": step.function,
        "takes_parameters": takes_parameters,
        "parameters": dict(step.parameters),
        "batched": batched,
        "inputs": [_plain(t) for t in step.inputs],
        "outputs": [_plain(t) for t in step.outputs],
    }
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
