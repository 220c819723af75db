"""The worked example: text in, topic out."""

import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "recipes" / "text_topics"


def test_the_example_trains_converts_and_answers(tmp_path, repobuild_cli, served):
    home = tmp_path / "text_topics"
    home.mkdir()
    for file in ("train.py", "model.py", "steps.py", "topics.yaml", "recipe.yaml"):
        shutil.copyfile(EXAMPLE / file, home / file)
    subprocess.run([sys.executable, home / "train.py"], check=True, timeout=200)
    outcome = repobuild_cli(
        "convert", home, "-r", tmp_path / "models", "--trust", "module", "--progress", "quiet"
    )
    assert outcome.status == 0, outcome.err
    assert "expected: topic" in outcome.out
    with served(tmp_path / "models") as server:
        texts = ["The striker reached the goal!", "The bank lost the profit", "The orbit left the planet?"]
        tensor = {"name": "text", "shape": [3, 1], "datatype": "BYTES", "data": texts}
        topic, score = server.infer("text_topics", tensor)["outputs"]
    assert topic["data"] == ["sport", "money", "science"]
    assert all(0.5 < value <= 1 for value in score["data"])
