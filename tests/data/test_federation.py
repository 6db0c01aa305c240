"""A table or arrays become a federation in which every row has one place, or an error says what is
wrong and where.
"""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.data.columns import Fact
from evenly.data.federation import Federation
from evenly.data.sensitive import Attribute
from evenly.data.sides import side_facts, unprivileged_words
from evenly.data.splits import SPLITS, split_rows


def table(rows: int = 60) -> pd.DataFrame:
    draw = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "site": draw.choice(["north", "south", "east"], rows),
            "y": draw.choice(["no", "yes"], rows),
            "sex": draw.choice(["F", "M"], rows),
            "race": draw.choice(["a", "b"], rows),
            "age": draw.normal(40, 10, rows),
            "job": draw.choice(["cook", "nurse"], rows),
        }
    )


def federate(frame: Any, **changes: Any) -> Federation:
    return Federation.from_frame(
        frame, **{"client": "site", "label": "y", "sensitive": ["sex", "race"], **changes}
    )


def places(federation: Federation) -> list[int]:
    return sorted(
        [*np.concatenate([federation.split(s).rows for s in SPLITS]), *federation.central]
    )


def test_a_table_becomes_a_federation():
    federation = federate(table(), sensitive="sex")
    assert federation.names == ("east", "north", "south")
    assert federation.labels == ("no", "yes")
    assert federation.groups == ("F", "M")
    assert federation.encoder is not None
    assert federation.encoder.features == ("race=a", "race=b", "age", "job=cook", "job=nurse")
    assert federation.x.shape == (60, 5)
    assert places(federation) == list(range(60))
    frame = table()
    for k, name in enumerate(federation.names):
        assert set(frame["site"].iloc[federation.train.of(k)]) == {name}
    trained = federation.x[federation.train.rows, 2]
    assert abs(trained.mean()) < 1e-6
    assert trained.std() == pytest.approx(1.0, abs=1e-5)


def test_several_sensitive_columns_make_intersections():
    frame = table()
    federation = federate(frame)
    assert federation.groups == ("sex=F, race=a", "sex=F, race=b", "sex=M, race=a", "sex=M, race=b")
    assert (
        federation.groups[federation.group[7]] == f"sex={frame['sex'][7]}, race={frame['race'][7]}"
    )


def test_who_is_favoured_least_in_training_rows_is_unprivileged_unless_named():
    """It was the first value in the alphabet, whoever they are."""
    frame = table(600)
    frame["y"] = np.where((frame.sex == "M") & (frame.age > 40), "no", "yes")  # fewer men have it
    federation = federate(frame, sensitive="sex")
    assert (federation.favourable, federation.groups, federation.unprivileged) == (
        1,
        ("F", "M"),
        (1,),
    )
    assert federation.attributes == (Attribute("sex", ("F", "M"), (0, 1), 1),)
    # then women are favoured least
    assert federate(frame, sensitive="sex", favourable="no").unprivileged == (0,)
    assert federate(frame, sensitive=()).attributes == ()
    split = np.where(np.arange(600) < 300, "train", "test")
    turned = frame.assign(
        part=split, y=np.where(split == "train", frame.y, np.where(frame.sex == "F", "no", "yes"))
    )
    # test rows do not count
    assert federate(turned, sensitive="sex", split="part").unprivileged == (1,)


def test_with_several_columns_each_has_its_own_unprivileged_value_and_the_first_decides():
    frame = table(600)
    frame["y"] = np.where((frame.sex == "M") & (frame.age > 40) | (frame.race == "b"), "no", "yes")
    federation = federate(frame)
    assert {a.name: a.values[a.unprivileged] for a in federation.attributes} == {
        "sex": "M",
        "race": "b",
    }
    assert [federation.groups[g] for g in federation.unprivileged] == [
        "sex=M, race=a",
        "sex=M, race=b",
    ]
    assert unprivileged_words(federation) == "sex=M (compared here), race=b"
    named = federate(frame, unprivileged={"race": "a"})
    assert {a.name: a.values[a.unprivileged] for a in named.attributes} == {"sex": "M", "race": "a"}
    assert unprivileged_words(named) == "race=a (compared here), sex=M"


