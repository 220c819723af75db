"""Configurations that are refused (4.2, 4.8, 9.3): the answer to a load, and what the index then says."""

from __future__ import annotations

from oracle.corpus.case import get, infer, tensor
from oracle.repositories import Model, Step, Tensor, ensemble, identity, python
from oracle.scripts import Ask, Script, load, unload

IN, OUT = Tensor("IN", "FP32", (4,)), Tensor("OUT", "FP32", (4,))


def scripts() -> list[Script]:
    """A script per configuration."""
    return [*singles(), *warm_ups(), *graphs()]


def script(label: str, *models: Model, also: tuple[str, ...] = ()) -> Script:
    """Load it, and ask it."""
    name = models[0].name
    steps = (
        load(name),
        Ask(get(f"/v2/models/{name}/ready")),
        Ask(get(f"/v2/models/{name}")),
        Ask(infer(name, [tensor([1.0, 2.0, 3.0, 4.0])])),
        unload(name),
        *(unload(other) for other in also),
    )
    return Script(f"mistake-{label}", "explicit", steps, models)


def text(label: str, config: str, files: tuple[tuple[str, bytes], ...] = ()) -> Script:
    """A whole configuration as text; the program is the identity."""
    return script(label, Model(f"mis_{label.replace('-', '_')}", config, "identity", files=files))


def added(
    label: str, extra: str, *, tensor_extra: str = "", batch: int = 8, dims: tuple[int, ...] = (4,)
) -> Script:
    """The identity with more in its configuration."""
    name = f"mis_{label.replace('-', '_')}"
    source = Tensor("IN", "FP32", dims, tensor_extra)
    return script(
        label, python(name, "identity", [source], [Tensor("OUT", "FP32", dims)], batch=batch, extra=extra)
    )


