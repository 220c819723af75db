"""Packages: present, in range, known bad pairs, and whether they import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version

from repobuild.doctor.interface import Finding, State
from repobuild.doctor.versions import Requirement, release_of
from repobuild.errors import EnvironmentLacking
from repobuild.plugins import COMPILERS, RUNNERS, SOURCES

IMPORT_SECONDS = 120.0
RUNTIMES = ("onnxruntime", "onnxruntime-gpu")
RUNTIME_EXTRAS = ("cpu", "gpu")
UNEXAMINED_EXTRAS = ("dev", "bench")
IMPORTS: tuple[tuple[str, str, tuple[str, ...], bool], ...] = (
    ("import: numpy and scikit-learn", "scikit-learn", ("numpy", "scipy", "sklearn.linear_model"), False),
    ("import: converter", "skl2onnx", ("onnx", "skl2onnx"), False),
    ("import: ONNX Runtime", "onnxruntime", ("onnxruntime",), True),
    ("import: client", "tritonclient", ("tritonclient.http", "tritonclient.grpc.model_config_pb2"), True),
    ("import: server", "uvloop", ("repobuild_serve.server",), True),
)
"""Name, package that must be there, modules, and whether every build needs them."""
MATES: tuple[tuple[str, str], ...] = (("1.8", "1.20"), ("1.7", "1.19"), ("1.6", "1.18"))
"""From this scikit-learn on, this skl2onnx is the first that was released after it or for it."""


def installed(name: str) -> str | None:
    """The version of a package, ``None`` when it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def package_findings(lines: Sequence[str] | None = None) -> Iterator[Finding]:
    """One finding a package of this project's metadata, but for the extras that only develop it.

    Args:
        lines: Requirements, by default those of the installed metadata.
    """
    try:
        told = (requires("repobuild") or ()) if lines is None else lines
    except PackageNotFoundError:
        yield Finding(
            "packages", "warn", "repobuild is not installed, so what it needs is not known", "pip install"
        )
        return
    wanted = [Requirement.parse(t) for t in told]
    for item in sorted(wanted, key=lambda r: r.name):
        if item.extra in UNEXAMINED_EXTRAS or item.extra in RUNTIME_EXTRAS:
            continue
        yield _package(item)
    yield _runtime([r for r in wanted if r.extra in RUNTIME_EXTRAS])


def pair_findings(have: Mapping[str, str | None] | None = None) -> Iterator[Finding]:
    """Pairs of packages that are known not to work together, one finding for each that is here.

    Args:
        have: Versions by package, by default those installed.
    """
    names = (*RUNTIMES, "protobuf", "skl2onnx", "scikit-learn")
    seen = {n: installed(n) for n in names} if have is None else have
    both = [f"{n} {seen[n]}" for n in RUNTIMES if seen.get(n)]
    if len(both) > 1:
        yield Finding(
            "pair: two runtimes",
            "warn",
            f"{' and '.join(both)} overwrite each other's files",
            "uninstall both, then install the one that is wanted",
        )
    proto, converter, learn = (seen.get(n) for n in ("protobuf", "skl2onnx", "scikit-learn"))
    if proto and converter and release_of(proto) >= (7,):
        yield Finding(
            "pair: protobuf, skl2onnx",
            "warn",
            f"protobuf {proto} breaks skl2onnx's converter of HistGradientBoosting",
            "pip install 'protobuf<7'",
        )
    if converter and learn:
        mate = next((c for s, c in MATES if release_of(learn) >= release_of(s)), None)
        if mate is not None and release_of(converter) < release_of(mate):
            yield Finding(
                "pair: skl2onnx, scikit-learn",
                "warn",
                f"skl2onnx {converter} is older than scikit-learn {learn}, and may fail on its models",
                f"pip install 'skl2onnx>={mate}'",
            )


def import_findings(seconds: float = IMPORT_SECONDS) -> Iterator[Finding]:
    """Whether what a build imports does import, each in a process of its own: a broken one can crash.

    Args:
        seconds: How long one may take.
    """
    for name, package, modules, needed in IMPORTS:
        if installed(package) is None and package not in RUNTIMES:
            continue
        if package in RUNTIMES and not any(map(installed, RUNTIMES)):
            continue
        yield import_finding(name, modules, seconds, needed=needed)


def import_finding(name: str, modules: Sequence[str], seconds: float, *, needed: bool) -> Finding:
    """Import modules in a new process.

    Args:
        name: Name of the finding.
        modules: The modules, imported in turn.
        seconds: How long it may take.
        needed: Whether every build needs them.
    """
    state: State = "fail" if needed else "warn"
    code = "import sys\nfor name in sys.argv[1:]: __import__(name)"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *modules],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding(name, state, f"not imported within {seconds:.0f} s", "see whether the disk is slow")
    if done.returncode == 0:
        return Finding(name, "ok", ", ".join(modules))
    how = f"exit status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
    last = next(iter(reversed(done.stderr.strip().splitlines())), how)
    return Finding(name, state, last, "install the packages again, in versions made for each other")


def plugin_findings() -> Iterator[Finding]:
    """Whether the installed plug-ins load; those of the project itself are not looked at."""
    for registry in (SOURCES, COMPILERS, RUNNERS):
        for name in registry.names():
            if name in registry.builtin:
                continue
            try:
                registry.load(name)
            except EnvironmentLacking as problem:
                text = problem.evidence[0].text
                yield Finding(f"plug-in: {name}", "warn", text, problem.hint or "")
            except Exception as problem:  # noqa: BLE001 - a plug-in's own code raises anything
                text = f"{type(problem).__name__}: {problem}"
                yield Finding(
                    f"plug-in: {name}", "warn", text, "upgrade or uninstall the package that provides it"
                )
            else:
                yield Finding(f"plug-in: {name}", "ok", f"of {registry.group}")


def _package(item: Requirement) -> Finding:
    have = installed(item.name)
    name = f"package: {item.name}"
    wanted = f" ({item.range})" if item.range else ""
    if have is None and item.extra:
        return Finding(
            name,
            "warn",
            f"not installed; some models need it{wanted}",
            f"pip install 'repobuild[{item.extra}]'",
        )
    if have is None:
        return Finding(name, "fail", f"not installed{wanted}", f"pip install '{item.name}{item.range}'")
    if not item.met_by(have):
        state: State = "warn" if item.extra else "fail"
        return Finding(
            name, state, f"{have} is out of range{wanted}", f"pip install '{item.name}{item.range}'"
        )
    return Finding(name, "ok", f"{have}{wanted}")


def _runtime(wanted: Sequence[Requirement]) -> Finding:
    name = "package: onnxruntime"
    for item in wanted:
        have = installed(item.name)
        if have is not None:
            good = item.met_by(have)
            hint = "" if good else f"pip install '{item.name}{item.range}'"
            return Finding(name, "ok" if good else "fail", f"{item.name} {have} ({item.range})", hint)
    return Finding(
        name, "fail", "neither onnxruntime nor onnxruntime-gpu is installed", "pip install 'repobuild[cpu]'"
    )
