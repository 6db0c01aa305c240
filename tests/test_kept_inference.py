"""What is kept of clients that choose their group, and how it is shown."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

import kept_inference

GROUP = np.array([0, 0, 1, 1])


def comparison(*choices: list[list[int]]) -> Any:
    """One method; for each seed, what four clients of two groups choose before the first round and after two and four."""
    cohort = np.array([[0, 1], [0, 2], [1, 2], [1, 3]])
    traces = [SimpleNamespace(rounds=np.array([0, 2, 4]), choice=np.array(choice), cohort=cohort) for choice in choices]
    runs = [SimpleNamespace(trace=trace) for trace in traces]
    return cast(Any, SimpleNamespace(federation=SimpleNamespace(client_group=GROUP), labels=["m"], of=lambda label: runs))


def test_shares_are_of_all_clients_and_of_those_that_voted_last():
    first = [[0, 0, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1]]
    second = [[0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]]
    found = list(kept_inference.course(comparison(first, second)))
    assert [one["round"] for one in found] == [2, 4]  # before the first round there is nothing to tell apart
    assert found[0]["all"] == pytest.approx([62.5, np.std([50, 75], ddof=1)])
    assert found[0]["voted"] == [100.0, 0.0]  # clients 0 and 2
    assert found[1]["voted"] == pytest.approx([50.0, np.std([100, 0], ddof=1)])  # clients 1 and 3


def test_the_table_has_a_row_for_everybody_and_one_for_the_last_round():
    course = list(kept_inference.course(comparison([[0, 0, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1]])))
    kept = json.loads(json.dumps({"course": course, "seeds": 1}))
    assert kept_inference.table(kept).splitlines() == [
        "| method | clients | 2 | 4 |",
        "| --- | --- | ---: | ---: |",
        "| `m` | all | 50.0 | 75.0 |",
        "|  | of the last round | 100.0 | 100.0 |",
    ]
