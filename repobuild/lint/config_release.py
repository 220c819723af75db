"""Fields that older releases do not have, numbers that stand for no name, and the metrics section."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from repobuild.lint.finding import Findings
from repobuild.lint.model import View
from repobuild.releases import Release

SINCE: Mapping[tuple[str, ...], str] = {
    ("sequence_batching", "iterative_sequence"): "23.11",
    ("sequence_batching", "state", "use_same_buffer_for_input_output"): "23.11",
    ("sequence_batching", "state", "use_growable_memory"): "23.11",
    ("runtime",): "24.01",
    ("input", "is_non_linear_format_io"): "24.08",
    ("output", "is_non_linear_format_io"): "24.08",
    ("model_metrics",): "24.11",
    ("ensemble_scheduling", "max_inflight_requests"): "25.11",
}
"""First release whose model_config.proto has a field, for those that came after 23.10.

Read from protobuf/model_config.proto on the branches r23.10 to r26.07 of triton-inference-server/common.
"""
AOTI, AOTI_SINCE = "torch_aoti", "26.03"
"""A platform, and the release that brought it (core/src/constants.h, branch by branch)."""


def check_release_fields(view: View, release: Release, findings: Findings) -> None:
    """Check that the target release knows every field that is written, and that metrics are whole."""
    for path, place in view.positions.places.items():
        since = SINCE.get(tuple(name for name, _ in path))
        if since is not None and release.name < since:
            findings.add(
                "field-newer",
                f"Triton {release.name} has no field '{path[-1][0]}', it came with {since}",
                view.file,
                place.line,
                place.column,
            )
    _check_enums(view, findings)
    platform = view.effective.platform
    if platform == AOTI and release.name < AOTI_SINCE:
        findings.add(
            "field-newer",
            f"Triton {release.name} has no platform '{AOTI}', it came with {AOTI_SINCE}",
            *view.where("platform"),
        )
    for index, control in enumerate(view.config.model_metrics.metric_control):
        lacking = None
        if not control.metric_identifier.family:
            lacking = "metric_identifier with a family"
        elif not control.histogram_options.buckets:
            lacking = "histogram_options with buckets"
        if lacking:
            findings.add(
                "metrics-incomplete",
                f"metric control must specify {lacking}",
                *view.where("model_metrics", 0, "metric_control", index),
            )


def _check_enums(view: View, findings: Findings) -> None:
    """Check that every number in place of a name stands for one; a list stands in for recursion."""
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(view.config, ())]
    while waiting:
        message, at = waiting.pop()
        for item, value in message.ListFields():
            here = (*at, item.name)
            if item.message_type is not None:
                waiting += _inner(view, item, value, here)
            elif item.enum_type is not None:
                for index, number in enumerate(value if item.is_repeated else (value,)):
                    if number not in item.enum_type.values_by_number:
                        findings.add(
                            "enum-unknown",
                            f"{item.name} is {number}, which stands for nothing",
                            *view.where(*here, index),
                        )


def _inner(
    view: View, item: Any, value: Any, here: tuple[str | int, ...]
) -> Iterable[tuple[Any, tuple[str | int, ...]]]:
    """The messages in a field, with their paths."""
    if item.message_type.GetOptions().map_entry:
        if item.message_type.fields_by_name["value"].message_type is None:
            return []
        return [(inner, (*view.positions.entry(str(key), *here), "value")) for key, inner in value.items()]
    return [(inner, (*here, index)) for index, inner in enumerate(value if item.is_repeated else (value,))]
