"""Trains the risk model of the example and saves it with its samples beside this file.

A logistic regression says how likely it is that two scores add up to more than 10.
"""

from __future__ import annotations

from pathlib import Path

import joblib
import numpy as np
from sklearn.linear_model import LogisticRegression


def main() -> None:
    """Train, and write ``model.joblib`` and ``samples.npy``."""
    rng = np.random.RandomState(0)
    X = rng.uniform(0, 10, (200, 2))  # noqa: N806 - the name that scikit-learn uses for a matrix of rows
    y = (X[:, 0] + X[:, 1] > 10).astype(int)
    here = Path(__file__).parent
    joblib.dump(LogisticRegression().fit(X, y), here / "model.joblib")
    np.save(here / "samples.npy", X)
    print(f"trained on {len(X)} rows, wrote {here.name}/model.joblib and {here.name}/samples.npy")


if __name__ == "__main__":
    main()
