"""What repobuild is, on one screen: a recipe becomes ONNX, an artifact, a checked and served version."""

from __future__ import annotations

from repobuild.artifact import Artifact
from repobuild.build import Ledger, Order, Refused, stop_on_failure
from repobuild.checks import check_artifact, spread
from repobuild.compilers.interface import Compiler
from repobuild.emit.commit import Outcome, commit, recover
from repobuild.emit.model import Emission, emit
from repobuild.emit.records import write_records
from repobuild.emit.workshop import Workshop
from repobuild.errors import CheckFailed, RepobuildError, VerificationFailed, from_oserror
from repobuild.export import Graph, export_graph
from repobuild.interrupts import import_whole
from repobuild.plugins import COMPILERS, RUNNERS
from repobuild.report import Report
from repobuild.samples import Samples, read_samples
from repobuild.sources.find import open_source
from repobuild.sources.interface import Description, Source
from repobuild.verify.replay import Golden, Subject, replay
from repobuild.verify.server import BundledServer
from repobuild.watch import Silent, Watch

TARGET = "onnxruntime"
GOLDEN_ROWS = 64
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
        with Workshop(order.repository) as shop:
            recover(shop)
            with open_source(order.recipe, shop.work) as source:
                model, samples = load(ledger, source)
                graph = export(ledger, source, model, samples, shop)
            artifact = compile_graph(ledger, graph, shop)
            check(ledger, artifact, graph, samples)
            emission = stage(ledger, artifact, graph, samples, shop)
            golden = verify(ledger, emission, graph, samples, shop)
            return publish(ledger, emission, golden, shop)
    except RepobuildError as error:
        raise Refused(error, ledger.report()) from error
    except OSError as problem:
        doing = f"building '{order.recipe.name}', at the step '{ledger.under_way}'"
        raise Refused(from_oserror(problem, doing), ledger.report()) from problem


def load(ledger: Ledger, source: Source) -> tuple[Description, Samples]:
    """Vouch for the model, load it in its child process, and read the rows that fit it."""
    with ledger.step("load") as done:
        source.vouch(ledger.order.trust)
        import_whole(NATIVE)
        model = source.describe(ledger.recipe)
        ledger.found_model(model)
        samples = read_samples(ledger.recipe, model.inputs)
        ledger.found_samples(samples)
        done.say(f"{model.model}, {samples.count} sample rows")
        return model, samples


def export(ledger: Ledger, source: Source, model: Description, samples: Samples, shop: Workshop) -> Graph:
    """Make ONNX in normal form, and ask the model itself for its answers."""
    with ledger.step("export") as done:
        graph = export_graph(source, model, ledger.recipe, samples, shop.work)
        ledger.found_graph(graph)
        done.say(ledger.signature_text())
        return graph


def compile_graph(ledger: Ledger, graph: Graph, shop: Workshop) -> Artifact:
    """Turn the graph into what the target runs."""
    with ledger.step("compile") as done:
        compiler: Compiler = COMPILERS.load(TARGET)()
        artifact = compiler.compile(graph.path, graph.signature, shop.work / compiler.filename)
        ledger.found_artifact(artifact)
        done.say(f"{artifact.path.name} for {artifact.made_by.name} {artifact.made_by.version}")
        return artifact


def check(ledger: Ledger, artifact: Artifact, graph: Graph, samples: Samples) -> None:
    """Compare the artifact with the model on every row."""
    with ledger.step("check") as done:
        runner = RUNNERS.load(artifact.kind)(artifact.path)
        ledger.checks.extend(
            check_artifact(runner, samples.wire, graph.reference, artifact.signature, graph.tolerance)
        )
        stop_on_failure(
            ledger.checks, CheckFailed, "check-failed", "the artifact does not answer as the model does"
        )
        done.say(f"{len(ledger.checks)} checks hold on {samples.count} rows")


def stage(ledger: Ledger, artifact: Artifact, graph: Graph, samples: Samples, shop: Workshop) -> Emission:
    """Write the model folder as Triton will see it, beside the repository."""
    with ledger.step("stage") as done:
        compiler: Compiler = COMPILERS.load(artifact.kind)()
        emission = emit(shop, ledger.recipe, artifact, compiler.backend, graph.max_batch_size, samples.wire)
        ledger.found_emission(emission)
        done.say(f"config.pbtxt, {len(emission.warmup_files)} warm-up files, version {emission.version}")
        return emission


def verify(ledger: Ledger, emission: Emission, graph: Graph, samples: Samples, shop: Workshop) -> Golden:
    """Start the bundled server on the staged model and make it answer as the model did."""
    with ledger.step("verify") as done:
        # Without a batch dimension an answer may depend on the other rows: all of them are one request.
        count = GOLDEN_ROWS if emission.signature.batched else samples.count
        chosen = list(spread(samples.count, count))
        golden = Golden(
            {name: array[chosen] for name, array in samples.wire.items()},
            {name: array[chosen] for name, array in graph.reference.batched.items()},
            graph.tolerance,
        )
        subject = Subject(
            ledger.recipe.name, emission.version, emission.signature, emission.config, graph.tolerance
        )
        with BundledServer(shop.models, shop.work) as server:
            ledger.verification.extend(replay(server, subject, golden))
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
            write_records(shop.meta, ledger.recipe, report, emission, golden)

        outcome: Outcome = commit(shop, ledger.recipe.name, emission, write)
        done.say(
            f"version {outcome.version}" if outcome.changed else f"version {outcome.version} is equal already"
        )
        return ledger.report(outcome.version, changed=outcome.changed)
