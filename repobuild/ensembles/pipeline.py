"""How an ensemble is built, on one screen: its steps one by one, then the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from repobuild.build import Ledger, Order, Refused, stop_on_failure
from repobuild.checks import spread
from repobuild.compare import compare
from repobuild.emit.commit import commit_together, recover
from repobuild.emit.config import CONFIG_FILE
from repobuild.emit.records import write_records
from repobuild.emit.together import Arrival
from repobuild.emit.workshop import Workshop
from repobuild.ensembles.functions import make_function, refuse_untrusted
from repobuild.ensembles.interface import Made, Placed, StepWatch, Tensor, naming
from repobuild.ensembles.joints import joined
from repobuild.ensembles.models import MadeModel, make_model, step_recipe
from repobuild.ensembles.requests import nan_note, read_expected, read_requests
from repobuild.ensembles.serving import serve_all
from repobuild.ensembles.staging import refuse_taken, stage_ensemble, stage_function, stage_model
from repobuild.errors import (
    CheckFailed,
    ConversionFailed,
    Evidence,
    RepobuildError,
    VerificationFailed,
    from_oserror,
)
from repobuild.golden import GOLDEN_ROWS
from repobuild.interrupts import import_whole
from repobuild.lint.finding import Severity
from repobuild.lint.run import lint
from repobuild.pipeline import NATIVE
from repobuild.prepare import target_release
from repobuild.recipe.ensemble_types import EnsembleRecipe, ModelStep, PythonStep
from repobuild.recipe.types import DEFAULT_MAX_BATCH_SIZE, Recipe
from repobuild.report import Check, Deviation, Fail, Pass, Report
from repobuild.tensors import Signature, rows
from repobuild.verify.replay import Golden
from repobuild.watch import Silent, Watch


def convert_ensemble(order: Order, watch: Watch | None = None) -> Report:
    """Build an ensemble and the models it is made of into a repository, which changes only in the last step.

    Args:
        order: What to build.
        watch: Told of the steps.

    Returns:
        The report of the ensemble, or of the present one when nothing changed.

    Raises:
        Refused: The build stops and the repository is as it was; it holds the error and the report so far.
    """
    serving = {"max_batch_size": DEFAULT_MAX_BATCH_SIZE, **order.recipe.serving}
    order = replace(order, recipe=replace(order.recipe, serving=serving))
    ledger = Ledger(order, watch or Silent())
    try:
        refuse_untrusted(order.recipe, order.trust)
        ledger.found_target(target_release(order.recipe))
        with Workshop(order.repository) as shop:
            recover(shop)
            refuse_taken(order, shop.state, shop.repository)
            tensors = load(ledger)
            steps = []
            for step in _ensemble(order.recipe).steps:
                with naming(step.name):
                    made, placed, tensors = build_step(ledger, step, tensors, shop)
                steps.append((made, placed))
            golden = compose(ledger, tensors)
            whole = stage(ledger, steps, tensors, shop)
            verify(ledger, steps, whole, golden, shop)
            return publish(ledger, steps, whole, golden, shop)
    except RepobuildError as error:
        raise Refused(error, ledger.report()) from error
    except OSError as problem:
        doing = f"building '{order.recipe.name}', at the step '{ledger.under_way}'"
        raise Refused(from_oserror(problem, doing), ledger.report()) from problem


def load(ledger: Ledger) -> Mapping[str, Tensor]:
    """Read the requests to the whole."""
    with ledger.step("load") as done:
        import_whole(NATIVE)
        recipe = ledger.recipe
        tensors, table = read_requests(recipe, batched=_largest(recipe) > 0)
        count = len(next(iter(tensors.values())).values)
        source = {
            "path": recipe.file.name if recipe.file else "",
            "kind": "ensemble",
            "model": "ensemble of " + ", ".join(s.name for s in _ensemble(recipe).steps),
        }
        samples = {"path": recipe.samples_given, "sha256": table.digest, "rows": count}
        ledger.found_parts(source, samples, Signature((), (), _largest(recipe) > 0))
        ledger.found_notes(table.notes)
        done.say(f"{count} sample rows for {', '.join(tensors)}")
        return tensors


def build_step(
    whole: Ledger, step: PythonStep | ModelStep, tensors: Mapping[str, Tensor], shop: Workshop
) -> tuple[Made, Placed, Mapping[str, Tensor]]:
    """Build one step on what the steps before made, check its joints, and stage it."""
    order, largest = whole.order, _largest(whole.recipe)
    part = shop.part(f"step-{step.index}")
    feeds = {key: tensors[name].values for key, name in step.input_map.items()}
    watch = StepWatch(whole.watch, step.name)
    if isinstance(step, PythonStep):
        inputs = step.signature(batched=largest > 0).inputs
        tensors = joined(whole.recipe, step, inputs, tensors, batched=largest > 0)
        ledger = Ledger(replace(order, recipe=_named(whole.recipe, step)), watch)
        made = make_function(whole.recipe, step, feeds, ledger, part.work, largest)
        placed = stage_function(order, made, part.work, shop)
    else:
        ledger = Ledger(replace(order, recipe=step_recipe(whole.recipe, step)), watch)
        try:
            model: MadeModel = make_model(order, step, feeds, ledger, part)
        except (CheckFailed, ConversionFailed) as error:
            raise ledger.explained(error) from error
        made = model.made
        tensors = joined(whole.recipe, step, made.inputs, tensors, batched=largest > 0)
        placed = stage_model(order, model, shop)
    ledger.found_emission(placed.emission)
    whole.found_notes([f"step '{step.name}': {n}" for n in placed.emission.notes])
    return made, placed, {**tensors, **_outputs(step, made)}


def compose(ledger: Ledger, tensors: Mapping[str, Tensor]) -> Golden:
    """The answers of the whole, made of the steps' own, held against those that the user expects."""
    recipe = ledger.recipe
    ensemble = _ensemble(recipe)
    batched = _largest(recipe) > 0
    wire = {n: tensors[n].values for n in ensemble.inputs}
    want = {n: tensors[n].values for n in ensemble.outputs}
    tolerance = recipe.tolerance.or_scaled()
    with ledger.step("check") as done:
        if batched:
            ledger.checks.extend(_rows_kept(name, len(a), rows(wire)) for name, a in want.items())
        for name, array in want.items():
            ledger.found_notes(nan_note(name, array, batched))
        ledger.found_notes(list(_taken_outputs(ensemble)))
        for name in recipe.tolerance.by_output:
            if name not in want:
                raise _no_such_output(recipe, name)
        if ensemble.expected is not None:
            for name, array in read_expected(recipe, want).items():
                outcome = compare(name, want[name], array, tolerance.of(name))
                good = f"{outcome.total - outcome.wrong} of {outcome.total} as expected"
                bad = outcome.why or f"{good}; {_unexpected(outcome.worst)}"
                ledger.checks.append(
                    Check(f"expected: {name}", Pass(good) if outcome.holds else Fail(bad), outcome.worst)
                )
        stop_on_failure(ledger.checks, CheckFailed, "check-failed", "the steps do not answer as expected")
        done.say(f"{len(ledger.checks)} checks hold" if ledger.checks else "no answers are expected")
    if not batched:
        return Golden(wire, want, tolerance)
    chosen = list(spread(rows(wire), GOLDEN_ROWS))
    return Golden({n: a[chosen] for n, a in wire.items()}, {n: a[chosen] for n, a in want.items()}, tolerance)


