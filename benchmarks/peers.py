"""How fast evenly trains, beside the frameworks and loops that people use instead, and beside a
loop in C.

    # measure, print, and keep the results in benchmarks/results:
    python benchmarks/peers.py synthetic|adult|lenet|all
    # evenly, C, fedjax and PyTorch only; has evenly become slower?
    python benchmarks/peers.py all --short --compare

Every contender is a process of its own (contenders/), peers in environments of their own with
pinned versions, made on first use; what cannot be installed or started is said and left out. They
take turns. Exit status 1: a contender did not learn the same, or with --compare, evenly became
slower. A missed target is said and changes no status. What is trained is in workloads.py, who takes
part in lineup.py.
"""

import argparse
import datetime
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import judging
import lineup
import machine
import measuring
import workloads

from evenly.datasets.files import MissingData

RESULTS = Path(__file__).resolve().parent / "results"
REPEATS, SHORT_REPEATS = 5, 3


def options(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time evenly beside its peers.")
    parser.add_argument("workload", choices=(*workloads.WORKLOADS, "all"))
    parser.add_argument(
        "--short",
        action="store_true",
        help=f"evenly, C, fedjax and PyTorch, {SHORT_REPEATS} repetitions; nothing is kept",
    )
    parser.add_argument(
        "--only",
        help="contenders by name, with commas; evenly always takes part, and nothing is kept",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="with the kept results; exit with 1 if evenly became slower",
    )
    parser.add_argument("--rounds", type=int, help="of a repetition, at most; nothing is kept")
    parser.add_argument(
        "--repeats", type=int, help=f"repetitions of each contender; by default {REPEATS}"
    )
    parser.add_argument(
        "--threads",
        type=int,
        help="of every contender; by default each takes what was faster in a short trial",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=20.0,
        help="seconds to wait for a quiet machine before each repetition",
    )
    parser.add_argument("--json", type=Path, help="a file for the results, or with `all` a folder")
    return parser.parse_args(words)


def measured(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """One workload, with everything that is needed to repeat it."""
    workload = workloads.WORKLOADS[name]
    if given.rounds:
        workload = workload._replace(
            rounds=given.rounds, judged_round=min(given.rounds, workload.judged_round)
        )
    entries = lineup.of(name, set(given.only.split(",")) if given.only else None, short=given.short)
    if given.threads:
        entries = [entry._replace(threads=(given.threads,)) for entry in entries]
    repeats = given.repeats or (SHORT_REPEATS if given.short else REPEATS)
    with tempfile.TemporaryDirectory() as folder:
        found = measuring.measure(workload, entries, repeats, given.patience, Path(folder))
    found = {
        "command": asked(name, given),
        "date": datetime.date.today().isoformat(),
        "machine": machine.description(),
        "versions": found["contenders"]["evenly"]["versions"],
        **found,
    }
    found["targets"] = [target._asdict() for target in judging.targets(found)]
    return found


def asked(name: str, given: argparse.Namespace) -> str:
    """The command with the options that change what is measured."""
    words = [
        f"--{key} {value}"
        for key in ("only", "rounds", "repeats", "threads")
        if (value := getattr(given, key))
    ]
    return " ".join(
        [f"python benchmarks/peers.py {name}", *(["--short"] if given.short else []), *words]
    )


def place(name: str, given: argparse.Namespace) -> Path | None:
    """Where results go: by default they are kept only if nothing was left out of what was asked."""
    if given.json:
        return given.json / f"{name}.json" if given.workload == "all" else given.json
    return (
        None
        if given.short or given.only or given.rounds or given.threads
        else RESULTS / f"{name}.json"
    )


def judged(name: str, given: argparse.Namespace) -> bool:
    """Measure a workload, say what was found and keep it; returns whether nothing is wrong."""
    kept = (
        json.loads((RESULTS / f"{name}.json").read_text())
        if (RESULTS / f"{name}.json").exists()
        else None
    )
    found = measured(name, given)
    print(
        f"\n## {judging.WORDS[name]}\n\n{judging.table(found)}\n\n{judging.sentences(found)}",
        flush=True,
    )
    fine = all(one["agrees"] for one in found["contenders"].values())
    if given.compare and not kept:
        print("There are no kept results to compare with.")
    if given.compare and kept:
        worse = judging.slower(kept, found)
        print(
            "\n".join(worse)
            or f"Not slower than the results of {kept['date']}, "
            f"within a factor of {judging.NOISE:g}."
        )
        fine = fine and not worse
    if path := place(name, given):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
    return fine


def main() -> int:
    given = options()
    names = list(workloads.WORKLOADS) if given.workload == "all" else [given.workload]
    fine = True
    for name in names:
        try:
            fine = judged(name, given) and fine
        except MissingData as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            fine = fine and len(names) > 1
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
