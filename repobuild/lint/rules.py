"""The table of everything that lint looks for; ``repobuild lint --rules`` and docs/lint.md are written from it."""

from __future__ import annotations

from collections.abc import Mapping

from repobuild.lint.finding import Rule, Severity

E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE

_CORE = "core/src/model_config_utils.cc"
_IO = f"{_CORE}, ValidateIOShape"
_VALIDATE = f"{_CORE}, ValidateModelConfig"
_COMPLETE = f"{_CORE}, AutoCompleteBackendFields"
_GROUPS = f"{_CORE}, ValidateInstanceGroup"
_CONTROLS = f"{_CORE}, GetBooleanSequenceControlProperties"
_STATES = "core/src/sequence_batch_scheduler.cc, GenerateInitialStateData"
_BATCH_IO = f"{_CORE}, ValidateBatchIO"
_ENSEMBLE = f"{_CORE}, ValidateEnsembleSchedulingConfig"
_MEMBERS = "core/src/ensemble_scheduler/ensemble_utils.cc"
_VERSIONS = "core/src/model_repository_manager/model_lifecycle.cc, VersionsToLoad"
_WARMUP = "core/src/backend_model_instance.cc, GenerateWarmupData"
_ORT = "onnxruntime_backend/src/onnxruntime.cc"
_ORT_IN = f"{_ORT}, ValidateInputs"
_ORT_OUT = f"{_ORT}, ValidateOutputs"
_TORCH = "pytorch_backend/src/pt/model_instance_state.cc"
_PYTHON = "python_backend, README"
_SEEN = "seen on Triton 2.51"