def stage(
    ledger: Ledger, steps: Sequence[tuple[Made, Placed]], tensors: Mapping[str, Tensor], shop: Workshop
) -> Placed:
    """Write the ensemble's own folder, and look over the whole repository of it."""
    with ledger.step("stage") as done:
        placed = stage_ensemble(ledger.order, shop, [(m.step, p) for m, p in steps], tensors)
        signature = placed.emission.signature
        facts = {"steps": [_told(made, p) for made, p in steps]}
        ledger.found_parts(
            ledger.source,
            ledger.samples,
            signature,
            tools=[t for made, _ in steps for t in made.ledger.tools],
            facts=facts,
        )
        ledger.found_emission(placed.emission)
        release = target_release(ledger.recipe)
        wrong = [f for f in lint(shop.models, release).findings if f.severity is Severity.ERROR]
        if wrong:
            raise ConversionFailed(
                "ensemble-unfit",
                f"Triton {release.name} would not load the staged models",
                tuple(Evidence(f"{f.message} ({f.rule})", file=f.file, line=f.line) for f in wrong),
                "the evidence names the model and the field",
            )
        done.say(f"{CONFIG_FILE} of {len(steps)} steps and the ensemble, version {placed.emission.version}")
        return placed


def verify(
    ledger: Ledger, steps: Sequence[tuple[Made, Placed]], whole: Placed, golden: Golden, shop: Workshop
) -> None:
    """Serve the staged models and make the ensemble answer as the chain of its steps did."""
    with ledger.step("verify") as done:
        ledger.verification.extend(serve_all(shop, steps, whole, golden))
        bound = ", ".join(f"'{m.step.name}'" for m, _ in steps if not m.wholes)
        hint = (
            f"rows of a request depend on each other in step {bound}; set max_batch_size: 0"
            if bound
            else None
        )
        stop_on_failure(
            [replace(c, hint=hint) for c in ledger.verification],
            VerificationFailed,
            "verification-failed",
            "the ensemble does not answer as its steps do",
        )
        done.say(f"{len(ledger.verification)} checks hold on the bundled server")


