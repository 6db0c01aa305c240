"""Adult (census income), with natural clients (q-FFL) and partitioned among invented clients (the
thesis).
"""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evenly.data import Rows, official
from evenly.data.encoding import TableColumn
from evenly.data.federation import Federation
from evenly.data.sensitive import Sensitive, cross, groups_of
from evenly.datasets.files import (
    Content,
    DataError,
    DataFile,
    DatasetCard,
    Sizes,
    checked_files,
    read_once,
    stamp,
)
from evenly.datasets.partitioning import PeoplePartition, partition_people, standardise
from evenly.notation import unknown
from evenly.records import require

# UCI Adult census income as AFL and q-FFL use it: people with a doctorate are one client, everybody
# else the other.
#
# The features are the 99 categories of the eight categorical columns (as adult.names lists them)
# and nothing else; an unknown value (`?`) is no category, so its column is all zeros, as in the
# authors' code. The label is whether income is above 50,000 dollars. Each client is tested on its
# rows of the official test file. The authors have no validation rows; here a tenth of each client's
# training rows validates.

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)  # fmt: skip
CATEGORICAL = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
)
LABELS = ("<=50K", ">50K")
CLIENTS = ("PhD", "non-PhD")
SENSITIVE = {"sex": "Female", "race": "Black"}  # column: unprivileged value
UNKNOWN = "?"

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
LAYOUT = (
    DataFile(
        path="adult/adult.data",
        what="Adult training rows",
        contents=(
            Content(
                "sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", 3974305
            ),
        ),
        urls=(f"{URL}adult.data",),
    ),
    DataFile(
        path="adult/adult.test",
        what="Adult test rows",
        contents=(
            Content(
                "sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", 2003153
            ),
        ),
        urls=(f"{URL}adult.test",),
    ),
)


def adult(*, sensitive: str = "", valid: float = 0.1, split_seed: int = 0) -> Federation:
    """Return two clients, PhD and non-PhD. `sensitive` ("sex" or "race") is the column of the
    groups; it stays a feature.

    Women or Black people are the unprivileged group.
    """
    if sensitive and sensitive not in SENSITIVE:
        raise unknown("sensitive column", sensitive, SENSITIVE)
    _, paths = checked_files((LAYOUT,))
    tables = [read_adult(path) for path in paths]
    table = {name: np.concatenate([t[name] for t in tables]) for name in COLUMNS}
    in_test = np.repeat([False, True], [len(t["income"]) for t in tables])
    rows = Rows(one_hot(table)[0], (table["income"] == LABELS[1]).astype(np.int32), LABELS, "adult")
    if sensitive:
        rows = rows.grouped(
            groups_of({sensitive: TableColumn(sensitive, table[sensitive])}, SENSITIVE[sensitive])
        )
    owner = np.where(table["education"] == "Doctorate", 0, 1)
    return official(rows, owner, in_test, names=CLIENTS, valid=valid, split_seed=split_seed)


