"""Store everything that the program computes and writes, to show later that a change of its layout
changed nothing.

    python -m tools.freeze write before/             # at the reference commit, a few minutes
    python -m tools.freeze write after/              # at the changed commit
    python -m tools.freeze compare before/ after/    # exits with 1 if anything differs
    python -m tools.freeze resume before/            # resume the unfinished folders in before/

`write` stores the traces of every method (one and eight lanes, data on the device and streamed),
the folders of a comparison, a search, a file and an audit, a deployment, everything that `--help`
prints, and two interrupted runs: a killed experiment and a killed deployment. `compare` requires
arrays, plans, results and audits to be identical bit for bit. The words of pages may change, so
only their numbers are compared. Help texts that differ are listed, but are no failure. `resume`
requires that both commits write the same formats: another version refuses unfinished folders.
"""

import argparse
import contextlib
import difflib
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from tests import federations
from tests.flower.grids import NODES, OneProcess
from tests.flower.small import SEEDS, algorithm_of, small, task_of
from tests.simulations import algorithms, task_for
from typer.main import get_command
from typer.testing import CliRunner

from evenly.algorithms import METHODS
from evenly.cli import app
from evenly.flower import first_arrays, strategy
from evenly.flower.clients.jax import app as client_app
from evenly.models import Softmax
from evenly.simulate import simulate
from evenly.types import Trace