def test_a_value_with_few_rows_is_not_taken_for_the_least_favoured():
    frame = table(600).assign(race=["rare"] * 5 + ["a", "b"] * 297 + ["a"])
    frame["y"] = np.where(
        frame.race == "rare", "no", np.where((frame.race == "b") & (frame.age > 40), "no", "yes")
    )
    # b, not the five of whom none has it
    assert federate(frame, sensitive="race").attributes[0].unprivileged == 1


@pytest.mark.parametrize(
    ("values", "favourable"),
    [
        (["no", "yes"], "yes"),
        (["N", "Y"], "Y"),
        (["ja", "nein"], "ja"),
        ([True, False], "True"),
        ([0, 1], "1"),
        ([1, 2], "2"),
        ([-1, 1], "1"),
    ],
)
def test_numbers_and_yes_and_no_say_which_label_is_favourable(values: list[Any], favourable: str):
    federation = federate(table().assign(y=np.resize(np.array(values), 60)))
    assert federation.labels[federation.favourable] == favourable


@pytest.mark.parametrize("values", [["bad", "good"], ["no", "perhaps", "yes"], [0, 1, 2]])
def test_other_labels_must_be_named_where_groups_are_compared(values: list[Any]):
    """Of good and bad it was the second in the alphabet."""
    frame = table().assign(y=np.resize(np.array(values), 60))
    with pytest.raises(
        ValueError,
        match=(
            r"Groups are compared by the label that people want to get, and"
            r" .*--favourable.*favourable= in Python"
        ),
    ):
        federate(frame)
    assert federate(frame, favourable=values[0]).favourable == 0
    assert federate(frame, sensitive=()).favourable == 1


def test_mistakes_about_labels_and_about_features_are_told_together():
    frame = table().assign(y=["bad", "good"] * 30, id=[f"p{i}" for i in range(60)])
    with pytest.raises(
        ValueError,
        match=r"--favourable bad or --favourable good .*'id' looks like an identifier.*--drop id",
    ):
        federate(frame)


def test_facts_about_sides_say_what_was_assumed_and_how_to_change_it():
    frame = table(600)
    frame["y"] = np.where((frame.sex == "M") & (frame.age > 40), "no", "yes")
    favourable, sex = side_facts(federate(frame, sensitive="sex", seed=1), ["favourable", "sex"])
    assert favourable == Fact(
        "favourable", "the label 'yes' (assumed; change it with --favourable)"
    )
    share = 100 * (frame.y[frame.sex == "M"] == "yes").mean()
    assert re.match(
        r"sex=M: (\d+) % of them are 'yes', 100 % of all others \(assumed, because it has the"
        r" lowest share; change it with",
        sex.text,
    )
    assert abs(int(sex.text.split()[1]) - share) < 5  # of training rows
    assert side_facts(federate(frame, sensitive="sex"))[0] == Fact("favourable", "the label 'yes'")
    assert side_facts(federate(frame, sensitive=())) == []


def test_named_favourable_label_and_unprivileged_value():
    federation = federate(table(), sensitive="sex", favourable="no", unprivileged="M")
    assert (federation.favourable, federation.unprivileged) == (0, (1,))
    assert federation.attributes[0].unprivileged == 1
    census = federation.census()
    assert (census.favourable, census.unprivileged) == (0, (1,))
    assert federate(table(), sensitive="sex", unprivileged={"sex": "M"}).unprivileged == (1,)
    numbers = federate(
        table().assign(y=np.arange(60) % 3 + 1, sex=np.arange(60) % 2),
        sensitive="sex",
        favourable=3.0,
        unprivileged=1,
    )
    assert (numbers.labels, numbers.favourable, numbers.unprivileged) == (("1", "2", "3"), 2, (1,))


