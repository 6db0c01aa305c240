"""Columns that cannot be features are refused together; what became of the others is told."""

import datetime
import shlex
from typing import Any

import numpy as np
import pandas as pd
import pytest

from evenly.cli.terminal_tables import facts_of
from evenly.data.columns import (
    ColumnChoice,
    Fact,
    column_facts,
    feature_columns,
    is_id_name,
    option_text,
    refuse_unfit,
)
from evenly.data.encoding import MISSING, fit_encoder
from evenly.data.federation import Federation
from evenly.datasets.load import column_names
from evenly.experiment.comparison import Comparison
from evenly.report.setup_sections import data_section

DAYS = [datetime.date(2023, 1, 1) + datetime.timedelta(days=i) for i in range(40)]


def why(values: Any, name: str = "c") -> str:
    """What is said against a column; nothing where it can be a feature."""
    try:
        refuse_unfit(pd.DataFrame({name: values}), [name])
    except ValueError as error:
        return str(error)
    return ""


DAY = ("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%y", "%d.%m.%Y", "%d %b %Y", "%B %d, %Y", "%Y/%m/%d")
DAY += ("%d.%m.%y", "%Y%m%d", "%d%b%Y", "%d%b%y")
FORMS = (*DAY, "%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S.%f")


@pytest.mark.parametrize("form", FORMS)
def test_dates_as_text_are_refused_in_every_usual_form(form: str):
    """Nine hundred days became nine hundred 0/1 features in silence."""
    text = [
        datetime.datetime.combine(day, datetime.time(day.day % 24, 30)).strftime(form)
        for day in DAYS
    ]
    assert "'c' holds dates or times as text" in why([*text, None, "unknown"])
    assert "'c' holds dates or times as text" in why(text[:1] * 40)  # few different days, too


