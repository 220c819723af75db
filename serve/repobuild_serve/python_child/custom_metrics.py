"""``triton_python_backend_utils.MetricFamily``: the model's own metrics, which the server keeps and shows."""

from __future__ import annotations

import enum
from typing import Any, Dict, List, Optional

from repobuild_serve.python_child import current
from repobuild_serve.python_child.failures import TritonModelException


class MetricKind(enum.Enum):
    """What a metric does."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


def _call(what: str, head: Dict[str, Any]) -> Dict[str, Any]:
    reply: Dict[str, Any] = current.host().ask(head).get()[0]
    if "error" in reply:
        raise TritonModelException(f"{what}: {reply['error'][1]}")
    return reply


class Metric:
    """One series of a family; made by ``MetricFamily.Metric``."""

    def __init__(self, family: MetricFamily, number: int) -> None:
        # A metric needs its family, whose end would take it along.
        self._family = family
        self._number = number

    def increment(self, value: float) -> None:
        """Add to a counter or gauge.

        Raises:
            TritonModelException: The metric is a histogram, or a counter would shrink.
        """
        self._do("increment", "increment metric value", value)

    def set(self, value: float) -> None:
        """Set a gauge.

        Raises:
            TritonModelException: The metric is no gauge.
        """
        self._do("set", "set metric value", value)

    def observe(self, value: float) -> None:
        """Add a value to a histogram.

        Raises:
            TritonModelException: The metric is no histogram.
        """
        self._do("observe", "observe metric value", value)

    def value(self) -> float:
        """What a counter or gauge stands at.

        Raises:
            TritonModelException: The metric is a histogram.
        """
        head = {"op": "metric", "do": "value", "metric": self._number}
        return float(_call("Failed to get metric value", head)["value"])

    def _do(self, action: str, what: str, value: float) -> None:
        head = {"op": "metric", "do": action, "metric": self._number, "value": float(value)}
        _call(f"Failed to {what}", head)

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            _forget("metric", self._number)


class MetricFamily:
    """Metrics of one name, which differ in their labels.

    Args:
        name: Its name on the metrics page.
        description: Its help text.
        kind: ``COUNTER``, ``GAUGE`` or ``HISTOGRAM``.

    Raises:
        TritonModelException: The name cannot be one, or is that of a family of another kind.
    """

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        if not (isinstance(name, str) and isinstance(description, str) and isinstance(kind, MetricKind)):
            raise TypeError("MetricFamily takes name and description as str, and one of its own kinds")
        self._kind = kind
        head = {"op": "metric", "do": "family", "name": name, "description": description, "kind": kind.value}
        self._number = int(_call("Error when creating MetricFamily", head)["number"])

    def Metric(  # noqa: N802 - the API's name
        self, labels: Optional[Dict[str, str]] = None, buckets: Optional[List[float]] = None
    ) -> Metric:
        """A metric of this family.

        Args:
            labels: Values by label.
            buckets: Upper bounds of a histogram's buckets, ascending.

        Raises:
            TritonModelException: The arguments do not go with the family's kind.
        """
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        if buckets is not None and not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if buckets is not None and self._kind is not MetricKind.HISTOGRAM:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        if buckets is None and self._kind is MetricKind.HISTOGRAM:
            raise TritonModelException("Failed to create metric. Missing required buckets.")
        bounds = None if buckets is None else [float(bound) for bound in buckets]
        head = {"op": "metric", "do": "metric", "family": self._number, "labels": labels, "buckets": bounds}
        return Metric(self, int(_call("Error when creating Metric", head)["number"]))

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            _forget("family", self._number)


def _forget(what: str, number: int) -> None:
    current.host().defer({"op": "metric", "do": f"forget_{what}", what: number})
