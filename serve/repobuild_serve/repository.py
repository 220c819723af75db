"""Reading a model repository from disk: folders, versions and configs (Triton contract)."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repobuild_serve.backends.model_backend import ModelBackend
from repobuild_serve.backends.table import backend_named
from repobuild_serve.config.complete import complete_config
from repobuild_serve.config.guess import fill_backend
from repobuild_serve.config.parse import config_path, parse_config
from repobuild_serve.config.support import refuse_unserved
from repobuild_serve.config.validate import validate_identity, validate_model
from repobuild_serve.config.validate_io import validate_io
from repobuild_serve.errors import ConfigError, LoadError, StartError
from repobuild_serve.gpus import MIN_COMPUTE_CAPABILITY, Gpu, numbers

_LOG = logging.getLogger(__name__)
_PLATFORM_FILENAMES = {"torch_aoti": "model.pt2"}


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model folder whose config is readable and valid.

    Attributes:
        name: Model name.
        path: The folder.
        config: Completed ModelConfig message.
        backend: What runs the model; None with ``problem`` set if there is none.
        versions: Versions the policy selects, ascending; may be empty.
        problem: Why the model cannot be loaded although its config is valid; a ``StartError`` if a package is
            missing.
        gpus: The GPUs that its backend can use.
        min_compute_capability: What they had to offer for that.
    """

    name: str
    path: Path
    config: Any
    backend: ModelBackend | None
    versions: tuple[int, ...]
    problem: LoadError | StartError | None = None
    gpus: tuple[Gpu, ...] = ()
    min_compute_capability: float = MIN_COMPUTE_CAPABILITY


def find_model(repositories: Sequence[Path], name: str) -> Path:
    """The folder of a model.

    Raises:
        ConfigError: No repository has it, or more than one.
    """
    found = [path for repository in repositories if (path := repository / name).exists()]
    if not found:
        raise ConfigError("model not found in any model repository.")
    if len(found) > 1:
        raise ConfigError("not unique across all model repositories")
    return found[0]


def model_names(repository: Path) -> list[str]:
    """The names of the folders that are models.

    Raises:
        OSError: The repository cannot be read.
    """
    with os.scandir(repository) as entries:
        return sorted(entry.name for entry in entries if is_folder(entry) and not entry.name.startswith("."))


def model_folders(repository: Path) -> list[Path]:
    """The folders of a repository that are models, by name.

    Raises:
        StartError: The repository is missing or cannot be read.
    """
    if not repository.is_dir():
        what = "is not a folder" if repository.exists() else "does not exist"
        raise StartError(
            "repository-missing",
            f"the model repository {what}: {repository}",
            hint="give the folder that holds one folder per model, as repobuild convert writes it",
            exit_code=3,
        )
    try:
        names = model_names(repository)
    except PermissionError as exc:
        raise StartError(
            "repository-unreadable",
            f"the model repository cannot be read: {repository}",
            evidence=(str(exc),),
            hint="run the server as a user who may read the folder",
            exit_code=7,
        ) from exc
    return [repository / name for name in names]


def read_model(
    path: Path,
    *,
    auto_complete: bool,
    name: str = "",
    config: Any = None,
    config_name: str = "",
    gpus: tuple[Gpu, ...] = (),
    min_compute_capability: float = MIN_COMPUTE_CAPABILITY,
) -> ModelFolder:
    """Read, check and complete the config of one model folder.

    Args:
        path: The model folder.
        auto_complete: Whether a missing or partial config is filled from the model.
        name: Model name if it is not the folder's.
        config: ModelConfig message to take in place of the one on disk; it is changed.
        config_name: Take ``configs/<config_name>.pbtxt`` where there is one.
        gpus: The GPUs of this machine.
        min_compute_capability: What they had to offer to be among them.

    Raises:
        ConfigError: The folder is no usable model ("poll" failure).
    """
    name = name or path.name
    if config is None:
        config = parse_config(config_path(path, config_name), required=not auto_complete)
    stated, config.name = config.name, config.name or name
    fill_backend(config, _first_contents(path))
    validate_model(config)
    if not auto_complete:
        validate_io(config)
    config.name = stated
    validate_identity(config, name)
    config.name = name
    selected = _selected_versions(config, _version_folders(path))
    missing = None if selected else no_version(name)
    if config.HasField("ensemble_scheduling"):
        validate_io(config)
        refuse_unserved(config)
        complete_config(config, 0)
        return ModelFolder(name, path, config, None, selected, missing)
    # Triton finds these out only when it loads the model, so the model is tracked as UNAVAILABLE.
    try:
        backend = backend_named(config.backend)
    except LoadError as exc:
        return ModelFolder(name, path, config, None, selected, exc)
    try:
        if auto_complete and selected:
            _auto_complete(config, backend, path, selected[-1])
    except (LoadError, StartError) as exc:
        return ModelFolder(name, path, config, backend, selected, exc)
    refuse_unserved(config)
    try:
        usable = gpus if gpus and backend.uses_gpus() else ()
    except StartError as exc:
        return ModelFolder(name, path, config, backend, selected, exc)
    complete_config(config, backend.default_count, numbers(usable))
    return ModelFolder(name, path, config, backend, selected, missing, usable, min_compute_capability)


