"""A folder of results opened again: without training, without harm, and with a sentence where it
cannot be.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evenly.experiment import folder as folders
from evenly.experiment.comparison import Comparison
from evenly.experiment.execute import execute
from evenly.experiment.folder import (
    RunRecord,
    Store,
    add_training,
    begin,
    finish,
    folder_lock,
    read_record,
    starting_directory,
    sweep,
    training_timer,
)
from evenly.experiment.plan import Plan
from evenly.experiment.reopen import open_results, open_study, read_plan
from tests.simulations import same_bits

PLAN = Plan(
    name="test",
    data={"name": "synthetic", "clients": 4},
    methods=("fedavg", "fedsgd"),
    rounds=3,
    seeds=(0, 1),
    sampling="weighted(clients=2)",
)
RECORD = RunRecord(command="evenly run test.toml", title="A test", notes="Nothing.")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison]:
    folder = tmp_path_factory.mktemp("folder") / "out"
    store = Store(folder, PLAN)
    begin(folder, RECORD)
    with training_timer(folder, folder / "traces"):
        comparison = execute(PLAN, store)
    finish(folder)
    return folder, comparison


@pytest.fixture
def copy(made: tuple[Path, Comparison], tmp_path: Path) -> Path:
    """A folder that a test may damage."""
    folder = tmp_path / "out"
    for path in made[0].rglob("*"):
        if path.is_file():
            (folder / path.relative_to(made[0])).parent.mkdir(parents=True, exist_ok=True)
            (folder / path.relative_to(made[0])).write_bytes(path.read_bytes())
    return folder


def test_finished_results_are_opened_without_training(made, monkeypatch):
    folder, trained = made
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    monkeypatch.setattr(
        "evenly.experiment.execute.simulate", lambda *_, **__: pytest.fail("trained again")
    )
    found = open_results(folder)
    for one, other in zip(found.runs, trained.runs, strict=True):
        assert one[:4] == other[:4]
        same_bits(one.trace, other.trace, stored=True)
    assert (found.command, found.title, found.notes) == (
        "evenly run test.toml",
        "A test",
        "Nothing.",
    )
    assert found.seconds > 0
    assert found.versions == trained.versions
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before, (
        "nothing is written"
    )


def test_unfinished_results_say_how_to_go_on(copy):
    next((copy / "traces").iterdir()).unlink()
    with pytest.raises(
        ValueError, match=rf"is not finished: 3 of 4 programs. Continue with `evenly resume {copy}`"
    ):
        open_results(copy)


def test_a_comparison_is_no_study(made):
    with pytest.raises(ValueError, match="holds one comparison, not a study"):
        open_study(made[0])


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (
            lambda folder: (folder / "plan.json").unlink(),
            "holds no results of evenly: there is no plan.json",
        ),
        (
            lambda folder: (folder / "plan.json").write_text('{"schema": 1, "na'),
            "plan.json' is damaged",
        ),
        (lambda folder: (folder / "plan.json").write_text("[1]"), "plan.json' is damaged"),
        (
            lambda folder: (folder / "plan.json").write_text('{"schema": 1, "name": "x"}'),
            "plan.json' is damaged",
        ),
        (lambda folder: (folder / "plan.json").write_bytes(b"\xff\xfe"), "plan.json' is damaged"),
        (
            lambda folder: (folder / "run.json").write_text("{"),
            "run.json' is damaged. Remove it and run the command again",
        ),
        (
            lambda folder: (folder / "run.json").write_text('{"schema": 9}'),
            "run.json' was written by a newer version of evenly .format 9",
        ),
        (
            lambda folder: cut(next((folder / "traces").iterdir())),
            "are damaged. Remove the file; only its runs are then trained again",
        ),
    ],
)
def test_damage_gets_one_sentence(copy, harm, sentence):
    harm(copy)
    with pytest.raises(ValueError, match=sentence):
        open_results(copy)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_no_folder_at_all(tmp_path):
    with pytest.raises(ValueError, match="There is no folder"):
        read_plan(tmp_path / "nothing")


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_a_newer_version_is_never_touched(copy, force):
    newer = json.loads(PLAN.to_json()) | {"schema": 2, "something": "new"}
    (copy / "plan.json").write_text(json.dumps(newer))
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    for plan in (PLAN, dataclasses.replace(PLAN, rounds=4)):
        with pytest.raises(
            ValueError,
            match=(
                r"newer version of evenly \(format 2; this version reads up to 1\)\. Upgrade"
                r" evenly\. Choose"
            ),
        ):
            Store(copy, plan, force=force)
    with pytest.raises(ValueError, match="newer version"):
        read_plan(copy)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_damaged_plan_is_not_taken_for_other_settings(copy):
    (copy / "plan.json").write_text("{")
    with pytest.raises(
        ValueError, match="is damaged, so the settings of these results are unknown"
    ):
        Store(copy, PLAN)
    assert list((copy / "traces").iterdir())
    Store(copy, PLAN, force=True)  # the user has said so
    assert not (copy / "traces").exists()


def record_of(folder: Path) -> RunRecord:
    record = read_record(folder)
    assert record is not None
    return record


def test_the_first_command_stays_and_time_adds_up(tmp_path):
    begin(tmp_path, RECORD)
    assert record_of(tmp_path).started_in == os.path.relpath(Path.cwd(), tmp_path)
    add_training(tmp_path, 2.0)
    again = begin(
        tmp_path, dataclasses.replace(RECORD, command="evenly resume out", title="Another title")
    )
    assert (again.command, again.title, again.seconds, again.status) == (
        "evenly run test.toml",
        "Another title",
        2.0,
        "running",
    )
    add_training(tmp_path, 3.0)
    assert finish(tmp_path).seconds == 5.0
    assert record_of(tmp_path).status == "finished"


def test_time_is_kept_when_training_is_stopped(tmp_path):
    begin(tmp_path, RECORD)
    with pytest.raises(KeyboardInterrupt), training_timer(tmp_path, tmp_path / "traces"):
        raise KeyboardInterrupt
    assert record_of(tmp_path).seconds > 0


def test_what_a_killed_process_left_is_swept_and_nothing_else(copy):
    name = next((copy / "traces").iterdir()).name
    debris = [
        copy / ".plan.json.123",
        copy / "traces" / ".a.npz.77",
        copy / "models" / ".b.npz.5",
        copy / "checkpoints" / name,
    ]
    others = [
        copy / ".mine.1",
        copy / "notes" / ".c.npz.9",
        copy / "checkpoints" / "unfinished.npz",
    ]
    for path in (*debris, *others):
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    sweep(copy)
    assert not any(path.exists() for path in debris)
    assert all(path.exists() for path in others)


def test_in_a_folder_without_a_plan_only_the_begun_plan_is_swept(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / ".of.mine.1").write_text("x")
    (tmp_path / ".plan.json.123").write_text("{")
    sweep(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["models", ".of.mine.1"]


HOLD = """
import sys, time
from pathlib import Path
from evenly.experiment.folder import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path):
    folder = tmp_path / "deep" / "out"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        with (
            pytest.raises(
                ValueError,
                match=rf"Process {process.pid} on \S+ is working in the folder '{folder}'. Wait",
            ),
            folder_lock(folder),
        ):
            pytest.fail("two at once")
        process.send_signal(signal.SIGKILL)
    assert (folder / ".lock").exists()
    with (
        folder_lock(folder),
        pytest.raises(ValueError, match=f"Process {os.getpid()}"),
        folder_lock(folder),
    ):
        pytest.fail("two at once")
    assert list(folder.iterdir()) == []


