"""Searching settings: batches, what is kept of them, going on after a stop, and never a look at
test rows before the choice.
"""

import csv
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from evenly.datasets.load import load
from evenly.experiment import tuning as module
from evenly.experiment.comparison import final_spreads
from evenly.experiment.execute import execute
from evenly.experiment.folder import Store
from evenly.experiment.plan import Plan
from evenly.experiment.search_trials import TrialDatabase, choose
from evenly.experiment.tuning import trial_rows, tune, write_trials
from evenly.experiment.tuning_space import plan_tuning
from tests.tunings import DATA, Trainer, searched

RANGES = "q-fedavg(q=0.01..100:log, learning_rate=0.01..1:log)"


def labels(found):
    return [tried.label for tried in found.trials]


def test_trials_are_trained_a_batch_at_a_time_and_the_baseline_with_the_first(monkeypatch):
    found, trainer = searched(monkeypatch, RANGES, trials=10, batch=4)
    assert [len(plan.methods) for plan in trainer.batches] == [5, 4, 2]
    assert trainer.batches[0].methods[0] == "q-fedavg(q=0)"
    assert labels(found) == trainer.trained[1:]
    assert len(set(labels(found))) == 10


def test_test_rows_are_hidden_until_the_choice_is_made(monkeypatch):
    found, trainer = searched(monkeypatch, "q-fedavg(q=[0.5, 5])", batch=1)
    assert found.choice.chosen == "q-fedavg(q=0.5)"
    assert all(plan.data == {**DATA, "hide_test": True} for plan in trainer.plans[:-1])
    assert trainer.plans[-1].data == DATA
    assert trainer.plans[-1].methods == ("q-fedavg(q=0)", found.choice.chosen)


def test_hidden_test_rows_are_not_in_the_data_at_all():
    whole, hidden = (
        load({"name": "synthetic-census", "rows": 200, **more}, 0)
        for more in ({}, {"hide_test": True})
    )
    assert len(whole.central)
    assert not len(hidden.central)
    assert not hidden.test.counts.any()
    assert (hidden.valid.rows == whole.valid.rows).all()
    assert (hidden.train.rows == whole.train.rows).all()


def test_the_search_finds_the_hill(monkeypatch):
    """Least variance with the average within a point of q = 0: the best is at q = 1 and a rate of
    0.1, where 0.04 q²/(1+q)² = 0.01.
    """
    found, _ = searched(monkeypatch, RANGES, trials=64, batch=8, seeds=1)
    assert found.choice.allowed[found.choice.chosen]
    assert 0.4 < found.chosen.settings["q"] <= 1.03  # the average is counted in whole rows
    assert found.chosen.means["variance"] < 0.5 * found.baseline.means["variance"]
    late = [tried for tried in found.trials[32:] if found.choice.allowed[tried.label]]
    early = [tried for tried in found.trials[:8] if found.choice.allowed[tried.label]]
    assert len(late) / 32 > len(early) / 8  # Optuna learns where the margin is


def test_a_longer_search_begins_with_the_shorter_one_and_trains_only_what_is_new(
    monkeypatch, tmp_path
):
    whole, _ = searched(monkeypatch, RANGES, trials=14, batch=4)
    short, _ = searched(monkeypatch, RANGES, tmp_path, trials=6, batch=4)
    longer, trainer = searched(monkeypatch, RANGES, tmp_path, trials=14, batch=4)
    assert labels(short) == labels(whole)[:6]
    assert labels(longer) == labels(whole)
    assert trainer.trained == labels(whole)[6:]


def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(monkeypatch, tmp_path):
    whole, _ = searched(monkeypatch, RANGES, trials=12, batch=4)
    trainer = Trainer()
    monkeypatch.setattr(module, "execute", trainer)
    options = {"data": DATA, "rounds": 10, "out": tmp_path, "trials": 12, "batch": 4}
    for trainer.stop_before in (1, 2):  # before the second batch, then before the third
        with pytest.raises(KeyboardInterrupt):
            tune(RANGES, **options)
    trainer.stop_before = -1
    found = tune(RANGES, **options)
    assert found.trials == whole.trials
    assert found.choice == whole.choice
    assert trainer.trained == ["q-fedavg(q=0)", *labels(whole)]


def test_a_batch_that_was_only_half_written_down_is_finished_as_it_was_planned(
    monkeypatch, tmp_path
):
    whole, _ = searched(monkeypatch, RANGES, trials=8, batch=4)
    kept = module.TrialDatabase.add
    calls = []

    def interrupted(self, settings, seen):
        calls.append(settings)
        if len(calls) == 7:  # the third of the second batch
            raise KeyboardInterrupt
        kept(self, settings, seen)

    monkeypatch.setattr(module.TrialDatabase, "add", interrupted)
    # as a kill would leave it
    monkeypatch.setattr(
        module, "shutil", type("", (), {"rmtree": staticmethod(lambda *_, **__: None)})
    )
    with pytest.raises(KeyboardInterrupt):
        searched(monkeypatch, RANGES, tmp_path, trials=8, batch=4)
    monkeypatch.setattr(module.TrialDatabase, "add", kept)
    found, trainer = searched(monkeypatch, RANGES, tmp_path, trials=8, batch=4)
    assert found.trials == whole.trials
    # the same program, so the same bits
    assert trainer.batches[0].methods == tuple(labels(whole)[4:])


