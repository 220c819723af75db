"""What repobuild is, on one screen: a recipe becomes a graph, an artifact, a checked and served version."""

from __future__ import annotations

from repobuild.artifact import Artifact
from repobuild.build import Ledger, Order, Refused, stop_on_failure
from repobuild.checks import check_artifact
from repobuild.compilers.interface import Compiler
from repobuild.edge_check import edge_check, run_edges
from repobuild.emit.commit import Outcome, commit, recover
from repobuild.emit.config import CONFIG_FILE
from repobuild.emit.model import Emission, emit
from repobuild.emit.records import write_records
from repobuild.emit.workshop import Workshop
from repobuild.errors import CheckFailed, RepobuildError, VerificationFailed, from_oserror
from repobuild.export import Graph
from repobuild.frontends import export_any, load_any
from repobuild.golden import golden_rows
from repobuild.interrupts import import_whole
from repobuild.loaded import Loaded, LoadedSamples
from repobuild.metrics import budget_checks, measure, read_labels
from repobuild.plugins import COMPILERS, RUNNERS
from repobuild.prepare import refuse_early, target_release
from repobuild.refine import Refined, departure, real_float16, refine
from repobuild.releases import Release
from repobuild.report import Fail, Report
from repobuild.runners.interface import Runner
from repobuild.sources.find import open_source
from repobuild.sources.interface import Source
from repobuild.tensor_models.load import LoadedTensors
from repobuild.tensors import Batch
from repobuild.verify.latency import latency
from repobuild.verify.replay import Golden, Subject, replay
from repobuild.verify.server import BundledServer
from repobuild.verify.stand_in import stand_in, standing_in
from repobuild.watch import Silent, Watch

NATIVE = ("numpy", "onnx", "onnx.version_converter", "onnxruntime", "tritonclient.http.aio")


def convert(order: Order, watch: Watch | None = None) -> Report:
    """Build one recipe into a repository, which changes only in the last step.

    Args:
        order: What to build.
        watch: Told of the steps.

    Returns:
        The report of the new version, or of the present one when nothing changed.

    Raises:
        Refused: The build stops and the repository is as it was; it holds the error and the report so far.
    """
    ledger = Ledger(order, watch or Silent())
    try:
        refuse_early(order)
        release = target_release(order.recipe)
        ledger.found_target(release)
        with Workshop(order.repository) as shop:
            recover(shop)
            artifact, graph, answers = make(ledger, release, shop)
            emission = stage(ledger, artifact, graph, shop)
            golden = verify(ledger, emission, graph, answers, shop)
            return publish(ledger, emission, golden, shop)
    except RepobuildError as error:
        raise Refused(ledger.explained(error), ledger.report()) from error
    except OSError as problem:
        doing = f"building '{order.recipe.name}', at the step '{ledger.under_way}'"
        raise Refused(from_oserror(problem, doing), ledger.report()) from problem


def make(ledger: Ledger, release: Release, shop: Workshop) -> tuple[Artifact, Graph, Batch]:
    """Everything up to an artifact that answers as the model does; steps of ensembles go this way too."""
    with open_source(ledger.recipe, shop.work) as source:
        model, samples = load(ledger, source)
        graph = export(ledger, source, model, samples, release, shop)
    refined = refine_graph(ledger, graph, model, release, shop)
    artifact = compile_graph(ledger, refined.graph, shop)
    return artifact, refined.graph, check(ledger, artifact, refined, model, samples, shop)


def load(ledger: Ledger, source: Source) -> tuple[Loaded, LoadedSamples]:
    """Vouch for the model, load it in its child process, and read the rows that fit it."""
    with ledger.step("load") as done:
        source.vouch(ledger.order.trust)
        import_whole(NATIVE)
        model, samples = load_any(ledger.recipe, source)
        ledger.found_model(model)
        ledger.found_samples(samples)
        done.say(f"{model.model}, {samples.count} sample rows")
        return model, samples


def export(
    ledger: Ledger, source: Source, model: Loaded, samples: LoadedSamples, release: Release, shop: Workshop
) -> Graph:
    """Bring the model into the form that the target is made of, and ask the model itself for its answers."""
    with ledger.step("export") as done:
        compiler: Compiler = COMPILERS.load(ledger.recipe.targets[0].kind)()
        graph = export_any(source, model, ledger.recipe, samples, release, shop.work, compiler.form)
        ledger.found_graph(graph)
        done.say(ledger.signature_text())
        return graph


def refine_graph(ledger: Ledger, graph: Graph, model: Loaded, release: Release, shop: Workshop) -> Refined:
    """Optimise the graph as far as that helps, in the precision that the target asks for."""
    with ledger.step("refine") as done:
        compiler: Compiler = COMPILERS.load(ledger.recipe.targets[0].kind)()
        optimised = compiler.form == "onnx" and isinstance(model, LoadedTensors)
        refined = refine(graph, ledger.recipe, release, shop.work, optimised=optimised)
        ledger.found_refined(refined)
        done.say("; ".join(a.detail for a in refined.applied) or "the graph as it is")
        return refined