def test_a_folder_made_for_the_lock_alone_does_not_stay(tmp_path):
    with folder_lock(tmp_path / "a" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []
    with folder_lock(tmp_path / "a" / "b"):
        (tmp_path / "a" / "mine").write_text("x")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["mine"]


def test_a_file_cannot_be_held_as_a_folder(tmp_path):
    (tmp_path / "out").write_text("mine")
    with (
        pytest.raises(ValueError, match="must be a folder, but it is a file"),
        folder_lock(tmp_path / "out"),
    ):
        pass
    assert (tmp_path / "out").read_text() == "mine"


def test_a_place_without_folders_is_refused():
    with pytest.raises(OSError, match="/proc/evenly"), folder_lock(Path("/proc/evenly")):
        pass


def test_where_a_run_began_is_found_again_through_a_link(tmp_path, monkeypatch):
    (tmp_path / "scratch" / "deep").mkdir(parents=True)
    (tmp_path / "results").symlink_to(tmp_path / "scratch" / "deep")
    monkeypatch.chdir(tmp_path)
    plan = dataclasses.replace(PLAN, data={"path": "own.csv"})
    begin(Path("results/a"), RECORD)
    with starting_directory(Path("results/a"), plan):
        assert Path.cwd() == tmp_path.resolve()


def test_results_that_were_moved_away_from_their_table_say_so(tmp_path, monkeypatch):
    """It said "No such file or directory" of a table that was there, seen from the terminal."""
    monkeypatch.chdir(tmp_path)
    Path("own.csv").write_text("a,b")
    plan = dataclasses.replace(PLAN, data={"path": "own.csv"})
    begin(Path("results/a"), RECORD)
    Path("results/a").rename("results-a")
    told = r"needs the file 'own\.csv' of its data again, and there is none in .* move it back"
    with pytest.raises(ValueError, match=told), starting_directory(Path("results-a"), plan):
        Path("own.csv").read_text()
    absent = tmp_path / "absent.npz"  # a file of the results, not of the user
    with pytest.raises(FileNotFoundError), starting_directory(Path("results-a"), plan):
        absent.read_text()


def test_what_is_not_ours_is_not_swept(tmp_path):
    for name in ("checkpoints", "traces"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.npz").write_text("mine")
    sweep(tmp_path)
    assert (tmp_path / "checkpoints" / "mine.npz").exists()


def test_results_of_several_versions_say_so(tmp_path, monkeypatch):
    begin(tmp_path, RECORD)
    add_training(tmp_path, 1.0)
    before = record_of(tmp_path).versions
    monkeypatch.setattr(folders, "versions", lambda: {**before, "jax": "99.0"})
    add_training(tmp_path, 1.0)
    add_training(tmp_path, 1.0)
    assert record_of(tmp_path).versions == {**before, "jax": f"{before['jax']}, 99.0"}


@pytest.mark.parametrize(
    "first", [lambda out: begin(out, RunRecord()), lambda out: add_training(out, 1.0)]
)
def test_where_a_run_began_is_kept_also_without_a_command(tmp_path, monkeypatch, first):
    """As a Python program, or a machine with only the core packages, begins it."""
    monkeypatch.chdir(tmp_path)
    first(Path("out"))
    assert begin(Path("out"), RunRecord(command="evenly resume out")).started_in == ".."
    assert record_of(Path("out")).command == "evenly resume out"
