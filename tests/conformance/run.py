"""Takes all cases through builder and server, and counts."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from repobuild.emit.workshop import Workshop
from repobuild.errors import RepobuildError
from repobuild.verify.server import BundledServer
from tests.conformance.build import Built, CheckFailed, build
from tests.conformance.cases import Case
from tests.conformance.reasons import reason_of
from tests.conformance.runtime_bugs import KNOWN, direct
from tests.conformance.served import answers, difference

START_SECONDS = 600.0


@dataclass
class Results:
    """What came of the cases.

    Attributes:
        served: Cases that were answered as stored, with whether they have a batch dimension.
        partial: Those of them that have further outputs, which are no tensors and were left out.
        excepted: Cases that are not served, and why.
        runtime: Cases that ONNX Runtime itself answers otherwise, and the name of its bug.
        wrong: Everything else: cases and what is wrong.
    """

    served: dict[str, bool] = field(default_factory=dict)
    partial: list[str] = field(default_factory=list)
    excepted: dict[str, str] = field(default_factory=dict)
    runtime: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)


def run(cases: Sequence[Case], folder: Path) -> Results:
    """Build all cases into one repository, serve it, and ask.

    Args:
        cases: The cases.
        folder: Existing folder to work in.
    """
    from tritonclient.http import InferenceServerClient

    results = Results()
    with Workshop(folder / "repository") as shop:
        built = _build_all(cases, shop, folder, results)
        with BundledServer(shop.models, shop.work, START_SECONDS) as server:
            client = InferenceServerClient(server.address, connection_timeout=60.0, network_timeout=60.0)
            try:
                for item in built:
                    _ask(client, item, results)
            finally:
                client.close()
    return results


def _build_all(cases: Sequence[Case], shop: Workshop, folder: Path, results: Results) -> list[Built]:
    built = []
    for case in cases:
        work = folder / case.name
        try:
            built.append(build(case, shop, work))
        except (RepobuildError, CheckFailed) as problem:
            reason = reason_of(problem)
            if reason is None:
                lines = [e.text for e in problem.evidence] if isinstance(problem, RepobuildError) else []
                results.wrong[case.name] = " | ".join([str(problem), *lines])
            else:
                results.excepted[case.name] = reason
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return built


def _ask(client: object, item: Built, results: Results) -> None:
    from tritonclient.utils import InferenceServerException

    name = item.case.name
    try:
        got = answers(client, item)
    except InferenceServerException as problem:
        results.wrong[name] = f"the server refuses it: {problem}"
        return
    wrong = difference(item, got)
    if not wrong:
        results.served[name] = item.batched
        if len(item.renamed) < len(item.case.outputs):
            results.partial.append(name)
        if name in KNOWN:
            results.wrong[name] = "is right, and listed as a fault of ONNX Runtime"
    elif name in KNOWN and not difference(item, got, direct(item.case)):
        results.runtime[name] = KNOWN[name]
    else:
        results.wrong[name] = wrong
