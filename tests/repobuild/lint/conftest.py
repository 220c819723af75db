"""Repositories written by hand, and small ONNX models for them."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from repobuild.lint.inferred import ShapeInference
from repobuild.lint.run import lint
from repobuild.releases import newest, release


@pytest.fixture(scope="session")
def _inferred():
    return {}


@pytest.fixture(autouse=True)
def remembered_inference(monkeypatch, _inferred):
    """Shapes of equal files are inferred once in a test run, since each takes a process."""

    real = ShapeInference.outputs

    def outputs(self, file):
        digest = hashlib.sha256(Path(file).read_bytes()).digest()
        if digest not in _inferred:
            _inferred[digest] = real(self, file)
        return _inferred[digest]

    monkeypatch.setattr(ShapeInference, "outputs", outputs)


@pytest.fixture
def repository(tmp_path):
    """Writes a repository: ``repository({"m/config.pbtxt": text, "m/1": None})``; ``None`` is a folder."""

    def make(files, folder="models"):
        root = tmp_path / folder
        root.mkdir()
        for name, content in files.items():
            path = root / name
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return root

    return make


@pytest.fixture
def told():
    """What lint finds: ``told(path) == [(rule, file, line), ...]``."""

    def run(path, target=None):
        known = {None: newest(), "99.99": dataclasses.replace(newest(), python="99.9")}
        against = known.get(target) or release(target)
        return [(f.rule, f.file, f.line) for f in lint(path, against).findings]

    return run
