"""What the statistics count."""

from __future__ import annotations

import json

from oracle.corpus.case import infer, post, tensor
from oracle.repositories import Step as Member
from oracle.repositories import Tensor, ensemble, identity, python
from oracle.scripts import Ask, Script, Step, statistics

ONE = tensor([7], wire="INT32")
NUMBER_IN, NUMBER_OUT = [Tensor("IN", "INT32", (1,))], [Tensor("OUT", "INT32", (1,))]
SECOND = Tensor("SECOND", "INT32", (1,))
OPEN_IN = [Tensor("IN", "INT32", (-1,))]


def scripts() -> list[Script]:
    """Each on models of its own."""
    return [*acts(), *others()]


def acts() -> list[Script]:
    """Twice the same act, then the statistics."""
    found = []
    for act in ("plain", "raise", "NOT_FOUND", "error_default", "too_few", "empty", "missing", "sender"):
        model = f"stats_{act.lower()}"
        ask = Ask(infer(model, [tensor([1, 2, 3], [3, 1], "INT32")], parameters={"act": act}))
        found.append(
            Script(
                f"statistics-{act}",
                "main",
                (statistics(model), ask, ask, statistics(model)),
                (python(model, "probe", NUMBER_IN, [*NUMBER_OUT, SECOND]),),
            )
        )
    return found


def others() -> list[Script]:
    """Refused requests, decoupled models, ensembles, calls between models."""
    wrong = Ask(infer("stats_refused", [tensor([1.0])]))
    stream = "/v2/models/stats_repeat/generate_stream"

    def streamed(**body: object) -> Ask:
        return Ask(post(stream, json.dumps(body).encode()))

    decoupled = "model_transaction_policy { decoupled: true }"
    chain = (Member("stats_a", {"IN": "IN"}, {"OUT": "M"}), Member("stats_b", {"IN": "M"}, {"OUT": "OUT"}))
    failing = (Member("stats_f", {"IN": "IN"}, {"OUT": "M"}), Member("stats_g", {"IN": "M"}, {"OUT": "OUT"}))
    rows = tensor([1, 2, 3], [3, 1], "INT32")

    def of(*names: str) -> tuple[Step, ...]:
        return tuple(statistics(name) for name in names)

    return [
        Script(
            "statistics-refused", "main", (wrong, *of("stats_refused")),
            (identity("stats_refused", "INT32", (1,)),),
        ),
        Script(
            "statistics-whole", "main", (Ask(infer("stats_whole", [tensor([1, 2], [2], "INT32")])), *of("stats_whole")),
            (identity("stats_whole", "INT32", (2,), batch=0),),
        ),
        Script(
            "statistics-decoupled", "main",
            (
                streamed(IN=[1, 2, 3]), *of("stats_repeat"), streamed(IN=[]), *of("stats_repeat"),
                streamed(IN=[1], act="error_last"), *of("stats_repeat"),
                streamed(IN=[], act="error_first"), *of("stats_repeat"),
                streamed(IN=[1], act="raise"), *of("stats_repeat"),
                streamed(IN=[1, 2], act="with_last"), *of("stats_repeat"),
            ),
            (python("stats_repeat", "repeat", OPEN_IN, NUMBER_OUT, batch=0, extra=decoupled),),
        ),
        Script(
            "statistics-ensemble", "main",
            (Ask(infer("stats_chain", [rows])), Ask(infer("stats_chain", [ONE])), *of("stats_chain", "stats_a", "stats_b")),
            (
                identity("stats_a", "INT32", (1,)), identity("stats_b", "INT32", (1,)),
                ensemble("stats_chain", NUMBER_IN, NUMBER_OUT, list(chain)),
            ),
        ),
        Script(
            "statistics-ensemble-failing", "main",
            tuple(
                step
                for act in ("NOT_FOUND", "raise", "missing", "plain")
                for step in (
                    Ask(infer("stats_failing", [rows], parameters={"act": act})),
                    *of("stats_failing", "stats_f", "stats_g"),
                )
            ),
            (
                python("stats_f", "probe", NUMBER_IN, [*NUMBER_OUT, SECOND]), identity("stats_g", "INT32", (1,)),
                ensemble("stats_failing", NUMBER_IN, NUMBER_OUT, list(failing)),
            ),
        ),
        Script(
            "statistics-ensemble-refused", "main",
            (Ask(infer("stats_over", [tensor([1, 2, 3], [3, 1], "INT32")])), *of("stats_over", "stats_o")),
            (
                identity("stats_o", "INT32", (1,), batch=2),
                ensemble("stats_over", [Tensor("IN", "INT32", (-1, 1))], [Tensor("OUT", "INT32", (-1, 1))],
                         [Member("stats_o", {"IN": "IN"}, {"OUT": "OUT"})], batch=0),
            ),
        ),
        Script(
            "statistics-bls", "main",
            (
                Ask(infer("stats_bls", [ONE], parameters={"model": "stats_called"})),
                Ask(infer("stats_bls", [ONE], parameters={"model": "nope"})),
                *of("stats_bls", "stats_called"),
            ),
            (
                python("stats_bls", "bls", OPEN_IN, [Tensor("OUT", "INT32", (-1,)), Tensor("ERROR", "BYTES", (1,))]),
                identity("stats_called", "INT32", (1,)),
            ),
        ),
        Script("statistics-warm-up", "main", of("recorded")),
    ]  # fmt: skip