def test_settings_that_come_up_again_are_not_trained_again(monkeypatch):
    found, trainer = searched(
        monkeypatch,
        "q-fedavg(q=[0, 1, 5], epochs=1..2)",
        trials=24,
        batch=4,
        baseline="q-fedavg(q=0, epochs=1)",
    )
    assert len(found.trials) == 24
    assert len(trainer.trained) == len(set(trainer.trained)) <= 6


def test_choices_alone_are_tried_in_every_combination(monkeypatch):
    found, trainer = searched(monkeypatch, "q-fedavg(q=[1, 5], learning_rate=[0.1, 0.3])")
    assert labels(found) == [
        f"q-fedavg(q={q}, learning_rate={rate})" for q in (1, 5) for rate in (0.1, 0.3)
    ]
    assert len(trainer.batches) == 1


def test_the_study_can_be_read_by_optuna(monkeypatch, tmp_path):
    found, _ = searched(monkeypatch, RANGES, tmp_path, trials=6, batch=3)
    study = optuna.load_study(study_name="evenly", storage=f"sqlite:///{tmp_path / 'study.db'}")
    for trial, tried in zip(study.trials, found.trials, strict=True):
        assert trial.params == tried.settings
        assert trial.values == [tried.means["variance"]]
        assert (trial.constraints["average"] <= 0) == found.choice.allowed[tried.label]


def test_a_trial_without_a_value_is_kept_and_not_learnt_from(monkeypatch, tmp_path):
    seen = module._validation_values
    monkeypatch.setattr(
        module,
        "_validation_values",
        lambda c, runs, m: {
            **seen(c, runs, m),
            **({"variance": [float("nan")]} if "q=5" in runs[0].label else {}),
        },
    )
    found, _ = searched(monkeypatch, "q-fedavg(q=[1, 5])", tmp_path, seeds=1)
    assert found.choice.chosen == "q-fedavg(q=1)"
    study = optuna.load_study(study_name="evenly", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "FAIL"]


def test_every_trial_is_in_the_file(monkeypatch, tmp_path):
    found, _ = searched(
        monkeypatch, RANGES, objectives=("average", "worst10"), trials=5, batch=5, seeds=2
    )
    with open(write_trials(found, tmp_path)) as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == ["baseline", "0", "1", "2", "3", "4"]
    assert [row["method"] for row in rows[1:]] == labels(found)
    assert rows[0]["q"] == ""
    assert {row["method"] for row in rows if row["front"] == "True"} == set(found.choice.front)
    assert [row["method"] for row in rows if row["chosen"] == "True"] == [found.choice.chosen]
    each = [float(value) for value in rows[2]["worst10_seeds"].split()]
    assert len(each) == 2
    assert float(rows[2]["worst10"]) == pytest.approx(sum(each) / 2)
    assert len(trial_rows(found)) == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"objectives": ("eod_abs",)},
            "eod_abs cannot be measured on .*: its rows belong to no groups of people",
        ),
        (
            {"keep": "group_average"},
            "group_average cannot be measured on .*: its clients belong to no groups",
        ),
    ],
)
def test_what_the_data_cannot_give_is_said_before_anything_is_trained(
    monkeypatch, tmp_path, options, words
):
    trainer = Trainer()
    monkeypatch.setattr(module, "execute", trainer)
    with pytest.raises(ValueError, match=words):
        tune("q-fedavg(q=[1])", data=DATA, out=tmp_path / "out", **options)
    assert trainer.plans == []
    assert not (tmp_path / "out").exists()


def test_other_settings_do_not_go_on_in_the_folder(monkeypatch, tmp_path):
    searched(monkeypatch, "q-fedavg(q=[1])", tmp_path)
    with pytest.raises(ValueError, match="contains results with different settings"):
        searched(monkeypatch, "q-fedavg(q=[2])", tmp_path)


def test_the_plain_search_chooses_as_before_there_were_others():
    """One real search: the same figures, to the bit, and the same choice as a sweep over q with
    q-FFL's rule.
    """
    shared = {"rounds": 20, "training": {"learning_rate": 0.1, "batch_size": 10}}
    found = tune("q-fedavg(q=[1, 5])", data="synthetic(clients=12)", seeds=2, **shared)
    sweep = execute(
        Plan(
            name="tune",
            data={"name": "synthetic", "clients": 12},
            methods=("q-fedavg(q=[0, 1, 5])",),
            seeds=(0, 1),
            **shared,
        )
    )
    seen = {
        label: {m: s.mean for m, s in final_spreads(sweep, label, "valid").items()}
        for label in sweep.labels
    }
    for tried in (found.baseline, *found.trials):
        assert tried.means == {metric: seen[tried.label][metric] for metric in tried.means}
    assert found.choice == choose(seen, "q-fedavg(q=0)", within=1.0)