def test_the_first_column_of_a_dict_decides_and_every_attribute_keeps_its_value():
    federation = federate(table(), unprivileged={"race": "b", "sex": "M"})
    assert federation.groups == ("sex=F, race=a", "sex=F, race=b", "sex=M, race=a", "sex=M, race=b")
    assert federation.attributes == (
        Attribute("sex", ("F", "M"), (0, 0, 1, 1), 1),
        Attribute("race", ("a", "b"), (0, 1, 0, 1), 1),
    )
    assert federation.unprivileged == (1, 3)
    assert federate(table(), unprivileged={"sex": "M"}).unprivileged == (2, 3)


def test_only_intersections_that_occur_are_groups():
    frame = table().assign(race=lambda t: np.where(t["sex"] == "F", "a", t["race"]))
    federation = federate(frame, unprivileged={"sex": "M"})
    assert federation.groups == ("sex=F, race=a", "sex=M, race=a", "sex=M, race=b")
    assert federation.unprivileged == (1, 2)
    assert federation.attributes[1].of_group == (0, 0, 1)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"sensitive": "gender"}, "must have the column 'gender'; it has 'site', 'y'"),
        (
            {"sex": "F"},
            {},
            (
                "Column 'sex' must hold at least two values to make groups, but every row holds"
                " 'F'. Choose another"
            ),
        ),
        (
            {"sex": range(60)},
            {},
            "Column 'sex' must have at most 50 different numbers to make groups, got 60. Cut it",
        ),
        # as a CSV file has them
        (
            {"sex": [f"{i}.5" for i in range(60)]},
            {},
            "Column 'sex' must have at most 50 different numbers",
        ),
        ({}, {"favourable": "Yes"}, "There is no label 'Yes'. Did you mean 'yes'. Known: no, yes"),
        (
            {},
            {"sensitive": "sex", "unprivileged": "X"},
            "There is no value 'X' in column 'sex'.*Known: F, M",
        ),
        (
            {},
            {"unprivileged": "F"},
            (
                r"several sensitive columns, unprivileged must be a dict such as {'sex': value},"
                r" got 'F'"
            ),
        ),
        (
            {},
            {"unprivileged": {"rac": "a"}},
            "There is no sensitive column 'rac'. Did you mean 'race'",
        ),
        (
            {},
            {"sensitive": (), "unprivileged": "F"},
            "unprivileged='F' needs a sensitive column; none is given",
        ),
    ],
)
def test_errors_about_groups_say_what_is_wrong(
    change: dict[str, Any], options: dict[str, Any], message: str
):
    with pytest.raises(ValueError, match=message):
        federate(table().assign(**change), **options)


def test_too_many_intersections_are_refused():
    many = {"a": np.arange(2000) % 50, "b": np.arange(2000) // 50, "c": np.arange(2000) % 2}
    with pytest.raises(
        ValueError, match="The sensitive columns a, b, c must make at most 1000 groups, got 2000"
    ):
        Federation.from_arrays(np.ones((2000, 1)), np.arange(2000) % 2, np.zeros(2000), group=many)
    # 10^24 combinations do not fit a 64-bit number
    wide = {str(i): np.arange(1000) for i in range(8)}
    with pytest.raises(
        ValueError, match="must make at most 1000 groups, got 1000000000000000000000000"
    ):
        Federation.from_arrays(np.ones((1000, 1)), np.arange(1000) % 2, np.zeros(1000), group=wide)


def test_arrays_take_several_attributes_by_name():
    federation = arrays(
        group={"sex": ["m", "f", "f", "m"], "old": [True, True, False, False]},
        unprivileged={"old": True},
        favourable=0,
    )
    assert federation.groups == (
        "sex=f, old=False",
        "sex=f, old=True",
        "sex=m, old=False",
        "sex=m, old=True",
    )
    assert (federation.group.tolist(), federation.unprivileged, federation.favourable) == (
        [3, 1, 0, 2],
        (1, 3),
        0,
    )


def test_sensitive_columns_are_features_only_when_listed():
    assert federate(table()).encoder.features == (
        "age",
        "job=cook",
        "job=nurse",
    )  # pyright: ignore[reportOptionalMemberAccess]
    assert federate(table(), features=["sex", "age", "age"]).encoder.features == (
        "sex=F",
        "sex=M",
        "age",
    )  # pyright: ignore[reportOptionalMemberAccess]
    assert federate(table(), features="age").x.shape == (60, 1)


def test_without_sensitive_columns_there_is_one_group():
    federation = federate(table(), sensitive=())
    assert federation.groups == ("all",)
    assert (federation.group == 0).all()


def test_row_order_and_index_do_not_change_names():
    frame = table()
    frame.loc[5, "job"] = None
    frame.loc[9, "job"] = "rare"
    frame.loc[9, "age"] = None
    first = federate(frame)
    for seed in range(5):
        other = federate(frame.sample(frac=1, random_state=seed), seed=seed)
        assert (other.names, other.labels, other.groups) == (
            first.names,
            first.labels,
            first.groups,
        )


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (pd.Series(["yes", "no"] * 30), ("no", "yes")),
        (pd.Series(["yes", "no"] * 30, dtype="category"), ("no", "yes")),
        (pd.Series([True, False] * 30), ("False", "True")),
        (pd.Series([True, False] * 30, dtype="boolean"), ("False", "True")),
        (pd.Series([10, 9] * 30), ("9", "10")),
        (pd.Series([1, -1] * 30, dtype="Int64"), ("-1", "1")),
        (pd.Series([1.0, 0.0] * 30), ("0", "1")),
    ],
)
def test_labels_of_every_kind(values: pd.Series, labels: tuple[str, ...]):
    federation = federate(table().assign(y=values))
    assert federation.labels == labels
    np.testing.assert_array_equal(federation.y, [1, 0] * 30)


