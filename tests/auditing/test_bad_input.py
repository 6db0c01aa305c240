"""Whatever is wrong with a table, one sentence says what, where, and what to do."""

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import evenly
from tests.auditing.invented import predictions

SMALL = predictions(200)
NAMES: dict[str, Any] = {"label": "y", "prediction": "p", "client": "hospital", "sensitive": "sex"}


def refused(frame: pd.DataFrame, sentence: str, **changes):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        evenly.audit(frame, **{**NAMES, **changes})


def test_a_column_that_is_not_there_is_named_with_the_nearest_that_is():
    refused(SMALL, "There is no column 'hospitals'. Did you mean 'hospital'?", client="hospitals")


def test_empty_labels_and_predictions_are_counted_and_located():
    gaps = SMALL.astype({"y": object})
    gaps.loc[[16, 20], "y"] = None
    refused(
        gaps,
        "Column 'y' must be filled in every row; 2 of 200 rows are empty, the first is row 17"
        " (counting from 1, without the header).",
    )
    refused(
        SMALL.assign(p=SMALL["p"].where(SMALL.index != 3)),
        "1 of 200 rows is empty, the first is row 4",
    )
    refused(
        SMALL.assign(hospital=SMALL["hospital"].where(SMALL.index != 3)),
        "Column 'hospital' must be filled",
    )


def test_one_label_is_not_enough():
    refused(SMALL.assign(y=1), "Column 'y' must hold at least two labels, but every row holds '1'")
    refused(SMALL.assign(sex="f"), "Column 'sex' must hold at least two values to make groups")


def test_quantities_are_not_audited():
    refused(SMALL.assign(y=SMALL["s"]), "Audits support classification, not regression")


def test_predictions_must_be_in_the_words_of_the_labels():
    refused(
        SMALL.assign(p=np.where(SMALL["p"], "yes", "no")),
        "The values of 'p' ('no', 'yes') are not those of 'y' ('0', '1')",
    )
    refused(SMALL, "It seems to hold scores", prediction="s")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: 3 * s - 1, "holds -0."),
        (
            lambda s: s.where(s.index > 5),
            (
                "row 1 (counting from 1, without the header) is empty or not a number, and 5 more"
                " rows are invalid"
            ),
        ),
        (lambda s: s.astype(str) + "!", "must hold numbers from 0 to 1"),
    ],
)
def test_scores_are_probabilities(change, sentence: str):
    refused(SMALL.assign(s=change(SMALL["s"])), sentence, score="s")


def test_a_column_has_one_meaning():
    refused(SMALL, "'sex' is named 2 times", client="sex")
    refused(SMALL, "'p' is named 2 times", score="p")


def test_something_must_be_compared():
    refused(SMALL, "needs a client column, sensitive columns, or both", client=None, sensitive=())


def test_names_of_labels_and_values_are_checked():
    refused(SMALL, "There is no label '2'.", favourable=2)
    words = {"0": "bad", "1": "good", 0: "bad", 1: "good"}
    named = SMALL.assign(y=SMALL.y.map(words), p=SMALL.p.map(words))
    refused(
        named,
        "the labels 'bad' and 'good' do not say which that is. Name it: --favourable bad or"
        " --favourable good",
    )
    refused(
        SMALL,
        "There is no value 'femal' in column 'sex'. Did you mean 'female'?",
        unprivileged="femal",
    )
    refused(SMALL, "must be given with its column", unprivileged="B", sensitive=["sex", "race"])


def test_a_table_smaller_than_a_cell_shows_nothing():
    refused(SMALL.head(7), "The table has 7 rows, but with min_cell=10")
    refused(SMALL.head(0), "must have at least one row")


def test_something_else_than_a_table_is_refused():
    with pytest.raises(TypeError, match="must be a DataFrame of pandas or Polars"):
        evenly.audit([1, 2], **NAMES)


@pytest.mark.parametrize(
    ("label", "prediction"),
    [
        (lambda y: y.astype(str), lambda p: p.astype(float)),
        (lambda y: y.astype(bool), lambda p: p),
        (lambda y: y, lambda p: p.map({0: "False", 1: "true"})),
        (lambda y: y.map({0: " no", 1: "yes"}), lambda p: p.map({0: "no", 1: "yes "})),
        (lambda y: y + 10**30, lambda p: (p + 10**30).astype(str)),
    ],
    ids=[
        "text and float",
        "bool and int",
        "int and words of truth",
        "space around",
        "huge integers",
    ],
)
def test_the_same_labels_in_other_clothes_are_the_same(label, prediction):
    y, p = SMALL["y"].astype(object), SMALL["p"].astype(object)
    dressed = SMALL.assign(y=label(y), p=prediction(p))
    found, plain = (evenly.audit(frame, **NAMES, min_cell=0) for frame in (dressed, SMALL))
    assert found.whole == plain.whole


