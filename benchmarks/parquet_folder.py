"""Memory of training on a folder of Parquet files that is streamed: clients, labels and row numbers
are in memory, features in a mapped file.

    python benchmarks/parquet_folder.py [--rows N] [--clients N] [--rounds N] [--json FILE]

The folder is drawn first, some rows at a time: 20 columns, of which one names the client, one is
the label, one is sensitive, three hold words and fourteen hold numbers. Both lines are then
measured in processes of their own, because a peak never falls:

- `program`: the same columns with two rows for each client, for as many rounds: what Python, JAX,
  Arrow, the compiled program and the model take.
- `folder`: all rows. The peak contains those pages of the mapped file that were read, which the
  system takes back when memory is short; `anonymous` is the largest sample without them.

It ends with an error if the folder takes more than 2 GiB beyond the program.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import machine
import numpy as np

NUMBERS, WORDS = 14, 3  # columns of features
FILE_ROWS = 500_000
LIMIT_MEGABYTES = 2048
ROLES = {"client": "site", "label": "approved", "sensitive": "sex"}


def draw_folder(folder: Path, rows: int, clients: int) -> None:
    """Write a folder of Parquet files, one file after another. Rows are sorted by client."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    draw = np.random.default_rng(0)
    rule = draw.normal(size=NUMBERS)
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        own = np.arange(start, min(start + FILE_ROWS, rows)) * clients // rows
        x = draw.normal(size=(len(own), NUMBERS)) + 0.3 * np.sin(own)[:, None]
        group = draw.random(len(own)) < 0.4
        chance = 1 / (1 + np.exp(0.8 * group - x @ rule))
        columns: dict[str, Any] = {
            "site": own,
            "approved": np.where(draw.random(len(own)) < chance, "yes", "no"),
            "sex": np.where(group, "f", "m"),
            **{f"number {i}": x[:, i] for i in range(NUMBERS)},
            **{f"word {i}": draw.choice(["a", "b", "c", "d"], len(own)) for i in range(WORDS)},
        }
        parquet.write_table(pa.table(columns), folder / f"part-{number:04d}.parquet")


class AnonymousMemory:
    """The largest sample of this process's memory that is not a page of a file, in megabytes."""

    def __init__(self) -> None:
        self.most, self._ended = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            status = Path("/proc/self/status")
            found = re.search(r"RssAnon:\s+(\d+)", status.read_text()) if status.exists() else None
            self.most = max(self.most, int(found[1]) / 1024 if found else 0.0)

    def end(self) -> float:
        self._ended.set()
        self._thread.join()
        return self.most


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    """Train FedAvg on the folder in this process."""
    from evenly import Federation, algorithm, models
    from evenly.simulate import simulate

    anonymous, began = AnonymousMemory(), time.perf_counter()
    federation = Federation.from_frame(folder, **ROLES)
    loaded = time.perf_counter()
    task = models.Softmax(features=federation.x.shape[1], classes=2)
    method = algorithm("fedavg", learning_rate=0.1, batch_size=100)
    [trace] = simulate(task, federation, [method], rounds)
    tables = trace.tables[-1, 2].sum((0, 1))  # test rows by label and prediction
    return {
        "rows": len(federation.y),
        "clients": federation.clients,
        "features": federation.x.shape[1],
        "features_megabytes": round(federation.x.nbytes / 2**20, 1),
        "mapped": isinstance(federation.x, np.memmap),
        "loading_seconds": round(loaded - began, 1),
        "training_seconds": round(time.perf_counter() - loaded, 1),
        "rounds": rounds,
        "test_accuracy": round(100 * float(np.trace(tables) / tables.sum()), 2),
        "peak_megabytes": round(machine.peak_megabytes()),
        "anonymous_megabytes": round(anonymous.end()),
    }


def elsewhere(folder: Path, rounds: int) -> dict[str, Any]:
    """The same in a new process."""
    command = [sys.executable, __file__, "--folder", str(folder), "--rounds", str(rounds)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(ended.stderr[-2000:])
    return json.loads(ended.stdout.splitlines()[-1])


def sentence(name: str, line: dict[str, Any]) -> str:
    return (
        f"{name:8} {line['rows']:>11,} rows, {line['clients']:,} clients: peak"
        f" {line['peak_megabytes']:,} MB ({line['anonymous_megabytes']:,} anonymous), features"
        f" {line['features_megabytes']:,} MB{' mapped' if line['mapped'] else ''},"
        f" {line['loading_seconds']} s loading, {line['training_seconds']} s for {line['rounds']}"
        f" rounds and two evaluations, test accuracy {line['test_accuracy']} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the memory of a streamed folder.")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    given = parser.parse_args()
    if given.folder:
        print(json.dumps(measure(given.folder, given.rounds)))
        return
    lines = {}
    for name, rows in (("program", 2 * given.clients), ("folder", given.rows)):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            draw_folder(Path(folder), rows, given.clients)
            lines[name] = elsewhere(Path(folder), given.rounds)
        print(sentence(name, lines[name]), flush=True)
    found = {
        "command": f"python benchmarks/parquet_folder.py --rows {given.rows} --clients"
        f" {given.clients} --rounds {given.rounds}",
        "date": datetime.date.today().isoformat(),
        "machine": machine.description(),
        "versions": machine.versions("evenly", "jax", "jaxlib", "numpy", "pyarrow"),
        "limit_megabytes": LIMIT_MEGABYTES,
        "lines": lines,
    }
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    beyond = lines["folder"]["peak_megabytes"] - lines["program"]["peak_megabytes"]
    print(f"{beyond:,} MB beyond the program")
    if beyond > LIMIT_MEGABYTES:
        sys.exit(f"The folder took more than {LIMIT_MEGABYTES} MB beyond the program.")


if __name__ == "__main__":
    main()
