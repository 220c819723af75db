"""Completing a config by the model's own ``auto_complete_config``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from repobuild_serve.backends.python.child import START
from repobuild_serve.backends.python.environment import interpreter
from repobuild_serve.config.printing import config_document
from repobuild_serve.errors import Code, LoadError
from repobuild_serve.python_child.channel import Channel

_SECONDS = 60 * 10
