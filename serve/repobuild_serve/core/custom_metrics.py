"""Metrics that models define themselves: kept here, shown on the metrics page."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from repobuild_serve.errors import RequestError

COUNTER = "counter"
GAUGE = "gauge"
HISTOGRAM = "histogram"
_OWN = re.compile(r"nv_(inference|model|cpu|gpu|energy|cache|pinned_memory)_")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class Series:
    """One metric: a name with labels.

    Attributes:
        kind: What it does.
        bounds: Upper bounds of a histogram's buckets, without infinity.
        value: What a counter or gauge stands at; the sum of a histogram.
        counts: Values per bucket of a histogram, the one up to infinity last.
        users: How often it has been made and not forgotten.
    """

    kind: str
    bounds: tuple[float, ...] = ()
    value: float = 0.0
    counts: list[int] = field(default_factory=list)
    users: int = 0

    def increment(self, value: float) -> None:
        """Add to a counter or gauge.

        Raises:
            RequestError: It is a histogram, or a counter would shrink.
        """
        if self.kind == HISTOGRAM:
            raise RequestError("TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment")
        if self.kind == COUNTER and not value >= 0:
            raise RequestError(
                "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by "
                "non-negative values."
            )
        self.value += value

    def set(self, value: float) -> None:
        """Set a gauge.

        Raises:
            RequestError: It is none.
        """
        if self.kind != GAUGE:
            raise RequestError(f"TRITONSERVER_METRIC_KIND_{self.kind.upper()} does not support Set")
        self.value = value

    def observe(self, value: float) -> None:
        """Add a value to a histogram.

        Raises:
            RequestError: It is none.
        """
        if self.kind != HISTOGRAM:
            raise RequestError(f"TRITONSERVER_METRIC_KIND_{self.kind.upper()} does not support Observe")
        self.value += value
        self.counts[next((i for i, bound in enumerate(self.bounds) if value <= bound), -1)] += 1

    def read(self) -> float:
        """What a counter or gauge stands at.

        Raises:
            RequestError: It is a histogram.
        """
        if self.kind == HISTOGRAM:
            raise RequestError("TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value")
        return self.value


@dataclass(slots=True, eq=False)
class Family:
    """Metrics of one name.

    Attributes:
        name: Name on the metrics page.
        meaning: Help text.
        kind: What its metrics do.
        series: Its metrics, by their sorted labels.
        users: How often it has been made and not forgotten.
    """

    name: str
    meaning: str
    kind: str
    series: dict[Labels, Series] = field(default_factory=dict)
    users: int = 0


class CustomMetrics:
    """The metrics of all models. Used on the loop's thread only."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def family(self, name: str, meaning: str, kind: str) -> Family:
        """Make a family, or use one of the same name again.

        Raises:
            RequestError: The name cannot be one, belongs to a family of another kind, or is kept for the
                server's own metrics.
        """
        if not _NAME.fullmatch(name):
            raise RequestError("Invalid metric name")
        if _OWN.match(name):
            # Two families of one name would make the whole page unreadable for Prometheus.
            raise RequestError(f"metric family '{name}' has a name that is kept for the server's own metrics")
        found = self._families.get(name)
        if found is None:
            found = self._families[name] = Family(name, meaning, kind)
        elif found.kind != kind:
            raise RequestError(f"metric family '{name}' exists already, as a {found.kind}")
        found.users += 1
        return found

    def metric(self, family: Family, labels: Mapping[str, str], bounds: Sequence[float] | None) -> Series:
        """Make a metric of a family, or use one with the same labels again.

        Raises:
            RequestError: A label or the buckets cannot be such.
        """
        for label, value in labels.items():
            if not _LABEL.fullmatch(label) or label == "le" or not isinstance(value, str):
                raise RequestError(f"'{label}' with value {value!r} is no valid label for a metric")
        limits = tuple(bounds or ())
        if any(not low < high for low, high in itertools.pairwise(limits)):
            raise RequestError("the buckets of a histogram must ascend")
        limits = tuple(limit for limit in limits if limit != math.inf)
        key = tuple(sorted(labels.items()))
        series = family.series.get(key)
        if series is None:
            counts = [0] * (len(limits) + 1) if family.kind == HISTOGRAM else []
            series = family.series[key] = Series(family.kind, limits, counts=counts)
        elif series.bounds != limits:
            raise RequestError(
                f"a metric with these labels exists already in '{family.name}', with other buckets"
            )
        series.users += 1
        return series

    def forget_family(self, family: Family) -> None:
        """Take back one ``family``."""
        family.users -= 1
        if not family.users:
            self._families.pop(family.name, None)

    def forget_metric(self, family: Family, series: Series) -> None:
        """Take back one ``metric``."""
        series.users -= 1
        if not series.users:
            family.series = {key: found for key, found in family.series.items() if found is not series}

    def lines(self) -> list[str]:
        """All of them in Prometheus text format."""
        lines: list[str] = []
        for family in self._families.values():
            meaning = family.meaning.replace("\\", "\\\\").replace("\n", "\\n")
            lines += [f"# HELP {family.name} {meaning}", f"# TYPE {family.name} {family.kind}"]
            for labels, series in family.series.items():
                lines += _series_lines(family.name, labels, series)
        return lines


def _series_lines(name: str, labels: Labels, series: Series) -> list[str]:
    if series.kind != HISTOGRAM:
        return [f"{name}{_labels(labels)} {_number(series.value)}"]
    below = list(itertools.accumulate(series.counts))
    lines = [
        f"{name}_bucket{_labels((*labels, ('le', _number(bound))))} {count}"
        for bound, count in zip((*series.bounds, math.inf), below, strict=True)
    ]
    return [
        f"{name}_count{_labels(labels)} {below[-1]}",
        f"{name}_sum{_labels(labels)} {_number(series.value)}",
        *lines,
    ]


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "Nan"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
