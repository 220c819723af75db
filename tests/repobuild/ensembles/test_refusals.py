"""What stops the build of an ensemble: the step is named, and the repository stays as it was."""

import json

import numpy as np
import pytest


def test_nobody_vouches_for_the_code(toy):
    error = toy.refused("source-untrusted", trust="pickle")
    assert "split.py" in error
    assert "label.py" in error


def test_a_missing_file(toy):
    (toy.home / "label.py").unlink()
    assert "step 'label': label.py cannot be used" in toy.refused("step-file")


def test_an_empty_file_beside(toy):
    (toy.home / "vocabulary.txt").write_text("")
    toy.steps[0]["python"]["files"] = ["vocabulary.txt"]
    assert "empty" in toy.refused("step-file")


def test_a_file_that_does_not_import(toy):
    toy.write("split.py", "import no_such_package_anywhere")
    error = toy.refused("step-import")
    assert "step 'split'" in error
    assert "no_such_package_anywhere" in error
    assert "split.py:1" in error


def test_no_such_function(toy):
    toy.steps[0]["python"]["function"] = "tokenize"
    assert "it has run" in toy.refused("step-function")


def test_parameters_for_a_function_without(toy):
    toy.steps[1]["python"]["parameters"] = {"a": 1}
    assert "takes none" in toy.refused("step-function")


@pytest.mark.parametrize("lines", ["    def run():", "    def run(a, b, c):"], ids=["none", "three"])
def test_a_function_with_other_arguments(toy, lines):
    toy.write("label.py", f"{lines}\n        return {{}}")
    toy.refused("step-function")


def test_a_function_that_raises_for_one_sample_names_it(toy):
    toy.write(
        "split.py",
        """
        import numpy as np

        def run(inputs, parameters):
            for item in inputs["TEXT"].ravel():
                if item == b"a b c":
                    raise KeyError("no such word")
            return {"ids": np.zeros((len(inputs["TEXT"]), 4), dtype=np.int64)}
        """,
    )
    error = toy.refused("step-failed")
    assert "step 'split'" in error
    assert "sample row 2 alone: KeyError: 'no such word' (split.py:7)" in error
    assert "row 1 alone" not in error


