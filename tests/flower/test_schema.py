"""A client that has only its own rows and the schema encodes and splits them as a simulation on the
whole table does.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.flower.app import Schema, client_of_table, read_schema, schema_of, write_schema
from evenly.flower.clients.rows import client_of

ROLES = {"client": "hospital", "label": "returned", "sensitive": ("sex", "race")}


@pytest.fixture
def frame() -> pd.DataFrame:
    draw, n = np.random.Generator(np.random.Philox(3)), 300
    people = {
        name: draw.choice(values, n)
        for name, values in {
            "hospital": ["9", "10", "11"],
            "sex": ["f", "m"],
            "race": ["a", "b"],
        }.items()
    }
    age = np.where(draw.random(n) < 0.1, np.nan, draw.normal(60, 12, n))
    return pd.DataFrame(
        {
            **people,
            "age": age,
            "ward": draw.choice(["heart", None, "ear"], n),
            "returned": draw.choice([0, 1], n),
        }
    )  # pyright: ignore[reportCallIssue, reportArgumentType]


def federation(frame: pd.DataFrame) -> Federation:
    return Federation.from_frame(frame, **ROLES, seed=5)


def schema(frame: pd.DataFrame) -> Schema:
    return schema_of(federation(frame), **ROLES)


@pytest.mark.parametrize("own", [False, True], ids=["whole table", "its own table"])
def test_rows_are_those_of_a_simulation(frame: pd.DataFrame, tmp_path: Path, own: bool):
    write_schema(schema(frame), tmp_path / "schema.json")
    kept = read_schema(tmp_path / "schema.json")
    whole = federation(frame)
    assert whole.names == ("9", "10", "11")
    for number, name in enumerate(whole.names):
        table = frame[frame.hospital == name].drop(columns="hospital") if own else frame
        found, wanted = client_of_table(kept, table, name, seed=5), client_of(whole, number)
        for split in SPLITS:
            for mine, theirs in zip(found.splits[split], wanted.splits[split], strict=True):
                np.testing.assert_array_equal(mine, theirs)
        rest = {"train": None, "valid": None, "test": None}
        assert found._replace(**rest) == wanted._replace(**rest)


def test_a_schema_holds_no_rows(frame: pd.DataFrame, tmp_path: Path):
    frame.loc[:, "age"] = np.round(frame.age, 6)
    write_schema(schema(frame), tmp_path / "schema.json")
    text = (tmp_path / "schema.json").read_text()
    assert not any(str(age) in text for age in frame.age.dropna())


def test_one_person_of_an_unknown_group_is_an_error_that_names_it(frame: pd.DataFrame):
    known = schema(frame)
    frame.loc[7, "race"] = "c"
    with pytest.raises(
        ValueError, match=rf"sex={frame.sex[7]}, race=c, which is none of the schema's groups"
    ):
        client_of_table(known, frame, str(frame.hospital[7]))


def test_an_unknown_label_or_client_is_an_error_that_names_it(frame: pd.DataFrame):
    known = schema(frame)
    with pytest.raises(ValueError, match="no client '12'"):
        client_of_table(known, frame, "12")
    frame.loc[0, "returned"] = 2
    with pytest.raises(ValueError, match=r"no label in Column 'returned' '2'"):
        client_of_table(known, frame, str(frame.hospital[0]))
    with pytest.raises(ValueError, match="no row of client '9'"):
        client_of_table(known, frame[frame.hospital != "9"], "9")


def test_a_damaged_schema_says_how_to_make_it_again(frame: pd.DataFrame, tmp_path: Path):
    path = tmp_path / "schema.json"
    write_schema(schema(frame), path)
    path.write_text(path.read_text().replace('"labels"', '"lables"'))
    with pytest.raises(ValueError, match="evenly flower new"):
        read_schema(path)
    path.write_text(path.read_text()[:50])
    with pytest.raises(ValueError, match="not a complete schema"):
        read_schema(path)


def test_a_schema_carries_its_format_and_one_of_a_later_format_is_refused(
    frame: pd.DataFrame, tmp_path: Path
):
    path = tmp_path / "schema.json"
    write_schema(schema(frame), path)
    known = json.loads(path.read_text())
    assert known["format"] == 2
    path.write_text(json.dumps(known | {"format": 3}))
    with pytest.raises(ValueError, match=r"Update evenly\."):
        read_schema(path)


def test_without_sensitive_columns_there_is_one_group(frame: pd.DataFrame):
    roles = {**ROLES, "sensitive": ()}
    plain = frame.drop(columns=["sex", "race"])
    known = schema_of(Federation.from_frame(plain, **roles), **roles)
    found = client_of_table(known, plain, "10")
    assert known.groups == ("all",)
    assert not found.train.group.any()
