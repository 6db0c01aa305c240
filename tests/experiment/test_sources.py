"""A user's own table as a plan's data: what is not given leaves no key, and the order of the groups survives JSON."""

import pandas as pd
import pytest

from evenly.experiment.plan import Plan
from evenly.experiment.sources import load, table_source


@pytest.fixture
def path(tmp_path):
    frame = pd.DataFrame({"site": ["n", "s"] * 8, "sex": list("ffmm") * 4, "race": list("aabb") * 2 + list("bbaa") * 2})
    frame["x"], frame["ill"] = range(16), [0, 1, 1, 0, 0] * 3 + [1]
    file = tmp_path / "people.csv"
    frame.to_csv(file, index=False)
    return str(file)


def planned(data):
    """The data of a plan that was written and read again."""
    plan = Plan(name="test", data=data, methods=("fedavg",), rounds=1, seeds=(0,))
    return Plan.from_json(plan.to_json()).data


def test_a_plan_without_the_keys_loads_with_the_usual_sides(path):
    data = table_source(path, client="site", label="ill", sensitive="sex")
    assert set(data) == {"path", "sha256", "client", "label", "sensitive"}
    federation = load(planned(data), 0)
    assert (federation.favourable, federation.unprivileged) == (1, (0,))
    assert federation.partition == "column site"


def test_the_first_column_named_decides_after_json_too(path):
    data = table_source(path, client="site", label="ill", sensitive="race, sex", favourable="0", unprivileged=["sex=m", "race=b"])
    federation = load(planned(data), 0)
    assert federation.labels[federation.favourable] == "0"
    assert [federation.groups[g] for g in federation.unprivileged] == ["race=a, sex=m", "race=b, sex=m"]
    assert {a.name: a.values[a.unprivileged] for a in federation.attributes} == {"race": "b", "sex": "m"}


@pytest.mark.parametrize("text", ["m", "sex=m"])
def test_a_single_column_may_be_left_unnamed(path, text):
    federation = load(planned(table_source(path, client="site", label="ill", sensitive="sex", unprivileged=[text])), 0)
    assert [federation.groups[g] for g in federation.unprivileged] == ["m"]
