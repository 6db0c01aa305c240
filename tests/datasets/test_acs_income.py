"""ACSIncome: counts of the real files, both formats read alike, states, groups and what a broken
file says.
"""

import bz2
import csv
import io

import numpy as np
import pytest

from evenly.datasets import DATASETS, DataError, MissingData, Sizes, acs_income, data_folder
from evenly.datasets.acs_income import CODES, COLUMNS, PLAIN, read_published
from tests.datasets.making import put
from tests.datasets.real_data import need

# One person of each row: age, class of work, schooling, married, occupation, birthplace, relation,
# hours, sex, race, income above 50,000.
PEOPLE = [
    (40, 1, 21, 1, 440, 17, 0, 40, 1, 1, 1),
    (20, 8, 16, 2, 4700, 303, 2, 10, 2, 2, 0),
    (70, 4, 24, 2, 3255, 233, 16, 60, 2, 3, 1),
]


def published(people, columns=COLUMNS) -> bytes:
    lines = [
        ",".join(columns),
        *(",".join([*(f"{v:.1f}" for v in p[:-1]), str(bool(p[-1]))]) for p in people),
    ]
    return ("\n".join(lines) + "\n").encode()


def census(people) -> bytes:
    """The Census Bureau's file: more columns, in another order, empty cells where a question does
    not apply.
    """
    header = ["RT", "SERIALNO", "PWGTP", *reversed(COLUMNS)]
    out = io.StringIO()
    lines = csv.DictWriter(out, header)
    lines.writeheader()
    lines.writerows({"RT": "P", "SERIALNO": "2018HU0001", **person} for person in people)
    return out.getvalue().encode()


def person(**changes: str) -> dict[str, str]:
    usual = dict(
        zip(
            COLUMNS,
            ["40", "1", "21", "1", "0440", "017", "00", "40", "1", "1", "60000"],
            strict=True,
        )
    )
    return usual | {"PWGTP": "12"} | changes


