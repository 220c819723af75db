"""Which models are made of which others: ensembles, and the order in which they are brought up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


def members(config: Any) -> frozenset[str]:
    """The models that an ensemble is made of; none for any other model."""
    return frozenset(step.model_name for step in config.ensemble_scheduling.step)


def dependents(configs: Mapping[str, Any], names: Collection[str]) -> set[str]:
    """The ensembles that are made of any of some models, directly or not, without those models themselves.

    Args:
        configs: ModelConfig message by model name.
        names: The models.
    """
    found = set(names)
    while True:
        more = {name for name, config in configs.items() if name not in found and members(config) & found}
        if not more:
            return found - set(names)
        found |= more


def levels(configs: Mapping[str, Any]) -> list[list[str]]:
    """The models in the order in which they can be brought up: each needs only those of earlier levels.

    Ensembles that depend on themselves come last, together.

    Args:
        configs: ModelConfig message by model name.
    """
    left = dict(configs)
    found: list[list[str]] = []
    while left:
        level = sorted(name for name, config in left.items() if not members(config) & left.keys())
        level = level or sorted(left)
        found.append(level)
        for name in level:
            del left[name]
    return found


def leaving(configs: Mapping[str, Any], name: str, asked: Collection[str]) -> set[str]:
    """What goes with a model: itself, and members that nobody asked for and nothing else is made of.

    Args:
        configs: ModelConfig message by model name.
        name: The model.
        asked: Models that were to be loaded for their own sake.
    """
    found = {name}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        for member in sorted(members(configs[current])) if current in configs else ():
            used = dependents(configs, {member}) - found
            if member not in found and member not in asked and not used:
                found.add(member)
                waiting.append(member)
    return found
