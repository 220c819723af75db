"""Trains the example's model; writes vocabulary, weights, sample texts and the expected answers."""

from pathlib import Path

import numpy as np
import torch
from model import Topics
from steps import LABELS, words
from torch import nn

HERE = Path(__file__).parent
LENGTH = 12
NOUNS = {
    "sport": ["match", "goal", "team", "coach", "league", "striker", "season"],
    "money": ["market", "shares", "bank", "profit", "taxes", "budget", "loan"],
    "science": ["planet", "cells", "energy", "orbit", "theory", "protein", "data"],
}
VERBS = ["won", "lost", "changed", "surprised", "reached", "left"]


def texts(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Made-up headlines and their topics."""
    random = np.random.default_rng(seed)
    found, topics = [], []
    for _ in range(count):
        topic = LABELS[random.integers(len(LABELS))]
        one, other = random.choice(NOUNS[topic], 2, replace=False)
        found.append(f"The {one} {random.choice(VERBS)} the {other}{random.choice(['', '!', '?'])}")
        topics.append(topic)
    return found, topics


def encode(lines: list[str], vocabulary: dict[str, int]) -> torch.Tensor:
    """Numbers of the words, 1 for an unknown one, filled up with 0."""
    ids = torch.zeros((len(lines), LENGTH), dtype=torch.int64)
    for row, line in enumerate(lines):
        for column, word in enumerate(words(line)[:LENGTH]):
            ids[row, column] = vocabulary.get(word, 1)
    return ids


def main() -> None:
    """Train, and write everything beside this file."""
    torch.manual_seed(0)
    lines, topics = texts(400, seed=1)
    known = sorted({w for line in lines for w in words(line)})
    (HERE / "vocabulary.txt").write_text("\n".join(known) + "\n", encoding="utf-8")
    vocabulary = {word: index for index, word in enumerate(known, start=2)}
    ids, labels = encode(lines, vocabulary), torch.tensor([LABELS.index(t) for t in topics])
    model = Topics(len(known) + 2, len(LABELS))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(80):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(ids), labels).backward()
        optimizer.step()
    torch.save(model.state_dict(), HERE / "weights.pt")

    given, _ = texts(40, seed=2)
    given[0] = "Nobody knows these words"
    model.eval()
    with torch.no_grad():
        scores = torch.softmax(model(encode(given, vocabulary)), dim=1).numpy()
    np.savez(HERE / "samples.npz", text=np.array(given)[:, None])
    best = np.array([LABELS[i] for i in scores.argmax(axis=1)])
    np.savez(HERE / "expected.npz", topic=best[:, None], score=scores.max(axis=1)[:, None])


if __name__ == "__main__":
    main()
