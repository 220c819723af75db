"""Builds whatever a recipe describes: one model, or an ensemble of several."""

from __future__ import annotations

from repobuild.build import Order
from repobuild.ensembles.pipeline import convert_ensemble
from repobuild.pipeline import convert
from repobuild.report import Report
from repobuild.watch import Watch


def run(order: Order, watch: Watch | None = None) -> Report:
    """Build one recipe into a repository, which changes only in the last step.

    Args:
        order: What to build.
        watch: Told of the steps.

    Raises:
        repobuild.build.Refused: The build stops and the repository is as it was.
    """
    return (convert if order.recipe.ensemble is None else convert_ensemble)(order, watch)
