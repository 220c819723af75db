"""The metrics that one process has made."""

from __future__ import annotations

import itertools
from typing import Any

from repobuild_serve.core.custom_metrics import CustomMetrics, Family, Series
from repobuild_serve.errors import RequestError


class MetricCalls:
    """Keeps what a process made by number, so that all of it goes when the process does.

    Args:
        metrics: The metrics of all models.
    """

    def __init__(self, metrics: CustomMetrics) -> None:
        self._metrics = metrics
        self._numbers = itertools.count(1)
        self._families: dict[int, Family] = {}
        self._series: dict[int, tuple[Family, Series]] = {}

    def take(self, head: Any) -> dict[str, Any] | None:
        """Do what a message says; what is replied, None if nothing is.

        Raises:
            RequestError: It cannot be done.
        """
        match head["do"]:
            case "family":
                number = next(self._numbers)
                self._families[number] = self._metrics.family(head["name"], head["description"], head["kind"])
                return {"number": number}
            case "metric":
                family = self._families[head["family"]]
                series = self._metrics.metric(family, head["labels"] or {}, head["buckets"])
                number = next(self._numbers)
                self._series[number] = family, series
                return {"number": number}
            case "forget_metric":
                if (found := self._series.pop(head["metric"], None)) is not None:
                    self._metrics.forget_metric(*found)
                return None
            case "forget_family":
                if (made := self._families.pop(head["family"], None)) is not None:
                    self._metrics.forget_family(made)
                return None
        return self._change(self._series[head["metric"]][1], head)

    def _change(self, series: Series, head: Any) -> dict[str, Any]:
        match head["do"]:
            case "increment":
                series.increment(head["value"])
            case "set":
                series.set(head["value"])
            case "observe":
                series.observe(head["value"])
            case "value":
                return {"value": series.read()}
            case other:
                raise RequestError(f"metrics have no {other}")
        return {}

    def close(self) -> None:
        """Forget everything that was made."""
        for family, series in self._series.values():
            self._metrics.forget_metric(family, series)
        for family in self._families.values():
            self._metrics.forget_family(family)
        self._series.clear()
        self._families.clear()
