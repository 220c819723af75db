"""How long a lone row takes through the bundled server, against the recipe's budget."""

from __future__ import annotations

import time

from repobuild.interrupts import undisturbed
from repobuild.report import Check, Fail, Pass
from repobuild.tensors import rows, take
from repobuild.verify.replay import Golden, Subject, connected
from repobuild.verify.server import BundledServer

WARM_REQUESTS = 20
REQUESTS = 200


def latency(
    server: BundledServer, subject: Subject, golden: Golden, limit_ms: float, queue_delay_us: int
) -> Check:
    """Measure the 99th percentile of the latency of lone rows, one after another, binary tensors.

    The number itself is told only when it is too high, so that equal builds have equal reports.

    Args:
        server: The running server.
        subject: The model.
        golden: Rows to send.
        limit_ms: The budget, in milliseconds.
        queue_delay_us: The queue delay of the emitted configuration, which may be longer than that of the
            one that is verified; a lone request waits it out.
    """
    import numpy as np

    def measured() -> list[float]:
        count = rows(golden.wire) if subject.signature.batched else 1
        spent = []
        with connected(server, subject, golden) as ask:
            for index in range(WARM_REQUESTS + REQUESTS):
                whole = not subject.signature.batched
                row = golden.wire if whole else take(golden.wire, index % count, index % count + 1)
                start = time.perf_counter()
                ask(row)
                spent.append(time.perf_counter() - start)
        return spent

    spent = undisturbed(measured, server.stop)
    reached = float(np.percentile(spent[WARM_REQUESTS:], 99)) * 1e3
    reached += max(0, queue_delay_us - subject.config.dynamic_batching.max_queue_delay_microseconds) / 1e3
    title = "budget: p99_ms"
    if reached <= limit_ms:
        return Check(title, Pass(f"{REQUESTS} lone requests within the budget of {limit_ms:g} ms"))
    detail = (
        f"the 99th percentile of {REQUESTS} lone requests is {reached:.2f} ms, the budget {limit_ms:g} ms"
    )
    hint = (
        "raise the budget, shorten max_queue_delay_microseconds (a lone request waits it out), or use a"
        " quieter machine"
    )
    return Check(title, Fail(detail), hint=hint)