_ROWS: tuple[tuple[str, Severity, str, str, str], ...] = (
    # The repository and its files
    ("dot-folder", E, "A folder at the top of the repository whose name begins with a dot, such as .git. Triton takes it for a model, fails to load it, and does not start.", f"{_SEEN}; core/src/filesystem, GetDirectorySubdirs", "move the models into a folder of their own"),
    ("dot-file", N, "A file or folder whose name begins with a dot, left behind by some tool.", "conventions of file managers", "keep such files out of the repository"),
    ("file-empty", W, "A file without bytes. Object storage tools such as KServe's fetcher drop empty objects, so it is gone after a copy.", "kserve/kserve, storage initializer", "write a byte into it, or remove it"),
    ("file-is-web-page", E, "A web page lies where a model should be, usually the log-in or error page of a download.", "first bytes of the file", "download the file again"),
    ("file-lfs-pointer", E, "A Git LFS pointer lies where a model should be.", "https://git-lfs.com, pointer format", "run git lfs pull before the repository is copied"),
    ("link-broken", E, "A symbolic link that leads nowhere, or in a circle.", "file system", "mend or remove the link"),
    ("link-outside", W, "A symbolic link out of the repository. It is not followed here, is lost when the repository is copied to object storage, and what it names is not checked.", "file system", "put the file itself into the repository"),
    ("name-case-clash", W, "Two names in one folder differ by upper and lower case only. One of them is lost on a file system that does not tell them apart.", "file systems of macOS and Windows", "rename one of them"),
    ("name-unsafe", W, "A name that shells, URLs or buckets do not bear well: spaces, control characters, a leading dash, or characters outside ASCII letters, digits, dot, dash and underscore.", "S3 object key guidelines", "rename it"),
    ("not-checked", W, "Something could not be looked at: it is larger than lint reads, not permitted, or of an unexpected kind.", "lint's own limits", "look at it yourself"),
    ("repository-nested", E, "A folder of the repository holds models instead of being one. Triton looks one level deep.", "core/src/model_repository_manager", "name this folder as the repository, or move the models up"),
    ("special-file", W, "A named pipe, socket or device. It is not opened.", "file system", "remove it"),
    ("lint-failed", E, "A check failed in a way it should not have; what it would have found is unknown. This is our bug.", "lint itself", "please report it with the file"),
    # config.pbtxt as text
    ("config-character", E, "A character between the fields that Triton's parser refuses: a null byte, a control character or a space that is not ASCII, as word processors and web pages leave behind.", f"{_SEEN}; protobuf, io/tokenizer.cc", "replace it by a plain space"),
    ("config-key-twice", W, "A map has the same key twice. The last one counts, in silence.", "protobuf text format", "remove one of them"),
    ("config-misplaced", W, "A config.pbtxt in a version folder is not read; Triton has one configuration for all versions.", "core/src/model_repository_manager", "move it into the model's folder"),
    ("config-not-file", E, "config.pbtxt is a folder, a broken link or something else that is no file.", "core/src/model_repository_manager", "put a text file there"),
    ("config-not-text", W, "A configuration is not UTF-8 text, or the escapes of a string in it make none. Triton reads it; other tools may not, and names come out garbled.", _SEEN, "save it as UTF-8"),
    ("config-too-large", E, "A configuration is larger than 1 MiB and is not read.", "lint's own limits", "a configuration of this size is a mistake"),
    ("config-unreadable", E, "A configuration does not parse as Triton's ModelConfig: unknown field, wrong value, an unknown escape in a string, a field or scheduler given twice. Triton only logs this and serves the rest.", _SEEN, "mend the line; the field names are those of model_config.proto"),
    ("enum-unknown", E, "A field takes one of some names, and has a number that stands for none of them.", f"{_SEEN}; common/protobuf/model_config.proto", "write the name"),
    ("field-newer", E, "A field or platform that the target release does not have; it refuses the whole configuration.", "common/protobuf/model_config.proto, branch by branch", "leave it out, or target a newer release"),
    ("metrics-incomplete", E, "A metric_control without a family, or without histogram buckets.", f"{_CORE}, ValidateModelMetrics", "write metric_identifier and histogram_options"),
    # Identity
    ("backend-misspelt", E, "No such backend, and the name is close to one that exists.", _SEEN, "correct the name"),
    ("backend-undetermined", E, "Neither the configuration nor a file in the first version folder tells which backend the model is for.", _COMPLETE, "write backend: into config.pbtxt, or remove the folder if it is no model"),
    ("backend-unknown", W, "A backend that is not among those of the standard containers; the server needs its library.", _SEEN, "check that the server has this backend"),
    ("runtime-missing", E, "runtime names a library that is neither the backend's own nor in the folder of the model or of a version.", f"{_SEEN}; core/src/backend_model.cc, GetBackendLibraryProperties", "leave runtime out"),
    ("max-batch-negative", E, "max_batch_size is negative.", _VALIDATE, "0 means no batching"),
    ("name-mismatch", E, "name differs from the model's folder.", "core/src/model_repository_manager/model_repository_manager.cc", "leave name out, or give the folder's"),
    ("platform-backend-mismatch", E, "platform and backend do not belong together.", _VALIDATE, "leave platform out"),
    ("platform-ignored", W, "platform is set on a model whose backend does not use it. Triton accepts it and metadata reports it.", _SEEN, "leave platform out"),
    ("platform-unknown", E, "No such platform, and no backend is named.", _VALIDATE, "name the backend instead"),
    # Tensors in the configuration
    ("tensor-name-missing", E, "An input or output has no name.", _IO, "give it the model's name for it"),
    ("tensor-name-twice", W, "Two inputs or two outputs bear the same name. Triton accepts it, and serves one of them.", _SEEN, "remove or rename one"),
    ("tensor-type-missing", E, "An input or output has no data_type, and nothing completes it.", _IO, "write data_type, e.g. TYPE_FP32"),
    ("tensor-dims-missing", E, "An input or output has no dims, and nothing completes them.", _IO, "write dims, without the batch axis when max_batch_size is above 0"),
    ("tensor-dim-invalid", E, "A dim is 0 or below -1.", _IO, "-1 means variable size"),
    ("reshape-dim-invalid", E, "A dim of reshape is 0 or below -1.", _IO, "-1 means variable size"),
    ("reshape-size", E, "dims and reshape have different numbers of elements, as a whole or between their -1.", _IO, "reshape rearranges, it neither adds nor drops elements"),
    ("reshape-wildcards", E, "dims and reshape have different numbers of -1.", _IO, "reshape rearranges, it neither adds nor drops axes of variable size"),
    ("reshape-empty", E, "An empty reshape in a model without batching.", _IO, "write dims: [1] without reshape"),
    ("format-dims", E, "format NHWC or NCHW on an input that has not three dims.", f"{_CORE}, ValidateModelInput", "leave format out"),
    ("shape-tensor", E, "is_shape_tensor on a model that is not TensorRT.", f"{_CORE}, ValidateModelInput", "remove it"),
    ("non-linear-format", E, "is_non_linear_format_io on a model that is not TensorRT, or without three dims.", f"{_CORE}, ValidateNonLinearFormatIO", "remove it"),
    ("ragged-without-batching", W, "allow_ragged_batch in a model without batching has no effect.", "server/docs/user_guide/ragged_batching.md", "remove it, or set max_batch_size"),
    ("batch-source-count", E, "A batch_input or batch_output has not exactly one source_input.", _BATCH_IO, "name one input"),
    ("batch-source-unknown", E, "A source_input is no input of the model.", _BATCH_IO, "name an input"),
    ("batch-input-type", E, "A batch_input is neither TYPE_INT32 nor TYPE_FP32.", _BATCH_IO, "use TYPE_INT32 or TYPE_FP32"),
    ("batch-target-unknown", E, "A target_name of batch_output is no output of the model.", _BATCH_IO, "name an output"),
    ("batch-target-twice", E, "A batch_output names the same target twice.", _BATCH_IO, "name it once"),
    # Scheduling
    ("batching-without-batch", W, "dynamic_batching with max_batch_size 0: accepted, and every request runs alone.", _SEEN, "set max_batch_size, or remove dynamic_batching"),
    ("preferred-size-invalid", E, "A preferred batch size is not positive.", _VALIDATE, "remove it"),
    ("preferred-size-large", E, "A preferred batch size is above max_batch_size.", _VALIDATE, "at most max_batch_size"),
    ("priority-default", E, "default_priority_level is not within 1 and priority_levels.", _VALIDATE, "write default_priority_level"),
    ("priority-policy", E, "A key of priority_queue_policy is not within 1 and priority_levels.", _VALIDATE, "levels count from 1"),
    ("ordering-priorities", E, "preserve_ordering together with several priority levels.", _VALIDATE, "choose one of them"),
    ("ordering-delay", E, "preserve_ordering together with a queue policy that delays.", _VALIDATE, "use timeout_action: REJECT"),
    ("timeout-without-effect", W, "A queue policy whose time-out can never fire: default_timeout_microseconds is 0, and a request's own time-out counts only if it is shorter than the default.", f"{_SEEN}; core/src/scheduler_utils.cc", "set default_timeout_microseconds"),
    ("cache-sequence", E, "response_cache on a model with sequence batching.", _VALIDATE, "remove response_cache"),
    ("cache-decoupled", E, "response_cache on a decoupled model.", _VALIDATE, "remove response_cache"),
    ("decoupled-backend", W, "decoupled on a backend that gives one response a request.", "server/docs/user_guide/decoupled_models.md", "remove model_transaction_policy"),
    ("control-name-missing", E, "A control_input has no name.", _CONTROLS, "give it the name of the model's input"),
    ("control-tensor-twice", E, "Two control_inputs bear the same name.", _CONTROLS, "one tensor serves one control"),
    ("control-kind-twice", E, "A control kind stands twice.", _CONTROLS, "remove one"),
    ("control-pair", E, "A START, END or READY control needs exactly one of int32_false_true, fp32_false_true and bool_false_true, with exactly two entries.", _CONTROLS, "write e.g. int32_false_true: [0, 1]"),
    ("control-corrid", E, "A CORRID control has a false/true pair, or a data_type that is not UINT64, INT64, UINT32, INT32 or STRING.", f"{_CORE}, GetTypedSequenceControlProperties", "write e.g. data_type: TYPE_UINT64"),
    ("sequence-preferred-size", E, "A preferred batch size of the oldest strategy is not positive or above max_batch_size.", _VALIDATE, "within 1 and max_batch_size"),
    ("slot-utilization", E, "minimum_slot_utilization is not within 0 and 1.", _VALIDATE, "within 0 and 1"),
    ("state-backend", W, "Implicit state on a backend that has none.", "python_backend, README; server/docs/user_guide/architecture.md", "keep the state in the model"),
    ("state-file-missing", E, "A data_file of initial_state is not there.", "core/src/sequence_state.cc", "files of initial_state lie in <model>/initial_state/"),
    ("state-file-short", E, "A data_file of initial_state has fewer bytes than its dims and type need.", _STATES, "raw little-endian elements, without the batch axis"),
    ("state-initial-incomplete", E, "An initial_state without a name, or without zero_data and data_file.", _STATES, "write name, and zero_data: true or data_file"),
    ("state-initial-unfit", E, "An initial_state has another data_type or other dims than its state, or dims of -1, or there are two of them.", _STATES, "use the state's type and dims, with a size in place of -1"),
    ("agents-empty", E, "model_repository_agents without an agent. Triton does not refuse it: the whole server process dies.", _SEEN, "name an agent, or remove it"),
    ("metric-tag-name", E, "A key of metric_tags has a character that Prometheus does not allow in a label. Triton does not refuse it: the whole server process dies.", f"{_SEEN}; prometheus.io, data model", "use letters, digits and underscores"),
    ("agent-unknown", W, "A repository agent that is not part of the standard containers; without its library the model does not load.", "core/src/repo_agent.cc", "check that the server has this agent"),
    # Instances
    ("instance-cpu-gpus", E, "An instance group of KIND_CPU or KIND_MODEL lists gpus.", _GROUPS, "remove gpus, or use KIND_GPU"),
    ("instance-profile", E, "An instance group has a profile and the model is not TensorRT, or the profile is no whole number.", _GROUPS, "remove profile"),
    ("instance-count", W, "An instance count below 1; Triton puts its default in its place.", _SEEN, "write a count of at least 1"),
    ("instance-tensorrt-cpu", E, "A TensorRT model with instances that are not on a GPU.", "tensorrt_backend/src/instance_state.cc", "use KIND_GPU"),
    ("instance-gpu-unused", N, "KIND_GPU for a graph of classic machine-learning operators, which ONNX Runtime computes on the CPU; the server then needs a GPU for nothing.", "onnxruntime, docs/OperatorKernels.md", "use KIND_CPU"),
    # Backend settings
    ("accelerator-unknown", E, "An execution accelerator that the ONNX Runtime backend does not have.", f"{_ORT}, LoadModel", "gpu: tensorrt or cuda; cpu: openvino"),
    ("parameter-not-integer", E, "A parameter of the ONNX Runtime backend is not a whole number.", f"{_ORT}, ModelState", "write a whole number in quotes"),
    ("parameter-not-boolean", E, "A parameter of the ONNX Runtime backend is neither true nor false.", "backend/src/backend_common.cc, ParseBoolValue", 'write "1" or "0"'),
    ("parameter-out-of-range", E, "A parameter of the ONNX Runtime backend has a value that it does not take.", f"{_ORT}, ModelState", "see the message"),
    ("parameter-misspelt", W, "A parameter that the backend does not read, with a name close to one that it does.", "onnxruntime_backend, README", "correct the name"),
    ("op-library-relative", W, "A library of operators is named by a relative path, which begins at the folder that the server was started in.", f"{_ORT}, LoadModel", "write an absolute path, or a bare name and set LD_LIBRARY_PATH"),
    ("op-library-search", N, "A library of operators is named without a folder and lies in the model's own, where the dynamic linker looks only if LD_LIBRARY_PATH says so.", f"{_ORT}, LoadModel", "start the server with LD_LIBRARY_PATH naming the model's folder, or write an absolute path"),
    ("op-library-unread", W, "model_operations on a backend other than onnxruntime, which does not read it.", f"{_ORT}, LoadModel", "remove model_operations"),
    ("environment-missing", E, "EXECUTION_ENV_PATH names a file in the model's folder that is not there.", _PYTHON, "pack the environment to that path"),
    # Versions
    ("version-none", E, "No version folder is left under the version policy.", _VERSIONS, "add a folder with a number as its name, or change version_policy"),
    ("version-missing", W, "version_policy lists a version that has no folder; it is left out, with a line in the log only.", _VERSIONS, "remove it from the list, or add the folder"),
    ("version-leading-zero", W, "A version folder with a leading zero is ignored.", _VERSIONS, "name it without the zero"),
    ("version-not-number", W, "A folder beside the version folders is ignored, since its name is no number.", _VERSIONS, "move it out of the model, or number it"),
    ("version-number-prefix", E, "A folder whose name begins with a number: Triton reads the number, selects that version, and then finds no folder of that name.", f"{_VERSIONS} (std::stoll)", "rename it so that it does not begin with a digit, or is one number"),
    ("version-number-large", E, "A folder whose name is, or begins with, a number beyond 64 bits. Triton does not refuse it: the whole server process dies, whatever the version policy.", f"{_SEEN}; {_VERSIONS} (std::stoll)", "rename it, or move it out of the model"),
    ("version-empty", W, "A version folder that is not served now holds no model file; rolling back to it would fail.", _VERSIONS, "remove it, or complete it"),
    ("versions-differ", W, "Versions take or give different tensors. Triton has one configuration for all versions of a model.", "triton-inference-server/server#4832 #7406 #6525", "give the other interface a model name of its own"),
    # Model files
    ("model-file-missing", E, "A version that is served has no model file.", _COMPLETE, "add the file"),
    ("model-file-misnamed", E, "A version that is served holds a model file under another name than Triton looks for.", _COMPLETE, "rename the file, or write default_model_filename"),
    ("model-file-misplaced", E, "The model file lies in the model's folder instead of a version folder.", "server/docs/user_guide/model_repository.md", "move it into a folder named 1"),
    ("model-file-empty", E, "A model file has no bytes.", "file system", "copy it again"),
    ("model-file-path", E, "default_model_filename or cc_model_filenames names a path out of the version folder.", "server/docs/user_guide/model_configuration.md", "name a file in the version folder"),
    # ONNX
    ("onnx-invalid", E, "The file is not an ONNX model.", "onnx/onnx.proto", "export it again"),
    ("onnx-truncated", E, "The ONNX file ends before it is complete.", "onnx/onnx.proto", "copy it again"),
    ("onnx-opset-newer", E, "The graph needs a newer opset than the target release loads.", "docs/releases.md", "export with a lower opset, or target a newer release"),
    ("onnx-ir-newer", E, "The file has a newer IR version than the target release loads.", "docs/releases.md", "save with a lower ir_version, or target a newer release"),
    ("onnx-opset-old", W, "The graph has an opset below 7, for which ONNX Runtime gives no guarantee.", "https://onnxruntime.ai/docs/reference/compatibility.html", "export again"),
    ("onnx-domain-unknown", E, "A node is of a domain that ONNX Runtime does not have, and model_operations names no library.", "onnxruntime, docs/ContribOperators.md", "name the operator library in model_operations"),
    ("onnx-not-tensor", E, "An input or output is a sequence or map, as ZipMap of scikit-learn's exporters makes. Triton serves tensors only.", "onnxruntime_backend/src/onnxruntime_utils.cc", "export classifiers with zipmap=False"),
    ("onnx-type-unserved", E, "An input or output has an element type that Triton has not.", "onnxruntime_backend/src/onnxruntime_utils.cc", "cast it in the graph"),
    ("onnx-bf16", N, "A BF16 tensor cannot be sent or received as JSON.", "server/docs/protocol/extension_binary_data.md", "use binary tensor data"),
    ("onnx-input-count", E, "The configuration has another number of inputs than the graph requires.", _ORT_IN, "list every input of the graph"),
    ("onnx-input-unknown", E, "The configuration names an input that the graph has not.", _ORT_IN, "use the graph's names"),
    ("onnx-output-unknown", E, "The configuration names an output that the graph has not.", _ORT_OUT, "use the graph's names"),
    ("onnx-type-mismatch", E, "A tensor has another type in the configuration than in the graph.", _ORT_IN, "use the graph's type"),
    ("onnx-input-dims", E, "An input's dims do not fit the graph. They may be narrower than a free axis of the graph, not wider.", "onnxruntime_backend/src/onnxruntime_utils.cc, CompareDimsSupported", "with max_batch_size above 0, dims go without the batch axis"),
    ("onnx-output-dims", E, "An output's dims are not those of the graph; for outputs they must be equal.", "onnxruntime_backend/src/onnxruntime_utils.cc, CompareDimsSupported", "with max_batch_size above 0, dims go without the batch axis"),
    ("onnx-output-dims-unsure", W, "The graph leaves an output's axis open where the configuration fixes it. Triton accepts that only if ONNX Runtime infers the same size.", "onnxruntime, core/graph, MergeShapeInfo", "write -1, or declare the size in the graph"),
    ("onnx-not-batchable", E, "max_batch_size is above 0 and a tensor's first axis is fixed, or it has no axes at all, so that a batch cannot be split. (A tensor without axes loads, and is answered wrongly.)", "onnxruntime_backend/src/onnxruntime_utils.cc, CompareDimsSupported", "export with a dynamic first axis, or set max_batch_size: 0"),
    ("onnx-scalar-dims", E, "A tensor without axes has dims other than 1.", _ORT_IN, "write dims: [1]"),
    ("onnx-ragged-shape", E, "allow_ragged_batch on an input whose shape in the graph is not one free axis.", _ORT_IN, "the graph has to take all requests' elements in a row"),
    ("onnx-optional-input", E, "An optional input in a model with batching, or one with allow_ragged_batch.", _ORT_IN, "optional inputs need max_batch_size: 0"),
    ("onnx-auto-batch", W, "The configuration leaves inputs or outputs open, and every first axis of the graph is free: Triton takes it for a batch axis, sets max_batch_size to 4 and turns dynamic batching on, also where max_batch_size: 0 is written. Not told where max_batch_size is not written and all these axes bear one name that means a batch, such as N or batch_size.", f"{_ORT}, AutoCompleteMaxBatch; onnxruntime_backend#147 #148", "write inputs, outputs and max_batch_size into config.pbtxt"),
    ("onnx-auto-batch-impossible", E, "The configuration leaves inputs or outputs open with max_batch_size above 0, and the graph cannot be batched.", f"{_ORT}, AutoCompleteMaxBatch", "set max_batch_size: 0, or export with dynamic first axes"),
    ("external-missing", E, "A file with the graph's weights is not there.", "onnx, docs/ExternalData.md", "copy it into the version folder"),
    ("external-absolute", E, "A file with the graph's weights is named by an absolute path.", "onnx, docs/ExternalData.md", "save the model with a relative location"),
    ("external-escapes", E, "A file with the graph's weights lies outside the version folder.", "onnx, docs/ExternalData.md", "put it beside the model file"),
    ("external-short", E, "A file with the graph's weights is shorter than the graph says.", "onnx, docs/ExternalData.md", "copy it again"),
    # TensorRT
    ("cc-key-invalid", E, "A key of cc_model_filenames is not a compute capability such as 8.6.", "backend/src/backend_model_instance.cc", 'write e.g. key: "8.6"'),
    ("cc-file-missing", E, "A file of cc_model_filenames is not there.", "backend/src/backend_model_instance.cc", "add the plan of this GPU, or remove the key"),
    ("cc-fallback", W, "Beside cc_model_filenames there is a default model file. A GPU whose key is missing takes it in silence, though it was built for another one.", "triton-inference-server/server#4657", "remove the default file, so that an unknown GPU fails with a message"),
    ("cc-without-gpu", W, "cc_model_filenames has no effect on a model without GPU instances, or of a backend that does not read it.", "backend/src/backend_model_instance.cc", "remove it, or use KIND_GPU"),
    # PyTorch
    ("torch-not-archive", E, "A .pt file is no zip archive, so it is neither TorchScript nor an exported program.", "pytorch, torch/csrc/jit/serialization", "save it with torch.jit.save"),
    ("torch-not-script", E, "A .pt file holds a state_dict or pickled module, not TorchScript. Triton needs the code as well.", "pytorch, torch/csrc/jit/serialization", "save it with torch.jit.save(torch.jit.script(model), ...)"),
    ("torch-names-mixed", W, "Some names of a TorchScript model end in __<index> and some do not. Triton then takes them all by their order in the configuration.", "pytorch_backend, README", "name all of them <name>__<index>"),
    ("torch-index", E, "The indices of INPUT__<index> names are not 0, 1, 2 ... each once.", _TORCH, "count from 0 in the order of forward's arguments"),
    ("torch-outputs-missing", E, "A TorchScript model has no outputs or inputs in its configuration; nothing completes them.", _TORCH, "write inputs and outputs into config.pbtxt"),
    # Python
    ("python-syntax", E, "A model.py does not parse.", "Python", "mend the line"),
    ("python-syntax-unsure", W, "A model.py does not parse with the Python that runs lint, which is older than that of the target release.", "docs/releases.md", "run lint with a newer Python"),
    ("python-class-missing", E, "A model.py has no class TritonPythonModel.", _PYTHON, "name the class TritonPythonModel"),
    ("python-execute-missing", E, "TritonPythonModel has no method execute.", _PYTHON, "add def execute(self, requests)"),
    ("python-execute-arguments", E, "TritonPythonModel.execute does not take self and requests.", _PYTHON, "write def execute(self, requests)"),
    ("python-initialize-arguments", E, "TritonPythonModel.initialize does not take self and args, so the model does not load.", _PYTHON, "write def initialize(self, args)"),
    ("python-finalize-arguments", W, "TritonPythonModel.finalize takes more than self. The model is served, and what finalize should do at the end is not done.", _PYTHON, "write def finalize(self)"),
    ("python-path-shell", E, "The folder or the model file of a python model has a space or another character in its name that means something to a shell. The backend hands the path to bash as it is: the model's process never starts, and the server waits for it without end.", f"{_SEEN}; python_backend/src/stub_launcher.cc", "use letters, digits, dots, dashes and underscores"),
    ("python-tensors-missing", W, "Neither config.pbtxt nor auto_complete_config names inputs and outputs; requests are refused.", _PYTHON, "write them into config.pbtxt"),
    # Ensembles
    ("ensemble-platform", E, 'ensemble_scheduling on a model whose platform is not "ensemble", or platform "ensemble" with a backend.', _ENSEMBLE, 'write platform: "ensemble" and no backend'),
    ("ensemble-scheduling-missing", E, 'platform "ensemble" without ensemble_scheduling.', _VALIDATE, "write ensemble_scheduling with steps"),
    ("ensemble-field", E, "instance_group, optimization or model_warmup on an ensemble.", _ENSEMBLE, "give it to the members instead"),
    ("ensemble-step-missing", E, "An ensemble without steps.", _ENSEMBLE, "add a step"),
    ("ensemble-map-missing", E, "A step without model_name, input_map or output_map.", f"{_CORE}, BuildEnsembleGraph", "write it"),
    ("ensemble-output-twice", E, "A tensor is written by two steps.", f"{_CORE}, BuildEnsembleGraph", "give each its own name"),
    ("ensemble-input-unused", E, "An input of the ensemble is used by no step.", _ENSEMBLE, "map it, or remove it"),
    ("ensemble-output-unwritten", E, "An output of the ensemble is written by no step.", _ENSEMBLE, "map it, or remove it"),
    ("ensemble-tensor-unused", E, "A tensor between steps is read by none, or written by none.", _ENSEMBLE, "remove it from the map"),
    ("ensemble-cycle", E, "Steps wait for each other in a circle, or an ensemble contains itself.", _ENSEMBLE, "break the circle"),
    ("ensemble-model-unknown", E, "A step names a model that the repository has not.", _MEMBERS, "correct model_name"),
    ("ensemble-version-missing", E, "A step asks for a version that its model does not serve. A step without model_version asks for version 0.", "core/src/model_repository_manager", "write model_version: -1, or change the member's version_policy"),
    ("ensemble-member-input", E, "A step maps an input that its model has not.", _MEMBERS, "use the member's names"),
    ("ensemble-member-output", E, "A step maps an output that its model has not.", _MEMBERS, "use the member's names"),
    ("ensemble-member-unmapped", E, "A step leaves out an input of its model that is not optional.", _MEMBERS, "map it"),
    ("ensemble-type", E, "A tensor has different types in the models that write and read it.", _MEMBERS, "cast it in a member"),
    ("ensemble-shape", E, "A tensor has different shapes in the models that write and read it.", _MEMBERS, "shapes are compared with and without the batch axis; -1 fits everything"),
    ("ensemble-batch", E, "An ensemble allows larger batches than one of its members.", _MEMBERS, "lower the ensemble's max_batch_size"),
    # Warm-up and labels
    ("warmup-file-missing", E, "A warm-up file is not there.", _WARMUP, "files of model_warmup lie in <model>/warmup/"),
    ("warmup-file-short", E, "A warm-up file has fewer bytes than its dims and type need.", _WARMUP, "raw little-endian elements of one request, without the batch axis"),
    ("warmup-file-long", W, "A warm-up file has more bytes than its dims and type need; the rest is ignored, so the dims are probably wrong.", _WARMUP, "correct dims, or cut the file"),
    ("warmup-text", E, "A warm-up file of TYPE_STRING is not made of 4-byte lengths, each followed by so many bytes, as many as dims say.", "server/docs/protocol/extension_binary_data.md", "put the length before every element, little-endian"),
    ("warmup-dims-variable", E, "Warm-up dims contain -1.", _WARMUP, "warm-up needs concrete dims"),
    ("warmup-dims-unfit", E, "Warm-up dims do not fit those of the input.", "core/src/infer_request.cc, Normalize", "dims go without the batch axis"),
    ("warmup-type", E, "A warm-up input has another data_type than the model's.", _SEEN, "use the input's type"),
    ("warmup-input-missing", E, "A warm-up sample lacks an input of the model that is not optional.", _SEEN, "give every input"),
    ("warmup-input-unknown", W, "A warm-up sample gives an input that the model has not.", _WARMUP, "use the model's names"),
    ("warmup-data-missing", E, "A warm-up input has none of zero_data, random_data and input_data_file.", _WARMUP, "choose one"),
    ("warmup-batch-large", E, "A warm-up sample's batch_size is above what the model takes.", _SEEN, "at most max_batch_size, or 1 without batching"),
    ("warmup-batch-zero", W, "A warm-up sample with batch_size 0 is skipped, in silence.", _WARMUP, "write batch_size: 1"),
    ("warmup-random-integers", W, "random_data for an integer input: random bytes are ids far out of any range.", _WARMUP, "use zero_data or a file"),
    ("warmup-random-floats", N, "random_data for a float input: random bytes contain NaN and infinities.", _WARMUP, "use zero_data or a file"),
    ("label-file-missing", E, "A label file is not there.", _SEEN, "label_filename is a path below the model's folder"),
    ("label-count", W, "A label file has another number of lines than the output has elements.", "core/src/label_provider.cc", "one line for every class"),
    ("label-line-end", W, "A label file has the line ends of Windows. Triton ends a line at the line feed only, so every label is served with a carriage return at its end.", "core/src/label_provider.cc", "save it with line feeds only"),
    ("label-line-empty", W, "A label file has an empty line, which is a label like any other.", "core/src/label_provider.cc", "remove the line"),
)  # fmt: skip

