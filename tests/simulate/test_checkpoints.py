"""A run that was stopped goes on to the same bits; a checkpoint that is not its own is never
trusted.
"""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenly.models import Softmax
from evenly.simulate import checkpoints, run, schedule, simulate
from evenly.types import Seeds, Trace
from tests import federations
from tests.simulations import Simulated, algorithms, same_bits

TEXT, ROUNDS = "q-fedavg(q=1)+server-momentum(learning_rate=0.5)", 12
ROOT = Path(__file__).parents[2]


class StoppedError(Exception):
    """Raised where a user would press Ctrl-C."""


@pytest.fixture(autouse=True)
def _small_blocks_saved_at_once(monkeypatch: pytest.MonkeyPatch):
    small_blocks(monkeypatch.setattr)


def small_blocks(setattr: Callable) -> None:
    setattr(schedule, "LARGEST_BLOCK_ROWS", 170)  # two rounds
    setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)


def go(
    path: Path | None,
    stop_after: int = ROUNDS + 1,
    seen: list[int] | None = None,
    text: str = TEXT,
    **options: object,
) -> Trace:
    def progress(done: int, rounds: int) -> None:
        if seen is not None:
            seen.append(done)
        if done >= stop_after:
            raise StoppedError

    task, federation = Softmax(features=5, classes=3), federations.tiny()
    settings: dict[str, Any] = {
        "evaluate_every": 3,
        "progress": progress,
        "checkpoint": path,
        **options,
    }
    return simulate(task, federation, algorithms(text), ROUNDS, **settings)[0]


@pytest.fixture(scope="module")
def undisturbed() -> Trace:
    patch = pytest.MonkeyPatch()
    small_blocks(patch.setattr)
    trace = go(None)
    patch.undo()
    return trace


@pytest.mark.parametrize("after", [4, 8, 11])
def test_a_stopped_run_resumes_to_the_same_bits(tmp_path: Path, undisturbed: Trace, after: int):
    path, seen = tmp_path / "deep" / "run.npz", []
    with pytest.raises(StoppedError):
        go(path, stop_after=after)
    assert path.exists()
    same_bits(go(path, seen=seen), undisturbed)
    assert all(done > 2 for done in seen), "it went on instead of starting over"
    assert list(path.parent.iterdir()) == [path], (
        "the checkpoint stays until the traces are safe, and nothing else does"
    )


# what clients remember; a mean of iterates and draws
@pytest.mark.parametrize("text", ["ditto", "afl(form=stochastic)+full"])
def test_memory_and_the_mean_of_iterates_survive_a_stop(tmp_path: Path, text: str):
    path = tmp_path / "run.npz"
    with pytest.raises(StoppedError):
        go(path, stop_after=6, text=text)
    same_bits(go(path, text=text), go(None, text=text))


def test_a_run_can_be_stopped_again_and_again(tmp_path: Path, undisturbed: Trace):
    path = tmp_path / "run.npz"
    for after in (4, 7, 10):
        with pytest.raises(StoppedError):
            go(path, stop_after=after)
    same_bits(go(path), undisturbed)


def test_an_undisturbed_run_with_a_checkpoint_has_the_same_bits(tmp_path: Path, undisturbed: Trace):
    path = tmp_path / "run.npz"
    same_bits(go(path), undisturbed)
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from pathlib import Path
import tests.conftest
from tests.simulate import test_checkpoints as t
t.small_blocks(setattr)
original = t.checkpoints.write_checkpoint
def write(path, fingerprint, done, tree):
    original(path, fingerprint, done, tree)
    if done >= 6:
        os.kill(os.getpid(), signal.SIGKILL)
