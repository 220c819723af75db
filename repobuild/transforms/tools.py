"""Versions of the libraries that transforms use."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from repobuild.artifact import Tool


def tool(name: str) -> Tool:
    """An installed library with its version; ONNX Runtime under either of its packages."""
    packages = ("onnxruntime", "onnxruntime-gpu") if name == "onnxruntime" else (name,)
    for package in packages:
        try:
            return Tool(package, version(package))
        except PackageNotFoundError:
            continue
    return Tool(name, "unknown")
