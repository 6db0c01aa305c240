"""COMPAS two-year recidivism (ProPublica 2016), for group fairness between men and women or between
races.

ProPublica's own filters leave 6,172 of 7,214 people: screened within 30 days of the arrest, with a
known recidivism flag, charged with more than an ordinary traffic offence, and with a score. As in
the FedCvg-Ratio study (Gonfiantini, Università di Genova, 2026), men are the unprivileged group and
a fifth of all people is a central test set.

The study says "11 features" and does not list them. Here they are five numbers (age, prior
offences, juvenile felonies, misdemeanours and other offences, standardised), whether the charge is
a felony, whether the person is a man, and four 0/1 features for race (Asian and Native American
people, 42 in all, are counted with "Other"). The COMPAS scores are not features: they are another
model's answer.
"""

import csv
from functools import partial
from pathlib import Path

import numpy as np

from evenly.data import Rows
from evenly.data.federation import Federation
from evenly.data.sensitive import Sensitive, cross
from evenly.datasets.files import Content, DataError, DataFile, DatasetCard, Sizes, checked_files
from evenly.datasets.partitioning import PeoplePartition, partition_people, standardise
from evenly.notation import unknown

NUMBERS = ("age", "priors_count", "juv_fel_count", "juv_misd_count", "juv_other_count")
USED = (
    *NUMBERS,
    "c_charge_degree",
    "sex",
    "race",
    "two_year_recid",
    "days_b_screening_arrest",
    "is_recid",
    "score_text",
)
SEXES = ("Male", "Female")
RACES = ("African-American", "Caucasian", "Hispanic", "Other")
SENSITIVE = ("sex", "race", "sex,race")
FAVOURABLE = {
    "no-recidivism": ("recidivism", "no recidivism"),
    "recidivism": ("no recidivism", "recidivism"),
}
WITHIN = 30  # days between arrest and screening

LAYOUT = (
    DataFile(
        path="compas/compas-scores-two-years.csv",
        what="COMPAS scores with two years of follow-up",
        contents=(
            Content(
                "sha256:c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d", 2546489
            ),
            # The same file with names, birth dates and case numbers emptied.
            Content(
                "sha256:873148a4dbb099b891ddd96d8f78cd63587d04256c3a74be4efa14a8ac78fcac", 2127220
            ),
        ),
        urls=(
            "https://raw.githubusercontent.com/propublica/compas-analysis/bafff5da3f2e45eca6c2d5055faad269defd135a/compas-scores-two-years.csv",
        ),
    ),
)


def compas(
    partition: str = "dirichlet-attribute",
    *,
    clients: int = 0,
    alpha: float = 0.5,
    concentration: float = 5.0,
    min_samples: int = 100,
    coverage: float = 1067,
    count_rule: str = "table",
    sensitive: str = "sex",
    favourable: str = "no-recidivism",
    drop_sensitive: bool = False,
    test: float = 0.2,
    valid: float = 0.1,
    seed: int = -1,
    split_seed: int = 0,
) -> Federation:
    """Partition people among clients by a partition of `evenly.data`. The share `test` of all
    people is a central test set.

    `sensitive` is "sex", "race" or "sex,race" (intersections, with men as the unprivileged group).
    `favourable` is the favourable label, which gets the number 1. The other settings are those of
    `adult_sex`.
    """
    if sensitive not in SENSITIVE:
        raise unknown("sensitive column", sensitive, SENSITIVE)
    if favourable not in FAVOURABLE:
        raise unknown("favourable label", favourable, FAVOURABLE)
    _, (path,) = checked_files((LAYOUT,))
    table = read_compas(path)
    sex, race = (
        Sensitive(name, values, _codes(table[name], values))
        for name, values in (("sex", SEXES), ("race", RACES))
    )
    columns = [part for part in (sex, race) if part.name in sensitive.split(",")]
    y = ((table["two_year_recid"] == "1") == (favourable == "recidivism")).astype(np.int32)
    rows = Rows(np.zeros((len(y), 1), np.float32), y, FAVOURABLE[favourable], f"compas {partition}")
    rows = rows.grouped(cross(columns, columns[0].name))
    split = PeoplePartition(
        partition=partition, clients=clients, alpha=alpha, concentration=concentration,
        min_samples=min_samples, coverage=coverage, count_rule=count_rule, test=test, valid=valid,
        seed=seed,
    )  # fmt: skip
    features = partial(_features, table, sex, race, sensitive if drop_sensitive else "")
    return partition_people(rows, split, features, split_seed=split_seed)


