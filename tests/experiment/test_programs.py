"""Which runs are trained together is kept with the results, so that another machine finds and
continues them.
"""

import jax
import numpy as np
import pytest

from evenly.experiment.execute import execute, setting_of
from evenly.experiment.folder import Store
from evenly.experiment.plan import GROUPING_FILE, Plan, programs
from evenly.experiment.reopen import open_results
from evenly.simulate import layout
from tests.simulations import same_bits

PLAN = Plan(
    name="test",
    data={"name": "synthetic", "clients": 4},
    methods=("fedavg+full", "fedavg+uniform(clients=2)"),
    rounds=4,
    seeds=(0, 1),
    evaluate_every=2,
)


@pytest.fixture
def begun_on_a_gpu(tmp_path, monkeypatch):
    """A folder whose samplings were joined, as on a GPU, and the results; the rest of the program
    runs as on a CPU.
    """
    with monkeypatch.context() as patch:
        real = layout.companions
        patch.setattr(
            "evenly.experiment.plan.companions",
            lambda members, task: real(members, task, join=True),
        )
        return tmp_path / "out", execute(PLAN, Store(tmp_path / "out", PLAN))


def test_a_cpu_opens_what_a_gpu_trained(begun_on_a_gpu):
    folder, before = begun_on_a_gpu
    assert jax.default_backend() == "cpu"
    alone = [program.members for program in programs(PLAN, setting_of(PLAN, 0).task)]
    assert alone == [(0,), (1,)] * 2  # without the folder it would keep them apart
    for one, other in zip(before.runs, open_results(folder).runs, strict=True):
        np.testing.assert_array_equal(one.trace.tables, other.trace.tables)


def test_a_cpu_goes_on_with_what_a_gpu_began(begun_on_a_gpu):
    folder, before = begun_on_a_gpu
    lost, kept = sorted((folder / "traces").iterdir())
    lost.unlink()
    stamp = kept.stat().st_mtime_ns
    again = execute(PLAN, Store(folder, PLAN))
    assert kept.stat().st_mtime_ns == stamp
    assert sorted((folder / "traces").iterdir()) == [lost, kept]
    for one, other in zip(before.runs, again.runs, strict=True):
        same_bits(one.trace, other.trace, stored=True)


def test_a_damaged_list_of_programs_is_named(begun_on_a_gpu):
    folder, _ = begun_on_a_gpu
    (folder / GROUPING_FILE).write_text("[[0]]")
    with pytest.raises(ValueError, match=r"programs\.json' is damaged. Remove it"):
        execute(PLAN, Store(folder, PLAN))
