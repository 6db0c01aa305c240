"""Your own table: from a pandas DataFrame to two trained models, their metrics and predictions.

Run it with `python examples/own_data.py`.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import evenly
from evenly.metrics import accuracy
from evenly.saved_models import from_trace
from evenly.simulate import simulate


def hospital_stays(rows: int = 3000) -> pd.DataFrame:
    """Return synthetic patients of twelve hospitals, with missing values. The label is whether they
    came back within a month.
    """
    draw = np.random.default_rng(0)
    hospital = draw.integers(1, 13, rows)
    frame = pd.DataFrame(
        {
            "hospital": hospital,
            "sex": draw.choice(["female", "male"], rows),
            "age": draw.normal(60, 15, rows).round(),
            "ward": draw.choice(["surgery", "heart", "other"], rows),
            "emergency": draw.random(rows) < 0.3,
        }
    )
    # In three of the hospitals an emergency means the opposite of what it means elsewhere.
    risk = (
        0.04 * (frame["age"] - 60)
        + np.where(hospital <= 3, -3.0, 3.0) * (frame["emergency"] - 0.3)
        + 0.5 * (frame["sex"] == "male")
    )
    frame["returned"] = np.where(risk + draw.logistic(size=rows) > 0, "yes", "no")
    frame.loc[draw.random(rows) < 0.1, "age"] = None
    frame.loc[draw.random(rows) < 0.1, "ward"] = None
    return frame


def main() -> None:
    table = hospital_stays()
    federation = evenly.Federation.from_frame(
        table, client="hospital", label="returned", sensitive="sex"
    )
    assert federation.encoder is not None
    print("features:", ", ".join(federation.encoder.features))

    task = evenly.models.Softmax(features=federation.x.shape[1], classes=len(federation.labels))
    for text in ("fedavg", "q-fedavg(q=5)"):
        [trace] = simulate(
            task, federation, [evenly.algorithm(f"{text}+full", learning_rate=0.05)], rounds=100
        )
        metrics = evenly.final_metrics(trace, "test")
        # [sexes, labels, outcomes] on all test rows, after the last round
        counts = trace.tables[-1, 2].sum(0)
        groups = dict(zip(federation.groups, 100 * accuracy(counts[:, None]), strict=True))
        print(
            f"{text:14} average {metrics['average']:.1f} %, worst hospital {metrics['min']:.1f} %,"
            f" std {metrics['std']:.1f} %;",
            end=" ",
        )
        print(", ".join(f"{name} {value:.1f} %" for name, value in groups.items()))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        evenly.save(from_trace(trace, task, federation), path)
        model = evenly.load(path)
    new = pd.DataFrame(
        {"age": [80, None], "ward": ["heart", "a ward never seen"], "emergency": [True, False]}
    )
    print(
        "new patients come back:",
        ", ".join(model.predict(new)),
        "with probabilities",
        model.probabilities(new)[:, 1].round(2),
    )


if __name__ == "__main__":
    main()