t.checkpoints.write_checkpoint = write
t.go(Path(sys.argv[1]))
"""


def test_a_run_killed_by_the_system_resumes_in_another_process(tmp_path: Path, undisturbed: Trace):
    path, seen = tmp_path / "run.npz", []
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        timeout=120,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    same_bits(go(path, seen=seen), undisturbed)
    assert min(seen) > 6, "the other process's checkpoint was recognised"


def saved(path: Path) -> Path:
    with pytest.raises(StoppedError):
        go(path, stop_after=8)
    return path


def rewrite(path: Path, change: Callable[[dict], None]) -> None:
    with np.load(path) as file:
        content = dict(file)
    change(content)
    with open(path, "wb") as file:
        np.savez(file, **content)


def reheaded(**changes: object) -> Callable[[dict], None]:
    def change(content: dict) -> None:
        content["header"] = np.array(json.dumps({**json.loads(str(content["header"])), **changes}))

    return change


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"not a checkpoint at all"),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "all but the end": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "a flipped byte": lambda path: path.write_bytes(flipped(path.read_bytes())),
    "an array": lambda path: path.write_bytes(as_npy(np.arange(3))),
    "no header": lambda path: rewrite(path, lambda content: content.pop("header")),
    "a header that is not JSON": lambda path: rewrite(
        path, lambda content: content.update(header=np.array("{"))
    ),
    "a header that is a list": lambda path: rewrite(
        path, lambda content: content.update(header=np.array("[1]"))
    ),
    "a missing leaf": lambda path: rewrite(path, lambda content: content.pop("leaf1")),
    "a newer format": lambda path: rewrite(path, reheaded(format=checkpoints.FORMAT + 1)),
    "another run": lambda path: rewrite(path, reheaded(fingerprint="0" * 32)),
}


def as_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def flipped(content: bytes) -> bytes:
    # In the middle of the first array's numbers, which only the archive's checksum can notice.
    at = content.index(b"NUMPY") + 200
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_checkpoint_means_starting_over(
    tmp_path: Path, undisturbed: Trace, damage: str
):
    path, seen = saved(tmp_path / "run.npz"), []
    DAMAGES[damage](path)
    same_bits(go(path, seen=seen), undisturbed)
    assert min(seen) <= 2, "it started over"


@pytest.mark.parametrize("format", range(checkpoints.FORMAT))
def test_a_checkpoint_of_an_earlier_version_is_refused_by_name(tmp_path: Path, format: int):
    path = saved(tmp_path / "run.npz")
    rewrite(path, reheaded(format=format))
    before = path.read_bytes()
    with pytest.raises(
        checkpoints.OldCheckpointError,
        match=r"run\.npz' is a half-finished run of an earlier version .*Remove the file",
    ):
        go(path)
    assert path.read_bytes() == before, "nothing is lost"


def test_what_was_saved_is_read_back(tmp_path: Path):
    path, tree = (
        tmp_path / "some.npz",
        {"a": np.arange(3, dtype=np.float32), "b": (np.array(True), np.zeros((2, 0)))},
    )
    checkpoints.write_checkpoint(path, "me", 7, tree)
    found = checkpoints.read_checkpoint(path, "me")
    assert found is not None
    done, leaves = found
    assert done == 7
    for leaf, expected in zip(leaves, [tree["a"], *tree["b"]], strict=True):
        np.testing.assert_array_equal(leaf, expected)
        assert leaf.dtype == expected.dtype
    assert checkpoints.read_checkpoint(path, "you") is None
    assert checkpoints.read_checkpoint(tmp_path / "none.npz", "me") is None


@pytest.mark.parametrize(
    "change", [{"seeds": Seeds(batches=1)}, {"evaluate_every": 4}, {"dropout": 0.1}], ids=str
)
def test_another_runs_checkpoint_is_not_used(tmp_path: Path, change: dict):
    path, seen = saved(tmp_path / "run.npz"), []
    same_bits(go(path, seen=seen, **change), go(None, **change))
    assert min(seen) <= 2


def test_the_fingerprint_tells_data_and_settings_apart(simulated: Simulated):
    tiny, other = simulated.federation, federations.with_broken_clients(simulated.federation, (0,))
    one, two = algorithms("q-fedavg(q=[0, 1])")
    names = {run.fingerprint(f, a) for f in (tiny, other) for a in (one, two)}
    assert len(names) == 4
    assert run.fingerprint(tiny, one) == run.fingerprint(
        federations.tiny(), algorithms("q-fedavg(q=[0, 1])")[0]
    )


def test_another_versions_checkpoint_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, seen = saved(tmp_path / "run.npz"), []
    monkeypatch.setattr("evenly.simulate.run.__version__", "99.0")
    go(path, seen=seen)
    assert min(seen) <= 2


def test_writing_takes_at_most_a_tenth_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The next save waits ten times as long as the last one took beyond a second."""
    now, written = [0.0], []
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 2.0)
    file = checkpoints.CheckpointFile(tmp_path / "run.npz", "mark")

    def write_at(seconds: float, takes: float) -> None:
        now[0] = seconds

        def arrays() -> list[np.ndarray]:
            now[0] += takes
            written.append(seconds)
            return [np.zeros(1)]

        file.write_if_due(1, arrays)

    write_at(1.9, takes=0.1)
    write_at(2.1, takes=0.1)  # the first that is due; done at 2.2
    write_at(4.1, takes=0.1)
    write_at(4.3, takes=5.0)  # done at 9.3, and 40 seconds without
    write_at(49.2, takes=0.1)
    write_at(49.4, takes=0.1)
    assert written == [2.1, 4.3, 49.4]
