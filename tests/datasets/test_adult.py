import numpy as np
import pytest

from evenly.datasets import DATASETS, DataError, Sizes, adult, data_folder
from evenly.datasets.adult import CATEGORICAL, one_hot, read_adult
from tests.datasets.making import put
from tests.datasets.real_data import need

ROW = (
    "{age}, {work}, 77516, {school}, 13, Never-married, Adm-clerical, Not-in-family, White, {sex},"
    " 2174, 0, 40, United-States, {income}"
)


def row(age=39, work="State-gov", school="Bachelors", sex="Male", income="<=50K") -> str:
    return ROW.format(age=age, work=work, school=school, sex=sex, income=income)


@pytest.fixture(scope="module")
def real():
    need("adult")
    return adult()


@pytest.mark.data
def test_the_clients_of_afl_and_their_counts(real):
    # Counted in the files: Doctorate 413 / 181 rows, the rest 32,148 / 16,100, 99 features.
    assert real.names == ("PhD", "non-PhD")
    assert (real.train.counts + real.valid.counts).tolist() == [413, 32148]
    assert real.test.counts.tolist() == [181, 16100]
    assert real.x.shape == (48842, 99)
    assert Sizes.of(real) == DATASETS["adult"].expected


@pytest.mark.data
def test_labels_are_counted_as_in_the_files(real):
    # Counted in the files: 24,720 / 7,841 in adult.data and 12,435 / 3,846 in adult.test.
    assert real.labels == ("<=50K", ">50K")
    assert np.bincount(real.y[:32561]).tolist() == [24720, 7841]
    assert np.bincount(real.y[32561:]).tolist() == [12435, 3846]


@pytest.mark.data
def test_features_are_one_category_per_column_or_none_where_unknown(real):
    table = read_adult(data_folder() / "adult" / "adult.data")
    x, names = one_hot(table)
    assert len(names) == 99
    assert [sum(n.startswith(f"{c}=") for n in names) for c in CATEGORICAL] == [
        8,
        16,
        7,
        14,
        6,
        5,
        2,
        41,
    ]
    unknown = np.stack([table[c] == "?" for c in CATEGORICAL], axis=1)
    assert unknown.any(1).sum() == 2399  # counted in the file
    np.testing.assert_array_equal(x.sum(1), 8 - unknown.sum(1))
    np.testing.assert_array_equal(x, real.x[:32561])
    assert (x[:, names.index("education=Doctorate")] == 1).sum() == 413


@pytest.mark.data
def test_test_rows_are_official_and_validation_rows_depend_on_the_seed(real):
    assert real.test.rows.min() >= 32561
    assert max(real.train.rows.max(), real.valid.rows.max()) < 32561
    other = adult(split_seed=1)
    assert real.valid.counts.tolist() == [42, 3215]
    assert set(real.valid.of(0).tolist()) != set(other.valid.of(0).tolist())
    np.testing.assert_array_equal(real.test.rows, other.test.rows)


@pytest.mark.data
def test_groups_by_sex(real):
    assert real.groups == ("all",)
    by_sex = adult(sensitive="sex")
    assert by_sex.groups == ("Female", "Male")
    assert np.bincount(by_sex.group).tolist() == [16192, 32650]  # counted in the files
    assert by_sex.unprivileged == (0,)
    by_race = adult(sensitive="race")
    assert [by_race.groups[g] for g in by_race.unprivileged] == ["Black"]


def test_the_format_is_read_with_its_quirks(made):
    put(
        made / "adult/adult.data",
        f"{row()}\n{row(school='Doctorate', income='>50K')}\n"
        f"{row(work='?', sex='Female')}\n\n".encode(),
    )
    lines = [
        "|1x3 Cross validator",
        row(income="<=50K."),
        row(school="Doctorate", income=">50K."),
        "",
    ]
    put(made / "adult/adult.test", "\n".join(lines).encode())
    federation = adult(valid=0.0, sensitive="sex")
    assert Sizes.of(federation) == (2, 3, 0, 2, 0)
    assert federation.y.tolist() == [0, 1, 0, 0, 1]
    assert federation.train.of(0).tolist() == [1]
    assert federation.test.of(0).tolist() == [4]
    assert federation.groups == ("Female", "Male")


def test_a_broken_row_is_named(made):
    put(made / "adult/adult.data", f"{row()}\n{row()[:-8]}\n".encode())
    put(made / "adult/adult.test", f"{row()}\n".encode())
    with pytest.raises(
        DataError, match=r"adult.data: row 2 must have 15 columns that end with <=50K or >50K"
    ):
        adult()


def test_an_unknown_sensitive_column_is_named():
    with pytest.raises(ValueError, match=r"no sensitive column 'gender'.*Known: race, sex"):
        adult(sensitive="gender")


def test_a_damaged_file_is_refused(folder):
    put(folder / "adult/adult.data", b"x")
    put(folder / "adult/adult.test", b"x")
    with pytest.raises(DataError, match="expected 3974305 bytes, found 1"):
        adult()
