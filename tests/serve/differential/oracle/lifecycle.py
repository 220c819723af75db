"""Load, unload, reload, in explicit mode."""

from __future__ import annotations

from typing import Any

from oracle.corpus.case import get, infer, post, tensor
from oracle.repositories import Model, Tensor, ensemble, identity, program, python
from oracle.repositories import Step as Member
from oracle.scripts import (
    INDEX,
    Ask,
    Burst,
    Pause,
    Remove,
    Script,
    Steady,
    Step,
    Write,
    load,
    ready,
    statistics,
    unload,
)

IN, OUT = [Tensor("IN", "INT32", (1,))], [Tensor("OUT", "INT32", (1,))]


def config(**changes: Any) -> dict[str, Any]:
    """A configuration as JSON of a model that adds its ``mark``."""
    tensors: dict[str, Any] = {
        "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}],
    }
    group = {"count": 1, "kind": "KIND_CPU"}
    return {"backend": "python", "max_batch_size": 8, **tensors, "instance_group": [group], **changes}


def mark(value: str) -> dict[str, Any]:
    """The parameter that a model adds to its input."""
    return {"mark": {"string_value": value}}


def marked(name: str, extra: str = "", *, versions: tuple[int, ...] = (1,)) -> Model:
    """A model that adds nothing, unless its parameters say otherwise."""
    return python(name, "initializing", IN, OUT, extra=extra, versions=versions)


def ask(model: str) -> Ask:
    """An inference."""
    return Ask(infer(model, [tensor([7], wire="INT32")]))


def of(model: str) -> Steady:
    """The index entries of a model, as its readiness and metadata show them."""
    return Steady(get(f"/v2/models/{model}"))


def fails(text: str) -> str:
    """The parameter that makes loading raise."""
    return f'parameters {{ key: "fail" value {{ string_value: "{text}" }} }}'


