"""Proves a staged ensemble on the bundled server: each step on its own, then the whole."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence

from repobuild.artifact import CACHE, tree_digests
from repobuild.compare import compare
from repobuild.emit.config import CONFIG_FILE
from repobuild.emit.workshop import Workshop
from repobuild.ensembles.interface import Made, Placed, naming
from repobuild.errors import CheckFailed, Evidence, VerificationFailed, from_oserror
from repobuild.interrupts import undisturbed
from repobuild.report import Check, Fail, Pass
from repobuild.tensors import Array, Signature
from repobuild.verify.replay import Golden, Subject, connected, replay
from repobuild.verify.server import BundledServer
from repobuild.verify.stand_in import stand_in, standing_in


def serve_all(
    shop: Workshop, steps: Sequence[tuple[Made, Placed]], whole: Placed, golden: Golden
) -> tuple[Check, ...]:
    """Serve the staged models together, ask every step, then the ensemble as a client would.

    Args:
        shop: The workshop.
        steps: The steps, each with its staged model; findings go to their own ledgers, too.
        whole: The staged ensemble.
        golden: Requests to the whole, and the answers of the steps' own chain.

    Returns:
        What was compared on the ensemble itself.

    Raises:
        VerificationFailed: A server does not load or answer, or a step answers otherwise.
        CheckFailed: A step wrote into its own folder.
    """
    before = {placed.model: tree_digests(shop.models / placed.model) for _, placed in steps}
    with contextlib.ExitStack() as stack:
        subjects = {}
        for made, placed in (*steps, (None, whole)):
            emission = placed.emission
            verified = stand_in(emission.config, emission.folder, emission.libraries)
            if made is not None:
                made.ledger.found_stand_in(verified)
            stack.enter_context(standing_in(emission.folder / CONFIG_FILE, verified))
            subjects[placed.model] = Subject(
                placed.model,
                placed.emission.version,
                placed.emission.signature,
                verified.config,
                golden.tolerance if made is None else made.tolerance,
            )
        server = stack.enter_context(BundledServer(shop.models, shop.work))
        for made, placed in steps:
            with naming(made.step.name):
                made.ledger.verification.append(_step_check(server, subjects[placed.model], made))
        checks = replay(server, subjects[whole.model], golden)
    _left_as_they_were(shop, before)
    return checks


def _step_check(server: BundledServer, subject: Subject, made: Made) -> Check:
    """The step's answers to the requests that its own function or model has answered.

    Raises:
        VerificationFailed: They differ.
    """
    signature = Signature(made.inputs, made.outputs, subject.signature.batched)
    whole = Subject(subject.model, subject.version, signature, subject.config, subject.tolerance)
    title = "served: what the steps before make"

    def compared() -> Check:
        worst = None
        for wire, want in made.requests:
            with connected(server, whole, Golden(wire, want)) as ask:
                got = ask(wire)
            assert isinstance(got, dict)
            for spec in made.outputs:
                answer = _text(got[spec.name])
                outcome = compare(spec.name, answer, want[spec.name], made.tolerance.of(spec.name))
                if not outcome.holds:
                    return Check(title, Fail(str(outcome.worst or outcome.why)), outcome.worst)
                if outcome.worst and (worst is None or outcome.worst.absolute > worst.absolute):
                    worst = outcome.worst
        count = len(made.requests)
        return Check(title, Pass(f"{count} request{'s' if count > 1 else ''}, all within tolerance"), worst)

    check = undisturbed(compared, server.stop)
    if isinstance(check.verdict, Fail):
        raise VerificationFailed(
            "verification-failed",
            "the bundled server does not answer as it does itself",
            (Evidence(check.detail, key=check.name),),
            "the repository was not changed",
        )
    return check


def _left_as_they_were(shop: Workshop, before: dict[str, dict[str, str]]) -> None:
    try:
        for cache in sorted(shop.models.rglob(CACHE)):
            shutil.rmtree(cache)
        for model, digests in before.items():
            now = tree_digests(shop.models / model)
            differ = sorted(n for n in digests.keys() | now.keys() if digests.get(n) != now.get(n))
            if differ:
                raise CheckFailed(
                    "step-writes",
                    f"the model '{model}' changes its own folder when it is served",
                    tuple(Evidence(f"{name} was written or removed") for name in differ),
                    "write to a temporary folder; a repository may be shared or read-only",
                )
    except OSError as problem:
        raise from_oserror(problem, "looking at the staged models") from problem


def _text(array: Array) -> Array:
    import numpy as np

    if array.dtype.kind not in "OS":
        return array
    texts = [v.decode() if isinstance(v, bytes) else str(v) for v in array.ravel()]
    return np.array(texts, dtype=np.str_).reshape(array.shape)
