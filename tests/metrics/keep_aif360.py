"""Write aif360.json anew, where AIF360 is installed: `python -m tests.metrics.keep_aif360`.

AIF360 brings a plotting library with it, so it is not among the packages for development; its
figures are kept instead.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from aif360.sklearn import metrics as aif360
from sklearn.metrics import accuracy_score, f1_score

from tests.metrics.tables import as_rows, random_table

SEEDS, UNPRIVILEGED = range(8), (0, 2)


def main() -> None:
    cases = [
        {
            "seed": s,
            "rows": int(random_table(s, groups=4).sum()),
            "aif360": figures(random_table(s, groups=4)),
        }
        for s in SEEDS
    ]
    kept = {"made by": f"aif360 {version('aif360')}", "cases": cases}
    (Path(__file__).parent / "aif360.json").write_text(json.dumps(kept, indent=1) + "\n")


def figures(table: np.ndarray) -> dict[str, float]:
    """Groups 0 and 2 are unprivileged; label 1 is favourable."""
    group, label, outcome = as_rows(table)
    side = pd.Index(np.where(np.isin(group, UNPRIVILEGED), 0, 1), name="side")
    truth = pd.Series(label, index=side)
    two_sides = {"prot_attr": "side", "priv_group": 1}
    return {
        "spd": float(
            aif360.statistical_parity_difference(truth, outcome, pos_label=1, **two_sides)
        ),
        "eod": float(aif360.equal_opportunity_difference(truth, outcome, pos_label=1, **two_sides)),
        "aod": float(aif360.average_odds_difference(truth, outcome, pos_label=1, **two_sides)),
        "acc_diff": float(aif360.difference(accuracy_score, truth, outcome, **two_sides)),
        "f1_diff": float(aif360.difference(f1_score, truth, outcome, **two_sides)),
    }


if __name__ == "__main__":
    main()
