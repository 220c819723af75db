"""The zoo: every architecture that has to be converted, served and found equal."""

from __future__ import annotations

from tests.zoo.architecture import Architecture
from tests.zoo.entries.images import IMAGES
from tests.zoo.entries.rows import ROWS
from tests.zoo.entries.sequences import SEQUENCES
from tests.zoo.entries.transformers import TRANSFORMERS

CATALOG: tuple[Architecture, ...] = (*ROWS, *IMAGES, *SEQUENCES, *TRANSFORMERS)
