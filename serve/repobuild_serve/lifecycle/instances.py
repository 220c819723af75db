"""Changing the instances of a version that serves: which stay, which come, which go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from repobuild_serve.config.settings import ModelSettings
from repobuild_serve.core.statistics import Statistics
from repobuild_serve.scheduling.workers import Worker

_NOT_COMPARED = ("instance_group", "version_policy")


def same_but_for_instances(one: Any, other: Any) -> bool:
    """Whether two ModelConfig messages differ in nothing that a version must be loaded anew for."""
    messages = []
    for config in (one, other):
        message = type(config)()
        message.CopyFrom(config)
        for name in _NOT_COMPARED:
            message.ClearField(name)
        messages.append(message)
    return bool(messages[0] == messages[1])


def signatures(settings: ModelSettings) -> dict[str, bytes]:
    """By instance name, what an instance is like; two of the same signature are interchangeable."""
    found: dict[str, bytes] = {}
    for group in settings.message.instance_group:
        message = type(group)()
        message.CopyFrom(group)
        message.ClearField("name")
        message.ClearField("count")
        signature = message.SerializeToString(deterministic=True)
        found |= {f"{group.name}_{number}": signature for number in range(group.count)}
    return found


@dataclass(slots=True)
class Change:
    """How the instances of a version become those of a new config.

    Attributes:
        settings: Settings under the new config.
        removed: Instances that go.
        missing: Names of those to bring up.
        added: Those brought up.
        statistics: Counts their warm-up.
        signatures: By name, what the instances are like after the change.
    """

    settings: ModelSettings
    removed: list[Worker]
    missing: list[str]
    signatures: dict[str, bytes]
    added: list[Worker] = field(default_factory=list)
    statistics: Statistics = field(default_factory=Statistics)

    @classmethod
    def between(
        cls,
        workers: Sequence[Worker],
        old: Mapping[str, bytes],
        new: Mapping[str, bytes],
        settings: ModelSettings,
    ) -> Change:
        """Keep as many instances as the new config has a use for.

        Args:
            workers: The instances.
            old: Their signatures by name.
            new: Signatures by name under the new config.
            settings: Settings under the new config.
        """
        wanted = dict(new)
        left: list[Worker] = []
        kept: dict[str, bytes] = {}
        for worker in workers:
            if worker.name in wanted and old.get(worker.name) == wanted[worker.name]:
                kept[worker.name] = wanted.pop(worker.name)
            else:
                left.append(worker)
        removed: list[Worker] = []
        for worker in left:
            # An instance may serve under a name that the config no longer has.
            match = next((name for name, value in wanted.items() if value == old.get(worker.name)), None)
            if match is None or worker.name in new:
                removed.append(worker)
            else:
                kept[worker.name] = wanted.pop(match)
        return cls(settings, removed, list(wanted), {**kept, **wanted})
