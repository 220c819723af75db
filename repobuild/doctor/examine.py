"""The whole examination, in the order in which it is shown."""

from __future__ import annotations

from collections.abc import Iterator

from repobuild.doctor import machine, packages
from repobuild.doctor.interface import Finding
from repobuild.doctor.sandbox import sandbox_finding


def examine() -> Iterator[Finding]:
    """Look at everything that ``repobuild convert`` needs; changes nothing, takes some seconds."""
    yield machine.python_finding()
    yield machine.platform_finding()
    yield from packages.package_findings()
    yield from packages.pair_findings()
    yield from packages.import_findings()
    yield from packages.plugin_findings()
    yield sandbox_finding()
    yield machine.memory_finding()
    yield from machine.disk_findings()
    yield machine.files_finding()
    yield machine.port_finding()
    yield machine.gpu_finding()