RULES: Mapping[str, Rule] = {row[0]: Rule(*row) for row in _ROWS}
"""All rules by id, by subject."""


def as_markdown() -> str:
    """docs/lint.md."""
    lines = [
        "# What lint looks for",
        "",
        "`repobuild lint PATH...` checks Triton model repositories offline: no server, no GPU, nothing is loaded or",
        "run. A path is a repository, the folder of one model, or a `config.pbtxt`. Configurations need not be written",
        "by repobuild.",
        "",
        "```",
        "repobuild lint PATH... [--target YY.MM] [--format text|json|sarif] [--output FILE] [--strict]",
        "                       [--ignore RULE ...] [--rules]",
        "```",
        "",
        "| exit status | when |",
        "| --- | --- |",
        "| 0 | nothing, notes or warnings were found |",
        "| 3 | an error was found, or a warning under `--strict`; or a path holds no model |",
        "| 2 | the command line itself is wrong |",
        "",
        "An *error* means that Triton refuses the model, or answers wrongly. A *warning* is a trap: it loads, and does",
        "something else than it seems to. A *note* is worth knowing. What Triton completes by itself is no mistake.",
        "",
        "`--target` names the Triton release to check against, see [releases](releases.md); the newest one is the",
        "default. `--format sarif` is for code scanning. Limits: configurations up to 1 MiB, model.py up to 4 MiB, label",
        "files up to 16 MiB, 100,000 files. ONNX files of any size are read without their weights. Links out of the",
        "repository are not followed.",
        "",
        "How the rules were held against the real thing: the planted mistakes of the tests that a server without a GPU",
        "can load (configurations, python models, ensembles, warm-up, labels, versions) and their right counterparts",
        "were each loaded by Triton 2.51 (24.10), and so were random configurations: it refused where lint has an error,",
        "and loaded where lint has none. A missing execute method is the exception: such a model loads, and every request",
        "fails. Rules for ONNX graphs follow the source of the ONNX Runtime backend, and agree with the bundled server",
        "on random configurations. Rules for TensorRT and TorchScript follow the backends' source and were not run.",
        "So do those whose last column names a source and no Triton that it was seen on, such as the `state-` rules.",
        "",
        "| rule | severity | meaning | what to do | from |",
        "| --- | --- | --- | --- | --- |",
        *(f"| `{r.id}` | {r.severity.value} | {r.what} | {r.hint} | {r.source} |" for r in RULES.values()),
    ]
    return "\n".join(lines) + "\n"


def as_text() -> str:
    """``repobuild lint --rules``."""
    return "\n".join(f"{r.id} ({r.severity.value})\n    {r.what}\n    {r.hint}" for r in RULES.values())
