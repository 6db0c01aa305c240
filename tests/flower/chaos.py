"""Kill every process of a federation at every stage of a run, and look whether it comes to its end.

    python -m tests.flower.chaos [--kills 100] [--first 0] [--lanes 5] [--write]

Each lane is a federation on the loopback: a SuperLink with a database, two SuperNodes that reach it
through a relay, TLS and keys. A kill is one run of two rounds in two phases. The run waits at a
stage (tests/flower/holding.py), one process gets SIGKILL, and what a service manager restarts is
started again: SuperLink, SuperNode and relay. If the ServerApp has ended, its run is started again,
as docs/flower-deploy.md says. Then these must hold:

- rounds that were stored before the kill are in the final history with the same bits,
- the model is the simulator's, unless a client is reported to have been left out of a round,
- nothing had to be done that the pages do not say,
- a server that gave up says that the run is to be started again.

In half of the runs both clients must answer each round, in the others one is enough. `--write` adds
the log to benchmarks/results/chaos.json. The exit status is 1 if something did not hold.
"""

import argparse
import datetime
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from evenly.experiment.deployment import read_rounds
from evenly.flower import final_arrays, server_state, wire
from evenly.flower.deploy.loopback import (
    HOST,
    NODE_ID,
    Loopback,
    Process,
    free_ports,
    interruptible,
    kill,
    wait_until,
)
from evenly.flower.messages import START_AGAIN
from evenly.simulate import simulate
from tests.flower.loopback import ROOT, warm
from tests.flower.small import SEEDS, algorithm_of, small, task_of

sys.path.append(str(ROOT / "benchmarks"))  # scripts, not a package

import machine

APP = Path(__file__).parent / "apps" / "chaos"
QUICK = Path(__file__).parent / "quick"
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join([str(QUICK), str(ROOT), os.environ.get("PYTHONPATH", "")]),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
RESULT = ROOT / "benchmarks" / "results" / "chaos.json"
METHOD, CLIENTS, ROUNDS = "q-fedavg(q=1)", 2, 2
LAST = f"client-{CLIENTS - 1}"  # whose node and app are killed
REACHING, ENDING = 300.0, 400.0  # seconds, on a machine that does much else
RESTART = 3.0  # seconds after which a service manager starts a process again
STOP = threading.Event()  # somebody pressed Ctrl-C
LARGEST = 1e-6  # difference of a number of the model from the simulator's

CLIENT_STAGES = ("census", "measuring", "training", "evaluation")
STAGES = (
    "start", "census", "measuring", "between the phases", "training", "saving", "evaluation", "end",
)  # fmt: skip
ROLES = ("SuperLink", "connection", "SuperNode", "ClientApp", "ServerApp")


class Kill(NamedTuple):
    """One kill of the list."""

    number: int
    role: str
    stage: str
    round: int  # 0: the stage belongs to no round
    least: int  # answers that a round needs


def kills(count: int) -> list[Kill]:
    """The first kills of the list, which takes roles and stages in turn. A ClientApp lives only
    while its client works.
    """
    pairs = [
        (role, stage)
        for stage in STAGES
        for role in ROLES
        if role != "ClientApp" or stage in CLIENT_STAGES
    ]
    turns: Iterator[tuple[int, int]] = itertools.cycle([(1, 1), (2, 2), (1, 2), (2, 1)])
    found: list[Kill] = []
    while len(found) < count:
        number, least = next(turns)
        # seven is prime to the number of pairs, so that a short list is of many roles and stages
        for k in range(len(pairs)):
            role, stage = pairs[7 * k % len(pairs)]
            own = 0 if stage in ("start", "census", "end") else number
            found.append(Kill(len(found), role, stage, own, least))
    return found[:count]