def singles() -> list[Script]:
    """One model."""
    head = 'backend: "python"\nmax_batch_size: 8\n'
    tail = f"input [ {IN.text} ]\noutput [ {OUT.text} ]\n"
    sequence = 'sequence_batching { control_input [ { name: "S" control [ { kind: CONTROL_SEQUENCE_START %s } ] } ] }'
    return [
        text("negative-batch", f'backend: "python"\nmax_batch_size: -1\n{tail}'),
        text("no-name", f"{head}input [ {{ data_type: TYPE_FP32 dims: [ 4 ] }} ]\noutput [ {OUT.text} ]"),
        text("no-output-name", f"{head}input [ {IN.text} ]\noutput [ {{ data_type: TYPE_FP32 dims: [ 4 ] }} ]"),
        text("no-type", f'{head}input [ {{ name: "IN" dims: [ 4 ] }} ]\noutput [ {OUT.text} ]'),
        text("no-output-type", f'{head}input [ {IN.text} ]\noutput [ {{ name: "OUT" dims: [ 4 ] }} ]'),
        text("no-dims", f'{head}input [ {{ name: "IN" data_type: TYPE_FP32 }} ]\noutput [ {OUT.text} ]'),
        text("no-inputs", f"{head}output [ {OUT.text} ]"),
        text("no-outputs", f"{head}input [ {IN.text} ]"),
        text("dim-zero", f'{head}input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ 0 ] }} ]\noutput [ {OUT.text} ]'),
        text("dim-negative", f'{head}input [ {{ name: "IN" data_type: TYPE_FP32 dims: [ -2 ] }} ]\noutput [ {OUT.text} ]'),
        text("unknown-field", f"{head}{tail}foo: 1"),
        text("scalar-twice", f"{head}max_batch_size: 4\n{tail}"),
        text("syntax", f"{head}{tail}input ["),
        text("two-schedulers", f"{head}{tail}dynamic_batching {{ }} sequence_batching {{ }}"),
        text("other-name", f'name: "zzz"\n{head}{tail}'),
        text("unknown-platform", f'platform: "zzz"\nmax_batch_size: 8\n{tail}'),
        text("unknown-backend", f'backend: "zzz"\nmax_batch_size: 8\n{tail}'),
        text("no-backend", f"max_batch_size: 8\n{tail}"),
        text("empty", ""),
        text("same-input-twice", f"{head}input [ {IN.text}, {IN.text} ]\noutput [ {OUT.text}, {OUT.text} ]"),
        added("reshape-count", "", tensor_extra="reshape { shape: [ 5 ] }"),
        added("reshape-variable", "", tensor_extra="reshape { shape: [ -1 ] }"),
        added("reshape-zero", "", tensor_extra="reshape { shape: [ 0 ] }"),
        added("reshape-empty", "", tensor_extra="reshape { shape: [ ] }", batch=0, dims=(1,)),
        added("format", "", tensor_extra="format: FORMAT_NHWC"),
        added("shape-tensor", "", tensor_extra="is_shape_tensor: true"),
        added("non-linear", "", tensor_extra="is_non_linear_format_io: true"),
        added("preferred-zero", "dynamic_batching { preferred_batch_size: [ 0 ] }"),
        added("preferred-large", "dynamic_batching { preferred_batch_size: [ 9 ] }"),
        added("priority-default", "dynamic_batching { priority_levels: 2 }"),
        added("priority-default-large", "dynamic_batching { priority_levels: 2 default_priority_level: 3 }"),
        added("priority-key", "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { } } }"),
        added("ordering-levels", "dynamic_batching { preserve_ordering: true priority_levels: 2 default_priority_level: 1 }"),
        added("ordering-delay", "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY } }"),
        added("cache-sequence", "sequence_batching { } response_cache { enable: true }"),
        added("cache-decoupled", "model_transaction_policy { decoupled: true } response_cache { enable: true }"),
        added("sequence-pair", sequence % ""),
        added("sequence-pair-one", sequence % "fp32_false_true: [ 0 ]"),
        added("sequence-corrid", 'sequence_batching { control_input [ { name: "C" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } ] } ] }'),
        added("batch-input-source", 'batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: "T" data_type: TYPE_FP32 source_input: "ZZ" } ]'),
        added("batch-input-type", 'batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: "T" data_type: TYPE_INT64 source_input: "IN" } ]'),
        added("batch-input-count", 'batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: "T" data_type: TYPE_FP32 } ]'),
        added("batch-output-target", 'batch_output [ { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "ZZ" source_input: "IN" } ]'),
        added("no-version", "version_policy { specific { versions: [ 9 ] } }"),
        added("latest-zero", "version_policy { latest { num_versions: 0 } }"),
        group("gpu", "kind: KIND_GPU"),
        group("cpu-with-gpus", "kind: KIND_CPU gpus: [ 0 ]"),
        group("profile", 'kind: KIND_CPU profile: "0"'),
        group("count-zero", "kind: KIND_CPU count: 0"),
        group("count-negative", "kind: KIND_CPU count: -1"),
        group("kind-model", "kind: KIND_MODEL"),
        script("label-file", python("mis_label_file", "identity", [IN], [Tensor("OUT", "FP32", (4,), 'label_filename: "none.txt"')])),
        script("ensemble-scheduling", identity("mis_es", "FP32", (4,), extra='ensemble_scheduling { step [ { model_name: "b" model_version: 1 } ] }')),
        script("no-execute", Model("mis_no_execute", f"{head}{tail}", files=(("1/model.py", b"class TritonPythonModel:\n    pass\n"),))),
        script("no-class", Model("mis_no_class", f"{head}{tail}", files=(("1/model.py", b"x = 1\n"),))),
        script("program-syntax", Model("mis_program_syntax", f"{head}{tail}", files=(("1/model.py", b"def (:\n"),))),
        script("program-import", Model("mis_program_import", f"{head}{tail}", files=(("1/model.py", b"import no_such_module_here\n"),))),
        script("no-version-folder", Model("mis_no_folder", f"{head}{tail}", versions=())),
    ]  # fmt: skip


def group(label: str, entry: str) -> Script:
    """The identity with this instance group."""
    name = f"mis_{label.replace('-', '_')}"
    config = (
        f'backend: "python"\nmax_batch_size: 8\ninput [ {IN.text} ]\noutput [ {OUT.text} ]\n'
        f"instance_group [ {{ {entry} }} ]"
    )
    return script(f"group-{label}", Model(name, config, "identity"))


