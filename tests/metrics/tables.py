"""Count tables for tests of group metrics, and the rows that they count."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

# The worked example of the specification: TP = (30, 60), FN = (20, 20), FP = (10, 30), TN = (40,
# 40).
WORKED = np.array([[[40, 10], [20, 30]], [[40, 30], [20, 60]]])


def random_table(seed: int, groups: int = 2, labels: int = 2, *, least: int = 1) -> np.ndarray:
    """[groups, labels, outcomes] with `least` to 40 rows in every cell."""
    return np.random.default_rng(seed).integers(least, 40, (groups, labels, labels))


def as_rows(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group, label and outcome of every row that a table counts."""
    cells = np.argwhere(table >= 0)
    group, label, outcome = np.repeat(cells, table.ravel(), axis=0).T
    return group, label, outcome


def tables(groups: int = 3, labels: int = 2, most: int = 9) -> st.SearchStrategy[np.ndarray]:
    """Tables with many empty cells, so that undefined rates are common."""
    return arrays(np.int64, (groups, labels, labels), elements=st.integers(0, most) | st.just(0))