LAYOUTS = [(lanes, stream) for lanes in (1, 8) for stream in (False, True)]
CLIENTS, ROUNDS, KILLED = 4, 4, 3
DEPLOYED = [
    "fedavg+parity(p=0.9)+server-adam(learning_rate=0.1)",
    "q-fedavg(q=1)+weighted(clients=3)",
    "fairfed+reweigh",
    "ifca(groups=2)",
]
EXPERIMENT = """
title = "Frozen"
methods = ["fedavg", "q-fedavg(q=[0, 2])", "p-fedavg", "fedsgd"]
rounds = 24
seeds = 2
sampling = "weighted(clients=2)"
evaluate_every = 8
[data]
name = "synthetic"
clients = 4
[training]
learning_rate = 0.1
"""
TABLE = [
    "--data",
    "people.csv",
    "--client",
    "hospital",
    "--label",
    "returned",
    "--sensitive",
    "sex,race",
]
COMMANDS = {
    "compare": [
        "compare",
        *TABLE,
        "--algorithms",
        "fedavg,q-fedavg(q=1),fairfed+reweigh,ifca(groups=2)",
        "--rounds",
        "30",
        "--seeds",
        "2",
    ],
    "tune": ["tune", *TABLE, "--method", "q-fedavg(q=[0.1, 1])", "--rounds", "20", "--seeds", "2"],
    "audit": [
        "audit",
        "predictions.csv",
        "--label",
        "y",
        "--prediction",
        "p",
        "--score",
        "s",
        *TABLE[2:4],
        *TABLE[-2:],
    ],
    "run": ["run", "experiment.toml"],
}
TEXT = {".csv", ".json", ".toml", ".txt", ".md", ".tex"}
RUN_SPECIFIC = re.compile(  # keys of JSON files and columns of tables that no two runs share
    r"\b(seconds|compiling|started|ended|finished|when|time|date|host|folder|command|versions?|python|evenly|jax|numpy|source|id)\b"
)
NUMBER = re.compile(r"[+\u2212-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
VOLATILE = re.compile(
    r"\d+(?:\.\d+)? (?:seconds?|minutes?|s|min|ms)\b|\d{4}-\d\d-\d\d["
    r" T]\d\d:\d\d(?::\d\d)?|(?:python|jax|numpy|evenly|flwr) [\d.]+"
)


def traces() -> Iterator[tuple[str, Trace]]:
    """Yield the traces of every method on a small federation, in every layout that the method
    supports.
    """
    federation = federations.tiny()
    task = Softmax(features=federation.x.shape[1], classes=len(federation.labels))
    for name, method in METHODS.items():
        text = method.example or name
        for lanes, stream in LAYOUTS:
            options = {"seeds": SEEDS, "evaluate_every": 3, "lanes": lanes, "stream": stream}
            with contextlib.suppress(ValueError):  # methods with several models are not streamed
                for k, trace in enumerate(
                    simulate(
                        task_for(name, task, federation), federation, algorithms(text), 6, **options
                    )
                ):
                    yield (
                        f"{name} run {k} lanes {lanes} {'streamed' if stream else 'resident'}",
                        trace,
                    )


def arrays_of(trace: Trace) -> dict[str, np.ndarray]:
    return {
        f"{jax.tree_util.keystr(path)}": np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(trace)
    }


def people(folder: Path) -> None:
    """Write a table, predictions and an experiment."""
    draw = np.random.Generator(np.random.Philox(3))
    n = 900
    who = {
        "hospital": draw.choice(["east", "north", "west", "south", "harbour"], n),
        "sex": draw.choice(["f", "m"], n),
        "race": draw.choice(["a", "b", "c"], n),
    }
    age = draw.normal(60, 12, n).round()
    ill = age + draw.normal(0, 8, n) > 60
    pd.DataFrame(
        {
            **who,
            "age": age,
            "ward": draw.choice(["heart", "surgery"], n),
            "returned": np.where(ill, "yes", "no"),
        }
    ).to_csv(folder / "people.csv", index=False)
    score = np.clip(0.5 + (age - 60) / 60 + draw.normal(0, 0.1, n), 0, 1)
    pd.DataFrame(
        {**who, "y": ill.astype(int), "p": (score > 0.5).astype(int), "s": score.round(4)}
    ).to_csv(folder / "predictions.csv", index=False)
    (folder / "experiment.toml").write_text(EXPERIMENT)


def deploy(text: str, folder: Path, *, until: int = 0) -> dict[str, np.ndarray]:
    """Run a deployment in this process and return its model. `until` ends the server in that round,
    as a kill would.
    """
    answer = client_app(small(CLIENTS), task_of(text))

    def killing(message: Any, context: Any) -> Any:
        if (
            until
            and message.metadata.message_type == "train"
            and any(
                int(record.get("server-round", 0)) == until
                for record in message.content.config_records.values()
            )
        ):
            raise KeyboardInterrupt
        return answer(message, context)

    grid = OneProcess(killing, NODES[:CLIENTS])
    server = strategy(
        algorithm_of(text),
        seeds=SEEDS,
        folder=folder,
        min_available_nodes=CLIENTS,
        min_train_nodes=1,
        introduce=True,
    )
    result = server.start(
        grid, first_arrays(algorithm_of(text), task_of(text), SEEDS), num_rounds=ROUNDS
    )
    return {name: array.numpy() for name, array in result.arrays.items()}


def helps(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    yield (
        " ".join(("evenly", *path)),
        CliRunner().invoke(app, [*path, "--help"], terminal_width=100).output,
    )
    for name, below in getattr(command, "commands", {}).items():
        yield from helps(below, (*path, name))


def execute(words: list[str]) -> None:
    outcome = CliRunner().invoke(app, words)
    if outcome.exit_code:
        raise SystemExit(f"evenly {' '.join(words)}\n{outcome.output}\n{outcome.exception!r}")


def interrupt(folder: Path) -> None:
    """Kill an experiment when it has written checkpoints but not its results."""
    script = (
        "import sys; from evenly.cli import main; from evenly.simulate import checkpoints,"
        " schedule; checkpoints.CHECKPOINT_SECONDS, schedule.LARGEST_BLOCK_ROWS = 0.0, 300; main()"
    )
    words = [sys.executable, "-c", script, "run", "experiment.toml", "--out", "killed"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(folder.glob("checkpoints/*.npz")):
        time.sleep(0.005)
    process.kill()
    process.wait()


def write(out: Path) -> None:
    out.mkdir(parents=True)
    for name, trace in traces():
        np.savez(out / f"trace {name}.npz", **arrays_of(trace))  # pyright: ignore[reportArgumentType]
    print("traces written", flush=True)
    people(out)
    with contextlib.chdir(out):
        for name, words in COMMANDS.items():
            execute([*words, "--out", name])
            print(name, "written", flush=True)
        interrupt(Path("killed"))
        for k, text in enumerate(DEPLOYED):
            np.savez(f"deployed {k}.npz", **deploy(text, Path(f"deployed-{k}")))  # pyright: ignore[reportArgumentType]
            with contextlib.suppress(KeyboardInterrupt):
                deploy(text, Path(f"cut-{k}"), until=KILLED)
    (out / "help.json").write_text(json.dumps(dict(helps(get_command(app))), indent=1))


def resume(before: Path) -> list[str]:
    """Return the differences between the finished folders in `before` and its unfinished ones,
    resumed with this code. It refuses those that were written in other formats.
    """
    differences = []
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / "copy"
        shutil.copytree(before, copy)
        with contextlib.chdir(copy):
            execute(["resume", "killed"])
            differences += folders(copy / "run", copy / "killed", only=("results.csv", "plan.json"))
            for k, text in enumerate(DEPLOYED):
                arrays = deploy(text, Path(f"cut-{k}"))
                with np.load(f"deployed {k}.npz") as expected:
                    differences += [
                        f"resumed deployment of {text}: {name}"
                        for name in expected
                        if expected[name].tobytes() != arrays[name].tobytes()
                    ]
    return differences


def numbers(page: str) -> list[str]:
    """Return the numbers in the text of a page, without times and versions."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.S)
    text = html.unescape(re.sub(r"<[^>]+>", " ", text)).replace("\u00a0", " ")
    return NUMBER.findall(VOLATILE.sub(" ", text))


def charts(page: str) -> list[str]:
    """Return the numbers in the charts of a page, sorted, because the order of their JSON keys may
    change.
    """
    blocks = re.findall(
        r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, flags=re.S
    )
    return sorted(number for block in blocks for number in NUMBER.findall(block))


def readable(path: Path) -> Any:
    """Return the content of a file in a form that can be compared, without values that differ
    between runs.
    """
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {
                name: (
                    _without_run_specific(json.loads(arrays[name].tobytes()))
                    if name == "header"
                    else _bits(arrays[name])
                )
                for name in arrays
            }
    if path.suffix == ".html":
        text = path.read_text()
        return numbers(text), charts(text)
    if path.suffix == ".csv":
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        return table[[column for column in table if not RUN_SPECIFIC.search(column)]].to_csv(
            index=False
        )
    if path.suffix == ".json":
        return _without_run_specific(json.loads(path.read_text()))
    return path.read_bytes() if path.suffix in TEXT else None


def _bits(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.str, array.shape, array.tobytes()


def _without_run_specific(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_run_specific(inner)
            for key, inner in value.items()
            if not RUN_SPECIFIC.search(key)
        }
    return [_without_run_specific(inner) for inner in value] if isinstance(value, list) else value


def folders(before: Path, after: Path, only: tuple[str, ...] = ()) -> list[str]:
    """Return files that are missing, new or different."""
    names = [
        {
            p.relative_to(f).as_posix()
            for p in f.rglob("*")
            if p.is_file() and (not only or p.name in only)
        }
        for f in (before, after)
    ]
    differences = [f"only in {before.name}: {name}" for name in sorted(names[0] - names[1])]
    differences += [f"only in {after.name}: {name}" for name in sorted(names[1] - names[0])]
    for name in sorted(names[0] & names[1]):
        old, new = readable(before / name), readable(after / name)
        if old != new and not name.endswith("help.json"):
            differences.append(f"differs: {name}{_where(old, new)}")
    return differences


def _where(old: Any, new: Any) -> str:
    if isinstance(old, tuple):
        parts = zip(("text", "charts"), old, new, strict=True)
        return "".join(f"\n    {part}: {', '.join(_diff(a, b))}" for part, a, b in parts if a != b)
    if isinstance(old, dict) and isinstance(new, dict):
        return "".join(f"\n    {key}" for key in {**old, **new} if old.get(key) != new.get(key))
    return "\n    " + "\n    ".join(_diff(str(old).splitlines(), str(new).splitlines()))


def _diff(old: list[str], new: list[str]) -> list[str]:
    return list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:12]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("write", "compare", "resume"))
    parser.add_argument("folders", nargs="+", type=Path)
    options = parser.parse_args()
    if options.action == "write":
        write(options.folders[0].resolve())
        return 0
    if options.action == "resume":
        differences = resume(options.folders[0].resolve())
    else:
        before, after = options.folders
        differences = [
            one for one in folders(before, after) if "killed/" not in one and "cut-" not in one
        ]
        helps_of = [json.loads((folder / "help.json").read_text()) for folder in (before, after)]
        changed = [
            name
            for name in {**helps_of[0], **helps_of[1]}
            if helps_of[0].get(name) != helps_of[1].get(name)
        ]
        print(f"help texts that differ (no failure): {', '.join(changed) or 'none'}")
    print(*differences, sep="\n")
    print(f"{len(differences)} differences")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
