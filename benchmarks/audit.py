"""A million predictions audited: the whole command beside fairlearn's MetricFrame on the same rows,
and whether both agree.

Run it with `python benchmarks/audit.py`; it makes the rows, times both and prints the ratio. The
command is timed from start to end: Python, reading the CSV, counts, intervals, scores, the page.
fairlearn is timed in a warm process, with the table read already, and computes four rates of fewer
groupings without intervals; that is in its favour.
"""

import argparse
import csv
import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from machine import description, ticks, versions, wait_for_quiet
from machine import others as share_of_others

TARGET = 10.0  # seconds
RATES = ("accuracy", "selection_rate", "tpr", "fpr")
SENSITIVE = ("sex", "race")
SAME = 1e-9


def made_up(rows: int, clients: int) -> pd.DataFrame:
    """People of many hospitals with two sensitive attributes, a score and a decision."""
    draw = np.random.default_rng(0)
    client = draw.integers(0, clients, rows)
    sex, race = draw.integers(0, 2, rows), draw.choice(5, rows, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    need = draw.normal(0, 1.5, rows)
    score = 1 / (
        1
        + np.exp(
            -(
                draw.normal(1, 0.3, clients)[client] * need
                - 0.5 * (sex == 0)
                + draw.normal(size=rows)
            )
        )
    )
    return pd.DataFrame(
        {
            "hospital": np.array([f"hospital {k:02}" for k in range(clients)])[client],
            "sex": np.array(["female", "male"])[sex],
            "race": np.array(list("ABCDE"))[race],
            "y": (need + draw.logistic(size=rows) > 0).astype(int),
            "p": (score > 0.5).astype(int),
            "s": score.round(6),
        }
    )


class Took(NamedTuple):
    """Seconds by the clock, and of the processors; on a busy machine only the latter say
    something.
    """

    wall: float
    cpu: float


def by_command(table: Path, folder: Path) -> Took:
    """What the whole command takes."""
    asked = [
        "--client",
        "hospital",
        "--label",
        "y",
        "--prediction",
        "p",
        "--score",
        "s",
        "--sensitive",
        "sex,race",
        "--min-cell",
        "0",
    ]
    command = [
        sys.executable,
        "-c",
        "from evenly.cli import main; main()",
        "audit",
        str(table),
        *asked,
        "--out",
        str(folder),
    ]
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(
        time.perf_counter() - start,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )


def by_fairlearn(frame: pd.DataFrame) -> tuple[Took, dict[tuple[str, str], float]]:
    """What it takes to find the rates of clients, of both attributes and of their intersections,
    and the rates by group and name.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fairlearn, sklearn = (
            importlib.import_module("fairlearn.metrics"),
            importlib.import_module("sklearn.metrics"),
        )
    rates = (
        sklearn.accuracy_score,
        fairlearn.selection_rate,
        fairlearn.true_positive_rate,
        fairlearn.false_positive_rate,
    )
    found, start, before = {}, time.perf_counter(), time.process_time()
    for columns in (["hospital"], ["sex"], ["race"], [*SENSITIVE]):
        table = fairlearn.MetricFrame(
            metrics=dict(zip(RATES, rates, strict=True)),
            y_true=frame["y"],
            y_pred=frame["p"],
            sensitive_features=frame[columns],
        ).by_group
        for values, row in table.iterrows():
            name = ", ".join(
                f"{c}={v}"
                for c, v in zip(columns, values if len(columns) > 1 else (values,), strict=True)
            )
            found |= {(name.removeprefix("hospital="), rate): float(row[rate]) for rate in RATES}
    return Took(time.perf_counter() - start, time.process_time() - before), found


def largest_difference(folder: Path, theirs: dict[tuple[str, str], float]) -> tuple[int, float]:
    """How many rates both have, and how far they are apart at most."""
    with open(folder / "audit.csv", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["level"] in ("client", "group", "intersection")
        ]
    ours = {
        (row["name"], row["metric"]): float(row["value"]) / 100
        for row in rows
        if row["metric"] in RATES
    }
    shared = ours.keys() & theirs.keys()
    return len(shared), max(abs(ours[key] - theirs[key]) for key in shared)


def measured(rows: int, clients: int, repeats: int, patience: float) -> dict[str, Any]:
    frame = made_up(rows, clients)
    with tempfile.TemporaryDirectory() as place:
        table, folder = Path(place) / "predictions.csv", Path(place) / "audit"
        frame.to_csv(table, index=False)
        ours, theirs, busy = [], [], []
        for _ in range(repeats):  # in turns, so that both see the same machine
            wait_for_quiet(patience)
            before = ticks()
            ours.append(by_command(table, folder))
            took, found = by_fairlearn(frame)
            theirs.append(took)
            busy.append(share_of_others(before, ticks()))
        compared, apart = largest_difference(folder, found)
    return {
        "rows": rows,
        "clients": clients,
        "audit": {
            "seconds": [took.wall for took in ours],
            "cpu_seconds": [took.cpu for took in ours],
        },
        "fairlearn": {
            "seconds": [took.wall for took in theirs],
            "cpu_seconds": [took.cpu for took in theirs],
        },
        "ratio": float(
            np.median([took.wall for took in theirs]) / np.median([took.wall for took in ours])
        ),
        "rates_compared": compared,
        "largest_difference": apart,
        "busy": max(busy),  # of the machine, this script included
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--patience",
        type=float,
        default=20.0,
        help="seconds to wait for a quiet machine before each repetition",
    )
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    found = measured(given.rows, given.clients, given.repeats, given.patience)
    (ours, own), (theirs, other) = (
        [float(np.median(found[who][kind])) for kind in ("seconds", "cpu_seconds")]
        for who in ("audit", "fairlearn")
    )
    print(
        f"evenly audit, the whole command: {ours:.2f} s, {own:.2f} s of processor time (target: at"
        f" most {TARGET:.0f} s)"
    )
    print(
        f"fairlearn MetricFrame, four rates without intervals: {theirs:.2f} s, {other:.2f} s of"
        " processor time"
    )
    print(
        f"ratio {found['ratio']:.1f}; the machine was {100 * found['busy']:.0f} % busy with this"
        " and everything else"
    )
    print(
        f"{found['rates_compared']} rates in both differ by at most"
        f" {found['largest_difference']:.1e}"
    )
    if given.json:
        command = f"python benchmarks/audit.py --rows {given.rows} --repeats {given.repeats}"
        about = {"command": command, "date": time.strftime("%Y-%m-%d"), "machine": description()}
        about |= {"versions": versions("evenly", "numpy", "pandas", "pyarrow", "fairlearn")}
        given.json.write_text(json.dumps(about | found, indent=1) + "\n")
    if found["largest_difference"] > SAME:
        raise SystemExit("The two do not agree.")


if __name__ == "__main__":
    main()
