"""An audit of any model's predictions: whom does it fail, and is that more than chance?

Run it with `python examples/audit_predictions.py`. The table is made up; a CSV of your own goes the same way from the command line:
`evenly audit predictions.csv --client hospital --label came_back --prediction flagged --score risk --sensitive sex,age`.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import evenly


def predictions(rows: int = 6000) -> pd.DataFrame:
    """Patients of twenty hospitals, and a model that offers them a nurse's visit; one hospital codes its wards in its own way."""
    draw = np.random.default_rng(0)
    hospital = draw.integers(1, 21, rows)
    sex, age = draw.choice(["female", "male"], rows), draw.choice(["under 65", "65 and over"], rows, p=[0.6, 0.4])
    need = draw.normal(0, 1.5, rows) + 0.5 * (age == "65 and over")
    came_back = need + draw.logistic(size=rows) > 0
    # The model sees cost instead of need, and less is spent on women; in hospital 7 it hardly sees anything.
    seen = need - 0.6 * (sex == "female") + np.where(hospital == 7, 5.0, 0.8) * draw.normal(size=rows)
    risk = 1 / (1 + np.exp(-seen))
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
    found = evenly.audit(
        predictions(),
        client="hospital",
        label="came_back",
        prediction="flagged",
        score="risk",
        sensitive=["sex", "age"],
        favourable="yes",  # a visit is what people want
        unprivileged={"sex": "female", "age": "65 and over"},  # named before looking
        name="nurse visits",
    )
    for sentence in found.sentences:
        print("-", sentence)
    print("\nServed worst:")
    print(found.client_table.head(3).round(2).to_string())
    print("\nOf the people who came back, the model had flagged (%):")
    print(found.group_table["tpr"].round(1).to_string())
    with tempfile.TemporaryDirectory() as folder:
        files = sorted(path.name for path in found.write(Path(folder) / "audit").iterdir())
    print("\nfiles:", ", ".join(files))


if __name__ == "__main__":
    main()