def scripts() -> list[Script]:
    """Each on models of its own; those that read the whole index come in a stage of their own."""
    return [
        explicit("plain", "life_plain", [marked("life_plain")], [
            ready("life_plain"), ask("life_plain"), unload("life_plain"), load("life_plain"), ready("life_plain"),
            ask("life_plain"), of("life_plain"), load("life_plain"), ask("life_plain"), statistics("life_plain"),
            unload("life_plain"), of("life_plain"), Pause(500), ready("life_plain"), ask("life_plain"),
            statistics("life_plain"), load("life_plain"), statistics("life_plain"), unload("life_plain"),
        ]),
        explicit("bodies", "life_bodies", [marked("life_bodies")], [
            Ask(post("/v2/repository/models/life_bodies/load")),
            Ask(post("/v2/repository/models/life_bodies/load", b"{")),
            Ask(post("/v2/repository/models/life_bodies/load", [])),
            Ask(post("/v2/repository/models/life_bodies/load", {"parameters": 1})),
            Ask(post("/v2/repository/models/life_bodies/load", {"parameters": {"other": "x"}})),
            Ask(post("/v2/repository/models/life_bodies/load", {"parameters": {"config": 1}})),
            Ask(post("/v2/repository/models/life_bodies/load", {"parameters": {"config": {}}})),
            Ask(post("/v2/repository/models/life_bodies/load", {"parameters": {"config": ""}})),
            Ask(post("/v2/repository/models/life_bodies/load", {"parameters": {"file:1/model.py": 1}})),
            Ask(post("/v2/repository/models/life_bodies/load", {"parameters": {"file:1/model.py": "AAAA"}})),
            Ask(post("/v2/repository/models/life_bodies/load", {"other": 1})),
            Ask(post("/v2/repository/other/models/life_bodies/load", {})),
            Ask(post("/v2/repository/other/models/life_bodies/unload", {})),
            Ask(post("/v2/repository/models/life_bodies/unload")),
            Ask(post("/v2/repository/models/life_bodies/unload", b"{")),
            Ask(post("/v2/repository/models/life_bodies/unload", {"parameters": {"unload_dependents": 1}})),
            Ask(post("/v2/repository/models/life_bodies/unload", {"parameters": {"other": 1}})),
            load("nope"), unload("nope"), load("life_bodies", "not json"), load("life_bodies", {"bogus": 1}),
            load("life_bodies", config(name="other")), load("life_bodies", config(max_batch_size=-1)),
        ]),
        explicit("config", "life_config", [marked("life_config")], [
            load("life_config", config(parameters=mark("5"))), ask("life_config"),
            Ask(get("/v2/models/life_config/config")), load("life_config"), ask("life_config"),
            load("life_config", config(parameters=mark("6"), name="life_config")), ask("life_config"),
            load("life_config", config(parameters=mark("x"))), ask("life_config"), ready("life_config"),
            unload("life_config"), Pause(500), load("life_config"), ask("life_config"),
        ]),
        explicit("files", "life_files", [marked("life_files")], [
            load("life_files", config(parameters=mark("5")), v1__model_dot_py=program("initializing").encode()),
            ask("life_files"), of("life_files"),
            load("life_files", config(), v7__model_dot_py=program("initializing").encode()),
            ask("life_files"), of("life_files"),
            load("life_files", config(), v1__model_dot_py=b"raise RuntimeError('no')"), ask("life_files"),
            of("life_files"), load("life_files", config()), of("life_files"), load("life_files"), of("life_files"),
        ]),
        explicit("nowhere", "life_nowhere", [], [
            load("life_nowhere", config(), v1__model_dot_py=program("initializing").encode()), ask("life_nowhere"),
            of("life_nowhere"), load("life_nowhere"), ask("life_nowhere"), unload("life_nowhere"), Pause(500),
            ask("life_nowhere"),
        ]),
        explicit("failing", "life_failing", [marked("life_failing", fails("not today"))], [
            load("life_failing"), ready("life_failing"), ask("life_failing"), of("life_failing"),
            statistics("life_failing"), load("life_failing", config()), ask("life_failing"), unload("life_failing"),
        ]),
        explicit("keeps", "life_keeps", [marked("life_keeps")], [
            load("life_keeps"), ask("life_keeps"), Write("life_keeps/1/model.py", b"raise RuntimeError('broken')"),
            load("life_keeps"), ready("life_keeps"), ask("life_keeps"), of("life_keeps"), statistics("life_keeps"),
            Write("life_keeps/1/model.py", program("initializing").encode()), load("life_keeps"), ask("life_keeps"),
            Remove("life_keeps/config.pbtxt"), load("life_keeps"), ask("life_keeps"),
        ]),
        explicit("versions", "life_versions", [marked("life_versions", "version_policy { all { } }", versions=(1, 2))], [
            load("life_versions"), of("life_versions"), ask("life_versions"), Remove("life_versions/2"),
            load("life_versions"), of("life_versions"), ask("life_versions"), ask("life_versions/versions/2"),
            ready("life_versions/versions/2"),
            Write("life_versions/5/model.py", program("initializing").encode()), load("life_versions"),
            of("life_versions"), ask("life_versions"),
            Write("life_versions/6/model.py", b"raise RuntimeError('six')"), load("life_versions"),
            of("life_versions"), ready("life_versions"), ready("life_versions/versions/6"), ask("life_versions"),
            ask("life_versions/versions/6"),
        ]),
        explicit("slow", "life_slow", [python("life_slow", "batches", IN, [Tensor("OUT", "INT32", (3,))])], [
            load("life_slow"),
            Burst((
                (0, infer("life_slow", [tensor([7], wire="INT32")], parameters={"delay_ms": 1500})),
                (400, post("/v2/repository/models/life_slow/unload", {})),
                (700, infer("life_slow", [tensor([7], wire="INT32")])),
                (750, infer("life_slow/versions/1", [tensor([7], wire="INT32")])),
                (800, get("/v2/models/life_slow/ready")),
            )),
            Pause(500), ask("life_slow"), load("life_slow"), ask("life_slow"),
        ]),
        explicit("ensemble", "life_top", [
            marked("life_member"), ensemble("life_top", IN, OUT, [Member("life_member", {"IN": "IN"}, {"OUT": "OUT"})]),
        ], [
            load("life_top"), ready("life_member"), ask("life_top"), unload("life_top"), Pause(500), ready("life_member"),
            ask("life_member"), load("life_top"), unload("life_member"), Pause(500), ready("life_top"), ask("life_top"),
            load("life_member"), ask("life_top"), load("life_top"), unload("life_top", unload_dependents=True),
            Pause(500), ready("life_member"), ready("life_top"),
        ]),
        explicit("statistics", "life_stats", [identity("life_stats", "INT32", (1,))], [
            load("life_stats"), ask("life_stats"), statistics("life_stats"), load("life_stats"), load("life_stats"),
            ask("life_stats"), statistics("life_stats"),
        ]),
    ]  # fmt: skip


def explicit(label: str, model: str, models: list[Model], steps: list[Step]) -> Script:
    """A script that leaves nothing loaded."""
    return Script(f"lifecycle-{label}", "explicit", (*steps, unload(model)), tuple(models))


__all__ = ["INDEX", "scripts"]
