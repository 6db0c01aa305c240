"""Made-up predictions with known unfairness, for the tests of audits."""

from typing import Any

import numpy as np
import pandas as pd


def predictions(rows: int = 3000, clients: int = 12, seed: int = 0) -> Any:
    """Women, and people of race B, are predicted 1 less often than they deserve; the first client
    is served worst.
    """
    draw = np.random.default_rng(seed)
    client = draw.integers(0, clients, rows)
    sex, race = (
        draw.choice(["female", "male"], rows),
        draw.choice(["A", "B", "C"], rows, p=[0.6, 0.3, 0.1]),
    )
    need = draw.normal(0, 1.5, rows)
    label = (need + draw.logistic(size=rows) > 0).astype(int)
    noise = np.where(client == 0, 6.0, 1.0)
    score = 1 / (
        1
        + np.exp(
            -(need - 0.7 * (sex == "female") - 0.5 * (race == "B") + noise * draw.normal(size=rows))
        )
    )
    return pd.DataFrame(
        {
            "hospital": [f"hospital {k:02}" for k in client],
            "sex": sex,
            "race": race,
            "y": label,
            "p": (score > 0.5).astype(int),
            "s": score.round(4),
        }
    )


WHO = {"client": "hospital", "label": "y", "prediction": "p", "sensitive": ["sex", "race"]}
