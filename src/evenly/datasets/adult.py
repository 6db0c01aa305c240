"""UCI Adult census income as AFL and q-FFL use it: people with a doctorate are one client, everybody else the other.

The features are the 99 categories of the eight categorical columns (as adult.names lists them) and nothing else; an
unknown value (`?`) is no category, so its column is all zeros, as in the authors' code. The label is whether income is
above 50,000 dollars. Each client is tested on its rows of the official test file. The authors have no validation rows;
here a tenth of each client's training rows validates.
"""

from pathlib import Path

import numpy as np

from evenly.data import Rows, official
from evenly.data.encoding import Column
from evenly.data.federation import Federation
from evenly.data.sensitive import groups_of
from evenly.datasets.card import DatasetCard, Sizes
from evenly.datasets.files import Content, DataError, DataFile, use
from evenly.datasets.kept import read_once
from evenly.notation import unknown

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race", "sex",
    "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip
CATEGORICAL = ("workclass", "education", "marital-status", "occupation", "relationship", "race", "sex", "native-country")
LABELS = ("<=50K", ">50K")
CLIENTS = ("PhD", "non-PhD")
SENSITIVE = {"sex": "Female", "race": "Black"}  # and who is unprivileged
UNKNOWN = "?"

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
LAYOUT = (
    DataFile(
        path="adult/adult.data",
        what="Adult training rows",
        contents=(Content("sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", 3974305),),
        urls=(f"{URL}adult.data",),
    ),
    DataFile(
        path="adult/adult.test",
        what="Adult test rows",
        contents=(Content("sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", 2003153),),
        urls=(f"{URL}adult.test",),
    ),
)


def adult(*, sensitive: str = "", valid: float = 0.1, split_seed: int = 0) -> Federation:
    """Two clients, PhD and non-PhD. `sensitive` ("sex" or "race") makes that column the groups; it stays a feature.

    Unprivileged are women, or Black people.
    """
    if sensitive and sensitive not in SENSITIVE:
        raise unknown("sensitive column", sensitive, SENSITIVE)
    _, paths = use((LAYOUT,))
    tables = [read_adult(path) for path in paths]
    table = {name: np.concatenate([t[name] for t in tables]) for name in COLUMNS}
    tested = np.repeat([False, True], [len(t["income"]) for t in tables])
    rows = Rows(one_hot(table)[0], (table["income"] == LABELS[1]).astype(np.int32), LABELS, "adult")
    if sensitive:
        rows = rows.grouped(groups_of({sensitive: Column(sensitive, table[sensitive])}, SENSITIVE[sensitive]))
    owner = np.where(table["education"] == "Doctorate", 0, 1)
    return official(rows, owner, tested, names=CLIENTS, valid=valid, split_seed=split_seed)


@read_once
def read_adult(path: Path) -> dict[str, np.ndarray]:
    """The columns of adult.data or adult.test, as words; test labels lose their full stop."""
    lines = path.read_text(encoding="ascii").splitlines()
    rows = [line.split(", ") for line in lines if line.strip() and not line.startswith("|")]
    for number, row in enumerate(rows, 1):
        if len(row) != len(COLUMNS) or row[-1].rstrip(".") not in LABELS:
            raise DataError(f"{path}: row {number} must have {len(COLUMNS)} columns that end with <=50K or >50K, got {len(row)} columns.")
    columns = dict(zip(COLUMNS, map(np.array, zip(*rows, strict=True)), strict=True))
    return columns | {"income": np.array([row[-1].rstrip(".") for row in rows])}


def one_hot(table: dict[str, np.ndarray]) -> tuple[np.ndarray, tuple[str, ...]]:
    """0/1 features of the categorical columns, float32 [rows, 99], and their names `column=category`."""
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
    provenance="Becker and Kohavi (1996), from the 1994 US census, published by the UCI Machine Learning Repository.",
    citation="Becker, Kohavi: Adult. UCI Machine Learning Repository, 1996. doi:10.24432/C5XW20",
    notes=(
        "A 1994 sample with an income cut of its time: do not use a model of it to decide about people.",
        "Labels, race and sex are census categories of 1994. Race and sex are among the 99 features.",
        "The PhD client has 413 training rows against 32,148: its accuracy on 181 test rows moves in steps of 0.55 points.",
        "The authors have no validation rows; here a tenth of the training rows validates.",
    ),
    expected=Sizes(clients=2, train=29304, valid=3257, test=16281),
)
