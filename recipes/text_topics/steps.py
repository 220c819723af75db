"""What comes before and after the model, as it was written in the notebook."""

import re
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]
LABELS = ["money", "science", "sport"]


def words(text: str) -> list[str]:
    """The words of a text."""
    return re.findall(r"[a-z]+", text.lower())


def tokenize(inputs: Arrays, parameters: dict[str, int]) -> Arrays:
    """``text`` BYTES [rows, 1] to ``ids`` INT64 [rows, length]: 0 fills up, 1 is any unknown word."""
    length = parameters["length"]
    lines = [item.decode("utf-8") for item in inputs["text"].ravel()]
    ids = np.zeros((len(lines), length), dtype=np.int64)
    for row, line in enumerate(lines):
        found = [vocabulary().get(word, 1) for word in words(line)[:length]]
        ids[row, : len(found)] = found
    return {"ids": ids}


def label(inputs: Arrays) -> Arrays:
    """``logits`` FP32 [rows, 3] to the best ``topic`` BYTES [rows, 1] and its ``score`` FP32 [rows, 1]."""
    logits = inputs["logits"]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    best = shares.argmax(axis=1)
    topic = np.array([LABELS[index] for index in best], dtype=object)[:, None]
    return {"topic": topic, "score": shares.max(axis=1, keepdims=True)}


_VOCABULARY: dict[str, int] = {}


def vocabulary() -> dict[str, int]:
    """Numbers of the known words; the file lies beside this one, here and on the server."""
    if not _VOCABULARY:
        lines = (Path(__file__).parent / "vocabulary.txt").read_text(encoding="utf-8").split()
        _VOCABULARY.update({word: index for index, word in enumerate(lines, start=2)})
    return _VOCABULARY
