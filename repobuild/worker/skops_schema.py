"""Reads what a skops file says of itself, inside the child process and before anything of it is loaded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from repobuild.errors import Evidence, InputInvalid
from repobuild.worker.loading import first_line, require_packages

SCHEMA = "schema.json"
VERSION_KEY = "_sklearn_version"
VERSION = re.compile(r"\d[0-9A-Za-z.+!-]{0,39}")


def read_skops(path: Path, given: str) -> dict[str, Any]:
    """The types that skops does not know, by its own judgement, and the versions that the file was made with.

    Returns:
        ``{"types": names, "versions": {package: versions}}``.

    Raises:
        InputInvalid: skops cannot read the file.
        EnvironmentLacking: skops is not installed.
    """
    require_packages(given, ("sklearn", "skops"))
    import skops.io

    try:
        return {"types": list(skops.io.get_untrusted_types(file=path)), "versions": _versions(path)}
    except MemoryError:
        raise
    except Exception as problem:  # noqa: BLE001 - a hostile file makes skops raise anything
        raise InputInvalid(
            "model-damaged",
            f"{given} cannot be read as a skops file",
            (Evidence(f"{type(problem).__name__}: {first_line(problem)}", file=given),),
            "save the model again with skops.io.dump, or fetch the file again",
        ) from None


def _versions(path: Path) -> dict[str, list[str]]:
    """Versions in the schema: that of skops, and those in the states of estimators.

    The state of an estimator is a dictionary node, whose entries are nodes too:
    ``{"content": {"_sklearn_version": {"content": '"1.2.2"'}}}`` (skops.io, protocol 2).
    """
    import zipfile

    with zipfile.ZipFile(path) as archive:
        schema = json.loads(archive.read(SCHEMA))
    found: dict[str, set[str]] = {"scikit-learn": set(), "skops": set()}
    own = schema.get("_skops_version")
    if isinstance(own, str) and VERSION.fullmatch(own):
        found["skops"].add(own)
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting.extend(node.values())
            kept = node.get(VERSION_KEY)
            text = kept.get("content") if isinstance(kept, dict) else None
            if isinstance(text, str) and VERSION.fullmatch(text.strip('"')):
                found["scikit-learn"].add(text.strip('"'))
        elif isinstance(node, list):
            waiting.extend(node)
    return {package: sorted(versions) for package, versions in found.items() if versions}
