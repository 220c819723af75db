"""The configuration to verify under where the bundled server cannot run the emitted one."""

import pytest

from repobuild.triton import parse_config
from repobuild.verify.stand_in import LONGEST_DELAY, stand_in, standing_in

PLAIN = """
name: "m"
max_batch_size: 8
instance_group { count: 2 kind: KIND_CPU }
dynamic_batching { max_queue_delay_microseconds: 100 }
"""


def config(text):
    return parse_config(text, "config.pbtxt")


def test_a_configuration_that_can_be_verified_is_verified_as_it_is(tmp_path):
    verified = stand_in(config(PLAIN), tmp_path)
    assert (verified.config, verified.notes) == (config(PLAIN), ())


@pytest.mark.parametrize(
    ("emitted", "verified", "note"),
    [
        (
            "instance_group { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] }",
            "instance_group { count: 2 kind: KIND_CPU }",
            "running on a GPU was not",
        ),
        (
            "dynamic_batching { max_queue_delay_microseconds: 60000000 preferred_batch_size: 4 }",
            f"dynamic_batching {{ max_queue_delay_microseconds: {LONGEST_DELAY} preferred_batch_size: 4 }}",
            "is 60000000: verified with",
        ),
        ("response_cache { enable: true }", "", "response_cache was left out"),
        (
            "dynamic_batching { priority_levels: 2 default_priority_level: 1 }",
            "dynamic_batching { }",
            "priority_levels, default_priority_level: left out",
        ),
        (
            'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }',
            "optimization { }",
            "execution_accelerators were left out",
        ),
    ],
)
def test_what_no_answer_depends_on_is_left_out_and_told(tmp_path, emitted, verified, note):
    message = config(emitted)
    stood = stand_in(message, tmp_path)
    assert stood.config == config(verified)
    assert [note in n for n in stood.notes] == [True]
    assert message == config(emitted)


@pytest.mark.parametrize("fault", [None, KeyboardInterrupt])
def test_the_emitted_file_comes_back_after_verification(tmp_path, fault):
    file = tmp_path / "config.pbtxt"
    text = "# mine\nresponse_cache { enable: true }\n"
    file.write_text(text)

    def block():
        with standing_in(file, stand_in(config(text), tmp_path)):
            assert config(file.read_text()) == config("")
            if fault is not None:
                raise fault

    if fault is None:
        block()
    else:
        with pytest.raises(fault):
            block()
    assert file.read_text() == text


def test_gpu_instances_are_emitted_as_asked_and_verified_on_the_cpu(project, repobuild_cli, tmp_path):
    import numpy as np
    from sklearn.linear_model import LinearRegression

    rows = np.random.default_rng(0).normal(size=(30, 2))
    serving = {"max_batch_size": 8, "instance_group": [{"kind": "KIND_GPU", "count": 2}]}
    home = project(LinearRegression().fit(rows, rows[:, 0]), rows, serving=serving)
    repository = tmp_path / "repository"
    outcome = repobuild_cli("convert", home, "-r", repository, "--trust", "pickle")
    assert outcome.status == 0, outcome.err
    assert "running on a GPU was not" in outcome.err
    group = config((repository / "model/config.pbtxt").read_text()).instance_group[0]
    assert (group.count, group.KIND_GPU) == (2, group.kind)


def test_a_preferred_size_beyond_the_default_largest_batch_is_refused(project, repobuild_cli, tmp_path):
    import numpy as np
    from sklearn.linear_model import LinearRegression

    rows = np.random.default_rng(0).normal(size=(30, 2))
    serving = {"dynamic_batching": {"preferred_batch_size": [60000]}}
    home = project(LinearRegression().fit(rows, rows[:, 0]), rows, serving=serving)
    outcome = repobuild_cli("convert", home, "-r", tmp_path / "repository", "--trust", "pickle")
    assert (outcome.status, "error[serving-unfit]" in outcome.err) == (3, True), outcome.err
    assert "recipe.yaml" in outcome.err
    assert not (tmp_path / "repository").exists()
