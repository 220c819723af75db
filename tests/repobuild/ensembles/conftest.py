"""A toy ensemble: texts to numbers, numbers to a label; python steps only, so that it builds in a second."""

import copy
import textwrap
from pathlib import Path

import pytest
from ruamel.yaml import YAML

SPLIT = """
    import numpy as np

    def run(inputs, parameters):
        lines = [item.decode() for item in inputs["TEXT"].ravel()]
        ids = np.zeros((len(lines), parameters["length"]), dtype=np.int64)
        for row, line in enumerate(lines):
            for column, word in enumerate(line.split()[: parameters["length"]]):
                ids[row, column] = len(word)
        return {"ids": ids}
"""
LABEL = """
    import numpy as np

    def run(inputs):
        total = inputs["ids"].sum(axis=1)
        return {"label": np.array([["long" if t > 10 else "short"] for t in total], dtype=object)}
"""
TEXTS = [
    "the quick brown fox",
    "hi",
    "a b c",
    "international relations",
    "na\u00efve caf\u00e9 \u65e5\u672c",
    "",
]
SPLIT_STEP = {
    "name": "split",
    "python": {
        "file": "split.py",
        "inputs": [{"name": "TEXT", "dtype": "BYTES", "dims": [1]}],
        "outputs": [{"name": "ids", "dtype": "INT64", "dims": [4]}],
        "parameters": {"length": 4},
    },
}
LABEL_STEP = {
    "name": "label",
    "python": {
        "file": "label.py",
        "inputs": [{"name": "ids", "dtype": "INT64", "dims": [4]}],
        "outputs": [{"name": "label", "dtype": "BYTES", "dims": [1]}],
    },
}
RECIPE = {
    "name": "toy",
    "ensemble": {"steps": [SPLIT_STEP, LABEL_STEP]},
    "samples": "samples.npz",
    "serving": {"max_batch_size": 4},
}


class Toy:
    """A folder with the recipe and its files; change ``recipe`` and ``write`` what is to be different."""

    def __init__(self, home: Path, cli) -> None:
        self.home = home
        self.repository = home / "models"
        self.recipe = copy.deepcopy(RECIPE)
        self._cli = cli
        self.write("split.py", SPLIT)
        self.write("label.py", LABEL)
        self.samples(TEXT=TEXTS)

    @property
    def steps(self) -> list:
        return self.recipe["ensemble"]["steps"]

    def write(self, name: str, text: str) -> None:
        (self.home / name).write_text(textwrap.dedent(text))

    def samples(self, **arrays) -> None:
        import numpy as np

        np.savez(self.home / "samples.npz", **{n: np.array(a) for n, a in arrays.items()})

    def save(self) -> Path:
        file = self.home / "recipe.yaml"
        with file.open("w") as stream:
            YAML(typ="safe", pure=True).dump(self.recipe, stream)
        return file

    def run(self, command: str, *words):
        return self._cli(command, self.save(), *words)

    def build(self, *words, trust: str = "module"):
        return self.run("convert", "-r", self.repository, "--trust", trust, "--progress", "quiet", *words)

    def refused(self, code: str, *words, trust: str = "module") -> str:
        """The error text of a build that must stop, and must leave nothing behind."""
        before = sorted(self.repository.rglob("*")) if self.repository.exists() else None
        outcome = self.build(*words, trust=trust)
        assert outcome.status != 0, outcome.out
        assert f"error[{code}]" in outcome.err, outcome.err
        after = sorted(self.repository.rglob("*")) if self.repository.exists() else None
        assert before == after
        return outcome.err

    def built(self, *words) -> str:
        outcome = self.build(*words)
        assert outcome.status == 0, outcome.err
        return outcome.out

    def versions(self) -> dict[str, list[int]]:
        return {
            m.name: sorted(int(v.name) for v in m.iterdir() if v.name.isdigit())
            for m in sorted(self.repository.iterdir())
        }


@pytest.fixture
def toy(tmp_path, repobuild_cli):
    return Toy(tmp_path, repobuild_cli)
