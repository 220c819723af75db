"""The machine: Python, platform, memory, disk, descriptors, ports, GPU."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from repobuild.doctor.interface import Finding, State
from repobuild.doctor.versions import in_range

LITTLE_MEMORY = 2 << 30
LITTLE_DISK, NO_DISK = 1 << 30, 64 << 20
FEW_FILES, TOO_FEW_FILES = 1024, 64
SMI_SECONDS = 30.0


def python_finding() -> Finding:
    """The Python version against the range of this project's metadata."""
    have = platform.python_version()
    try:
        want = metadata("repobuild")["Requires-Python"]
    except PackageNotFoundError:
        return Finding("python", "warn", f"{have}; which range is wanted is not known", "install repobuild")
    if not in_range(have, want):
        return Finding(
            "python", "fail", f"{have} is out of range ({want})", "make an environment with another"
        )
    return Finding("python", "ok", f"{have} ({want}), {sys.executable}")


def platform_finding() -> Finding:
    """The operating system, which has to be a POSIX one: process groups, file locks, renames over files."""
    name = f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} cores"
    if os.name != "posix":
        return Finding("platform", "fail", name, "use Linux, macOS, or Linux inside Windows (WSL)")
    return Finding("platform", "ok", name)


def memory_finding() -> Finding:
    """Memory that is free."""
    import psutil

    memory = psutil.virtual_memory()
    text = f"{_gib(memory.available)} GiB of {_gib(memory.total)} GiB are free"
    if memory.available < LITTLE_MEMORY:
        return Finding("memory", "warn", text, "a build with ONNX Runtime and scikit-learn takes about 1 GiB")
    return Finding("memory", "ok", text)


def disk_findings() -> Iterator[Finding]:
    """Space and permission in the folders that a build writes to."""
    for name, folder in (("disk: temporary", Path(tempfile.gettempdir())), ("disk: working", Path.cwd())):
        yield disk_finding(name, folder)


def disk_finding(name: str, folder: Path) -> Finding:
    """Whether a folder can be written and has space."""
    free = shutil.disk_usage(folder).free
    text = f"{_gib(free)} GiB are free in {folder}"
    if not os.access(folder, os.W_OK | os.X_OK):
        temporary = name.endswith("temporary")
        hint = "set TMPDIR to a folder that can be written" if temporary else "name a repository elsewhere"
        return Finding(name, "fail" if temporary else "warn", f"{folder} cannot be written", hint)
    if free < NO_DISK:
        return Finding(name, "fail", text, "free some space")
    return Finding(
        name, "warn" if free < LITTLE_DISK else "ok", text, "free some" if free < LITTLE_DISK else ""
    )


def files_finding() -> Finding:
    """The limit on open files, which a server with many connections meets."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} open files are allowed (at most {hard})"
    if soft != resource.RLIM_INFINITY and soft < FEW_FILES:
        state: State = "fail" if soft < TOO_FEW_FILES else "warn"
        return Finding("files", state, text, f"ulimit -n {FEW_FILES}")
    return Finding("files", "ok", text)


def port_finding() -> Finding:
    """Whether a server can listen on 127.0.0.1, as verification does."""
    try:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(1)
    except OSError as problem:
        return Finding("port", "fail", f"127.0.0.1: {problem}", "verification has to listen on 127.0.0.1")
    return Finding("port", "ok", "a server can listen on 127.0.0.1")


def gpu_finding() -> Finding:
    """NVIDIA GPUs, through NVML's Python package or nvidia-smi; nothing needs one yet."""
    try:
        names = _by_nvml()
    except Exception as problem:  # noqa: BLE001 - whatever a driver's package raises is the finding
        return Finding("gpu", "warn", f"NVML does not answer: {problem}", "see whether the driver is loaded")
    if names is None:
        names = _by_smi()
    if names is None:
        return Finding("gpu", "ok", "none was found; models are compiled for and run on the CPU")
    return Finding("gpu", "ok", ", ".join(names) or "the driver is there, and no GPU")


def _by_nvml() -> list[str] | None:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    nvml.nvmlInit()
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return [_text(nvml.nvmlDeviceGetName(h)) for h in handles]
    finally:
        nvml.nvmlShutdown()


def _by_smi() -> list[str] | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=SMI_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip().splitlines() if done.returncode == 0 else None


def _text(name: str | bytes) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"