@pytest.mark.parametrize(
    "form", ["%Y-%m", "%Y/%m", "%m/%Y", "%m-%Y", "%b %Y", "%B %Y", "%Y %b", "%Y-%b", "%b-%y"]
)
def test_months_as_text_are_refused(form: str):
    text = [datetime.date(2019 + i // 12, 1 + i % 12, 1).strftime(form) for i in range(40)]
    assert "'c' holds dates or times as text" in why([*text, None, "unknown"])


def test_a_split_that_was_not_named_is_refused():
    """It became three 0/1 features in silence, and the rows were split at random."""
    words = "'c' divides the rows into test, train (compare and tune take it as --split)"
    assert words in why(["train", "test"] * 20)
    assert "into central, test, train, valid" in why(["train", "valid", "test", "central"] * 10)
    for other in (["train"] * 40, ["valid", "test"] * 20, ["train", "tram"] * 20):
        assert why(other) == ""


@pytest.mark.parametrize(
    "value",
    [
        *("12-34-56", "2024-13-45", "120/80", "1.2.3", "2024", "A-1-2024", "may", "3:1"),
        *("10-20 years", "2024-13", "2023/24", "20241301", "20240132", "12345678", "1.2.24"),
        *("13.14.24", "Mark 12", "10mares24", "2000.10"),
    ],
)
def test_other_text_is_no_date(value: str):
    assert why([value] * 40) == ""


def test_identifiers_are_refused_and_measurements_are_not():
    draw = np.random.default_rng(0)
    assert "looks like an identifier (40 different values in 40 rows)" in why(
        [f"p{i}" for i in range(40)]
    )
    # nine of ten
    assert "looks like an identifier (36 different values in 40 rows)" in why(
        [f"p{i % 36}" for i in range(40)]
    )
    assert "looks like an identifier (3 different values in 3 rows)" in why(
        ["x1", "x2", "x3"], "patient_id"
    )
    assert "looks like an identifier (40 different numbers in 40 rows)" in why(
        draw.permutation(10**6)[:40], "PatientID"
    )
    # read as fractions because of the gap
    assert "looks like an identifier" in why([*range(0, 80, 2), None], "record no")
    assert "only numbers the rows" in why(draw.permutation(40) + 7)
    assert why(draw.permutation(10**6)[:40], "income") == ""
    assert why(draw.permutation(10**6)[:40] + 0.5, "id") == ""  # fractions are measurements
    assert why([*range(0, 80, 2), 4], "id") == ""  # a number that comes twice names nobody
    assert why([f"p{i}" for i in range(20)]) == ""  # so few may be categories
    assert "has too many categories to learn from (1,001 different values in 5,005 rows)" in why(
        [f"p{i % 1001}" for i in range(5005)]
    )
    assert "holds numbers that are written as text" in why([f"{i},5" for i in range(40)])


def test_all_columns_are_named_at_once_with_the_option_to_add():
    frame = pd.DataFrame(
        {
            "who, id": [f"p{i}" for i in range(40)],
            "x": 1.0,
            "left": map(str, DAYS),
            "came": pd.to_datetime(DAYS),
        }
    )
    with pytest.raises(ValueError, match=r"^3 columns of the table cannot be features: ") as raised:
        feature_columns(frame.assign(seen=1), {}, ColumnChoice(drop=["seen"]))
    for column in (
        "'who, id' looks like an identifier",
        "'left' holds dates or times as text",
        "'came' holds dates or times",
    ):
        assert column in str(raised.value)
    option = str(raised.value).partition("--drop ")[2].partition(" (in Python")[0]
    (argument,) = shlex.split(option)
    assert column_names(argument) == ["seen", "who, id", "left", "came"]
    assert 'drop = ["seen", "who, id", "left", "came"]' in str(raised.value)
    assert feature_columns(frame, {}, ColumnChoice(drop=column_names(argument)[1:])) == ["x"]
    # listed by a person: taken as they are
    assert feature_columns(frame, {}, ColumnChoice(features=["x", "left", "x"])) == ["x", "left"]


@pytest.mark.parametrize("names", [["a"], ["a b", "c"], ["a,b", 'c"d', "e'f"], [" a"]])
def test_options_are_read_as_they_are_written(names: list[str]):
    assert column_names(shlex.split(option_text(names))[0]) == names


def test_names_of_identifiers():
    assert all(
        map(
            is_id_name,
            (
                "id",
                "ID",
                "user_id",
                "customerId",
                "Patient ID",
                "patientid",
                "uuid",
                "row",
                "case-number",
                "Unnamed: 0 idx",
            ),
        )
    )
    assert not any(
        map(is_id_name, ("paid", "covid", "acidity", "valid", "age", "income", "identity", "grid"))
    )


def test_what_became_of_each_column_is_told():
    frame = pd.DataFrame(
        {
            "age": [1.0, None, 3.0, 4.0],
            "ward": ["a", None, "b", "z"],
            "old": [True, False, True, True],
            "id": [5, 6, 7, 8],
        }
    )
    encoder = fit_encoder(frame, ["age", "ward", "old"], np.array([0, 1, 2]), unused=["id"])
    assert column_facts(encoder, encoder.encode(frame)) == [
        Fact("numbers", "age, old"),
        Fact("one-hot", f"ward ({len([MISSING, 'a', 'b'])})"),
        Fact("missing", "age: the mean of the training rows, and a 0/1 feature marks them"),
        Fact("missing", "ward: a category of its own"),
        Fact("not used", "id"),
        Fact(
            "unknown",
            "ward in 1 row: a value that no training row has counts as none of the categories",
        ),
    ]
    wide = pd.DataFrame({"word": [f"w{i % 51}" for i in range(200)]})
    facts = column_facts(
        encoder := fit_encoder(wide, ["word"], np.arange(200)), encoder.encode(wide)
    )
    assert facts[-1].warning
    assert "holds 51 different words" in facts[-1].text


def test_the_reports_data_card_says_what_became_of_the_columns():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "site": list("ab") * 30,
            "y": draw.integers(0, 2, 60),
            "age": draw.normal(size=60),
            "id": range(60),
        }
    )
    frame["ward"] = ["heart", "lung", "lung"] * 20
    frame["part"] = ["train"] * 58 + ["test"] * 2
    frame.loc[59, "ward"] = "moon"
    federation = Federation.from_frame(frame, client="site", label="y", drop="id", split="part")
    found = Comparison("test", federation, federation.partition, "Logistic", [], 1, "", 1.0, {})
    page = data_section(found)
    for words in (
        "column site",
        "Columns: numbers",
        "ward (2)",
        "Columns: not used",
        "ward in 1 row",
    ):
        assert words in page
    assert "ward in 1 row" not in data_section(found, least=10)


def test_sensitive_columns_are_said_to_be_no_features():
    """They were listed neither as features nor as not used, in the terminal and on the page."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"site": list("ab") * 30, "y": [0, 1, 1] * 20, "age": draw.normal(size=60)}
    )
    frame["sex"], frame["race"] = list("fm") * 30, list("ABC") * 20

    def told(**choice: Any) -> str:
        table = Federation.from_frame(
            frame, client="site", label="y", sensitive=["sex", "race"], **choice
        )
        comparison = Comparison("test", table, "site", "Logistic", [], 1, "", 1.0, {})
        (here,) = [fact.text for fact in facts_of(table, {}) if fact.about == "not features"]
        assert f"<dt>Columns: not features</dt><dd>{here}</dd>" in data_section(comparison)
        return here

    assert told() == "sex, race (sensitive)"
    assert told(features=["age", "sex"]) == "race (sensitive)"