def _auto_complete(config: Any, backend: ModelBackend, path: Path, version: int) -> None:
    """Fill what the config leaves out from a version of the model.

    Raises:
        LoadError: The model contradicts the config, or does not tell.
    """
    config.platform = config.platform or backend.platform
    folder = _version_path(path, version, _version_folders(path))
    backend.complete(config, model_file(config, backend, folder))
    try:
        validate_io(config)
    except ConfigError as exc:
        raise LoadError(exc.text) from exc


def no_version(name: str) -> LoadError:
    """The error for a model none of whose versions is to be loaded."""
    return LoadError(f"at least one version must be available under the version policy of model '{name}'")


def version_path(model: ModelFolder, version: int) -> Path:
    """The folder of one version (its name may have leading zeros)."""
    return _version_path(model.path, version, _version_folders(model.path))


def model_file(config: Any, backend: ModelBackend, folder: Path, gpu: Gpu | None = None) -> Path:
    """Where the model of a version lies: below its folder, even where the name begins with a slash.

    Args:
        config: The completed config.
        backend: What runs it.
        folder: The version's folder.
        gpu: What an instance runs on, whose compute capability ``cc_model_filenames`` may have a file for.
    """
    by_capability = config.cc_model_filenames
    if gpu is not None and by_capability:
        if gpu.capability in by_capability:
            return folder / str(by_capability[gpu.capability]).lstrip("/")
        _LOG.warning(
            "model %s: cc_model_filenames has no file for compute capability %s of GPU %d, "
            "which gets the default",
            config.name,
            gpu.capability,
            gpu.number,
        )
    default = _PLATFORM_FILENAMES.get(config.platform, backend.default_filename)
    return folder / (config.default_model_filename.lstrip("/") or default)


def _version_path(path: Path, version: int, folders: dict[int, str]) -> Path:
    return path / folders.get(version, str(version))


def _version_folders(path: Path) -> dict[int, str]:
    try:
        with os.scandir(path) as entries:
            names = sorted(
                entry.name for entry in entries if is_version_name(entry.name) and is_folder(entry)
            )
    except OSError as exc:
        raise ConfigError(f"failed to read model folder {path}: {exc.strerror}") from exc
    return {int(name): name for name in names}


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether something in a folder is a folder, or a link to one; a link that leads nowhere is not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def is_version_name(name: str) -> bool:
    """Whether a folder of that name in a model folder is a version."""
    return name.isascii() and name.isdigit() and len(name) <= 18


def _selected_versions(config: Any, folders: dict[int, str]) -> tuple[int, ...]:
    versions = sorted(folders)
    choice = config.version_policy.WhichOneof("policy_choice")
    if choice == "all":
        return tuple(versions)
    if choice == "specific":
        wanted = set(config.version_policy.specific.versions)
        return tuple(version for version in versions if version in wanted)
    count = config.version_policy.latest.num_versions if choice == "latest" else 1
    return tuple(versions[-count:]) if count else ()


def _first_contents(path: Path) -> dict[str, bool]:
    """What lies in the first folder of a model, by the order of names; whether each is a folder, by name."""
    try:
        with os.scandir(path) as entries:
            folders = sorted(entry.path for entry in entries if is_folder(entry))
        if not folders:
            return {}
        with os.scandir(folders[0]) as entries:
            return {entry.name: is_folder(entry) for entry in entries}
    except OSError as exc:
        raise ConfigError(f"failed to read model folder {path}: {exc.strerror}") from exc