def compile_graph(ledger: Ledger, graph: Graph, shop: Workshop) -> Artifact:
    """Turn the graph into what the target runs."""
    with ledger.step("compile") as done:
        compiler: Compiler = COMPILERS.load(ledger.recipe.targets[0].kind)()
        artifact = compiler.compile(
            graph.path, graph.signature, shop.work / compiler.filename, graph.libraries
        )
        ledger.found_artifact(artifact)
        done.say(f"{artifact.path.name} for {artifact.made_by.name} {artifact.made_by.version}")
        return artifact


def check(
    ledger: Ledger,
    artifact: Artifact,
    refined: Refined,
    model: Loaded,
    samples: LoadedSamples,
    shop: Workshop,
) -> Batch:
    """Compare the artifact with the model on every row and edge row, and hold it against the budget."""
    with ledger.step("check") as done:
        recipe, graph = ledger.recipe, refined.graph
        flips = {w.name: recipe.budget.label_flips or 0 for w in graph.wanted if w.is_label}
        kind: type[Runner] = RUNNERS.load(artifact.kind)
        with kind.of(artifact) as runner:
            compared = check_artifact(
                runner, graph.wire, graph.reference, artifact.signature, graph.tolerance, flips
            )
            ledger.checks.extend(compared)
            edges = run_edges(runner, graph.edge_requests, graph.edges, graph.tolerance)
            ledger.checks.append(edge_check(edges))
            if refined.rounds:
                ledger.checks.append(real_float16(refined, shop.work / "rounded"))
            answers: Batch = runner.run(graph.wire)
        truth = read_labels(recipe, samples.count)
        if truth is not None:
            classes = model.facts.get("classes")
            ledger.found_metrics(
                measure(recipe, graph.wanted, classes, truth, graph.reference.batched, answers)
            )
        ledger.checks.extend(budget_checks(recipe, ledger.metrics, artifact.size))
        failed = any(isinstance(c.verdict, Fail) for c in ledger.checks)
        where = ""
        if failed and ledger.order.bisect:
            where = departure(refined, artifact.path, shop.work / "bisect")
        stop_on_failure(
            ledger.checks,
            CheckFailed,
            "check-failed",
            "the artifact does not answer as the model does",
            where,
        )
        done.say(f"{len(ledger.checks)} checks hold on {samples.count} rows")
        return answers


def stage(ledger: Ledger, artifact: Artifact, graph: Graph, shop: Workshop) -> Emission:
    """Write the model folder as Triton will see it, beside the repository."""
    with ledger.step("stage") as done:
        compiler: Compiler = COMPILERS.load(artifact.kind)()
        emission = emit(
            shop,
            ledger.recipe,
            artifact,
            compiler,
            graph.max_batch_size,
            graph.warm,
            graph.labels,
            graph.classes,
            update_config=ledger.order.changes.config,
            allow_schema_change=ledger.order.changes.schema,
        )
        ledger.found_emission(emission)
        done.say(f"config.pbtxt, {len(emission.warmup_files)} warm-up files, version {emission.version}")
        return emission


def verify(ledger: Ledger, emission: Emission, graph: Graph, answers: Batch, shop: Workshop) -> Golden:
    """Start the bundled server on the staged model and make it answer as the model did."""
    with ledger.step("verify") as done:
        golden = golden_rows(graph, emission.signature, answers)
        verified = stand_in(emission.config, emission.folder, emission.libraries)
        ledger.found_stand_in(verified)
        subject = Subject(
            ledger.recipe.name, emission.version, emission.signature, verified.config, graph.tolerance
        )
        with (
            standing_in(emission.folder / CONFIG_FILE, verified),
            BundledServer(shop.models, shop.work) as server,
        ):
            ledger.verification.extend(replay(server, subject, golden))
            limit = ledger.recipe.budget.p99_ms
            if limit is not None:
                delay = emission.config.dynamic_batching.max_queue_delay_microseconds
                ledger.verification.append(latency(server, subject, golden, limit, delay))
        stop_on_failure(
            ledger.verification,
            VerificationFailed,
            "verification-failed",
            "the bundled server does not answer as the model does",
        )
        done.say(f"{len(ledger.verification)} checks hold on the bundled server")
        return golden


def publish(ledger: Ledger, emission: Emission, golden: Golden, shop: Workshop) -> Report:
    """Bring the staged model into the repository in one step."""
    with ledger.step("publish") as done:

        def write(version: int) -> None:
            report = ledger.report(version, changed=True)
            code = bool(emission.libraries)
            write_records(shop.meta, ledger.recipe, report, emission, golden, carries_code=code)

        outcome: Outcome = commit(shop, ledger.recipe.name, emission, write)
        done.say(outcome.in_words())
        return ledger.report(outcome.version, changed=outcome.changed, new_version=outcome.new_version)
