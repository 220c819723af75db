"""What a build was asked for, and what it has found so far."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild import __version__
from repobuild.artifact import Artifact, Tool
from repobuild.checks import REPEATS
from repobuild.emit.model import Emission
from repobuild.errors import CheckFailed, ConversionFailed, Evidence, RepobuildError
from repobuild.export import Graph
from repobuild.loaded import Loaded, LoadedSamples
from repobuild.metrics import Metric
from repobuild.recipe.types import Recipe
from repobuild.refine import Refined
from repobuild.releases import Release
from repobuild.report import Check, Fail, Report
from repobuild.sources.interface import Trust
from repobuild.tensors import Signature
from repobuild.verify.stand_in import StandIn
from repobuild.watch import StepDetail, Watch, step

SHOWN_STEPS = 12


@dataclass(frozen=True, slots=True)
class Changes:
    """What a build may change in a repository beside adding a version.

    Attributes:
        config: Bring a config.pbtxt up to date that the user wrote or edited.
        schema: Let the version have other inputs and outputs than the one before.
    """

    config: bool = False
    schema: bool = False


NO_CHANGES = Changes()


@dataclass(frozen=True, slots=True)
class Order:
    """What to build.

    Attributes:
        recipe: The model.
        repository: The Triton model repository to build into.
        trust: What the user vouches for.
        changes: What may change in the repository beside the new version.
        bisect: Whether a failed check names the first node where the artifact departs.
    """

    recipe: Recipe
    repository: Path
    trust: Trust = Trust()
    changes: Changes = NO_CHANGES
    bisect: bool = False


class Refused(Exception):
    """Raised around the error that stopped a build.

    Attributes:
        error: The error itself.
        report: What was found before it.
    """

    def __init__(self, error: RepobuildError, report: Report) -> None:
        super().__init__(str(error))
        self.error = error
        self.report = report


class Ledger:
    """Collects a build's findings, so that a refused build has a report too.

    Args:
        order: What is being built.
        watch: Told of steps and notes.
    """

    def __init__(self, order: Order, watch: Watch) -> None:
        self.order = order
        self.recipe = order.recipe
        self.watch = watch
        self.under_way = "start"
        self.checks: list[Check] = []
        self.verification: list[Check] = []
        self._source: dict[str, Any] = {}
        self._samples: dict[str, Any] = {}
        self._signature: Signature | None = None
        self.metrics: tuple[Metric, ...] = ()
        self._facts: dict[str, Any] = {}
        self._notes: list[str] = []
        self._graph_notes: tuple[str, ...] = ()
        self._tools = [Tool("repobuild", __version__)]

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[StepDetail]:
        """Tell the watcher of a step, and remember which one is under way."""
        self.under_way = name
        with step(self.watch, name) as detail:
            yield detail

    def found_model(self, model: Loaded) -> None:
        """The model has been loaded."""
        self._source = model.facts
        self._tools.extend(model.tools)
        self._note(model.facts.get("notes", ()))

    def found_samples(self, samples: LoadedSamples) -> None:
        """The samples have been read and fit."""
        given = self.recipe.samples_given
        name = Path(given).name if Path(given).is_absolute() else given
        self._samples = {"path": name, "sha256": samples.digest, "rows": samples.count}
        if not samples.digest:
            self._samples = {"made_up": True, "rows": samples.count}
        self._note(samples.notes)

    def found_parts(
        self,
        source: dict[str, Any],
        samples: dict[str, Any],
        signature: Signature,
        *,
        tools: Sequence[Tool] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """What a step of an ensemble, or the whole, is made of; tools that are known already are left out."""
        self._source, self._samples, self._signature = source, samples, signature
        self._tools.extend(t for t in dict.fromkeys(tools) if t not in self._tools)
        self._facts.update(facts or {})

    @property
    def source(self) -> dict[str, Any]:
        """Facts about what was built from."""
        return self._source

    @property
    def samples(self) -> dict[str, Any]:
        """Facts about the samples."""
        return self._samples

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What took part so far."""
        return tuple(self._tools)

    def found_notes(self, notes: Sequence[str]) -> None:
        """Things that a reader should know."""
        self._note(notes)

    def found_target(self, release: Release) -> None:
        """The release to load on has been decided."""
        self._facts["target"] = {"triton": release.name, "onnxruntime": release.onnxruntime}

    def found_metrics(self, metrics: Sequence[Metric]) -> None:
        """Task metrics have been measured."""
        self.metrics = tuple(metrics)
        self._facts["metrics"] = [m.to_dict() for m in metrics]

    def found_graph(self, graph: Graph) -> None:
        """The model has been exported."""
        self._signature = graph.signature
        self._facts["precision"] = [a.to_dict() for a in graph.precision]
        self._graph_notes = graph.notes
        self._note(graph.notes)

    def found_refined(self, refined: Refined) -> None:
        """The graph has been optimised and brought into its precision."""
        self._facts.update(refined.facts)
        known = {t.name for t in self._tools}
        fresh = {t.name: t for a in refined.applied for t in a.tools if t.name not in known}
        self._tools.extend(t for t in fresh.values() if t.name != "onnxruntime")
        self._note(refined.graph.notes[len(self._graph_notes) :])

    def found_artifact(self, artifact: Artifact) -> None:
        """The graph has been compiled."""
        self._tools.append(artifact.made_by)

    def found_emission(self, emission: Emission) -> None:
        """The model folder has been staged."""
        self._note(emission.notes)

    def explained(self, error: RepobuildError) -> RepobuildError:
        """An error about a graph, with the model's steps, since one of them is at fault."""
        steps = self._source.get("steps")
        if not steps or not isinstance(error, CheckFailed | ConversionFailed):
            return error
        text = "; ".join(e.text for e in error.evidence)
        if all(s in text for s in steps[:SHOWN_STEPS]):
            return error
        more = f" and {len(steps) - SHOWN_STEPS} more" if len(steps) > SHOWN_STEPS else ""
        line = f"the steps of the model: {', '.join(steps[:SHOWN_STEPS])}{more}"
        return type(error)(error.code, error.message, (*error.evidence, Evidence(line)), error.hint)

    def found_stand_in(self, verified: StandIn) -> None:
        """The configuration to verify under has been made."""
        self._note(verified.notes)

    def signature_text(self) -> str:
        """Inputs and outputs in one line."""
        if self._signature is None:
            return "no signature"
        batched = self._signature.batched
        sides = [
            ", ".join(f"{t.name} {t.dtype.value} {list(t.dims(batched=batched))}" for t in side)
            for side in (self._signature.inputs, self._signature.outputs)
        ]
        return " -> ".join(sides) + ("" if batched else " (no batch dimension)")

    def report(
        self, version: int | None = None, *, changed: bool = False, new_version: bool = True
    ) -> Report:
        """The findings so far."""
        return Report(
            model=self.recipe.name,
            version=version,
            changed=changed,
            new_version=changed and new_version,
            source=self._source,
            samples=self._samples,
            signature=self._signature,
            checks=tuple(self.checks),
            verification=tuple(self.verification),
            facts=dict(self._facts),
            notes=tuple(self._notes),
            tools=tuple(self._tools),
        )

    def _note(self, notes: Sequence[str]) -> None:
        for note in notes:
            self._notes.append(note)
            self.watch.note(note)


def stop_on_failure(
    checks: Sequence[Check], kind: type[RepobuildError], code: str, message: str, where: str = ""
) -> None:
    """Raise an error that lists the checks that did not hold, if there are any.

    Args:
        checks: All checks.
        kind: Class of the error.
        code: Its code.
        message: Its message.
        where: What bisection found, if it was asked.

    Raises:
        RepobuildError: Of the given kind and code.
    """
    failed = [c for c in checks if isinstance(c.verdict, Fail)]
    if failed:
        first = sorted(failed, key=lambda c: c.name not in REPEATS)
        hint = next((c.hint for c in first if c.hint), "see the report for all checks")
        found = (Evidence(where, key="bisect"),) if where else ()
        raise kind(code, message, (*(Evidence(c.detail, key=c.name) for c in failed), *found), hint)