def warm_ups() -> list[Script]:
    """Samples that cannot run."""

    def sample(label: str, entry: str, *, size: int = 1, name: str = "IN", dims: int = 4) -> Script:
        value = f'inputs {{ key: "{name}" value {{ {entry} }} }}'
        return added(
            f"warm-{label}", f'model_warmup [ {{ name: "w" batch_size: {size} {value} }} ]', dims=(dims,)
        )

    fits = "data_type: TYPE_FP32 dims: [ 4 ]"
    return [
        sample("no-data", fits),
        sample("size-zero", f"{fits} zero_data: true", size=0),
        sample("type", "data_type: TYPE_INT32 dims: [ 4 ] zero_data: true"),
        sample("shape", "data_type: TYPE_FP32 dims: [ 5 ] zero_data: true"),
        sample("name", f"{fits} zero_data: true", name="ZZ"),
        sample("file", f'{fits} input_data_file: "none"'),
        sample("open", "data_type: TYPE_FP32 dims: [ -1 ] zero_data: true", dims=-1),
    ]


def graphs() -> list[Script]:
    """Ensembles."""

    def base(name: str, batch: int = 4) -> Model:
        return identity(f"mis_base_{name}", "FP32", (4,), batch=batch)

    def graph(
        label: str,
        steps: list[Step],
        inputs: list[Tensor] | None = None,
        outputs: list[Tensor] | None = None,
        batch: int = 4,
        extra: str = "",
    ) -> Script:
        name = f"mis_ens_{label.replace('-', '_')}"
        member = f"mis_base_{label}"
        wired = [
            Step(member if step.model == "base" else step.model, step.inputs, step.outputs, step.version)
            for step in steps
        ]
        top = ensemble(name, inputs or [IN], outputs or [OUT], wired, batch=batch, extra=extra)
        return script(f"ensemble-{label}", top, base(label), also=(member,))

    good = Step("base", {"IN": "IN"}, {"OUT": "OUT"})
    other = Tensor("D", "FP32", (4,))
    return [
        graph("no-step", []),
        graph("no-input-map", [Step("base", {}, {"OUT": "OUT"})]),
        graph("no-output-map", [Step("base", {"IN": "IN"}, {})]),
        graph("no-model-name", [Step("", {"IN": "IN"}, {"OUT": "OUT"})]),
        graph("unused", [good, Step("base", {"IN": "IN"}, {"OUT": "D"})]),
        graph("output-not-made", [good], outputs=[OUT, other]),
        graph("input-not-used", [good], inputs=[IN, other]),
        graph("made-twice", [good, Step("base", {"IN": "IN"}, {"OUT": "OUT"})]),
        graph("circle", [Step("base", {"IN": "B"}, {"OUT": "C"}), Step("base", {"IN": "C"}, {"OUT": "B"}), good]),
        graph("unmade-input", [Step("base", {"IN": "Q"}, {"OUT": "OUT"})], inputs=[IN]),
        graph("no-model", [Step("nomodel", {"IN": "IN"}, {"OUT": "OUT"})]),
        graph("bad-input", [Step("base", {"ZZ": "IN"}, {"OUT": "OUT"})]),
        graph("bad-output", [Step("base", {"IN": "IN"}, {"ZZ": "OUT"})]),
        graph("type", [good], inputs=[Tensor("IN", "INT32", (4,))]),
        graph("shape", [good], inputs=[Tensor("IN", "FP32", (5,))]),
        graph("batch", [good], batch=8),
        graph("batch-smaller", [good], batch=2),
        graph("version", [Step("base", {"IN": "IN"}, {"OUT": "OUT"}, 7)]),
        graph("instances", [good], extra="instance_group [ { count: 1 kind: KIND_CPU } ]"),
        graph("optimization", [good], extra="optimization { }"),
        graph("warm-up", [good], extra='model_warmup [ { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } } ]'),
        graph("no-scheduling", [good], extra=""),
        script(
            "ensemble-platform-only",
            Model("mis_ens_only", f'platform: "ensemble"\nmax_batch_size: 4\ninput [ {IN.text} ]\noutput [ {OUT.text} ]'),
        ),
        script(
            "ensemble-member-fails",
            ensemble("mis_ens_fails", [IN], [OUT], [Step("mis_failing", {"IN": "IN"}, {"OUT": "OUT"})]),
            python("mis_failing", "initializing", [IN], [OUT], extra='parameters { key: "fail" value { string_value: "no" } }'),
        ),
        script(
            "ensemble-member-unparsable",
            ensemble("mis_ens_unparsable", [IN], [OUT], [Step("mis_unparsable", {"IN": "IN"}, {"OUT": "OUT"})]),
            Model("mis_unparsable", "foo: 1", "identity"),
        ),
    ]  # fmt: skip
