"""Loading python models: what they are told, how they fail, and what they complete."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

PLAIN = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse() for request in requests]
"""


def reasons(server):
    """Why versions are unavailable, by model name."""
    index = server.ask("POST", "/v2/repository/index", b"").json
    return {entry["name"]: entry["reason"] for entry in index if entry.get("state") == "UNAVAILABLE"}


def test_load_failures_are_told_as_triton_tells_them(started, models, repository):
    deep = models.add(
        "deep",
        """
        def helper():
            raise ValueError("bad start")

        class TritonPythonModel:
            def initialize(self, args):
                helper()
        """,
    )
    models.add("no_class", "x = 1\n")
    models.add("syntax", "def (\n")
    models.add("missing_import", "import no_such_module_anywhere\n")
    models.add("exits", "class TritonPythonModel:\n    def initialize(self, args):\n        os._exit(3)\n")
    models.add("renamed", PLAIN, extra='default_model_filename: "other.py"\n')
    text = models.add("text", PLAIN, extra='default_model_filename: "model.txt"\n')
    (text / "model.py").rename(text / "model.txt")
    models.add("fine", PLAIN)
    server = started(repository, "--exit-on-error=false")
    found = reasons(server)
    file = deep / "model.py"
    assert found["deep"] == (
        f"Internal: ValueError: bad start\n\nAt:\n  {file}(7): helper\n  {file}(11): initialize\n"
    )
    assert (
        found["no_class"] == "Internal: AttributeError: module '1.model' has no attribute 'TritonPythonModel'"
    )
    assert found["syntax"].startswith("Internal: SyntaxError: invalid syntax (model.py, line ")
    assert found["missing_import"].startswith(
        "Internal: ModuleNotFoundError: No module named 'no_such_module_anywhere'\n\nAt:\n  "
    )
    assert "exits_0_0" in found["exits"]
    assert found["exits"].endswith("is not healthy.")
    assert "other.py" in found["renamed"]
    assert found["text"] == "Internal: Model name must end with '.py'. Model name is \"model.txt\"."
    assert "fine" not in found


ARGUMENTS = """
import json
import sys
from concurrent.futures import ThreadPoolExecutor

def folders():
    return [os.path.basename(path) for path in sys.path[-3:]]

class TritonPythonModel:
    def initialize(self, args):
        assert all(isinstance(value, str) for value in args.values())
        self.seen = dict(args, model_config=json.loads(args["model_config"]))
        self.seen["module"] = __name__
        self.seen["folders"] = folders()
        self.seen["directory"] = pb_utils.get_model_dir()
        config = self.seen["model_config"]
        self.seen["input"] = pb_utils.get_input_config_by_name(config, "IN")["dims"]
        self.seen["output"] = pb_utils.get_output_config_by_name(config, "OUT")["data_type"]
        self.seen["decoupled"] = pb_utils.using_decoupled_model_transaction_policy(config)

    def execute(self, requests):
        text = np.array([json.dumps(self.seen)], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for request in requests]
"""


def test_a_model_is_told_what_it_is(started, models, repository, one):
    folder = models.add(
        "told", ARGUMENTS, batch=0, extra='parameters { key: "k" value { string_value: "v" } }\n'
    )
    server = started(repository)
    body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}
    seen = json.loads(server.infer("told", body).json["outputs"][0]["data"][0])
    assert seen.pop("model_config") == server.ask("GET", "/v2/models/told/config").json
    assert seen == {
        "model_instance_kind": "CPU",
        "model_instance_name": "told_0_0",
        "model_instance_device_id": "0",
        "model_repository": str(folder.parent),
        "model_version": "1",
        "model_name": "told",
        "module": "1.model",
        "folders": ["1", "told", "backend"],
        "directory": str(folder),
        "input": [1],
        "output": "TYPE_INT32",
        "decoupled": False,
    }


COMPLETING = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        {body}
        return config

    def execute(self, requests):
        return [pb_utils.InferenceResponse() for request in requests]