def test_clients_with_one_row_train_on_it():
    frame = table()
    frame.loc[0, "site"] = "alone"
    federation = federate(frame)
    assert federation.train.of(federation.names.index("alone")).tolist() == [0]
    assert (federation.train.counts >= 1).all()


def test_numbered_clients_are_sorted_as_numbers():
    assert federate(table().assign(site=np.arange(60) % 12)).names == tuple(
        str(k) for k in range(12)
    )


def test_a_split_column_decides_instead_of_chance():
    part = np.array(["train", "train", "test", "valid", "central"] * 12)
    frame = table().assign(part=part)
    frame.loc[4, "site"] = None  # a central row belongs to no client
    federation = federate(frame, split="part", seed=9)
    for name in SPLITS:
        assert sorted(federation.split(name).rows) == np.flatnonzero(part == name).tolist()
    assert federation.central.tolist() == np.flatnonzero(part == "central").tolist()
    assert places(federation) == list(range(60))
    assert federation.encoder is not None
    assert federation.encoder.features == ("age", "job=cook", "job=nurse")
    assert set(frame["site"].iloc[federation.test.of(0)]) == {"east"}


def test_clients_only_in_the_central_test_set_are_not_clients():
    frame = table().assign(part="train")
    frame.loc[frame["site"] == "north", "part"] = "central"
    assert federate(frame, split="part").names == ("east", "south")


def test_split_errors_say_what_is_wrong():
    frame = table().assign(part="train")
    with pytest.raises(
        ValueError,
        match=(
            r"Column 'part' must hold train, valid, test or central; row 3 \(counting from 0\)"
            r" holds 'Train'"
        ),
    ):
        federate(frame.assign(part=["train"] * 3 + ["Train"] * 57), split="part")
    with pytest.raises(
        ValueError, match=r"Column 'part' must be filled in every row; 30 .* row 1 "
    ):
        federate(frame.assign(part=["train", None] * 30), split="part")
    with pytest.raises(ValueError, match="some rows; all of them hold central"):
        federate(frame.assign(part="central"), split="part")
    with pytest.raises(
        ValueError, match="Every client must have a row with split 'train'; client 'north' has none"
    ):
        federate(
            frame.assign(part=np.where(frame["site"] == "north", "test", "train")), split="part"
        )
    with pytest.raises(ValueError, match="The split 'site' must be a column of its own"):
        federate(frame, split="site")