ANSWERS = {
    "type": ('{"label": inputs["ids"][:, :1].astype("int32")}', "is int32, the recipe declares BYTES"),
    "rank": ('{"label": np.array(["x"] * len(inputs["ids"]), dtype=object)}', "has shape [6]"),
    "rows": ('{"label": np.array([["x"]], dtype=object)}', "has shape [1, 1]"),
    "element": ('{"label": np.full((len(inputs["ids"]), 1), 3, dtype=object)}', "holds int"),
    "bytes": ('{"label": np.full((len(inputs["ids"]), 1), b"\\xff", dtype=object)}', "no UTF-8"),
    "name": ('{"labels": np.array([["x"]], dtype=object)}', "answers with labels, not label"),
    "none": ("None", "answers with NoneType"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_the_recipe_does_not_declare(toy, name):
    answer, text = ANSWERS[name]
    toy.write("label.py", f"import numpy as np\ndef run(inputs):\n    return {answer}\n")
    error = toy.refused("step-output")
    assert "step 'label'" in error
    assert text in error


def test_a_step_that_keeps_a_state(toy):
    toy.write(
        "split.py",
        """
        import numpy as np
        seen = []

        def run(inputs, parameters):
            seen.append(1)
            return {"ids": np.full((len(inputs["TEXT"]), 4), len(seen), dtype=np.int64)}
        """,
    )
    error = toy.refused("check-failed")
    assert "asked twice, step 'split' answers differently" in error


def test_rows_that_depend_on_each_other_do_not_serve_in_batches(toy):
    toy.write(
        "split.py",
        """
        import numpy as np

        def run(inputs, parameters):
            return {"ids": np.full((len(inputs["TEXT"]), 4), len(inputs["TEXT"]) * 2, dtype=np.int64)}
        """,
    )
    outcome = toy.build()
    assert outcome.status == 8, outcome.out
    assert "max_batch_size: 0" in outcome.err
    assert not toy.repository.exists()


def test_a_function_that_ends_its_process(toy):
    toy.write("split.py", "import os\ndef run(inputs, parameters):\n    os._exit(3)\n")
    error = toy.refused("worker-crashed")
    assert "running step 'split'" in error


def test_nan_is_told(toy):
    toy.write(
        "split.py",
        """
        import numpy as np

        def run(inputs, parameters):
            ids = np.ones((len(inputs["TEXT"]), 4), dtype=np.float32)
            ids[inputs["TEXT"][:, 0] == b"international relations"] = np.nan
            return {"ids": ids}
        """,
    )
    toy.steps[0]["python"]["outputs"][0]["dtype"] = "FP32"
    del toy.steps[1]
    toy.built()
    report = json.loads((toy.home / "models.repobuild/toy/1/report.json").read_text())
    assert "output 'ids' holds NaN, first for sample row 3" in report["notes"]


def test_requirements_that_are_not_met(toy):
    (toy.home / "requirements.txt").write_text("numpy>=1\n# a comment\nno-such-package-anywhere==1.0\n")
    toy.steps[0]["python"]["requirements"] = "requirements.txt"
    error = toy.refused("step-requirements-unmet")
    assert "requirements.txt:3: no-such-package-anywhere==1.0: not installed" in error
    (toy.home / "requirements.txt").write_text("numpy<1\n")
    assert "is installed" in toy.refused("step-requirements-unmet")
    (toy.home / "requirements.txt").write_text("--index-url x\n")
    toy.refused("step-requirements")
    (toy.home / "requirements.txt").write_text("numpy\nno-such; python_version < '3'\n")
    toy.built()
    assert (toy.repository / "toy_split/1/requirements.txt").is_file()


def test_types_that_differ_between_steps(toy):
    toy.steps[1]["python"]["inputs"][0]["dtype"] = "INT32"
    error = toy.refused("step-mismatch")
    assert "step 'label': tensor 'ids' does not fit" in error
    assert "INT64 [4] by step 'split', INT32 [4] by step 'label'" in error


def test_text_where_numbers_are_taken(toy):
    toy.steps[1]["python"]["inputs"][0]["dtype"] = "BYTES"
    assert "text and numbers are never converted" in toy.refused("step-mismatch")


@pytest.mark.parametrize(
    ("dims", "text"), [([5], "axis 0 is 4, and 5 is taken"), ([4, 1], "1 axes are made, 2 are taken")]
)
def test_dims_that_differ_between_steps(toy, dims, text):
    toy.steps[1]["python"]["inputs"][0]["dims"] = dims
    assert text in toy.refused("step-mismatch")


def test_a_free_axis_that_turns_out_otherwise(toy):
    toy.steps[0]["python"]["outputs"][0]["dims"] = [-1]
    toy.steps[1]["python"]["inputs"][0]["dims"] = [5]
    assert "[6, 4]" in toy.refused("step-mismatch")


def test_samples_without_an_input(toy):
    toy.samples(OTHER=["a"], MORE=["b"])
    assert "no array for the input TEXT" in toy.refused("samples-unfit")


def test_samples_of_another_type(toy):
    toy.samples(TEXT=np.arange(4))
    assert "declares BYTES" in toy.refused("samples-unfit")


def test_samples_without_rows(toy):
    toy.samples(TEXT=np.zeros((0, 1), dtype="U3"))
    toy.refused("samples-unfit")


def test_a_name_that_another_model_has(toy):
    home = toy.repository / "toy_label/1"
    home.mkdir(parents=True)
    (home / "model.py").write_text("x = 1\n")
    (home.parent / "config.pbtxt").write_text('name: "toy_label"\nbackend: "python"\n')
    assert "toy_label" in toy.refused("ensemble-name-taken")
    toy.steps[1]["model"] = "mine"
    toy.built()


def test_a_model_may_not_be_built_into_a_step(toy, risk_project, repobuild_cli):
    toy.built()
    for name in ("toy_label", "toy"):
        outcome = repobuild_cli(
            "convert", risk_project, "-r", toy.repository, "--trust", "pickle", "--name", name
        )
        assert outcome.status == 3
        assert "error[ensemble-owned]" in outcome.err


def test_a_step_that_writes_into_its_folder(toy):
    toy.write(
        "label.py",
        """
        from pathlib import Path
        import numpy as np

        def run(inputs):
            try:
                (Path(__file__).parent / "counter.txt").write_text("1")
            except OSError:
                pass
            return {"label": np.array([["x"]] * len(inputs["ids"]), dtype=object)}
        """,
    )
    error = toy.refused("step-writes")
    assert "toy_label" in error
    assert "counter.txt" in error


def test_tolerance_of_no_output(toy):
    toy.recipe["tolerance"] = {"nothing": {"atol": 1}}
    toy.refused("tolerance-unknown")
