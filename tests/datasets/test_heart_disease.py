"""Heart disease: FLamby's counts on the real files, missing values, and what a broken file says."""

import numpy as np
import pytest

from evenly.datasets import DataError, MissingData, Sizes, heart_disease
from evenly.datasets.heart_disease import HOSPITALS, read_hospital
from tests.datasets.making import put
from tests.datasets.real_data import need

# Rows in the format of UCI: numbers with and without a leading zero, and question marks.
COMPLETE = "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0\n"
NOT_IN_CLEVELAND = "38,0,4,110,0,0,0,156,0,-.5,2,?,3,1\n"  # ca is missing, cholesterol 0
WITHOUT_PRESSURE = "35,1,4,?,264,0,?,130,1,.7,?,?,7,3\n"


@pytest.fixture
def hospitals(made):
    for _, word, *_ in HOSPITALS:
        put(
            made / f"heart_disease/processed.{word}.data",
            (COMPLETE * 3 + NOT_IN_CLEVELAND * 2 + WITHOUT_PRESSURE).encode(),
        )
    return made / "heart_disease"


def test_complete_patients_of_four_hospitals(hospitals):
    federation = heart_disease(train=1.0, valid=0.0)
    assert federation.names == ("Cleveland", "Budapest", "Zurich and Basel", "Long Beach")
    assert Sizes.of(federation) == Sizes(clients=4, train=20, valid=0, test=0)
    assert federation.labels[federation.favourable] == "disease"
    assert federation.y[:5].tolist() == [0, 0, 0, 1, 1]
    assert (federation.groups, federation.unprivileged) == (("Female", "Male"), (0,))
    assert federation.group[:5].tolist() == [1, 1, 1, 0, 0]
    assert federation.x.shape == (20, 15)
    ages = np.array([63, 63, 63, 38, 38])
    np.testing.assert_allclose(federation.x[:5, 0], (ages - 53) / ages.std(), rtol=1e-6)
    # women; then chest pain of kind 1 or 4, and an electrocardiogram of kind 2 or 0
    assert federation.x[:5, 7].tolist() == [0, 0, 0, 1, 1]
    assert federation.x[[0, 3], 8:].tolist() == [[1, 0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, 0, 0]]
    assert heart_disease(drop_sensitive=True).x.shape == (20, 14)


def test_filled_values_are_the_mean_and_are_marked(hospitals):
    federation = heart_disease("fill", train=1.0, valid=0.0)
    assert len(federation.y) == 24
    # Marked are the blood pressure and the cholesterol, whose zeros were not measured.
    assert federation.x.shape == (24, 17)
    assert federation.x[[0, 3, 5], 15:].tolist() == [[0, 0], [0, 1], [1, 0]]
    assert federation.x[5, 1] == pytest.approx(0, abs=1e-6)
    assert federation.x[3, 2] == pytest.approx(0, abs=1e-6)
    assert federation.x[5, 12:15].tolist() == [0, 0, 0]  # its electrocardiogram is unknown
    assert np.isfinite(federation.x).all()


def test_a_number_that_only_test_rows_lack_needs_no_mark(hospitals):
    shown = heart_disease("fill", train=0.5, valid=0.0)
    lacking = np.isnan(read_hospital(hospitals / "processed.va.data")[3])
    assert lacking.tolist() == [False] * 5 + [True]
    trained = shown.train.rows
    marks = shown.x[:, 15:]
    assert (marks[trained].any(0)).all()
    assert np.isfinite(shown.x).all()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("63,1,1\n", "row 1 must have 14 values, got 3. Get the file from UCI again"),
        (COMPLETE.replace("145.0", "high"), "every value must be a number or '\\?'"),
        (COMPLETE.replace("63.0,1.0", "63.0,2.0"), "sex must be 0 or 1 and num 0 to 4"),
        (COMPLETE.replace("6.0,0", "6.0,?"), "sex must be 0 or 1 and num 0 to 4"),
    ],
)
def test_a_damaged_file_is_named(hospitals, content, sentence):
    put(hospitals / "processed.va.data", content.encode())
    with pytest.raises(DataError, match=f"processed.va.data: {sentence}"):
        heart_disease()


def test_another_file_and_a_missing_file_say_what_to_do(folder):
    with pytest.raises(MissingData, match=r"Run `evenly data fetch heart-disease`, or download"):
        heart_disease()
    for _, word, *_ in HOSPITALS:
        put(folder / f"heart_disease/processed.{word}.data", COMPLETE.encode())
    with pytest.raises(DataError, match="expected 18461 bytes, found"):
        heart_disease()
    with pytest.raises(ValueError, match=r"There is no treatment of missing values 'mean'"):
        heart_disease("mean")


@pytest.mark.data
def test_the_real_files_have_the_patients_that_flamby_counts():
    need("heart-disease", always_optional=True)
    federation = heart_disease(train=1.0, valid=0.0)
    assert federation.train.counts.tolist() == [303, 261, 46, 130]
    assert heart_disease("fill", train=1.0, valid=0.0).train.counts.tolist() == [303, 294, 123, 200]