def test_a_prediction_that_is_never_a_label_is_wrong_and_said_so():
    strange = SMALL.assign(p=SMALL["p"].where(SMALL.index > 14, 2))
    found = evenly.audit(strange, **NAMES)
    assert (
        "Predicted '2', which never occurs as a label: 15 rows, counted as wrong." in found.warnings
    )
    assert found.about.favourable == "1"
    few = evenly.audit(strange, **NAMES, min_cell=20)
    assert any("as a label: fewer than 20 rows" in warning for warning in few.warnings)


# Files


def written(tmp_path: Path, content: bytes, name: str = "p.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def csv_of(frame: pd.DataFrame, **options) -> bytes:
    return frame.to_csv(index=False, **options).encode()


EXPECTED = evenly.audit(SMALL, **NAMES, score="s").json()["rows"]


def same(path: Path):
    rows = evenly.audit(path, **NAMES, score="s").json()["rows"]
    assert [row | {"name": "table"} if row["level"] == "model" else row for row in rows] == EXPECTED


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv", csv_of(SMALL)),
        ("p.csv.gz", csv_of(SMALL)),
        ("bom.csv", b"\xef\xbb\xbf" + csv_of(SMALL)),
        ("ends.csv", csv_of(SMALL).replace(b"\n", b"\r\n", 50)),
        ("semicolons.csv", csv_of(SMALL, sep=";")),
        ("quoted.csv", csv_of(SMALL, quoting=1)),
        ("more.csv", csv_of(SMALL.assign(note="a\nb, é"))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_of_many_kinds_say_the_same(tmp_path: Path, name: str, content: bytes):
    same(written(tmp_path, content, name))


def test_parquet_says_the_same_whatever_the_types(tmp_path: Path):
    SMALL.to_parquet(tmp_path / "p.parquet")
    same(tmp_path / "p.parquet")
    SMALL.astype({"sex": "category", "y": float, "race": "string"}).to_parquet(
        tmp_path / "q.parquet"
    )
    same(tmp_path / "q.parquet")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "must have a header and rows"),
        (b"hospital,sex,race,y,p,s\n", "The table must have at least one row"),
        (
            csv_of(SMALL[:3]) + csv_of(SMALL[3:], header=False).replace(b"hospital", b"h\xf4pital"),
            "must be UTF-8 text, but line 5 holds other bytes",
        ),
        (csv_of(SMALL).decode().encode("utf-16"), "must be UTF-8 text, but its header"),
        (
            csv_of(SMALL) + b"one,two\n",
            "the same number of columns in every row: Expected 6 columns, got 2: one,two",
        ),
        (
            csv_of(SMALL.rename(columns={"race": "sex"})),
            "column names must be different, but 'sex' occurs 2 times",
        ),
        (
            csv_of(SMALL).replace(b"hospital,", b"hopsital,"),
            "There is no column 'hospital'. Did you mean 'hopsital'?",
        ),
        (
            csv_of(SMALL.assign(s="high")),
            "Column 's' must hold numbers from 0 to 1, but p.csv holds 'high' there",
        ),
        (
            csv_of(SMALL.assign(p=SMALL["p"].where(SMALL.index != 8))),
            "Column 'p' must be filled in every row; 1 of 200 rows is empty",
        ),
    ],
)
def test_broken_files_are_refused_with_a_sentence(tmp_path: Path, content: bytes, sentence: str):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        evenly.audit(written(tmp_path, content), **NAMES, score="s")


def test_dates_and_broken_archives_are_refused(tmp_path: Path):
    refused(
        SMALL.assign(hospital=pd.Timestamp("2026-01-01")), "Column 'hospital' holds dates or times"
    )
    whole = gzip.compress(csv_of(pd.concat([SMALL] * 50)))
    for content in (b"no archive", whole[: len(whole) // 2]):
        (tmp_path / "p.csv.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"p\.csv\.gz (could not|must)"):
            evenly.audit(tmp_path / "p.csv.gz", **NAMES)


def test_files_that_are_no_tables_are_refused(tmp_path: Path):
    for name, sentence in {
        "p.xlsx": "must be a .csv",
        "none.csv": "There is no file",
        "p.parquet": "could not be read as Parquet",
    }.items():
        if name != "none.csv":
            written(tmp_path, b"no table", name)
        with pytest.raises(ValueError, match=sentence):
            evenly.audit(tmp_path / name, **NAMES)


def test_a_word_in_quotes_is_a_word_even_if_it_looks_missing(tmp_path: Path):
    text = csv_of(SMALL).replace(b",female,", b',"NA",')
    found = evenly.audit(written(tmp_path, text), **NAMES)
    assert found.groups[0].names == ("NA", "male")
    assert np.isfinite(found.groups[0].against["spd"][0].value)
