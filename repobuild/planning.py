"""What a build would do and why, as far as it can be known without running anything of the model."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild.build import Order
from repobuild.emit.config import CONFIG_FILE
from repobuild.emit.versions import look, next_version
from repobuild.emit.workshop import state_folder, usable_repository
from repobuild.ensembles.functions import gather, refuse_untrusted
from repobuild.ensembles.interface import naming
from repobuild.ensembles.models import step_recipe
from repobuild.ensembles.staging import refuse_taken
from repobuild.envelope import error_document
from repobuild.errors import RepobuildError, SourceUntrusted, from_oserror
from repobuild.prepare import refuse_early, refuse_inapplicable, target_release
from repobuild.recipe.ensemble_types import EnsembleRecipe, PythonStep
from repobuild.recipe.types import DEFAULT_MAX_BATCH_SIZE, Recipe
from repobuild.samples.read import read_table
from repobuild.sources.find import open_source
from repobuild.sources.interface import Source, Trust

TRUST_KINDS = ("pickle", "module", "torchscript")


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The model file.

    Attributes:
        path: As the recipe has it.
        kind: What it is.
        sha256: Its digest, hexadecimal.
        facts: What was read from the file before anything was loaded.
        needs: Kinds of trust that loading it takes; empty when the recipe pins it or it carries no code.
        given: Kinds of trust that were given.
        pinned: Whether the recipe pins its digest.
        takes: What the model takes, ``rows`` or ``tensors``.
    """

    path: str
    kind: str | None
    sha256: str | None
    facts: dict[str, Any]
    needs: tuple[str, ...]
    given: tuple[str, ...]
    pinned: bool
    takes: str