"""
TENSORS = (
    'config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [4], "optional": True})\n'
    '        config.add_output({"name": "B", "data_type": "TYPE_FP32", "dims": [-1]})\n        '
)


def test_models_complete_their_config(started, models, repository):
    models.add(
        "full",
        COMPLETING.format(
            body=TENSORS + "config.set_max_batch_size(4)\n        config.set_dynamic_batching()"
        ),
        config="",
    )
    bare = models.add("bare", COMPLETING.format(body=TENSORS), config="")
    (bare.parent / "config.pbtxt").unlink()
    models.add(
        "decoupled",
        COMPLETING.format(body=TENSORS + 'config.set_model_transaction_policy({"decoupled": True})'),
        config="",
    )
    server = started(repository)
    config = server.ask("GET", "/v2/models/full/config").json
    assert config["max_batch_size"] == 4
    assert config["dynamic_batching"]["preferred_batch_size"] == [4]
    assert (config["input"][0]["dims"], config["input"][0]["optional"]) == ([4], True)
    assert config["output"][0]["dims"] == [-1]
    assert server.ask("GET", "/v2/models/bare/config").json["backend"] == "python"
    policy = server.ask("GET", "/v2/models/decoupled/config").json["model_transaction_policy"]
    assert policy == {"decoupled": True}


@pytest.mark.parametrize(
    ("body", "config", "text"),
    [
        ('raise ValueError("not so")', "", "ValueError: not so\n\nAt:\n  {path}(9): auto_complete_config\n"),
        (
            "return None",
            "",
            "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object.",
        ),
        (
            TENSORS,
            'input [{ name: "A" data_type: TYPE_FP32 dims: [ 5 ] }]\n',
            (
                "ValueError: model 'm', tensor 'A': the model expects dims [4] but the model configuration "
                "specifies dims [5]\n"
            ),
        ),
        (
            TENSORS,
            'input [{ name: "A" data_type: TYPE_INT32 dims: [ 4 ] }]\n',
            (
                "ValueError: unable to load model 'm', configuration expects datatype TYPE_INT32 "
                "for input 'A', "
                "model provides TYPE_FP32\n"
            ),
        ),
        (
            "config.set_max_batch_size(4)",
            "max_batch_size: 8\n",
            (
                "ValueError: configuration specified max_batch_size 8, but in auto-complete-config "
                "function for "
                "model 'm' specified max_batch_size 4\n"
            ),
        ),
        (
            'config.add_input({"data_type": "TYPE_FP32", "dims": [4]})',
            "",
            "ValueError: input in auto-complete-config function for model 'm' is missing 'name' property.\n",
        ),
        (
            'config.add_output({"name": "A", "data_type": "TYPE_FP32", "dims": [4], "optional": True})',
            "",
            (
                "ValueError: output 'A' in auto-complete-config function for model 'm' contains "
                "property other "
                "than 'name', 'data_type' and 'dims'.\n"
            ),
        ),
        (
            'config.set_model_transaction_policy({"decoupled": True})',
            "model_transaction_policy { decoupled: false }\n",
            (
                "ValueError: trying to change decoupled property in auto-complete-config for model "
                "'m', which is "
                "already set to 'False'.\n"
            ),
        ),
        (
            "config.set_dynamic_batching()",
            "max_batch_size: 4\nsequence_batching {}\n",
            (
                "ValueError: Configuration specified scheduling_choice as 'sequence_batching', but "
                "auto-complete-config function for model 'm' tries to set scheduling_choice as "
                "'dynamic_batching'\n"
            ),
        ),
        ('config.as_dict()["input"] = 5', "", "auto_complete_config of model 'm' returned something that"),
        (
            'config.add_input({"name": "A", "data_type": "TYPE_INT32", "dims": [np.int64(1)]})',
            "",
            "TypeError: Object of type int64 is not JSON serializable",
        ),
        ("os._exit(4)", "", "Stub process 'm' is not healthy."),
    ],
    ids=[
        "raises",
        "returns-nothing",
        "dims",
        "type",
        "batch",
        "no-name",
        "property",
        "decoupled",
        "scheduler",
        "nonsense",
        "no-json",
        "exits",
    ],
)
def test_contradictions_in_completing_are_load_failures(models, body, config, text):
    from repobuild_serve.errors import LoadError
    from repobuild_serve.repository import read_model

    folder = models.add("m", COMPLETING.format(body=body), config=config)
    problem = read_model(folder.parent, auto_complete=True).problem
    assert isinstance(problem, LoadError)
    assert problem.code.value == "Internal"
    assert problem.text.startswith(text.format(path=folder / "model.py"))


def test_nothing_is_completed_when_that_is_off(started, models, repository):
    models.add("m", COMPLETING.format(body='raise ValueError("asked all the same")'))
    server = started(repository, "--disable-auto-complete-config")
    assert server.ask("GET", "/v2/models/m/ready").status == 200


def test_an_environment_of_its_own_runs_the_model(started, models, repository, one):
    folder = models.add(
        "apart",
        """
        import sys

        class TritonPythonModel:
            def execute(self, requests):
                same = sys.prefix == os.environ["WANTED"]
                return [
                    pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[same]], dtype=np.int32))])
                    for request in requests
                ]
        """,
        extra='parameters { key: "EXECUTION_ENV_PATH" '
        'value { string_value: "$$TRITON_MODEL_DIRECTORY/env" } }\n',
    ).parent
    environment = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "numpy_of_the_tests.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("site-packages"))
        + f"\nimport os; os.environ['WANTED'] = {str(environment)!r}\n"
    )
    server = started(repository)
    assert server.infer("apart", one()).json["outputs"][0]["data"] == [1]


def test_an_environment_that_is_not_there_is_a_load_failure(started, models, repository):
    extra = 'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{}" }} }}\n'
    models.add("nowhere", PLAIN, extra=extra.format("/nowhere/at/all.tar.gz"))
    models.add("empty", PLAIN, extra=extra.format("$$TRITON_MODEL_DIRECTORY/1"))
    server = started(repository, "--exit-on-error=false")
    found = reasons(server)
    assert found["nowhere"] == "Internal: Failed to get the canonical path for /nowhere/at/all.tar.gz."
    assert found["empty"].endswith("has no bin/python3")


@pytest.mark.parametrize(
    "option", ["--disable-auto-complete-config", "--log-verbose=0"], ids=["plain", "completed"]
)
def test_a_process_that_ends_at_once_is_a_load_failure(started, models, repository, option):
    extra = (
        'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env" } }\n'
    )
    program = models.add("dead", PLAIN, extra=extra).parent / "env" / "bin" / "python3"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    server = started(repository, "--exit-on-error=false", option)
    found = reasons(server)["dead"]
    assert found.startswith("Internal: Stub process 'dead")
    assert found.endswith("is not healthy.")


WARM = (
    'model_warmup [{ name: "w" batch_size: 2 '
    'inputs { key: "IN" value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } }]\n'
)


def test_warm_up_runs_before_serving(started, models, repository, identity):
    models.add("warm", identity, extra=WARM)
    models.add("cold", identity.replace("answers = []", 'raise ValueError("still cold")'), extra=WARM)
    models.add(
        "refusing",
        identity.replace("InferenceResponse(tensors)", 'InferenceResponse(error=pb_utils.TritonError("no"))'),
        extra=WARM,
    )
    server = started(repository, "--exit-on-error=false")
    assert server.statistics("warm")["inference_count"] == 2
    assert server.statistics("warm")["execution_count"] == 1
    found = reasons(server)
    assert "failed to run warmup sample 'w'" in found["cold"]
    assert "ValueError: still cold" in found["cold"]
    assert found["refusing"] == "Invalid argument: failed to run warmup sample 'w': no; "


@pytest.mark.parametrize("package", [False, True], ids=["namespace", "package"])
def test_a_model_is_its_own_whatever_lies_in_the_working_folder(
    package, started, models, repository, one, identity, tmp_path, monkeypatch
):
    own = models.add("own", "from .more import VALUE\n" + identity.replace("tensor.as_numpy()", "VALUE"))
    (own / "more.py").write_text("import numpy as np\nVALUE = np.array([[7]], dtype=np.int32)\n")
    elsewhere = tmp_path / "elsewhere" / "1"
    elsewhere.mkdir(parents=True)
    for folder in [elsewhere, *([own] if package else [])]:
        (folder / "__init__.py").touch()
    (elsewhere / "model.py").write_text("raise ValueError('the wrong model')")
    monkeypatch.chdir(elsewhere.parent)
    server = started(repository)
    assert server.infer("own", one()).json["outputs"][0]["data"] == [7]


def test_models_that_take_long_to_complete_keep_nobody_from_the_index(
    started, models, repository, gate, processes
):
    _, wait_until = processes
    body = "import time\n        while not os.path.exists(GATE):\n            time.sleep(0.01)".replace(
        "GATE", repr(str(gate.path.with_suffix(".open")))
    )
    names = [f"slow{number}" for number in range(6)]
    for name in names:
        models.add(
            name, COMPLETING.format(body=f"open({str(models.path.parent / name)!r}, 'w')\n        {body}")
        )
    server = started(repository, "--model-control-mode=explicit")
    with ThreadPoolExecutor(len(names)) as pool:
        loads = [pool.submit(server.ask, "POST", f"/v2/repository/models/{name}/load") for name in names]
        wait_until(lambda: sum((models.path.parent / name).exists() for name in names) >= 4)
        assert server.ask("POST", "/v2/repository/index").json == [{"name": name} for name in names]
        gate.open()
        assert [done.result().status for done in loads] == [200] * len(names)
