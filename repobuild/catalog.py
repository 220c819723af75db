"""What each error code means; ``repobuild explain`` and docs/errors.md show it, a test keeps it complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """An error code in words.

    Attributes:
        status: Exit status of the command line.
        text: What it means and what usually causes it.
    """

    status: int
    text: str


CATALOG: Mapping[str, Meaning] = {
    "answer-not-tensor": Meaning(3, "The model answers with a list of arrays, as classifiers of several targets do; an output of a Triton model is one tensor."),
    "answers-changed": Meaning(8, "A version in the repository, served by the bundled server, does not answer its golden rows as the model did when it was built."),
    "archive-unsafe": Meaning(3, "The model file is a zip archive that is damaged, lies about its members, leads out of its folder, or holds more than a model would. It was not opened."),
    "budget-unfit": Meaning(3, "budget: asks for something that cannot be measured, such as an accuracy without labels."),
    "bug": Meaning(70, "repobuild failed in a way that it should not. Please report it with what --debug prints."),
    "check-failed": Meaning(4, "On the recipe's samples, the artifact does not answer as the model does. The evidence names the output, the row and both values. Common causes: float32 rounding near a decision boundary, a converter that differs from the estimator, a model whose answers depend on the other rows or on chance."),
    "class-missing": Meaning(7, "The file names a class or function that the installed packages do not have: the model was saved with another version of its package, or with a class that was defined in a script."),
    "cloudpickle-missing": Meaning(7, "The estimator that was handed over holds classes or functions of a script, which no other process can import, and cloudpickle, which would write their code, is not installed."),
    "config-edited": Meaning(3, "The model's config.pbtxt in the repository was written or edited by hand, and does not fit the new version. repobuild changes no configuration that it does not own; the evidence shows the difference."),
    "config-unreadable": Meaning(3, "A config.pbtxt does not parse as Triton's ModelConfig."),
    "config-wrong": Meaning(70, "The configuration that repobuild rendered does not describe the model. This is our bug."),
    "converters-missing": Meaning(7, "A module under source: custom_ops, which registers converters, does not import."),
    "disk-full": Meaning(7, "The file system has no space left. The repository is as it was."),
    "environment-unavailable": Meaning(7, "source: environment asks for an environment of its own, which this release cannot make."),
    "environment-unfit": Meaning(7, "This machine lacks something that repobuild convert needs; repobuild doctor lists it with hints."),
    "estimator-unpicklable": Meaning(5, "The estimator that was handed over cannot be pickled, so that its child process cannot get it."),
    "export-failed": Meaning(5, "The framework's exporter raised an error; its words are the evidence."),
    "export-incomplete": Meaning(5, "The exported graph lacks an output that the model has."),
    "external-data-unreadable": Meaning(3, "An ONNX file names a data file beside it, which is missing, shorter than the graph says, or outside the model's folder."),
    "graph-invalid": Meaning(5, "The exporter wrote a graph that ONNX's checker refuses."),
    "graph-too-new": Meaning(5, "The graph needs a higher opset or IR version than the target release loads."),
    "graph-too-large": Meaning(5, "A graph has more than 2 GiB, which one ONNX file cannot hold. Weights beyond that belong into a file beside it (external data)."),
    "input-not-matrix": Meaning(3, "The model takes something else than a matrix of numbers, such as text; such inputs are not converted yet."),
    "inputs-mismatch": Meaning(3, "inputs: in the recipe does not fit what the model takes."),
    "kind-mismatch": Meaning(3, "The content of the model file is not of the kind that source.kind in the recipe names. Without kind, it is found from the content."),
    "labels-mismatch": Meaning(3, "The file under labels: is not one target for each sample row, or no output can be compared with it."),
    "labels-unfit": Meaning(3, "Labels that a label file cannot hold, or classes that cannot be labels."),
    "method-unknown": Meaning(3, "source: method names a method that the estimator does not have."),
    "model-absent": Meaning(3, "The repository has no model of that name."),
    "model-damaged": Meaning(3, "The model file cannot be read: it is damaged or incomplete."),
    "model-empty": Meaning(3, "The model file has no bytes."),
    "model-is-folder": Meaning(3, "The path of the model file is a folder."),
    "model-is-web-page": Meaning(3, "A web page lies where the model should be, usually the log-in or error page of a download."),
    "model-kind-unknown": Meaning(3, "Neither the content nor the name of the file tells what kind of model it is."),
    "model-lfs-pointer": Meaning(3, "A Git LFS pointer lies where the model should be; git lfs pull fetches the model."),
    "model-missing": Meaning(3, "There is no file at the path that the recipe names."),
    "model-name-clash": Meaning(3, "Several recipes have one model name, or a name differs in case only from that of another recipe or of a model in the repository. Nothing was built."),
    "model-not-file": Meaning(3, "The path of the model file leads to a named pipe, a socket or a device, not to a regular file."),
    "model-not-pickle": Meaning(3, "The file is neither a joblib nor a pickle file."),
    "model-truncated": Meaning(3, "The model file ends before the model is complete, usually because it was cut off while it was written or copied."),
    "model-unloadable": Meaning(3, "The file is whole, and loading it fails: usually it was saved with another version of scikit-learn or NumPy. The evidence names the versions installed here."),
    "module-missing": Meaning(7, "The model needs a Python package that is not installed here."),
    "no-converter": Meaning(5, "skl2onnx does not know how to convert a step of the model."),
    "no-new-rows": Meaning(3, "The estimator answers only for the rows that it was trained on, or has neither predict nor transform."),
    "nothing-to-convert": Meaning(5, "The wanted precision would change nothing in the graph: none of its nodes or weights can have it."),
    "not-a-repository": Meaning(3, "The path holds no model: it is neither a model repository, nor the folder of a model, nor a config.pbtxt."),
    "not-an-estimator": Meaning(3, "The file holds an object that can neither predict nor transform, such as a dictionary with the model inside."),
    "not-fitted": Meaning(3, "The estimator was saved before it was fitted."),
    "onnxruntime-missing": Meaning(7, "ONNX Runtime is not installed. It comes with repobuild[cpu] or repobuild[gpu], never both."),
    "opset-conversion": Meaning(5, "An operator of the graph has no form at the wanted opset."),
    "option-unfit": Meaning(3, "The recipe has an option that does not apply to this kind of model, and would have no effect."),
    "os-error": Meaning(7, "The operating system refused; its words are the evidence."),
    "output-failed": Meaning(7, "Standard output cannot be written, such as on a full disk. Only the printing failed: what the command did is done, and a build that had ended is in its repository."),
    "output-is-input": Meaning(3, "A file to write the result to is one that the command reads, or lies in what it checks. It was not overwritten."),
    "output-named-as-input": Meaning(3, "An output bears the name of an input, which ONNX does not allow."),
    "output-out-of-range": Meaning(3, "outputs: takes a column or axis that the model's answer does not have."),
    "output-unknown": Meaning(3, "outputs: names an answer that the model does not give."),
    "permission-denied": Meaning(7, "The file system does not allow it: wrong owner or mode, or mounted read-only."),
    "pin-mismatch": Meaning(6, "The recipe pins the sha256 of a model file, and the file is another one. Nothing was loaded."),
    "plugin-broken": Meaning(7, "An installed plug-in does not import."),
    "precision-unfit": Meaning(5, "In the wanted precision the graph makes NaN or infinity where the original does not, wherever it was left as it was."),
    "pyarrow-missing": Meaning(7, "Samples in parquet need pyarrow, which comes with repobuild[sklearn]."),
    "quantiser-failed": Meaning(5, "ONNX Runtime's quantiser raised an error on the graph; its words are the evidence."),
    "recipe-exists": Meaning(3, "There is a file where the recipe would be written, and --force was not given."),
    "recipe-invalid": Meaning(3, "The recipe has mistakes; all of them are listed with their lines."),
    "recipe-missing": Meaning(3, "There is no recipe file at that path."),
    "recipe-not-plain": Meaning(3, "The recipe uses YAML anchors, aliases, tags or nesting of more than 64 levels, which recipes do without."),
    "recipe-not-text": Meaning(3, "The recipe is not UTF-8 text."),
    "recipe-not-yaml": Meaning(3, "The recipe is not valid YAML."),
    "recipe-too-large": Meaning(3, "The recipe is larger than 1 MiB."),
    "recipes-missing": Meaning(3, "There is no recipe.yaml and no *.recipe.yaml in the folder or below it; hidden folders are not searched."),
    "release-unknown": Meaning(3, "The Triton release is not in the table of releases that this version of repobuild knows; docs/releases.md shows it."),
    "repository-changed": Meaning(8, "Another build changed the same model while this one was at work. Run it again."),
    "repository-damaged": Meaning(3, "The repository is not as it was built: files or records are missing, changed or added, or a configuration does not fit. All of it is listed."),
    "repository-empty": Meaning(3, "The folder is neither a model repository nor the folder of a model."),
    "repository-is-mount": Meaning(7, "The repository is a mount point, so that a finished model cannot be renamed into it in one step."),
    "repository-missing": Meaning(3, "There is no repository at that path."),
    "repository-unusable": Meaning(3, "The path cannot be that of a model repository: it is or lies below a file, is empty or the root, or is the state folder of another repository."),
    "runtime-failed": Meaning(5, "ONNX Runtime loads the model, and fails when it runs on the samples."),
    "runtime-refuses": Meaning(5, "ONNX Runtime does not load the exported model."),
    "samples-needed": Meaning(3, "The model takes text or other values that cannot be made up, so the recipe must name samples."),
    "samples-refused": Meaning(3, "The model's own method raises an error on the samples."),
    "samples-unfit": Meaning(3, "The sample file is missing or unreadable, or does not fit the model's inputs."),
    "schema-changed": Meaning(3, "The new version has other inputs or outputs than the present one. Triton has one configuration for all versions of a model, so clients of the present one would break."),
    "server-died": Meaning(8, "The bundled server ended during verification. The repository is untouched."),
    "server-refused": Meaning(8, "The bundled server does not load the staged model. The repository is untouched."),
    "server-refuses": Meaning(8, "The bundled server answers a request of the verification with an error. The repository is untouched."),
    "server-slow": Meaning(8, "The bundled server did not become ready in time. The repository is untouched."),
    "serving-invalid": Meaning(3, "serving: is not a Triton model configuration."),
    "serving-unfit": Meaning(3, "serving: asks for something that this model cannot have."),
    "setting-malformed": Meaning(2, "--set takes key.path=value, the value as YAML, as in --set export.opset=18 or --set 'outputs[0].name=score'."),
    "sklearn-missing": Meaning(7, "scikit-learn, joblib or skl2onnx is not installed. They come with repobuild[sklearn]."),
    "source-failed": Meaning(5, "Code of the model raised an error while it was loaded, exported or asked."),
    "source-unsupported": Meaning(5, "The file is recognised, and models of its kind are not converted yet; the message says what it is."),
    "source-untrusted": Meaning(6, "Loading the file runs code that it names, and neither --trust nor a pin vouches for it. The evidence lists what it would call, carry and import, also in archives; nothing was run."),
    "target-options": Meaning(3, "A target has options that its compiler does not take, or several targets are named where one can be made."),
    "target-unavailable": Meaning(7, "The target's compiler is not available here."),
    "target-unfit": Meaning(3, "The recipe asks for a higher opset than the target release loads."),
    "tensor-name": Meaning(3, "A column of the DataFrame has a name that is empty or holds control characters, so it cannot be the name of a tensor."),
    "tolerance-unknown": Meaning(3, "tolerance: names an output that the model does not have."),
    "tritonclient-missing": Meaning(7, "The package tritonclient does not import."),
    "verification-failed": Meaning(8, "Through the bundled server, the staged model does not answer as the original. The repository is untouched."),
    "version-too-large": Meaning(3, "The repository has a version of the largest number that Triton can hold, so there is no next one."),
    "version-unreadable": Meaning(3, "The configuration does not name the inputs and outputs of the present version, and its model.onnx does not tell them."),
    "worker-cpu-time": Meaning(7, "Code of the model used up the processor time that its child process may use."),
    "worker-crashed": Meaning(7, "The child process in which the model is loaded died: code in the model ended it, a library crashed, or the system killed it for its memory."),
    "worker-file-too-large": Meaning(7, "Code of the model wrote a larger file than its child process may write."),
    "worker-fills-disk": Meaning(7, "While code of the model ran, the disk lost more free space than a build may take."),
    "worker-garbled": Meaning(7, "Code in the model wrote into the pipe through which its child process answers."),
    "worker-limit-invalid": Meaning(2, "REPOBUILD_WORKER_TIMEOUT or REPOBUILD_WORKER_MEMORY cannot be understood. The first is seconds (900, or load=60,export=300,predict=900), the second a size of at least 256 MiB (8GiB)."),
    "worker-out-of-memory": Meaning(7, "The model needs more memory than its child process may use."),
    "worker-start-failed": Meaning(7, "The child process ended before the model was touched; its last words are the evidence."),
    "worker-timeout": Meaning(7, "The child process in which the model is loaded did not answer in time."),
    "worker-too-many-processes": Meaning(7, "Code of the model started more processes than a build may have."),
}  # fmt: skip


def as_markdown() -> str:
    """docs/errors.md."""
    lines = [
        "# Error codes",
        "",
        "Every error has a stable code. `repobuild explain CODE` prints these texts.",
        "",
        "| code | exit status | meaning |",
        "| --- | --- | --- |",
        *(f"| `{code}` | {meaning.status} | {meaning.text} |" for code, meaning in CATALOG.items()),
    ]
    return "\n".join(lines) + "\n"
