"""A small table of patients in hospitals, as pandas, Polars and CSV."""

import numpy as np
import pandas as pd

COLUMNS = {
    "client": "hospital",
    "label": "readmitted",
    "sensitive": ["sex"],
    "drop": ["id"],
}

HOSPITALS = ["North", "South", "East", "West"]


def patients(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "id": [f"p{i:05d}" for i in range(rows)],
            "hospital": draw.choice(
                ["North", "South", "East", "West"], rows, p=[0.4, 0.3, 0.2, 0.1]
            ),
            "age": draw.normal(60, 12, rows).round(1),
            "ward": draw.choice(["surgery", "medicine", "rare"], rows, p=[0.5, 0.45, 0.05]),
            "sex": draw.choice(["female", "male"], rows),
        }
    )
    risk = (table["age"] - 60) / 12 + (table["sex"] == "female") * 0.5 + draw.normal(0, 1, rows)
    return table.assign(readmitted=np.where(risk > 0.3, "yes", "no"))