class Lane(Loopback):
    """A federation whose SuperNodes reach the SuperLink through a relay."""

    def __enter__(self) -> "Lane":
        self.link_options = (f"--database={self.folder / 'superlink.db'}",)
        super().__enter__()
        with ExitStack() as undo:
            undo.callback(self.close)
            self._port = free_ports(1)[0]
            self.start_relay()
            self.address = f"{HOST}:{self._port}"
            names = [f"client-{k}" for k in range(CLIENTS)]
            self.keys = {name: self.register(name) for name in names}
            for name in names:
                self.start_own(name)
            for name in names:
                self.wait_connected(name)
            undo.pop_all()
        return self

    def start_relay(self) -> None:
        command = ["python", "-m", "tests.flower.relay", str(self._port)]
        self.relay = self._start("relay", [*command, str(self.addresses.fleet)])
        wait_until(lambda: "ready" in self.relay.text(), self.relay, REACHING, "listening")

    def start_own(self, name: str) -> None:
        k = int(name.rpartition("-")[2])
        self.start_node(name, self.keys[name], {"partition-id": k, "num-partitions": CLIENTS})

    def strike(self, role: str, marks: Path) -> None:
        """Kill a process, and what it started."""
        if role == "SuperLink":
            kill(self.link)
        elif role == "connection":
            kill(self.relay)
        elif role == "SuperNode":
            kill(self.nodes[LAST])
        else:
            name = "reached" if role == "ClientApp" else "server.pid"
            os.kill(int((marks / name).read_text()), signal.SIGKILL)

    def restart(self) -> int:
        """Start again what has ended, as a service manager does. Returns how many it were."""
        before = len(self._processes)
        if not self.link.running:
            self.start_link()
        if not self.server.running:
            self.start_server()
        if not self.relay.running:
            self.start_relay()
        for name in [name for name, node in self.nodes.items() if not node.running]:
            self.start_own(name)
        return len(self._processes) - before


def one_kill(lane: Lane, one: Kill, marks: Path) -> dict[str, Any]:
    """Do one kill, and what was seen."""
    marks.mkdir()
    began, folder = time.monotonic(), marks / "results"
    config = {"marks": str(marks), "stage": one.stage, "round": one.round, "least": one.least}
    runs = [lane.run(APP, config, name=f"run-{one.number}")]
    wait_until((marks / "reached").exists, runs[0], REACHING, f"the stage {one.stage}")
    stored = history(folder)
    lane.strike(one.role, marks)
    struck = time.monotonic()
    time.sleep(RESTART)
    restarts = lane.restart()
    (marks / "go").touch()
    while not (marks / "ended").exists() and not STOP.is_set():
        if time.monotonic() > struck + ENDING:
            return {**one._asdict(), "problem": f"not ended; {lane.logs}"}
        time.sleep(1.0)
        restarts += lane.restart()
        if over(marks):
            until_online(lane)
            (marks / "server.pid").unlink()
            runs.append(lane.run(APP, config, name=f"run-{one.number}-{len(runs)}"))
    if STOP.is_set():
        raise ValueError("stopped")
    left_out, away = excluded(folder), distance(marks)
    words = [last_words(run) for run in runs[:-1]]
    return {
        **one._asdict(),
        "seconds": round(time.monotonic() - struck, 1),
        "reaching": round(struck - began, 1),
        "restarts": restarts,
        "runs": len(runs),
        "words": [text[:300] for text in words if text],
        "left out": left_out,
        "away": away,
        "problem": problem(one, stored, history(folder), left_out, away) or unsaid(one, words),
    }


def over(marks: Path) -> bool:
    """Whether the ServerApp has ended without having finished."""
    path = marks / "server.pid"
    if not path.exists():
        return False
    asked = ["ps", "-o", "stat=", "-p", path.read_text()]
    state = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return state[:1] in ("", "Z") and not (marks / "ended").exists()


def until_online(lane: Lane) -> None:
    """Wait until all SuperNodes are connected again, as somebody does who starts a run."""
    end = time.monotonic() + REACHING
    while not all(NODE_ID.search(node.text()) for node in lane.nodes.values()):
        if time.monotonic() > end:
            raise ValueError(f"A SuperNode does not come back: {lane.logs}")
        time.sleep(1.0)
        lane.restart()


def history(folder: Path) -> dict[int, bytes]:
    """The stored rounds, up to the one that the stored state has."""
    done = server_state.rounds_done(folder)
    if not done:
        return {}
    return {one.number: one.weights.tobytes() for one in read_rounds(folder, done)}


def excluded(folder: Path) -> list[str]:
    """Who was left out of which round, and why."""
    path = folder / "left_out.json"
    found = json.loads(path.read_text())["left_out"] if path.exists() else []
    return [f"{one['client']} in round {one['round']}: {one['reason']}" for one in found]


def last_words(run: Process) -> str:
    """What a run that ended says of the reason."""
    told = [line for line in run.text().splitlines() if "Error" in line or "must send" in line]
    return told[-1].strip() if told else ""


