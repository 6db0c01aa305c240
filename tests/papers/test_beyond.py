"""Experiments of our own: the quick variant of census income runs, on a few rows of two states."""

import dataclasses

import numpy as np
import pytest

from evenly.experiment.comparison import group_metrics
from evenly.experiment.config import read_packaged
from evenly.experiment.execute import execute
from tests.datasets.real_data import need

NAME = "beyond/acs-income"


def test_every_method_also_reweighs():
    labels = [variant.label for variant in read_packaged(NAME).plan(NAME).variants()]
    assert len(labels) == 8
    assert labels[4:] == [f"{label}+reweigh" for label in labels[:4]]


@pytest.mark.data
def test_the_quick_variant_shows_clients_and_groups():
    need("acs-income")
    quick = read_packaged(NAME).plan(NAME, quick=True, seeds=1, rounds=2)
    comparison = execute(
        dataclasses.replace(quick, data=quick.data | {"states": "VT,WY", "rows_per_state": 400})
    )
    federation = comparison.federation
    assert federation.names == ("VT", "WY")
    assert federation.groups == tuple(
        f"sex={sex}, race={race}" for sex in ("Female", "Male") for race in ("not White", "White")
    )
    assert [
        int(split.counts.sum()) for split in (federation.train, federation.valid, federation.test)
    ] == [480, 160, 160]
    models = np.stack([np.asarray(run.trace.model["w"]) for run in comparison.runs])
    assert len(np.unique(models.round(7), axis=0)) == 8  # no method is another
    assert all(
        np.isfinite(group_metrics(federation, run.trace, "test")["eod"][-1])
        for run in comparison.runs
    )