def _features(
    table: dict[str, np.ndarray],
    sex: Sensitive,
    race: Sensitive,
    dropped: str,
    training: np.ndarray,
) -> np.ndarray:
    columns = [
        standardise(
            np.stack([table[name].astype(np.float64) for name in NUMBERS], axis=1), training
        ),
        (table["c_charge_degree"] == "F")[:, None],
    ]
    columns += [] if "sex" in dropped else [(sex.codes == 0)[:, None]]
    columns += [] if "race" in dropped else [race.codes[:, None] == np.arange(len(RACES))]
    return np.concatenate(columns, axis=1).astype(np.float32)


def read_compas(path: Path) -> dict[str, np.ndarray]:
    """Return the used columns, as words, of the people whom ProPublica's filters keep. Of two
    columns with one name the first is read.
    """
    with open(path, newline="", encoding="utf-8") as stream:
        lines = csv.reader(stream)
        header = next(lines, [])
        absent = [name for name in USED if name not in header]
        if absent:
            raise DataError(
                f"{path}: the header must name {', '.join(absent)}, but it does not. Get the file"
                " from ProPublica again."
            )
        places = [header.index(name) for name in USED]
        people = [[line[place] for place in places] for line in lines if len(line) == len(header)]
    table = dict(zip(USED, np.array(people).reshape(-1, len(USED)).T, strict=True))
    days = np.array([float(word or "inf") for word in table["days_b_screening_arrest"]])
    eligible = (
        (abs(days) <= WITHIN)
        & (table["is_recid"] != "-1")
        & (table["c_charge_degree"] != "O")
        & (table["score_text"] != "N/A")
    )
    return {name: words[eligible] for name, words in table.items()}


def _codes(words: np.ndarray, values: tuple[str, ...]) -> np.ndarray:
    """Return the index of each word in `values`. Other words count as the last value."""
    return np.array(
        [values.index(word) if word in values else len(values) - 1 for word in words], np.int32
    )


CARD = DatasetCard(
    name="compas",
    title=(
        "Two-year recidivism; men and women are the groups, dealt to clients in different"
        " proportions"
    ),
    load=compas,
    layouts=(LAYOUT,),
    papers=("FedCvg-Ratio",),
    licence="None given: the repository that holds the file has no licence.",
    provenance="ProPublica (2016), from court records of Broward County, Florida, 2013 and 2014.",
    citation="Angwin, Larson, Mattu, Kirchner: Machine bias. ProPublica, 23 May 2016.",
    notes=(
        (
            "The rows are real people: do not print or publish any. The label is re-arrest, not"
            " crime, and arrests are biased themselves."
        ),
        (
            "The favourable label is no recidivism, coded 1. The study does not say how it coded"
            ' it; favourable="recidivism" is the other way.'
        ),
        (
            "Men, 4,997 of 6,172, are the unprivileged group: here that is the majority, so methods"
            " that lift minorities favour women."
        ),
        (
            "11 features as in the study, which does not list them; the COMPAS scores are not among"
            " them. Numbers are standardised with the training rows of all clients together."
        ),
        (
            "Under coverage partitions half of the clients cannot be bad: there are too few women"
            " to fill them (4 of 5 are good at 1067)."
        ),
        (
            "For race, African-American people are the unprivileged group; Asian and Native"
            ' American people are counted with "Other".'
        ),
    ),
    expected=Sizes(clients=5, train=4442, valid=496, test=0, central=1234),
)
