"""A user's own table as a plan's data: what is not given leaves no key, and the order of the groups
survives JSON.
"""

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenly.data.encoding import TableColumn
from evenly.datasets.load import load, read_table, table_source
from evenly.experiment.plan import Plan


@pytest.fixture
def path(tmp_path):
    frame = pd.DataFrame(
        {
            "site": ["n", "s"] * 8,
            "sex": list("ffmm") * 4,
            "race": list("aabb") * 2 + list("bbaa") * 2,
        }
    )
    frame["x"], frame["ill"] = range(16), [0, 1, 1, 0, 0] * 3 + [1]
    file = tmp_path / "people.csv"
    frame.to_csv(file, index=False)
    return str(file)


def written(tmp_path, text):
    path = tmp_path / "own.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "header", ["site,y,x,y", "site,y,x, y", "\ufeffsite,y,x,site", '"y",y,site,x']
)
def test_duplicate_column_names_are_refused(tmp_path, header):
    """A second column y was read as `y.1`, became a feature, and gave the label away."""
    path = written(tmp_path, f"{header}\nn,0,1,0\ns,1,2,1\n")
    with pytest.raises(
        ValueError,
        match=r"own.csv: column names must be different, but '(y|site)' occurs more than once",
    ):
        read_table(path)


def test_duplicate_column_names_of_parquet_are_refused(tmp_path):
    pq.write_table(pa.table([[1], [2]], names=["y", "y"]), tmp_path / "own.parquet")
    with pytest.raises(
        ValueError, match=r"own.parquet: column names must be different, but 'y' occurs"
    ):
        read_table(tmp_path / "own.parquet")


def test_rows_longer_than_the_header_are_refused(tmp_path):
    """pandas took the first value of each row for its name, and every column held the values of the
    next.
    """
    with pytest.raises(
        ValueError,
        match=r"as many values in a row as names in its header \(3\), but rows have more",
    ):
        read_table(written(tmp_path, "site,y,x\nn,0,1,0\ns,1,2,1\n"))


@pytest.mark.parametrize("rows", ["site;y;x\nn;0;1,5\n", "site;y\nn;0\n"])
def test_semicolons_are_named(tmp_path, rows: str):
    with pytest.raises(ValueError, match=r"must separate values by commas, .* has semicolons"):
        read_table(written(tmp_path, rows))


def test_clients_and_groups_are_told_apart_as_they_are_written(tmp_path):
    """Clients 007 and 7 were one, and so were whole numbers that are only different in their last
    digits.
    """
    big = [str(2**60 + i) for i in range(4)]
    rows = [
        f"{client},{group},{i % 2},{i}.5"
        for i, (client, group) in enumerate(zip(["007", "7", " 7", ""] * 4, big * 4, strict=True))
    ]
    path = written(
        tmp_path,
        "site,who,y,x\n" + "\n".join(row for row in rows if not row.startswith(",")) + "\n",
    )
    federation = load(table_source(str(path), client="site", label="y", sensitive="who"), 0)
    assert federation.names == ("007", "7")
    assert federation.groups == tuple(big[:3])
    gap = written(tmp_path, "site,y\n1.0,a\n,b\n2.0,c\n")
    # as a program writes whole numbers beside gaps
    assert read_table(gap, ["site"])["site"].fillna("none").tolist() == ["1", "none", "2"]
    pq.write_table(pa.table({"site": pa.array([2**60, None, 2**60 + 1])}), tmp_path / "own.parquet")
    assert TableColumn.of(
        "site", read_table(tmp_path / "own.parquet")["site"]
    ).words().tolist() == [
        str(2**60),
        "(missing)",
        str(2**60 + 1),
    ]


def test_features_and_dropped_columns_are_kept_in_the_plan(tmp_path):
    path = written(
        tmp_path,
        "id,site,y,x,z\n"
        + "".join(f"p{i},{'ns'[i % 2]},{i % 3 % 2},{i / 7},{i / 3}\n" for i in range(40)),
    )
    with pytest.raises(ValueError, match=r"'id' looks like an identifier .* --drop id "):
        load(table_source(str(path), client="site", label="y"), 0)
    dropped = planned(table_source(str(path), client="site", label="y", drop="id, z"))
    assert dropped["drop"] == ["id", "z"]
    chosen = planned(table_source(str(path), client="site", label="y", features=["z"]))
    for data, features in ((dropped, ("x",)), (chosen, ("z",))):
        encoder = load(data, 0).encoder
        assert encoder is not None
        assert encoder.features == features
    with pytest.raises(
        ValueError, match=r"There is no column 'zz' for features\. Did you mean 'z'"
    ):
        load(table_source(str(path), client="site", label="y", features="zz"), 0)


def planned(data):
    """The data of a plan that was written and read again."""
    plan = Plan(name="test", data=data, methods=("fedavg",), rounds=1, seeds=(0,))
    return Plan.from_json(plan.to_json()).data


def test_a_plan_from_before_there_were_the_keys_goes_on_as_it_began(path):
    old = {"path": path, "client": "site", "label": "ill", "sensitive": ["sex", "race"]}
    federation = load(planned(old), 0)
    assert (federation.favourable, federation.unprivileged) == (1, (0,))
    assert federation.partition == "column site"
    assert set(table_source(path, client="site", label="ill")) == {
        "path",
        "sha256",
        "client",
        "label",
        "sensitive",
    }


def test_what_the_user_leaves_open_is_settled_in_the_plan_for_all_seeds(path):
    """Seeds whose training rows favour others must still compare the same people."""
    data = table_source(
        path, client="site", label="ill", sensitive="sex,race", unprivileged=["race=a"]
    )
    assert data["favourable"] == "1"
    assert data["unprivileged"][0] == ["race", "a"]
    assert [name for name, _ in data["unprivileged"]] == ["race", "sex"]
    assert data["assumed"] == ["favourable", "sex"]
    every = [load(planned(data), seed) for seed in range(6)]
    assert len({(f.favourable, f.unprivileged, f.attributes) for f in every}) == 1
    assert "assumed" not in table_source(
        path, client="site", label="ill", sensitive="sex", favourable="0", unprivileged=["m"]
    )


def test_the_first_column_named_decides_after_json_too(path):
    data = table_source(
        path,
        client="site",
        label="ill",
        sensitive="race, sex",
        favourable="0",
        unprivileged=["sex=m", "race=b"],
    )
    federation = load(planned(data), 0)
    assert federation.labels[federation.favourable] == "0"
    assert [federation.groups[g] for g in federation.unprivileged] == [
        "race=a, sex=m",
        "race=b, sex=m",
    ]
    assert {a.name: a.values[a.unprivileged] for a in federation.attributes} == {
        "race": "b",
        "sex": "m",
    }


@pytest.mark.parametrize("text", ["m", "sex=m"])
def test_a_single_column_may_be_left_unnamed(path, text):
    federation = load(
        planned(
            table_source(path, client="site", label="ill", sensitive="sex", unprivileged=[text])
        ),
        0,
    )
    assert [federation.groups[g] for g in federation.unprivileged] == ["m"]