@pytest.mark.parametrize("column", ["site", "y", "sex"])
@pytest.mark.parametrize("gap", [None, np.nan])
def test_gaps_in_client_label_and_sensitive_columns_are_refused(column: str, gap: Any):
    frame = table()
    frame.loc[17, column] = gap
    advice = "Fill these rows, for example with 'not stated'" if column == "sex" else "Fill or drop"
    with pytest.raises(
        ValueError,
        match=(
            rf"Column '{column}' must be filled in every row; 1 of 60 rows is empty, the first is"
            rf" row 17 \(counting from 0\)\. {advice}"
        ),
    ):
        federate(frame)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"y": "yes"}, {}, "Column 'y' must hold at least two classes, got only 'yes'"),
        (
            {"y": np.arange(60) % 3 / 2},
            {},
            r"Column 'y' must hold classes .* row 1 \(counting from 0\) holds 0.5",
        ),
        (
            {"y": range(20, 80)},
            {},
            (
                r"'y' must hold classes, but it holds 60 different numbers from 20 to"
                r" 79.*cut\(column, \[-inf, 39"
            ),
        ),
        (
            {"y": np.linspace(0, 1, 60)},
            {},
            "Column 'y' must hold classes, but it holds 60 different numbers from 0 to 1",
        ),
        ({}, {"features": ["y"]}, "features must not hold the label column 'y'"),
        ({}, {"label": "site"}, "The label 'site' must be a column of its own"),
        ({}, {"label": "income"}, "must have the column 'income'; it has 'site', 'y'"),
        (
            {},
            {"client": "Site", "label": "jib"},
            r"must have the columns 'Site', 'jib'; it has .*\. Did you mean 'site', 'job'\?",
        ),
        ({}, {"features": ["aeg"]}, "There is no column 'aeg' for features. Did you mean 'age'"),
        ({}, {"drop": "jobs"}, "There is no column 'jobs' for drop. Did you mean 'job'"),
        ({}, {"drop": ["sex"]}, "drop must not hold 'sex', which is the sensitive column"),
        ({}, {"drop": ["age"], "features": ["age"]}, "Column 'age' is in features and in drop"),
        ({}, {"features": []}, "at least one feature column"),
        (
            {"id": [f"p{i}" for i in range(60)]},
            {},
            r"'id' looks like an identifier \(60 different values in 60 rows\). Leave it out with",
        ),
        ({}, {"shares": (0.9, 0.2)}, r"shares must be \(train, valid\)"),
    ],
)
def test_errors_name_the_column_and_what_to_do(
    change: dict[str, Any], options: dict[str, Any], message: str
):
    with pytest.raises(ValueError, match=message):
        federate(table().assign(**change), **options)


def test_empty_tables_duplicate_columns_and_other_objects_are_refused():
    with pytest.raises(ValueError, match="at least one row; it is empty"):
        federate(table()[:0])
    twice = pd.concat([table(), table()[["age"]]], axis=1)
    with pytest.raises(ValueError, match=r"'age' occurs 2 times\. Rename or drop one"):
        federate(twice)
    with pytest.raises(TypeError, match="pandas DataFrame, got a dict"):
        federate(table().to_dict())
    with pytest.raises(
        ValueError, match=r"'when' holds dates or times\. Leave it out with --drop when"
    ):
        federate(table().assign(when=pd.Timestamp("2020-01-01")))
    with pytest.raises(TypeError, match="Column 'when' holds dates"):
        federate(table().assign(when=pd.Timestamp("2020-01-01")), features=["when"])


def test_test_rows_do_not_decide_which_features_there_are():
    """A category and a gap of test rows alone leave no feature; they would be seen before
    the test.
    """
    frame = table().assign(part=["train"] * 40 + ["test"] * 20)
    frame.loc[50, "job"], frame.loc[51, "age"] = "astronaut", None
    federation = federate(frame, split="part")
    assert federation.encoder is not None
    assert federation.encoder.features == ("age", "job=cook", "job=nurse")
    assert federation.x[50, 1:].tolist() == [0, 0]


def test_columns_are_dropped_and_what_is_not_used_is_known():
    federation = federate(table().assign(id=range(60)), drop="id")
    assert federation.encoder is not None
    assert (federation.encoder.features, federation.encoder.unused) == (
        ("age", "job=cook", "job=nurse"),
        ("id",),
    )
    chosen = federate(table().assign(id=range(60)), features=["id", "age"]).encoder
    assert chosen is not None
    assert (chosen.features, chosen.unused) == (("id", "age"), ("job",))