def publish(
    ledger: Ledger, steps: Sequence[tuple[Made, Placed]], whole: Placed, golden: Golden, shop: Workshop
) -> Report:
    """Bring the steps and the ensemble into the repository, the ensemble last."""
    with ledger.step("publish") as done:
        name = ledger.recipe.name
        for made, placed in steps:
            request, *further = made.requests
            own = Golden(*request, made.tolerance, tuple(further))
            _record(
                shop,
                made.ledger,
                placed,
                own,
                name,
                code=isinstance(made.step, PythonStep) or bool(placed.emission.libraries),
            )
        code = any(isinstance(m.step, PythonStep) or p.emission.libraries for m, p in steps)
        _record(shop, ledger, whole, golden, name, code=code)
        all_of_them = [*(p for _, p in steps), whole]
        arrivals = [Arrival(p.model, p.emission, p.new_version) for p in all_of_them]
        changed = {p.model for p in all_of_them if p.changed}
        commit_together(shop, [a for a in arrivals if a.model in changed], arrivals)
        done.say(f"version {whole.emission.version}" + ("" if changed else " is equal already"))
        return ledger.report(whole.emission.version, changed=bool(changed), new_version=whole.new_version)


def _record(
    shop: Workshop, ledger: Ledger, placed: Placed, golden: Golden, ensemble: str, *, code: bool
) -> None:
    folder = shop.meta / placed.model
    folder.mkdir()
    report = ledger.report(placed.emission.version, changed=placed.changed, new_version=placed.new_version)
    write_records(
        folder, ledger.recipe, report, placed.emission, golden, carries_code=code, ensemble=ensemble
    )


def _ensemble(recipe: Recipe) -> EnsembleRecipe:
    assert recipe.ensemble is not None
    return recipe.ensemble


def _largest(recipe: Recipe) -> int:
    return int(recipe.serving["max_batch_size"])


def _named(recipe: Recipe, step: PythonStep) -> Recipe:
    return replace(recipe, name=step.model)


def _outputs(step: PythonStep | ModelStep, made: Made) -> dict[str, Tensor]:
    specs = {s.name: s for s in made.outputs}
    return {
        tensor: Tensor(replace(specs[key], name=tensor), f"step '{step.name}'", made.answers[key])
        for key, tensor in step.output_map.items()
    }


def _taken_outputs(ensemble: EnsembleRecipe) -> Iterator[str]:
    """Outputs that Triton's ensemble scheduler does not give alone (seen on 2.51: the request never ends)."""
    for step in ensemble.steps:
        for name in step.input_map.values():
            if name in ensemble.outputs:
                yield (
                    f"output '{name}' is also taken by step '{step.name}': a request to Triton that wants no"
                    " other output gets no answer, so ask for all of them"
                )


def _unexpected(worst: Deviation | None) -> str:
    if worst is None:
        return "no difference"
    at = "".join(f"[{i}]" for i in worst.at)
    return f"row {worst.row}{at}: the steps answer {worst.got}, expected is {worst.want}"


def _rows_kept(name: str, have: int, count: int) -> Check:
    if have == count:
        return Check(f"rows: {name}", Pass(f"one for each of {count} samples"))
    return Check(f"rows: {name}", Fail(f"{have} rows for {count} samples"), hint="set max_batch_size: 0")


def _told(made: Made, placed: Placed) -> dict[str, object]:
    return {
        "name": made.step.name,
        "model": placed.model,
        "version": placed.emission.version,
        "kind": "python" if isinstance(made.step, PythonStep) else "model",
        "checks": [c.to_dict() for c in made.ledger.checks],
    }


def _no_such_output(recipe: Recipe, name: str) -> RepobuildError:
    from repobuild.errors import InputInvalid
    from repobuild.recipe.load import recipe_evidence

    known = ", ".join(_ensemble(recipe).outputs)
    return InputInvalid(
        "tolerance-unknown",
        f"tolerance: names '{name}', which is not an output",
        (recipe_evidence(recipe, ("tolerance", name), f"outputs are {known}"),),
        "use the name of an output, or atol and rtol for all outputs",
    )