def unsaid(one: Kill, words: list[str]) -> str:
    """Which run ended without saying what to do; "" if none did. A server that is killed says
    nothing.
    """
    silent = [text for text in words if START_AGAIN not in text]
    if one.role in ("ServerApp", "SuperLink") or not silent:
        return ""
    return f"the run ended without saying what to do: {silent[0] or 'no error'}"


@cache
def simulated() -> dict[str, np.ndarray]:
    """The model of a run in which nothing is killed."""
    (trace,) = simulate(
        task_of(METHOD), small(CLIENTS), [algorithm_of(METHOD)], ROUNDS, seeds=SEEDS
    )
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(trace.model)]
    return dict(zip(wire.names_of(trace.model), leaves, strict=True))


def distance(marks: Path) -> float:
    """How far the final model is from that of a run in which nothing is killed."""
    found = {name: wire.read(array) for name, array in final_arrays(marks / "results").items()}
    return max(float(np.abs(found[name] - own).max()) for name, own in simulated().items())


def problem(
    one: Kill, before: Mapping[int, bytes], after: Mapping[int, bytes], left_out: list[str],
    away: float,
) -> str:  # fmt: skip
    """What must hold and does not; "" if all is well."""
    lost = [number for number, bits in before.items() if after.get(number) != bits]
    if lost:
        return f"rounds {lost} were stored before and are lost or changed"
    if sorted(after) != list(range(1, ROUNDS + 1)):
        return f"the history has the rounds {sorted(after)}"
    if away > LARGEST and not left_out:
        return f"nobody was left out, and the model is {away:.1e} from the simulator's"
    known = (f"{CLIENTS - 1} ", "-1 ")  # in the census nobody has a number yet
    if strangers := [text for text in left_out if not text.startswith(known)]:
        return f"a client that was not touched was left out: {strangers}"
    if left_out and one.role == "ServerApp":
        return f"a client was left out, and only the server was killed: {left_out}"
    return ""


def lane_of(own: Sequence[Kill], folder: Path, path: str, found: list[dict[str, Any]]) -> None:
    """Do kills one after the other in one federation, and add what was seen to a list."""
    with Lane(folder, env={**ENVIRONMENT, "PATH": path}) as lane:
        for one in own:
            try:
                told = one_kill(lane, one, folder / f"kill-{one.number}")
                until_online(lane)
            except ValueError as error:  # of a process that ended, or did not get ready
                if STOP.is_set():
                    return
                told = {**one._asdict(), "problem": str(error)[-500:]}
            print(json.dumps(told), flush=True)
            found.append(told)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.flower.chaos")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first kill")
    parser.add_argument("--lanes", type=int, default=5, help="federations at once")
    parser.add_argument("--write", action="store_true", help=f"add the log to {RESULT.name}")
    parser.add_argument("--folder", type=Path, help="where to keep all logs")
    options = parser.parse_args()
    todo, began = kills(options.first + options.kills)[options.first :], time.monotonic()
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        given = options.folder or stack.enter_context(tempfile.TemporaryDirectory())
        folder = Path(given).resolve()
        path = stack.enter_context(warm(folder, ENVIRONMENT))
        with interruptible(), ThreadPoolExecutor(options.lanes) as pool:
            lanes = [
                pool.submit(lane_of, todo[k :: options.lanes], folder / f"lane-{k}", path, found)
                for k in range(min(options.lanes, len(todo)))
            ]
            try:
                for lane in lanes:
                    lane.result()
            except KeyboardInterrupt:  # what was done until now is kept
                STOP.set()
    seconds = round(time.monotonic() - began)
    wrong = [one for one in found if one["problem"]]
    print(f"{len(found)} kills in {seconds} s; {len(wrong)} with a problem")
    if options.write:
        write(found, seconds)
    return int(bool(wrong) or len(found) < len(todo))


def _number(one: Mapping[str, Any]) -> int:
    return one["number"]


def write(found: list[dict[str, Any]], seconds: int) -> None:
    """Add kills to the stored ones, instead of those with the same numbers."""
    old = json.loads(RESULT.read_text()) if RESULT.exists() else {"kills": [], "seconds": 0}
    new = {one["number"] for one in found}
    rest = [one for one in old["kills"] if one["number"] not in new]
    told = {
        "command": "make chaos", "date": datetime.date.today().isoformat(),
        "machine": machine.description(), "versions": machine.versions("evenly", "flwr", "jax"),
        "seconds": seconds + (old["seconds"] if rest else 0),
        "kills": sorted([*rest, *found], key=_number),
    }  # fmt: skip
    RESULT.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
