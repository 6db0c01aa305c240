"""Experiment files: every packaged one is valid, every mistake is named."""

import pytest

from evenly.experiment.config import packaged_experiments, read, read_packaged

GOOD = """
title = "A test"
methods = ["fedavg"]
rounds = 10
seeds = 2
[data]
name = "synthetic"
"""


@pytest.mark.parametrize("name", packaged_experiments())
def test_packaged_experiments_have_a_plan_and_a_quick_one(name):
    experiment = read_packaged(name)
    assert experiment.plan(name).variants()
    assert experiment.plan(name, quick=True).rounds < experiment.plan(name).rounds


@pytest.mark.parametrize("name", packaged_experiments())
def test_paper_rows_name_methods_of_the_experiment(name):
    experiment = read_packaged(name)
    labels = {v.label for v in experiment.plan(name).variants()}
    assert experiment.paper is None or set(experiment.paper.rows) <= labels


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("rounds = 10", "rouns = 10"), "Did you mean 'rounds'"),
        (("rounds = 10", 'rounds = "many"'), "key 'rounds'.*got 'many'"),
        (("rounds = 10", "rounds = 0"), "key 'rounds'.*greater than 0"),
        (('methods = ["fedavg"]', "methods = []"), "key 'methods'"),
        (('title = "A test"', ""), "lacks the required key 'title'"),
        (
            ('title = "A test"\nmethods = ["fedavg"]\n', ""),
            "lacks the required keys 'title' and 'methods'",
        ),
        (("rounds = 10", "rounds = = 10"), "not valid TOML"),
        (
            ('name = "synthetic"', 'name = "synthetic"\n[quick]\nround = 1\nseeds = 1'),
            "Did you mean 'quick.rounds'",
        ),
    ],
)
def test_mistakes_are_named(tmp_path, change, sentence):
    path = tmp_path / "test.toml"
    path.write_text(GOOD.replace(*change))
    with pytest.raises(ValueError, match=sentence) as caught:
        read(path)
    assert "test.toml" in str(caught.value)


def test_a_good_file_is_read(tmp_path):
    path = tmp_path / "test.toml"
    path.write_text(GOOD)
    assert read(path).plan("test").seeds == (0, 1)


def test_an_unknown_experiment_names_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'qffl/synthetic'"):
        read_packaged("qffl/syntetic")