@pytest.mark.data
@pytest.mark.slow
def test_every_state_is_counted():
    need("acs-income")
    federation = acs_income()
    assert Sizes.of(federation) == DATASETS["acs-income"].expected
    assert sum(Sizes.of(federation)[1:]) == 898_610  # counted in the files
    assert (federation.x.shape, federation.x.dtype) == ((898_610, 57), np.float32)
    assert federation.names == tuple(PLAIN)
    assert np.isfinite(federation.x).all()
    # One class each of work, relation, race, occupation and birthplace.
    assert [
        set(np.unique(federation.x[:, a:b].sum(1)))
        for a, b in ((5, 13), (13, 19), (19, 24), (24, 49), (49, 57))
    ] == [{1.0}] * 5
    assert (federation.x[:, 3:].mean(0) > 0).all()  # no class is empty
    trained = federation.x[federation.train.rows, :3].astype(np.float64)
    np.testing.assert_allclose(trained.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(trained.std(0), 1, atol=1e-4)


@pytest.mark.data
def test_states_rows_and_groups_as_asked():
    need("acs-income")
    few = acs_income(states="WY, VT", rows_per_state=500, sensitive="sex,race")
    assert few.names == ("VT", "WY")
    assert [
        len(few.train.of(k)) + len(few.valid.of(k)) + len(few.test.of(k)) for k in range(2)
    ] == [500, 500]
    assert few.groups == (
        "sex=Female, race=not White",
        "sex=Female, race=White",
        "sex=Male, race=not White",
        "sex=Male, race=White",
    )
    assert few.unprivileged == (0, 1)
    whole = acs_income(states=["VT"], sensitive="race", races=5)
    assert len(whole.y) == 3767  # counted in the file
    assert (whole.groups[0], whole.unprivileged) == ("White", (1, 2, 3, 4))
    assert whole.y.mean() == pytest.approx(0.343, abs=0.0005)
    again, other = (
        acs_income(states="VT", rows_per_state=500),
        acs_income(states="VT", rows_per_state=500, seed=1),
    )
    assert not np.array_equal(again.x, other.x)
    # A state's rows do not depend on which other states are there (scaling does).
    np.testing.assert_array_equal(again.y, few.y[:500])


def test_both_packings_and_the_features_of_three_people(made):
    put(made / "acs_income_2018/AL.csv", published(PEOPLE))
    put(made / "acs_income_2018/CO.csv.bz2", bz2.compress(published(PEOPLE)))
    federation = acs_income(states=["AL", "CO"], train=1.0, valid=0.0)
    np.testing.assert_array_equal(federation.x[:3], federation.x[3:])
    assert federation.y.tolist() == [1, 0, 1] * 2
    assert federation.group.tolist() == [1, 0, 0] * 2
    ages = np.array([40, 20, 70])
    np.testing.assert_allclose(federation.x[:3, 0], (ages - ages.mean()) / ages.std(), rtol=1e-6)
    assert federation.x[:3, 3].tolist() == [1, 0, 0]  # married
    assert federation.x[:3, 4].tolist() == [0, 1, 1]  # women
    places = [np.flatnonzero(row[5:]).tolist() for row in federation.x[:3]]
    # Offsets 0, 8, 14, 19 and 44: class of work, relation, race, occupation, birthplace.
    assert places == [[0, 8, 14, 19, 44], [7, 10, 15, 35, 49], [3, 13, 16, 29, 47]]
    assert acs_income(
        states="AL", train=1.0, valid=0.0, sensitive="sex,race", drop_sensitive=True
    ).x.shape == (3, 51)


def test_the_census_bureaus_file_is_filtered_and_merged(made):
    dropped = [
        {"AGEP": "16"},
        {"PINCP": "100"},
        {"PINCP": ""},
        {"WKHP": ""},
        {"WKHP": "0"},
        {"PWGTP": "0"},
    ]
    kept = [
        {},
        {"SEX": "2", "PINCP": "50000", "MAR": "5"},
        {"RAC1P": "6"},
        {"RAC1P": "3"},
        {"RAC1P": "9"},
        {"RAC1P": "7"},
        {"RAC1P": "2"},
    ]
    put(made / "acs_income_2018/psam_p50.csv", census([person(**p) for p in [*dropped, *kept]]))
    federation = acs_income("census", train=1.0, valid=0.0, sensitive="race", races=5)
    assert federation.names == ("VT",)
    assert federation.y.tolist() == [1, 0, 1, 1, 1, 1, 1]
    assert federation.group.tolist() == [0, 0, 2, 3, 4, 4, 1]
    assert federation.x[:, 3].tolist() == [1, 0, 1, 1, 1, 1, 1]
    assert acs_income("census", states="VT", train=1.0, valid=0.0).group.tolist() == [
        1,
        0,
        1,
        1,
        1,
        1,
        1,
    ]


def test_files_in_another_format_are_named(made):
    put(made / "acs_income_2018/AL.csv", published(PEOPLE, ("AGE", *COLUMNS[1:])))
    with pytest.raises(DataError, match=r"AL.csv: the header must be AGEP,COW.* got 'AGE,COW"):
        acs_income(states="AL")
    put(made / "acs_income_2018/AL.csv", published(PEOPLE) + b"1,2,3\n")
    with pytest.raises(DataError, match="every row must hold 11 numbers"):
        acs_income(states="AL")
    put(made / "acs_income_2018/psam_p50.csv", b"AGEP,COW\n1,2\n")
    with pytest.raises(DataError, match=r"the header must name SCHL.*Use a 2018 file of people"):
        acs_income("census")


def test_a_missing_state_says_what_to_do(folder):
    with pytest.raises(
        MissingData, match=r"acs_income_2018/WY.csv .* Run `evenly data fetch acs-income`"
    ):
        acs_income(states="WY")
    with pytest.raises(
        MissingData, match=r"psam_p50.csv .* unpack psam_p50.csv from .*csv_pvt.zip"
    ):
        acs_income("census", states="VT")
    with pytest.raises(MissingData, match=r"psam_p01\.csv"):
        acs_income("census")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"states": "AL,XX"}, "There is no state 'XX'"),
        ({"states": "CA"}, "There is no state 'CA'"),  # not among FeDa4Fair's untouched ones
        ({"source": "ipums"}, "There is no source 'ipums'.*Known: census, feda4fair"),
        ({"sensitive": "age"}, "There is no sensitive column 'age'"),
        ({"races": 3}, "races must be 2 or 5, got 3"),
        ({"rows_per_state": -1}, "rows_per_state must be at least 0"),
    ],
)
def test_wrong_settings_are_named(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        acs_income(**settings)


def test_every_state_has_its_own_number():
    assert len(CODES) == len(set(CODES.values())) == 51
    assert set(PLAIN) < set(CODES)


@pytest.mark.data
def test_published_rows_satisfy_the_filters():
    need("acs-income")
    table = dict(
        zip(COLUMNS, read_published(data_folder() / "acs_income_2018" / "WY.csv.bz2"), strict=True)
    )
    assert len(table["AGEP"]) == 3064  # counted in the file
    assert (table["AGEP"] > 16).all()
    assert (table["WKHP"] > 0).all()
    assert set(np.unique(table["RAC1P"])) <= {1, 2, 3, 4, 5}
