"""Which requests run together (5.4), and what queue policies do (5.5): sizes and answers, never times.

The delays are long beside what a busy machine adds, and every arrival that must be in order is far apart.
"""

from __future__ import annotations

from typing import Any

from oracle.answers import Aspects
from oracle.corpus.case import infer, tensor
from oracle.repositories import Model, Tensor, python
from oracle.scripts import Burst, Script, Step, statistics

LONG_MS = 1500


def model(
    name: str, scheduling: str, *, delay_ms: int = 0, batch: int = 8, count: int = 1, dim: int = 1
) -> Model:
    """A model that tells the size of its executions."""
    extra = f'{scheduling}\nparameters {{ key: "delay_ms" value {{ string_value: "{delay_ms}" }} }}'
    return python(
        name, "batches", [Tensor("IN", "INT32", (dim,))], [Tensor("OUT", "INT32", (3,))],
        batch=batch, extra=extra, count=count,
    )  # fmt: skip


def one(name: str, rows: int = 1, width: int = 1, **parameters: Any) -> Any:
    """A request of so many rows."""
    return infer(name, [tensor([0] * rows * width, [rows, width], "INT32")], parameters=parameters)


def sizes(answers: list[Aspects]) -> Any:
    """The executions as [items, requests], by size; the errors as text."""
    runs = {}
    errors = []
    for answer in answers:
        if answer.status == 200:
            items, requests, serial = answer.json["outputs"][0]["data"][:3]
            runs[serial] = [items, requests]
        else:
            errors.append([answer.status, answer.json["error"]])
    return {"executions": sorted(runs.values()), "errors": sorted(errors)}


def each(answers: list[Aspects]) -> Any:
    """Per request, the size and the order of its execution, or its error."""
    return [
        answer.json["outputs"][0]["data"][:3]
        if answer.status == 200
        else [answer.status, answer.json["error"]]
        for answer in answers
    ]


def burst(
    name: str, *rows: int, after: float = 0, gap: float = 0, **parameters: Any
) -> list[tuple[float, Any]]:
    """Requests at once, or so far apart."""
    return [(after + number * gap, one(name, count, **parameters)) for number, count in enumerate(rows)]


def script(
    name: str, scheduling: str, entries: list[tuple[float, Any]], read: Any = sizes, **more: Any
) -> Script:
    """A burst on a model of the script's own, and its statistics."""
    own = name.replace("-", "_")
    steps: tuple[Step, ...] = (Burst(tuple(entries), read), statistics(own))
    return Script(name, "batching", steps, (model(own, scheduling, **more),))


def scripts() -> list[Script]:
    """The table of 5.4, and the policies."""
    return [*forming(), *policies()]


def forming() -> list[Script]:
    """What goes together."""
    delay = f"max_queue_delay_microseconds: {LONG_MS * 1000}"
    four = f"dynamic_batching {{ preferred_batch_size: [ 4 ] {delay} }}"
    plain = f"dynamic_batching {{ {delay} }}"
    found = [
        script(
            f"batching-preferred-{count}", four, burst(f"batching_preferred_{count}", *[1] * count, gap=10)
        )
        for count in (1, 3, 4, 5, 9)
    ]
    found += [
        script(f"batching-delay-{label}", plain, burst(f"batching_delay_{label}", *rows, gap=40))
        for label, rows in (
            ("3", (1, 1, 1)),
            ("8", (1,) * 8),
            ("rows", (3, 3, 3)),
            ("full", (8,)),
            ("two-full", (5, 5)),
        )
        if "-" not in label
    ]
    shapes = "batching_shapes"
    busy = "batching_busy"
    none = "batching_none"
    both = "batching_both"
    pieces = "batching_pieces"
    return [
        *found,
        script(
            "batching-shapes", plain, [(0, one(shapes, 1, 1)), (200, one(shapes, 1, 2)), (400, one(shapes, 1, 2))],
            each, dim=-1,
        ),
        script(
            "batching-busy", "dynamic_batching { }",
            [(0, one(busy)), *burst(busy, *[1] * 10, after=300, gap=20)], delay_ms=900,
        ),
        script("batching-none", "", [(0, one(none)), *burst(none, 1, 1, 3, after=300, gap=20)], delay_ms=500),
        script(
            "batching-pieces", "dynamic_batching { preferred_batch_size: [ 2, 4 ] }",
            [(0, one(pieces)), *burst(pieces, *[1] * 7, after=300, gap=20)], delay_ms=900,
        ),
        script(
            "batching-both", "dynamic_batching { }",
            [(0, one(both)), (150, one(both)), *burst(both, *[1] * 6, after=400, gap=20)],
            lambda answers: sorted(row[:2] for row in each(answers)), delay_ms=1000, count=2,
        ),
        script(
            "batching-over", "dynamic_batching { }", burst("batching_over", 9, 8), each,
        ),
    ]  # fmt: skip


def policies() -> list[Script]:
    """Time-outs, limits, priorities."""
    late = "default_timeout_microseconds: 900000"
    table: list[tuple[str, str, list[tuple[float, Any]]]] = []

    def add(label: str, policy: str, *arrivals: tuple[float, dict[str, Any]]) -> None:
        name = f"queue_{label.replace('-', '_')}"
        first = (0.0, one(name, delay_ms=1500))
        rest = [(after, one(name, **parameters)) for after, parameters in arrivals]
        table.append((f"queue-{label}", f"dynamic_batching {{ {policy} }}", [first, *rest]))

    def queue(policy: str) -> str:
        return f"default_queue_policy {{ {policy} }}"

    add("reject", queue(f"timeout_action: REJECT {late}"), (300, {}), (1300, {}))
    add(
        "delay",
        f"preferred_batch_size: [ 1 ] {queue(f'timeout_action: DELAY {late}')}",
        (300, {}),
        (1300, {}),
    )
    add("limit", queue("max_queue_size: 2"), (300, {}), (400, {}), (500, {}), (600, {}))
    add("override", queue(f"{late} allow_timeout_override: true"), (1100, {"timeout": 50000}), (1350, {}))
    add("override-longer", queue(f"{late} allow_timeout_override: true"), (300, {"timeout": 9000000}))
    add("override-off", queue("default_timeout_microseconds: 9000000"), (300, {"timeout": 50000}))
    add("override-no-default", queue("allow_timeout_override: true"), (300, {"timeout": 50000}))
    levels = "preferred_batch_size: [ 1 ] priority_levels: 3 default_priority_level: 2"
    add("levels", levels, (300, {"priority": 3}), (400, {}), (500, {"priority": 1}), (600, {"priority": 9}))
    own = f"priority_queue_policy {{ key: 1 value {{ {late} }} }} {queue('max_queue_size: 1')}"
    add(
        "levels-own",
        f"{levels} {own}",
        (300, {"priority": 1}),
        (400, {"priority": 3}),
        (500, {"priority": 3}),
    )
    return [script(name, scheduling, entries, each) for name, scheduling, entries in table]
