"""Writes model repositories: configurations as text, programs from ``programs/``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Tensor:
    """An input or output of a configuration; ``wire`` is the wire name of its type."""

    name: str
    wire: str
    dims: tuple[int, ...]
    extra: str = ""

    @property
    def text(self) -> str:
        """As a message in text format."""
        kind = "TYPE_STRING" if self.wire == "BYTES" else f"TYPE_{self.wire}"
        dims = ", ".join(map(str, self.dims))
        return f'{{ name: "{self.name}" data_type: {kind} dims: [ {dims} ] {self.extra} }}'


@dataclass(frozen=True)
class Model:
    """A folder of a repository."""

    name: str
    config: str
    program: str | None = None
    versions: tuple[int, ...] = (1,)
    files: tuple[tuple[str, bytes], ...] = ()

    def write(self, repository: Path) -> None:
        """Make the folder."""
        folder = repository / self.name
        folder.mkdir(parents=True)  # two models of one name are a mistake of the tests
        for version in self.versions:
            (folder / str(version)).mkdir(parents=True)
            if self.program is not None:
                (folder / str(version) / "model.py").write_text(program(self.program), encoding="utf-8")
                # The real server's stub would write bytecode there, which that server takes for a change of the
                # model: it would load it anew although nobody changed it. A file keeps the folder from being made.
                (folder / str(version) / "__pycache__").touch()
        (folder / "config.pbtxt").write_text(self.config, encoding="utf-8")
        for name, data in self.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


def program(name: str) -> str:
    """The text of a model.py."""
    return (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")


def python(
    name: str,
    program_name: str,
    inputs: list[Tensor],
    outputs: list[Tensor],
    *,
    batch: int = 8,
    extra: str = "",
    count: int = 1,
    versions: tuple[int, ...] = (1,),
    files: tuple[tuple[str, bytes], ...] = (),
) -> Model:
    """A model of the Python backend, on the CPU."""
    config = (
        f'backend: "python"\nmax_batch_size: {batch}\n'
        f"input [ {', '.join(entry.text for entry in inputs)} ]\n"
        f"output [ {', '.join(entry.text for entry in outputs)} ]\n"
        f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]\n{extra}\n"
    )
    return Model(name, config, program_name, versions, files)


def identity(
    name: str,
    wire: str = "FP32",
    dims: tuple[int, ...] = (2,),
    *,
    batch: int = 8,
    extra: str = "",
    tensor: str = "",
    versions: tuple[int, ...] = (1,),
) -> Model:
    """IN to OUT; ``tensor`` is added to both."""
    return python(
        name,
        "identity",
        [Tensor("IN", wire, dims, tensor)],
        [Tensor("OUT", wire, dims, tensor)],
        batch=batch,
        extra=extra,
        versions=versions,
    )


@dataclass(frozen=True)
class Step:
    """A step of an ensemble; the maps are from the member's names to the ensemble's."""

    model: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    version: int = -1

    @property
    def text(self) -> str:
        """As a message in text format."""
        maps = [
            f'{label} {{ key: "{key}" value: "{value}" }}'
            for label, entries in (("input_map", self.inputs), ("output_map", self.outputs))
            for key, value in entries.items()
        ]
        name = f'model_name: "{self.model}" ' if self.model else ""
        return f"{{ {name}model_version: {self.version} {' '.join(maps)} }}"


def ensemble(
    name: str,
    inputs: list[Tensor],
    outputs: list[Tensor],
    steps: list[Step],
    *,
    batch: int = 8,
    extra: str = "",
) -> Model:
    """An ensemble."""
    listed = ",\n".join(step.text for step in steps)
    scheduling = f"ensemble_scheduling {{ step [ {listed} ] }}" if steps else "ensemble_scheduling { }"
    config = (
        f'platform: "ensemble"\nmax_batch_size: {batch}\n'
        f"input [ {', '.join(entry.text for entry in inputs)} ]\n"
        f"output [ {', '.join(entry.text for entry in outputs)} ]\n{scheduling}\n{extra}\n"
    )
    return Model(name, config)