@read_once
def read_adult(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of adult.data or adult.test as words, without the full stop after test
    labels.
    """
    lines = path.read_text(encoding="ascii").splitlines()
    rows = [line.split(", ") for line in lines if line.strip() and not line.startswith("|")]
    for number, row in enumerate(rows, 1):
        if len(row) != len(COLUMNS) or row[-1].rstrip(".") not in LABELS:
            raise DataError(
                f"{path}: row {number} must have {len(COLUMNS)} columns that end with <=50K or"
                f" >50K, got {len(row)} columns."
            )
    columns = dict(zip(COLUMNS, map(np.array, zip(*rows, strict=True)), strict=True))
    return columns | {"income": np.array([row[-1].rstrip(".") for row in rows])}


def one_hot(table: dict[str, np.ndarray]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return 0/1 features of the categorical columns, float32 [rows, 99], and their names
    `column=category`.
    """
    features, names = [], []
    for column in CATEGORICAL:
        categories = [c for c in np.unique(table[column]) if c != UNKNOWN]
        features.append(table[column][:, None] == np.array(categories))
        names += [f"{column}={c}" for c in categories]
    return np.concatenate(features, axis=1).astype(np.float32), tuple(names)


CARD = DatasetCard(
    name="adult",
    title="Census income; people with a doctorate are one client, all others the second",
    load=adult,
    layouts=(LAYOUT,),
    papers=("q-FFL",),
    licence="CC BY 4.0 (as UCI gives it; not checked here)",
    provenance=(
        "Becker and Kohavi (1996), from the 1994 US census, published by the UCI Machine Learning"
        " Repository."
    ),
    citation="Becker, Kohavi: Adult. UCI Machine Learning Repository, 1996. doi:10.24432/C5XW20",
    notes=(
        (
            "A 1994 sample with an income cut of its time: do not use a model of it to decide about"
            " people."
        ),
        (
            "Labels, race and sex are census categories of 1994. Race and sex are among the 99"
            " features."
        ),
        (
            "The PhD client has 413 training rows against 32,148: its accuracy on 181 test rows"
            " moves in steps of 0.55 points."
        ),
        "The authors have no validation rows; here a tenth of the training rows validates.",
    ),
    expected=Sizes(clients=2, train=29304, valid=3257, test=16281),
)


# UCI Adult census income for group fairness between women and men, dealt to clients that differ in
# their share of women.
#
# As in the FedCvg-Ratio study (Gonfiantini, "Fairness-Aware Federated Learning: A Comparative Study
# of Bias Mitigation Algorithms", Università di Genova, 2026): both files together, 48,842 people;
# the census weight is dropped, an unknown value (`?`) becomes its column's commonest, categories
# become 0/1 features, women are the unprivileged group, income above 50,000 dollars is the
# favourable label, and a fifth of all people is a central test set.

NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
SEXES = ("Female", "Male")


def adult_sex(
    partition: str = "dirichlet-attribute",
    *,
    clients: int = 0,
    alpha: float = 0.5,
    concentration: float = 5.0,
    min_samples: int = 100,
    coverage: float = 4497,
    count_rule: str = "table",
    drop_sensitive: bool = False,
    unknown: str = "commonest",
    official_test: bool = False,
    test: float = 0.2,
    valid: float = 0.1,
    seed: int = -1,
    split_seed: int = 0,
) -> Federation:
    """Partition people among clients by a partition of `evenly.data`. The share `test` of all
    people is a central test set.

    `alpha` and `min_samples` are for the Dirichlet partitions, `concentration` for
    "ratio-dirichlet", `coverage` and `count_rule` for the coverage partitions. `clients` 0 means 5,
    or the number that follows from the coverage. A share `valid` of each client's rows is used for
    validation. `seed` draws the partition; -1 draws another one for every split, as in the study.
    `drop_sensitive` removes sex from the features. For E2FL, `unknown` "drop" excludes people with
    unknown values, and `official_test` makes the published test file the central test set.
    """
    people = read_people(unknown)
    blank = np.zeros((len(people.income), 1), np.float32)
    rows = Rows(blank, people.income, LABELS, f"adult-sex {partition}").grouped(
        cross([Sensitive("sex", SEXES, people.sex)])
    )
    split = PeoplePartition(
        partition=partition, clients=clients, alpha=alpha, concentration=concentration,
        min_samples=min_samples, coverage=coverage, count_rule=count_rule, test=test, valid=valid,
        seed=seed,
    )  # fmt: skip
    used = [not (drop_sensitive and name.startswith("sex=")) for name in people.names]

    def features(training: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [people.words[:, used], standardise(people.numbers, training)], axis=1
        )

    central = np.flatnonzero(people.in_test).astype(np.int32) if official_test else None
    return partition_people(rows, split, features, split_seed=split_seed, central=central)


class AdultPeople(NamedTuple):
    """Both files as numbers. The arrays are shared between loads and read-only."""

    income: np.ndarray  # int32 [people] 1: above 50,000 dollars
    sex: np.ndarray  # int32 [people] codes of SEXES
    in_test: np.ndarray  # bool [people] whether they are in the test file
    words: np.ndarray  # float32 [people, categories] 0 or 1
    names: tuple[str, ...]  # of the categories, `column=category`
    numbers: np.ndarray  # float64 [people, numbers]


def read_people(unknown: str = "commonest") -> AdultPeople:
    """Read both files. Replace unknown values by the most frequent of their column (the first if
    tied), or drop people with one.
    """
    require(
        unknown in ("commonest", "drop"),
        f"adult-sex: unknown must be 'commonest' or 'drop', got {unknown!r}.",
    )
    _, paths = checked_files((LAYOUT,))
    return _people(unknown, tuple(paths), tuple(stamp(path) for path in paths))


@functools.lru_cache(maxsize=2)  # a study loads its data once for every partition and seed
def _people(unknown: str, paths: tuple[Path, ...], stamps: tuple[object, ...]) -> AdultPeople:
    tables = [read_adult(path) for path in paths]
    table = {
        name: np.concatenate([t[name] for t in tables]) for name in COLUMNS if name != "fnlwgt"
    }
    in_test = np.repeat([False, True], [len(t["income"]) for t in tables])
    if unknown == "drop":
        filled = np.all([table[name] != UNKNOWN for name in CATEGORICAL], axis=0)
        table, in_test = {name: column[filled] for name, column in table.items()}, in_test[filled]
    for name in CATEGORICAL:
        words, counts = np.unique(table[name][table[name] != UNKNOWN], return_counts=True)
        if len(words):
            table[name] = np.where(table[name] == UNKNOWN, words[counts.argmax()], table[name])
    words, names = one_hot(table)
    people = AdultPeople(
        income=(table["income"] == LABELS[1]).astype(np.int32),
        sex=(table["sex"] == SEXES[1]).astype(np.int32),
        in_test=in_test,
        words=words,
        names=names,
        numbers=np.stack([table[name].astype(np.float64) for name in NUMBERS], axis=1),
    )
    for array in (people.income, people.sex, people.in_test, people.words, people.numbers):
        array.setflags(write=False)
    return people


ADULT_SEX_CARD = DatasetCard(
    name="adult-sex",
    title="Census income; women and men are the groups, dealt to clients in different proportions",
    load=adult_sex,
    layouts=(LAYOUT,),
    papers=("FedCvg-Ratio", "E2FL"),
    licence="CC BY 4.0 (as UCI gives it; not checked here)",
    provenance=(
        "Becker and Kohavi (1996), from the 1994 US census, published by the UCI Machine Learning"
        " Repository."
    ),
    citation="Becker, Kohavi: Adult. UCI Machine Learning Repository, 1996. doi:10.24432/C5XW20",
    notes=(
        (
            "A 1994 sample with an income cut of its time: do not use a model of it to decide about"
            " people."
        ),
        (
            "104 features: 99 categories and 5 numbers. The study says about 108 and does not list"
            " them. Sex stays a feature unless drop_sensitive=true; relationship (husband, wife)"
            " tells it all the same."
        ),
        (
            "Numbers are standardised with the training rows of all clients together; the study"
            " does not say whether it scales them."
        ),
        (
            "E2FL's 101 features: unknown=drop, drop_sensitive=true, official_test=true (inferred"
            " from its Tables 3 and 7)."
        ),
        (
            "Unknown values are replaced before the split, by the commonest of all rows, so that"
            " features do not depend on the split."
        ),
        (
            "The study counts 16,117 women, a third of all rows; the files hold 16,192 women and"
            " 32,650 men."
        ),
        (
            "Clients are invented: coverages of the study are for all rows and are multiplied by"
            " the share that is not in the test set."
        ),
    ),
    expected=Sizes(clients=5, train=35165, valid=3909, test=0, central=9768),
)
