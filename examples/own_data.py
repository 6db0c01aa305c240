"""Your own table: from a pandas DataFrame to two trained models, their metrics and predictions.

Run it with `python examples/own_data.py`.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from evenly.algorithms import algorithm
from evenly.federation import Federation
from evenly.metrics import accuracy, examples, measure
from evenly.models import Softmax
from evenly.saving import from_trace, load, save
from evenly.simulate import simulate


def hospital_stays(rows: int = 3000) -> pd.DataFrame:
    """Patients of twelve hospitals: whether they came back within a month. Made up, with gaps."""
    draw = np.random.default_rng(0)
    hospital = draw.integers(1, 13, rows)
    frame = pd.DataFrame(
        {
            "hospital": hospital,
            "sex": draw.choice(["female", "male"], rows),
            "age": draw.normal(60, 15, rows).round(),
            "ward": draw.choice(["surgery", "heart", "other", None], rows),
            "emergency": draw.random(rows) < 0.3,
        }
    )
    risk = 0.04 * (frame["age"] - 60) + 1.5 * frame["emergency"] + np.where(hospital <= 3, -2.0, 0.5) * (frame["sex"] == "male")
    frame["returned"] = np.where(risk + draw.logistic(size=rows) > 0.5, "yes", "no")
    frame.loc[draw.random(rows) < 0.1, "age"] = np.nan
    return frame


def main() -> None:
    table = hospital_stays()
    federation = Federation.from_frame(table, client="hospital", label="returned", sensitive="sex")
    assert federation.encoder is not None
    print("features:", ", ".join(federation.encoder.features))

    task = Softmax(features=federation.x.shape[1], classes=len(federation.labels))
    for text in ("fedavg", "q-fedavg(q=2)"):
        [trace] = simulate(task, federation, [algorithm(f"{text}+full", learning_rate=0.05)], rounds=30)
        tables = trace.tables[-1, 2]  # [hospitals, sexes, labels, outcomes] on test rows, after the last round
        found = measure(accuracy(tables), examples(tables))
        groups = dict(zip(federation.groups, 100 * accuracy(tables.sum(0)[:, None]), strict=True))
        print(f"{text:14} average {found['average']:.1f} %, worst hospital {found['min']:.1f} %, std {found['std']:.1f} %;", end=" ")
        print(", ".join(f"{name} {value:.1f} %" for name, value in groups.items()))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        save(from_trace(trace, task, federation), path)
        model = load(path)
    new = pd.DataFrame({"age": [80, None], "ward": ["heart", "a ward never seen"], "emergency": [True, False]})
    print("new patients come back:", ", ".join(model.predict(new)), "with probabilities", model.probabilities(new)[:, 1].round(2))


if __name__ == "__main__":
    main()
