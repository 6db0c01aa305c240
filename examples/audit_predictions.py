"""Audit the predictions of any model: which clients and groups does it serve worst, and is that
more than chance?

Run it with `python examples/audit_predictions.py`. The table is synthetic. For a CSV file of your
own, use the command line: `evenly audit predictions.csv --client hospital --label came_back
--prediction flagged --score risk --sensitive sex,age`.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import evenly


def predictions(rows: int = 6000) -> pd.DataFrame:
    """Return patients of twenty hospitals with the decisions of a model that offers nurse visits.
    It works badly in hospital 7.
    """
    draw = np.random.default_rng(0)
    hospital = draw.integers(1, 21, rows)
    sex, age = (
        draw.choice(["female", "male"], rows),
        draw.choice(["under 65", "65 and over"], rows, p=[0.6, 0.4]),
    )
    need = draw.normal(0, 1.5, rows) + 0.5 * (age == "65 and over")
    came_back = need + draw.logistic(size=rows) > 0
    # The model predicts cost instead of need, and less is spent on women. In hospital 7 its inputs
    # are mostly noise.
    cost = (
        need - 0.6 * (sex == "female") + np.where(hospital == 7, 5.0, 0.8) * draw.normal(size=rows)
    )
    risk = 1 / (1 + np.exp(-cost))
    return pd.DataFrame(
        {
            "hospital": [f"hospital {k}" for k in hospital],
            "sex": sex,
            "age": age,
            "came_back": np.where(came_back, "yes", "no"),
            "flagged": np.where(risk > 0.5, "yes", "no"),
            "risk": risk.round(4),
        }
    )


def main() -> None:
    result = evenly.audit(
        predictions(),
        client="hospital",
        label="came_back",
        prediction="flagged",
        score="risk",
        sensitive=["sex", "age"],
        favourable="yes",  # a visit helps patients
        unprivileged={"sex": "female", "age": "65 and over"},  # chosen before the results are known
        name="nurse visits",
    )
    for sentence in result.sentences:
        print("-", sentence)
    print("\nServed worst:")
    print(result.client_table.head(3).round(2).to_string())
    print("\nOf the people who came back, the model had flagged (%):")
    print(result.group_table["tpr"].round(1).to_string())
    with tempfile.TemporaryDirectory() as folder:
        files = sorted(path.name for path in result.write(Path(folder) / "audit").iterdir())
    print("\nfiles:", ", ".join(files))


if __name__ == "__main__":
    main()