SMALL = {"data": "synthetic(clients=8)", "trials": 8, "batch": 2, "rounds": 10, "seeds": 1}
KILLED = (
    f"from evenly.experiment.tuning import tune; import sys; tune({RANGES!r}, out=sys.argv[1],"
    f" **{SMALL!r})"
)


def finished(out: Path) -> int:
    """How many trials the study holds."""
    if not (out / "study.db").exists():
        return 0
    with closing(sqlite3.connect(f"file:{out / 'study.db'}?mode=ro", uri=True)) as study:
        return study.execute("select count(*) from trials").fetchone()[0]


@pytest.mark.further
def test_a_search_that_is_killed_goes_on_to_the_same_end(tmp_path, monkeypatch):
    """For real: kill -9 when some trials are finished; the same call then trains only the rest, and
    ends as if nothing had been.
    """
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    while finished(tmp_path) < 3 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL  # it was not done yet
    done = finished(tmp_path)
    assert 3 <= done < 8
    trained = []
    monkeypatch.setattr(
        module,
        "execute",
        lambda plan, *given, **more: trained.append(plan) or execute(plan, *given, **more),
    )
    again = tune(RANGES, out=tmp_path, **SMALL)
    # of batches that were finished
    before = {tried.label for tried in again.trials[: done // 2 * 2]}
    assert not before & {label for plan in trained[:-1] for label in plan.methods}
    whole = tune(RANGES, **SMALL)
    assert again.trials == whole.trials
    assert again.choice == whole.choice


def test_the_journal_of_a_search_that_was_replaced_is_not_played_into_the_new_one(
    monkeypatch, tmp_path
):
    """Killed within a transaction, SQLite leaves a journal, which it plays into whatever database
    has its name.
    """
    with closing(sqlite3.connect(tmp_path / "study.db")) as old:
        old.execute("create table old(x)")
        old.execute("insert into old values (zeroblob(300000))")
        old.commit()
        old.execute("pragma cache_size=5")
        old.execute("update old set x = randomblob(300000)")
        journal = (tmp_path / "study.db-journal").read_bytes()
    (tmp_path / "study.db").unlink()
    (tmp_path / "study.db-journal").write_bytes(journal)
    plan, _ = plan_tuning(RANGES, DATA, rounds=1)
    TrialDatabase(plan, tmp_path / "study.db")
    with closing(sqlite3.connect(tmp_path / "study.db")) as new:
        tables = [name for (name,) in new.execute("select name from sqlite_master")]
    assert "trials" in tables
    assert "old" not in tables


def test_a_batch_that_was_begun_with_other_proposals_is_trained_anew(monkeypatch, tmp_path):
    """Another version of Optuna may propose otherwise; what was trained of the batch is of no use
    then.
    """
    other = Plan(name="tune", data=DATA, methods=("fedavg",), rounds=1, seeds=(0,))
    searched(monkeypatch, RANGES, tmp_path, trials=2, batch=2)
    Store(tmp_path / "batches" / "2-4", other)
    found, _ = searched(monkeypatch, RANGES, tmp_path, trials=4, batch=2)
    assert len(found.trials) == 4


@pytest.mark.parametrize("left", [0, 5000])
def test_a_damaged_database_is_named_in_a_sentence(monkeypatch, tmp_path, left):
    searched(monkeypatch, RANGES, tmp_path, trials=2, batch=2)
    (tmp_path / "study.db").write_bytes((tmp_path / "study.db").read_bytes()[:left])
    with pytest.raises(
        ValueError,
        match=r"study.db' of this search is damaged. Remove it; its trials are then repeated.",
    ):
        searched(monkeypatch, RANGES, tmp_path, trials=2, batch=2)


def test_a_trial_that_cannot_be_kept_is_told_in_a_sentence(monkeypatch, tmp_path):
    plan, _ = plan_tuning(RANGES, DATA, rounds=1)
    study = TrialDatabase(plan, tmp_path / "study.db")
    study.add_baseline({"variance": [1.0], "average": [1.0]})
    with closing(sqlite3.connect(tmp_path / "study.db")) as database:
        database.execute(
            "create trigger full before insert on trials begin select raise(abort, 'database or"
            " disk is full'); end"
        )
        database.commit()
    with pytest.raises(
        OSError,
        match=r"A trial could not be stored: database or disk is full. Earlier trials are stored",
    ):
        study.add({"q": 1.0, "learning_rate": 0.1}, {"variance": [1.0], "average": [1.0]})