def test_text_with_very_many_categories_is_warned_about_with_its_count():
    many = table().assign(ward=[f"ward {i % 57}" for i in range(60)])
    with pytest.raises(ValueError, match="'ward' looks like an identifier"):
        federate(many)
    large = pd.concat([many] * 5, ignore_index=True)
    with pytest.warns(
        UserWarning,
        match=(
            "'ward' holds 57 different words, each a 0/1 feature of its own. Merge rare words, or"
            " add ward"
        ),
    ):
        federate(large)
    with pytest.warns(
        UserWarning,
        match=(
            r"'age' holds 5. different words.*Nearly all of them are numbers: is a missing value"
            r" marked"
        ),
    ):
        federate(
            large.assign(age=np.where(np.arange(300) == 3, "?", (np.arange(300) % 53).astype(str))),
            drop=["ward"],
        )


def arrays(**changes: Any) -> Federation:
    given = {"x": np.ones((4, 2)), "y": [0, 1, 0, 1], "client": ["a", "a", "b", "b"], **changes}
    return Federation.from_arrays(given.pop("x"), given.pop("y"), given.pop("client"), **given)


def test_arrays_become_a_federation():
    federation = arrays(group=["m", "f", "f", "m"], split=["train", "test", "train", "valid"])
    assert federation.x.dtype == np.float32
    assert (federation.names, federation.labels, federation.groups) == (
        ("a", "b"),
        ("0", "1"),
        ("f", "m"),
    )
    assert (
        federation.train.rows.tolist(),
        federation.test.rows.tolist(),
        federation.valid.of(1).tolist(),
    ) == ([0, 2], [1], [3])
    assert federation.census().cells.tolist() == [[[0, 0], [1, 0]], [[1, 0], [0, 0]]]


def test_arrays_may_be_columns_of_a_table():
    frame = table()
    federation = Federation.from_arrays(
        frame[["age"]], frame["y"], frame["site"].astype("category"), group=frame["sex"]
    )
    assert federation.names == ("east", "north", "south")
    assert federation.labels == ("no", "yes")


def test_images_keep_their_type_and_floats_become_float32():
    assert arrays(x=np.zeros((4, 3, 3), np.uint8)).x.dtype == np.uint8
    assert arrays(x=np.zeros((4, 3, 3))).x.dtype == np.float32


