"""The life cycle of models: which there are, in which state, and how they come and go.

``directory`` answers what there is, ``control`` changes it, ``loading`` does the part that takes time, on
threads. Everything else helps those.
"""

from repobuild_serve.lifecycle.control import Control
from repobuild_serve.lifecycle.directory import Models
from repobuild_serve.lifecycle.options import ControlOptions, Mode
from repobuild_serve.lifecycle.polling import Poller

__all__ = ["Control", "ControlOptions", "Mode", "Models", "Poller"]