@dataclass(frozen=True, slots=True)
class SamplesPlan:
    """The sample file: its path, rows, columns with what they hold, and sha256."""

    path: str
    rows: int
    columns: tuple[tuple[str, str], ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class PlacePlan:
    """Where the version would go.

    Attributes:
        repository: The repository.
        versions: Versions that are there.
        version: The next number, which is taken unless the latest version is equal.
        config: What would become of config.pbtxt.
    """

    repository: str
    versions: tuple[int, ...]
    version: int
    config: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done for one recipe.

    Attributes:
        recipe: The recipe file, ``None`` for a model file alone.
        model: Model name.
        source: The model file, ``None`` when it cannot be opened.
        samples: The samples, ``None`` where there are none or they cannot be read.
        targets: What it would be compiled for.
        release: Triton release that it would have to load on.
        place: Where it would go, ``None`` without a repository.
        problems: Errors with which a build would stop, in the order in which it would meet them.
    """

    recipe: str | None
    model: str
    source: SourcePlan | None
    samples: SamplesPlan | None
    targets: tuple[str, ...]
    release: str
    place: PlacePlan | None
    problems: tuple[RepobuildError, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready form."""
        return {
            "recipe": self.recipe,
            "model": self.model,
            "source": self.source and dataclasses.asdict(self.source),
            "samples": self.samples
            and {
                "path": self.samples.path,
                "rows": self.samples.rows,
                "columns": [{"name": n, "holds": k} for n, k in self.samples.columns],
                "sha256": self.samples.sha256,
            },
            "targets": list(self.targets),
            "release": self.release,
            "place": self.place and dataclasses.asdict(self.place),
            "problems": [error_document(p) for p in self.problems],
        }


class _Findings:
    """Runs parts of a plan one after another, and keeps the errors that they meet."""

    def __init__(self) -> None:
        self.problems: list[RepobuildError] = []

    def of(self, part: Any, *arguments: Any) -> Any:
        try:
            return part(*arguments)
        except RepobuildError as problem:
            self.problems.append(problem)
            return None


def make_plan(recipe: Recipe, repository: Path | None = None, trust: Trust | None = None) -> Plan:
    """Plan one recipe. The model file is read and scanned; nothing of it is loaded, and nothing is written.

    Args:
        recipe: The recipe.
        repository: The repository that it would be built into, ``None`` to leave that open.
        trust: What the user vouches for.
    """
    if recipe.ensemble is not None:
        return _plan_ensemble(recipe, recipe.ensemble, repository, trust or Trust())
    found = _Findings()
    vouched = trust or Trust()
    found.of(refuse_early, Order(recipe, repository or Path(), vouched))
    target = found.of(target_release, recipe)
    source = found.of(_source, recipe, vouched, found)
    samples = found.of(_samples, recipe) if recipe.samples is not None else None
    place = found.of(_place, recipe, repository) if repository is not None else None
    return Plan(
        recipe=str(recipe.file) if recipe.file else None,
        model=recipe.name,
        source=source,
        samples=samples,
        targets=tuple(t.kind for t in recipe.targets),
        release=target.name if target else str(recipe.target),
        place=place,
        problems=tuple(found.problems),
    )


def _plan_ensemble(recipe: Recipe, ensemble: EnsembleRecipe, repository: Path | None, trust: Trust) -> Plan:
    """The plan of an ensemble: those of its steps, and where the whole would go."""
    found = _Findings()
    found.of(refuse_untrusted, recipe, trust)
    target = found.of(target_release, recipe)
    steps: dict[str, Any] = {}
    needs = ["module"] if ensemble.carries_code else []
    with tempfile.TemporaryDirectory(prefix="repobuild-plan-") as folder:
        for step in ensemble.steps:
            steps[step.name] = f"{step.model}: "
            try:
                with naming(step.name):
                    if isinstance(step, PythonStep):
                        gather(recipe, step, Path(folder) / step.name)
                        steps[step.name] += f"function {step.function} of {step.given}"
                        continue
                    plan = make_plan(step_recipe(_filled(recipe), step), None, trust)
                    needs.extend(plan.source.needs if plan.source else ())
                    kind = plan.source.kind if plan.source else None
                    steps[step.name] += f"{step.recipe.source.given} ({kind or 'kind unknown'})"
                    for problem in plan.problems:
                        raise problem
            except RepobuildError as problem:
                found.problems.append(problem)
    samples = found.of(_samples, recipe)
    place = None
    if repository is not None:
        place = found.of(_place, recipe, repository)
        real = found.of(usable_repository, repository)
        if real is not None:
            found.of(refuse_taken, Order(recipe, repository, trust), state_folder(real), real)
    return Plan(
        recipe=str(recipe.file) if recipe.file else None,
        model=recipe.name,
        source=SourcePlan(
            path=recipe.source.given,
            kind="ensemble",
            sha256=recipe.digest or None,
            facts={"steps": steps, "inputs": list(ensemble.inputs), "outputs": list(ensemble.outputs)},
            needs=tuple(dict.fromkeys(needs)),
            given=tuple(sorted(trust.kinds)),
            pinned=False,
            takes="tensors",
        ),
        samples=samples,
        targets=tuple(t.kind for t in recipe.targets),
        release=target.name if target else str(recipe.target),
        place=place,
        problems=tuple(found.problems),
    )


def _filled(recipe: Recipe) -> Recipe:
    serving = {"max_batch_size": DEFAULT_MAX_BATCH_SIZE, **recipe.serving}
    return dataclasses.replace(recipe, serving=serving)


def _source(recipe: Recipe, trust: Trust, found: _Findings) -> SourcePlan:
    try:
        with (
            tempfile.TemporaryDirectory(prefix="repobuild-plan-") as folder,
            open_source(recipe, Path(folder)) as source,
        ):
            needs = _needs(source)
            found.of(source.vouch, trust)
            found.of(refuse_inapplicable, recipe, source)
            return SourcePlan(
                path=recipe.source.given,
                kind=getattr(source, "kind", recipe.source.kind),
                sha256=getattr(source, "digest", None),
                facts=_known(source),
                needs=needs,
                given=tuple(sorted(trust.kinds)),
                pinned=recipe.source.sha256 is not None,
                takes=source.takes,
            )
    except OSError as problem:
        raise from_oserror(problem, "reading the model file") from problem


def _needs(source: Source) -> tuple[str, ...]:
    """Kinds of trust without which the source refuses to load; found by asking it."""
    needs = []
    for kind in TRUST_KINDS:
        try:
            source.vouch(Trust(frozenset(TRUST_KINDS) - {kind}))
        except SourceUntrusted as problem:
            if problem.code != "pin-mismatch":
                needs.append(kind)
        except RepobuildError:
            return ()
    return tuple(needs)


def _known(source: Source) -> dict[str, Any]:
    known = getattr(source, "known_before", None)
    return dict(known()) if known is not None else {}


def _samples(recipe: Recipe) -> SamplesPlan:
    assert recipe.samples is not None
    table = read_table(recipe.samples, recipe.samples_given)
    columns = tuple((c.name, _holds(c)) for c in table.columns)
    rows = max((len(c.values) for c in table.columns), default=0)
    return SamplesPlan(recipe.samples_given, rows, columns, table.digest)


def _holds(column: Any) -> str:
    dims = "".join(f"[{d}]" for d in column.values.shape[1:])
    return f"{column.values.dtype}{dims}" if column.values.dtype.kind not in "OUS" else f"text{dims}"


def _place(recipe: Recipe, repository: Path) -> PlacePlan:
    real = usable_repository(repository)
    existing = look(real, recipe.name)
    if existing is None:
        config = "a new one is written: the model is new here"
    elif existing.text is None:
        config = "a new one is written: the folder has none"
    elif existing.ours:
        config = (
            "it is repobuild's own, and replaced if it changes; a change of inputs or outputs is refused"
            " without --allow-schema-change"
        )
    else:
        config = (
            f"{CONFIG_FILE} was written or edited by hand: it is kept byte for byte if it fits the new"
            " version, and otherwise the build is refused without --update-config"
        )
    return PlacePlan(
        repository=str(repository),
        versions=existing.versions if existing else (),
        version=next_version(existing, state_folder(real), recipe.name),
        config=config,
    )