class Endless:
    """A data set that makes its examples up, and never raises IndexError."""

    def __len__(self):
        return 4

    def __getitem__(self, number: int):
        assert number < 4, "read beyond the end"
        return {"x": np.zeros(2)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"x": [[1, 2], [3, np.nan], [1, 1], [1, 1]]},
            ValueError,
            r"row 1 \(counting from 0\) holds NaN, infinity or a huge number",
        ),
        ({"x": [[1], [2], [1e300], [1]]}, ValueError, "row 2 .* huge number"),
        ({"x": np.zeros((4, 2, 2)) / 1 - np.inf}, ValueError, "row 0"),
        ({"x": [["a"]] * 4}, TypeError, "x must hold numbers, got dtype <U1"),
        ({"x": [[1], [1, 2], [1], [1]]}, TypeError, "an array, got a list whose rows have no"),
        ({"x": [1, 2, 3, 4]}, ValueError, r"got shape \(4,\). Try x.reshape"),
        ({"x": [{"x": 1}] * 4}, TypeError, r"Of a Dataset, pass the inputs"),
        ({"x": Endless()}, TypeError, r"got a Endless .* Of a Dataset, pass the inputs"),
        (
            {"y": [[0, 1]] * 4},
            ValueError,
            r"y must have one value per row, got an array of shape \(4, 2\)",
        ),
        ({"y": [0, 1, np.nan, 1]}, ValueError, r"y must be filled in every row; .* row 2"),
        (
            {"y": np.array([0, 1, np.nan, 1])},
            ValueError,
            r"y must be filled in every row; .* row 2",
        ),
        (
            {"client": ["a", "b", None, "a"]},
            ValueError,
            "client must be filled in every row; .* row 2",
        ),
        (
            {"group": ["a", "b", "a", float("nan")]},
            ValueError,
            "group must be filled in every row; .* row 3",
        ),
        ({"y": [1] * 4}, ValueError, "y must hold at least two classes, got only '1'"),
        (
            {"y": [0, 1]},
            ValueError,
            "one entry per row everywhere, got 4 for x, 2 for y, 4 for client",
        ),
        ({"x": np.ones((0, 2)), "y": [], "client": []}, ValueError, "at least one row, got none"),
        ({"y": [0.5, 1, 2, 3]}, ValueError, r"y must hold classes .* row 0"),
    ],
)
def test_wrong_arrays_are_refused(change: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        arrays(**change)


def test_thousands_of_classes_or_groups_are_refused():
    many = np.arange(2002)
    with pytest.raises(ValueError, match="y must have at most 1000 different values, got 2002"):
        Federation.from_arrays(np.ones((2002, 1)), many, many % 2)
    with pytest.raises(ValueError, match="group must have at most 1000 different values, got 1001"):
        Federation.from_arrays(np.ones((2002, 1)), many % 2, many % 2, group=many // 2)


owners = st.lists(st.integers(0, 4), min_size=1, max_size=60).map(np.array)
cuts = st.tuples(st.floats(0.01, 1), st.floats(0, 1)).filter(lambda s: s[0] + s[1] <= 1)


@given(owners, cuts, st.integers(0, 2**32))
def test_a_random_split_covers_every_row_once_and_leaves_no_client_untrained(
    owner: np.ndarray, shares: tuple[float, float], seed: int
):
    names, owner = np.unique(owner, return_inverse=True)
    parts = split_rows(owner, len(names), shares=shares, seed=seed)
    assert sorted(np.concatenate([p.rows for p in parts])) == list(range(len(owner)))
    assert (parts[0].counts >= 1).all()
    for part in parts:
        assert (owner[part.rows] == np.repeat(np.arange(len(names)), part.counts)).all()


@given(owners, st.data())
def test_a_given_split_covers_every_row_once(owner: np.ndarray, data: st.DataObject):
    part = data.draw(
        st.lists(st.sampled_from([*SPLITS, "central"]), min_size=len(owner), max_size=len(owner))
    )
    _, first = np.unique(owner, return_index=True)
    for row in first:
        part[row] = "train"
    y = np.arange(len(owner) + 1) % 2
    federation = Federation.from_arrays(
        np.ones((len(y), 1)), y, [*owner, owner[0]], split=[*part, "test"]
    )
    assert places(federation) == list(range(len(y)))


def test_the_split_is_the_same_for_a_seed_and_differs_between_seeds():
    rows = [federate(table(), seed=seed).train.rows.tolist() for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]


def renamed(frame: pd.DataFrame, index: Any) -> pd.DataFrame:
    return frame.set_axis(index, axis=0)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        lambda frame: frame.iloc[::-1],
        lambda frame: frame.sample(frac=1, random_state=1),
        lambda frame: frame[frame["age"] > 30],
        lambda frame: renamed(frame, [f"row {i}" for i in range(len(frame))]),
        lambda frame: renamed(frame, np.arange(len(frame)) % 7),
        lambda frame: renamed(frame, pd.MultiIndex.from_product([range(12), list("abcde")])),
        lambda frame: renamed(frame, pd.date_range("2024-01-01", periods=len(frame))),
    ],
)
@pytest.mark.parametrize("split", [None, "part"])
def test_groups_of_clients_do_not_depend_on_the_index_of_a_table(change: Any, split: Any):
    frame = table()
    frame["kind"] = np.where(frame["site"] == "north", "rural", "urban")
    frame["part"] = np.where(np.arange(len(frame)) % 5, "train", "test")
    found = federate(change(frame), client_group="kind", split=split, drop=["part"] * (not split))
    assert found.names == ("east", "north", "south")
    assert found.client_group is not None
    assert found.client_group.tolist() == [1, 0, 1]
