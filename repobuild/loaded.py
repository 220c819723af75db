"""A loaded model and its samples, whichever way they came."""

from __future__ import annotations

from typing import TypeAlias

from repobuild.samples.fit import Samples
from repobuild.sources.interface import Description
from repobuild.tensor_models.fit import TensorSamples
from repobuild.tensor_models.load import LoadedTensors

Loaded: TypeAlias = Description | LoadedTensors
LoadedSamples: TypeAlias = Samples | TensorSamples
