"""The checks of ensembles, alone and against their members; the texts were seen on Triton 2.51."""

from __future__ import annotations

import pytest

from repobuild_serve.config.ensemble import check_dependencies, check_ensemble, circular_ensembles
from repobuild_serve.config.parse import parse_text
from repobuild_serve.config.validate import validate_config
from repobuild_serve.errors import ConfigError, LoadError
from repobuild_serve.messages import model_config_class


def parsed(text):
    return parse_text(text, "config.pbtxt", model_config_class()())


def step(source, target, model="base", version=-1, inputs=("IN",), outputs=("OUT",)):
    maps = "".join(f' input_map {{ key: "{name}" value: "{source}" }}' for name in inputs)
    maps += "".join(f' output_map {{ key: "{name}" value: "{target}" }}' for name in outputs)
    return f'{{ model_name: "{model}" model_version: {version}{maps} }}'


def ensemble(*steps, more="", name="x", batch=8, data_type="TYPE_FP32", dims="2", odims="2"):
    return parsed(
        f'name: "{name}" platform: "ensemble" max_batch_size: {batch}\n'
        f'input [{{ name: "A" data_type: {data_type} dims: [ {dims} ] }}]\n'
        f'output [{{ name: "Z" data_type: TYPE_FP32 dims: [ {odims} ] }}]\n'
        f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}\n{more}"
    )


def tensors(role, *names, more=""):
    return "".join(f'{role} [{{ name: "{n}" data_type: TYPE_FP32 dims: [ 2 ] {more} }}]\n' for n in names)


def member(batch=8, more="", inputs=("IN",), optional=(), outputs=("OUT",)):
    return parsed(
        f'backend: "python" max_batch_size: {batch}\n{tensors("input", *inputs)}'
        f"{tensors('input', *optional, more='optional: true')}{tensors('output', *outputs)}{more}"
    )


MEMBERS = {
    "base": member(),
    "whole": member(0),
    "small": member(4),
    "many": member(inputs=("IN", "IR"), optional=("IO",), outputs=("OUT", "OUT2")),
    "streams": member(more="model_transaction_policy { decoupled: true }"),
    "reshaped": parsed(
        'backend: "python" max_batch_size: 8 input [{ name: "IN" data_type: TYPE_FP32 dims: [ 2 ] '
        'reshape { shape: [ 1, 2 ] } }] output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }]'
    ),
}

ALONE = {
    "no step": (ensemble(), "must specify 'step' for ensemble 'x'"),
    "no model": (ensemble(step("A", "Z", model="")), "must specify 'model_name' in step 0 of ensemble 'x'"),
    "no inputs": (
        ensemble(step("A", "M"), step("M", "Z", inputs=())),
        "must specify 'input_map' in step 1 of ensemble 'x'",
    ),
    "no outputs": (
        ensemble(step("A", "Z", outputs=())),
        "must specify 'output_map' in step 0 of ensemble 'x'",
    ),
    "unused tensor": (
        ensemble(step("A", "Z"), step("A", "D")),
        "ensemble tensor 'D' is unused in ensemble 'x'",
    ),
    "unused input": (
        ensemble(step("A", "Z"), more=tensors("input", "Q")),
        "ensemble input 'Q' for ensemble x' is not used",
    ),
    "unused output": (
        ensemble(step("A", "Z"), more=tensors("output", "Q")),
        "ensemble output 'Q' for ensemble x' is not used",
    ),
    "written twice": (
        ensemble(step("A", "Z"), step("A", "Z")),
        "ensemble tensor 'Z' can appear in an output map only once for ensemble 'x' step 1",
    ),
    "written twice by a step": (
        ensemble(step("A", "Z", outputs=("OUT", "OUT2"))),
        "ensemble tensor 'Z' can appear in an output map only once for ensemble 'x' step 0",
    ),
    "not written": (
        ensemble(step("A", "M"), step("X", "Z")),
        (
            "output 'Z' for ensemble 'x' is not written: at least one of its depending tensors, 'X', is not "
            "connected"
        ),
    ),
    "written from itself": (
        ensemble(step("A", "M"), step("Z", "Z")),
        "output 'Z' for ensemble 'x' is not written",
    ),
    "tensors in a circle": (
        ensemble(
            step("Y", "X").replace("input_map", 'input_map { key: "I2" value: "A" } input_map', 1),
            step("X", "Y"),
            step("Y", "Z"),
        ),
        (
            "output 'Z' for ensemble 'x' is not written: at least one of its depending tensors, 'X', is not "
            "connected"
        ),
    ),
    "instance group": (
        ensemble(step("A", "Z"), more="instance_group [{ }]"),
        "instance group should not be specified for ensemble 'x'",
    ),
    "optimization": (
        ensemble(step("A", "Z"), more="optimization { }"),
        "optimization should not be specified for ensemble 'x'",
    ),
    "warm-up": (
        ensemble(step("A", "Z"), more="model_warmup [{ }]"),
        "model_warmup can not be specified for ensemble 'x'",
    ),
    "no scheduling": (
        parsed('name: "x" platform: "ensemble"'),
        "ensemble scheduling must be set for ensemble x whose platform is ensemble",
    ),
    "another platform": (
        parsed(f'name: "x" backend: "python" ensemble_scheduling {{ step [ {step("A", "Z")} ] }}'),
        "ensemble scheduling cannot be set for model 'x' whose platform is not ensemble",
    ),
}


@pytest.mark.parametrize("case", ALONE)
def test_a_broken_rule_of_the_ensemble_alone(case):
    config, said = ALONE[case]
    with pytest.raises(ConfigError) as caught:
        validate_config(config)
    assert caught.value.text == said


