"""The output folder: other people's files are safe, results of other settings are not overwritten,
nothing is half-written.
"""

import dataclasses
import errno
import json
import os

import jax
import numpy as np
import pytest

from evenly.experiment.folder import Store, slug
from evenly.experiment.plan import Plan
from evenly.models import Softmax
from evenly.types import Trace

PLAN = Plan(name="test", data={"name": "synthetic"}, methods=("fedavg",), rounds=3, seeds=(0,))
OTHER = dataclasses.replace(PLAN, rounds=4)


def test_the_same_plan_may_open_its_folder_again(tmp_path):
    Store(tmp_path / "out", PLAN)
    Store(tmp_path / "out", PLAN)


def test_results_of_other_settings_are_refused(tmp_path):
    Store(tmp_path / "out", PLAN)
    with pytest.raises(ValueError, match="contains results with different settings: rounds"):
        Store(tmp_path / "out", OTHER)


def test_force_replaces_only_our_own_files(tmp_path):
    folder = tmp_path / "out"
    Store(folder, PLAN).write("results.csv", lambda file: file.write(b"old"))
    (folder / "notes.txt").write_text("mine")
    Store(folder, OTHER, force=True)
    assert not (folder / "results.csv").exists()
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_somebody_else_is_refused_even_with_force(tmp_path, force):
    (tmp_path / "thesis.doc").write_text("irreplaceable")
    with pytest.raises(ValueError, match="files that evenly did not write"):
        Store(tmp_path, PLAN, force=force)
    assert (tmp_path / "thesis.doc").read_text() == "irreplaceable"


def test_an_output_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(ValueError, match="must be a folder"):
        Store(tmp_path / "out", PLAN)


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path):
    store = Store(tmp_path / "out", PLAN)
    store.write("results.csv", lambda file: file.write(b"old"))

    def fill_the_disk(file):
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "results.csv")

    with pytest.raises(OSError, match="No space left"):
        store.write("results.csv", fill_the_disk)
    assert (tmp_path / "out" / "results.csv").read_bytes() == b"old"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["plan.json", "results.csv"]


def test_what_a_rule_reported_is_kept_and_may_be_missing_in_older_files(tmp_path, some_trace, task):
    store, traces = (
        Store(tmp_path / "out", PLAN),
        [some_trace, some_trace._replace(reports={"fallbacks": 7.0})],
    )
    store.save_traces(["a", "b"], traces)
    assert [t.reports for t in store.load_traces(["a", "b"], task) or []] == [
        {},
        {"fallbacks": 7.0},
    ]
    (path,) = (tmp_path / "out" / "traces").iterdir()
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(str(arrays.pop("header")))
    del header["reports"], header["format"]
    with path.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)
    assert [t.reports for t in store.load_traces(["a", "b"], task) or []] == [{}, {}]


def test_file_names_are_safe_and_distinct():
    assert slug("a/../b#1") != slug("a/../b#2")
    assert "/" not in slug("a/../b#1")


def test_traces_may_be_kept_without_their_models(tmp_path, some_trace: Trace, task: Softmax):
    store = Store(tmp_path / "out", PLAN)
    store.save_traces(["fedavg#0#0"], [some_trace], models=False)
    found = store.load_traces(["fedavg#0#0"], task)
    assert found is not None
    assert (found[0].tables == some_trace.tables).all()
    assert all(leaf.size == 0 for leaf in jax.tree.leaves(found[0].model))


def test_traces_of_other_runs_under_the_same_name_are_not_taken_for_ours(
    tmp_path, some_trace: Trace, task: Softmax
):
    store = Store(tmp_path / "out", PLAN)
    store.save_traces(["fedavg#0#0"], [some_trace])
    store.traces_in(store.folder, ["fedavg#0#0"]).rename(
        store.traces_in(store.folder, ["fedsgd#0#0"])
    )
    with pytest.raises(ValueError, match="are damaged"):
        store.load_traces(["fedsgd#0#0"], task)
