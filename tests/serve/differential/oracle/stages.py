"""Which servers the scripts run on."""

from __future__ import annotations

from dataclasses import dataclass

from oracle import batching, lifecycle, mistakes, statistics
from oracle.main_models import main_models
from oracle.repositories import Model
from oracle.scripts import Script

STRICT = "--disable-auto-complete-config"


@dataclass(frozen=True)
class Stage:
    """A repository and the options of the server on it."""

    models: tuple[Model, ...]
    options: tuple[str, ...]


def stages() -> dict[str, Stage]:
    """By name; a script's own models stand in the repository of its stage."""
    own: dict[str, list[Model]] = {"main": [], "batching": [], "explicit": []}
    for script in all_scripts().values():
        own[script.stage] += script.models
    return {
        "main": Stage((*main_models(), *own["main"]), (STRICT,)),
        "batching": Stage(tuple(own["batching"]), (STRICT,)),
        "explicit": Stage(tuple(own["explicit"]), (STRICT, "--model-control-mode=explicit")),
    }


def all_scripts() -> dict[str, Script]:
    """By name."""
    modules = (statistics, batching, lifecycle, mistakes)
    scripts = [script for module in modules for script in module.scripts()]
    found = {script.name: script for script in scripts}
    if len(found) != len(scripts):
        raise ValueError("two scripts have the same name")
    return found