TOGETHER = {
    "missing": (
        ensemble(step("A", "M", "nomodel"), step("M", "Z", "amodel")),
        "ensemble x contains models that are not available or ambiguous: nomodel",
    ),
    "no such input": (
        ensemble(step("A", "Z", inputs=("ZZ",))),
        "in ensemble x, ensemble tensor A is mapping to non-existing input ZZ in model base",
    ),
    "no such output": (
        ensemble(step("A", "Z", outputs=("ZZ",))),
        "in ensemble x, ensemble tensor Z is mapped from non-existing output ZZ in model base",
    ),
    "data type": (
        ensemble(step("A", "Z"), data_type="TYPE_INT32"),
        (
            "in ensemble x, ensemble tensor A: inconsistent data type: TYPE_INT32 is inferred from model x while "
            "TYPE_FP32 is inferred from model base"
        ),
    ),
    "shape of an input": (
        ensemble(step("A", "Z"), dims="5"),
        (
            "in ensemble x, ensemble tensor A: inconsistent shape: [-1,5] is inferred from model x while [-1,2] is "
            "inferred from model base"
        ),
    ),
    "shape of an output": (
        ensemble(step("A", "Z"), odims="3"),
        (
            "in ensemble x, ensemble tensor Z: inconsistent shape: [-1,3] is inferred from model x while [-1,2] is "
            "inferred from model base"
        ),
    ),
    "batch size": (
        ensemble(step("A", "Z", "small")),
        (
            "ensemble x allows maximum batch size 8, but it contains model small which only allows maximum batch "
            "size to be 4"
        ),
    ),
    "input left out": (
        ensemble(step("A", "Z", "many")),
        "in ensemble x, input IR in model many is not mapped to any ensemble tensors",
    ),
    "two streams": (
        ensemble(
            step("A", "M", "streams"),
            step("M", "Z", "many").replace("input_map", 'input_map { key: "IR" value: "A" } input_map', 1),
        ),
        "in ensemble x, step of model 'x' receives inputs originated from different decoupled models",
    ),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_a_broken_rule_between_ensemble_and_members(case):
    config, said = TOGETHER[case]
    validate_config(config)
    with pytest.raises(LoadError) as caught:
        check_ensemble(config, MEMBERS)
    assert caught.value.text == said


@pytest.mark.parametrize(
    ("config", "decoupled"),
    [
        pytest.param(ensemble(step("A", "Z")), False, id="one step"),
        pytest.param(ensemble(step("A", "M"), step("M", "Z")), False, id="two steps"),
        pytest.param(ensemble(step("M", "Z"), step("A", "M")), False, id="steps in any order"),
        pytest.param(ensemble(step("A", "Z"), batch=0, dims="-1, 2", odims="-1, 2"), False, id="full shapes"),
        pytest.param(ensemble(step("A", "Z"), batch=0), False, id="shapes without batch dim"),
        pytest.param(ensemble(step("A", "Z", "whole")), False, id="a member without batching"),
        pytest.param(ensemble(step("A", "Z"), dims="-1", odims="-1"), False, id="variable dims"),
        pytest.param(ensemble(step("A", "Z", "reshaped")), False, id="a member that reshapes"),
        pytest.param(ensemble(step("A", "Z", "many", inputs=("IN", "IR"))), False, id="optional left out"),
        pytest.param(ensemble(step("A", "Z", "streams")), True, id="a decoupled member"),
        pytest.param(ensemble(step("A", "M", "streams"), step("M", "Z")), True, id="a step after it"),
        pytest.param(
            ensemble(step("A", "M", "streams"), step("M", "Z", "streams")), True, id="two decoupled in a row"
        ),
    ],
)
def test_members_that_fit(config, decoupled):
    validate_config(config)
    assert check_ensemble(config, MEMBERS) is decoupled


def test_an_ensembles_own_reshape_is_what_the_members_see():
    config = ensemble(step("A", "Z"), dims="1, 2 ] reshape { shape: [ 2 ] } dims: [", odims="2")
    assert list(config.input[0].reshape.shape) == [2]
    assert check_ensemble(config, MEMBERS) is False


@pytest.mark.parametrize(
    ("versions", "problems", "failures", "said"),
    [
        pytest.param({"base": [1]}, {}, {}, "whose required version 7 is not loaded.", id="another version"),
        pytest.param(
            {"base": []},
            {},
            {"base": "no"},
            "which has no loaded version. Model 'base' loading failed with error: no",
            id="failed",
        ),
        pytest.param({}, {}, {}, "which has no loaded version.", id="not loaded"),
        pytest.param(
            {}, {"base": "bad"}, {}, "which is not valid. Model 'base' failed with error: bad", id="not valid"
        ),
    ],
)
def test_members_that_cannot_be_used(versions, problems, failures, said):
    with pytest.raises(LoadError) as caught:
        check_dependencies(ensemble(step("A", "Z", version=7)), versions, problems, failures)
    assert caught.value.text == f"ensemble 'x' depends on 'base' {said}"


def test_members_that_can_be_used():
    config = ensemble(step("A", "M", version=7), step("M", "Z"))
    check_dependencies(config, {"base": [1, 7]}, {}, {})


def link(name, *models):
    return ensemble(*(step("A", "Z", model, inputs=("A",), outputs=("Z",)) for model in models), name=name)


def test_ensembles_in_a_circle():
    configs = {
        "base": MEMBERS["base"],
        "own": link("own", "own"),
        "one": link("one", "base", "two"),
        "two": link("two", "one"),
        "before": link("before", "one"),
        "fine": link("fine", "base", "gone"),
    }
    circle = "circular dependency between ensembles: one -> ... -> two -> one"
    assert circular_ensembles(configs) == {
        "one": circle,
        "two": circle,
        "own": "circular dependency between ensembles: own -> ... -> own -> own",
    }
