"""UCI Adult census income for group fairness between women and men, dealt to clients that differ in their share of women.

As in the FedCvg-Ratio study (Gonfiantini, "Fairness-Aware Federated Learning: A Comparative Study of Bias Mitigation
Algorithms", Università di Genova, 2026): both files together, 48,842 people; the census weight is dropped, an unknown value (`?`)
becomes its column's commonest, categories become 0/1 features, women are the unprivileged group, income above 50,000 dollars
is the favourable label, and a fifth of all people is a central test set.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evenly.data import Rows
from evenly.data.federation import Federation
from evenly.data.sensitive import Sensitive, cross
from evenly.datasets.adult import CATEGORICAL, COLUMNS, LABELS, LAYOUT, UNKNOWN, one_hot, read_adult
from evenly.datasets.card import DatasetCard, Sizes
from evenly.datasets.files import use
from evenly.datasets.kept import stamp
from evenly.datasets.people import Dealing, deal_people, standardised
from evenly.records import require

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
    """People dealt to clients by a partition of `evenly.data`; the share `test` of all is a central test set.

    `alpha` and `min_samples` are for the Dirichlet partitions, `concentration` for "ratio-dirichlet", `coverage` and
    `count_rule` for the coverage ones. `clients` 0 is 5, or what the coverage gives. A share `valid` of each client's rows
    validates. `seed` draws the partition; -1 draws another one for every split, as the study does. `drop_sensitive` takes
    sex out of the features. As E2FL has it, `unknown` "drop" leaves out people of whom something is not known, and with
    `official_test` the central test set is the file that was published as one, not a share of all.
    """
    people = read_people(unknown)
    blank = np.zeros((len(people.income), 1), np.float32)
    rows = Rows(blank, people.income, LABELS, f"adult-sex {partition}").grouped(cross([Sensitive("sex", SEXES, people.sex)]))
    how = Dealing(
        partition=partition, clients=clients, alpha=alpha, concentration=concentration, min_samples=min_samples, coverage=coverage,
        count_rule=count_rule, test=test, valid=valid, seed=seed,
    )  # fmt: skip
    kept = [not (drop_sensitive and name.startswith("sex=")) for name in people.names]

    def features(training: np.ndarray) -> np.ndarray:
        return np.concatenate([people.words[:, kept], standardised(people.numbers, training)], axis=1)

    central = np.flatnonzero(people.tested).astype(np.int32) if official_test else None
    return deal_people(rows, how, features, split_seed=split_seed, central=central)


class People(NamedTuple):
    """Both files as numbers. The arrays are shared between loads and cannot be written to."""

    income: np.ndarray  # int32 [people] 1: above 50,000 dollars
    sex: np.ndarray  # int32 [people] codes of SEXES
    tested: np.ndarray  # bool [people] whether they are of the test file
    words: np.ndarray  # float32 [people, categories] 0 or 1
    names: tuple[str, ...]  # of the categories, `column=category`
    numbers: np.ndarray  # float64 [people, numbers]


def read_people(unknown: str = "commonest") -> People:
    """Unknown values are replaced by their column's commonest (the first in order if two tie), or people who have one are dropped."""
    require(unknown in ("commonest", "drop"), f"adult-sex: unknown must be 'commonest' or 'drop', got {unknown!r}.")
    _, paths = use((LAYOUT,))
    return _people(unknown, tuple(paths), tuple(stamp(path) for path in paths))


@functools.lru_cache(maxsize=2)  # a study loads its data once for every partition and seed
def _people(unknown: str, paths: tuple[Path, ...], stamps: tuple[object, ...]) -> People:
    tables = [read_adult(path) for path in paths]
    table = {name: np.concatenate([t[name] for t in tables]) for name in COLUMNS if name != "fnlwgt"}
    tested = np.repeat([False, True], [len(t["income"]) for t in tables])
    if unknown == "drop":
        known = np.all([table[name] != UNKNOWN for name in CATEGORICAL], axis=0)
        table, tested = {name: column[known] for name, column in table.items()}, tested[known]
    for name in CATEGORICAL:
        words, counts = np.unique(table[name][table[name] != UNKNOWN], return_counts=True)
        if len(words):
            table[name] = np.where(table[name] == UNKNOWN, words[counts.argmax()], table[name])
    words, names = one_hot(table)
    people = People(
        income=(table["income"] == LABELS[1]).astype(np.int32),
        sex=(table["sex"] == SEXES[1]).astype(np.int32),
        tested=tested,
        words=words,
        names=names,
        numbers=np.stack([table[name].astype(np.float64) for name in NUMBERS], axis=1),
    )
    for array in (people.income, people.sex, people.tested, people.words, people.numbers):
        array.setflags(write=False)
    return people


CARD = DatasetCard(
    name="adult-sex",
    title="Census income; women and men are the groups, dealt to clients in different proportions",
    load=adult_sex,
    layouts=(LAYOUT,),
    papers=("FedCvg-Ratio", "E2FL"),
    licence="CC BY 4.0 (as UCI gives it; not checked here)",
    provenance="Becker and Kohavi (1996), from the 1994 US census, published by the UCI Machine Learning Repository.",
    citation="Becker, Kohavi: Adult. UCI Machine Learning Repository, 1996. doi:10.24432/C5XW20",
    notes=(
        "A 1994 sample with an income cut of its time: do not use a model of it to decide about people.",
        "104 features: 99 categories and 5 numbers. The study says about 108 and does not list them. Sex stays a feature unless "
        "drop_sensitive=true; relationship (husband, wife) tells it all the same.",
        "Numbers are standardised with the training rows of all clients together; the study does not say whether it scales them.",
        "E2FL's 101 features: unknown=drop, drop_sensitive=true, official_test=true (inferred from its Tables 3 and 7).",
        "Unknown values are replaced before the split, by the commonest of all rows, so that features do not depend on the split.",
        "The study counts 16,117 women, a third of all rows; the files hold 16,192 women and 32,650 men.",
        "Clients are invented: coverages of the study are for all rows and are multiplied by the share that is not in the test set.",
    ),
    expected=Sizes(clients=5, train=35165, valid=3909, test=0, central=9768),
)
