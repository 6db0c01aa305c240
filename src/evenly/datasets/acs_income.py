"""ACSIncome 2018: income above 50,000 dollars from the US census sample; every state is a client.

Ding, Hardt, Miller, Schmidt, "Retiring Adult: New Datasets for Fair Machine Learning" (NeurIPS 2021) define the task: people older
than 16 with an income above 100 dollars, at least one usual working hour a week and a sampling weight, and ten columns
about them. Here the rows come from FeDa4Fair's files (35 states), or from the Census Bureau's own files.

Columns become 57 features: age, schooling (its 24 levels in order) and weekly hours are standardised with the training rows of
all clients together; the class of work (8), marriage, the relation to the householder (6), sex, race (5), the major group of the
occupation (25) and the part of the world of birth (8) are 0/1 features. The hundreds of codes of occupation and birthplace would
otherwise be as many columns.
"""

from collections.abc import Sequence

import numpy as np

from evenly.data import Rows, natural
from evenly.data.federation import Federation
from evenly.data.sensitive import Groups, Sensitive, cross
from evenly.datasets.acs_files import CODES, LAYOUTS, PACKED, PLAIN, census_file
from evenly.datasets.acs_tables import COLUMNS, read_census, read_published
from evenly.datasets.card import DatasetCard, Sizes
from evenly.datasets.files import MissingData, missing_sentence, place, use
from evenly.datasets.people import standardised
from evenly.notation import unknown
from evenly.randomness import Draws
from evenly.records import replace, require

NUMBERS = ("AGEP", "SCHL", "WKHP")
# The first code of each class; codes below it belong to the class before.
FIRST = {
    "COW": (1, 2, 3, 4, 5, 6, 7, 8),
    "RELP": (0, 1, 2, 5, 11, 16),  # householder, spouse, child, other relative, no relative, group quarters
    "RAC1P": (1, 2, 3, 4, 5),
    "OCCP": (
        0, 500, 800, 1005, 1305, 1600, 2001, 2100, 2205, 2600, 3000, 3600, 3700, 4000, 4200, 4330, 4700, 5000, 6005, 6200, 6800, 7000,
        7700, 9005, 9800,
    ),
    "POBP": (1, 60, 100, 200, 300, 303, 400, 500),  # US, its islands, Europe, Asia, Northern and Latin America, Africa, Oceania
}  # fmt: skip
RACES = ("White", "Black", "Asian", "American Indian or Alaska Native", "other or several")
SENSITIVE = ("sex", "race", "sex,race")
SOURCES = ("feda4fair", "census")


def acs_income(
    source: str = "feda4fair",
    *,
    states: str | Sequence[str] = "",
    rows_per_state: int = 0,
    sensitive: str = "sex",
    races: int = 2,
    drop_sensitive: bool = False,
    train: float = 0.8,
    valid: float = 0.1,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """One client per state ("AL,CO" or a list; "": all), 80/10/10 training, validation and test rows each.

    `rows_per_state` keeps so many rows of each state, drawn by `seed` (0: all). `sensitive` is "sex", "race" or "sex,race"
    (intersections; unprivileged are then the women). `races` are 2, White people and all others, or the 5 of the files; all but
    White people are unprivileged. `source` "census" reads the Census Bureau's files. `drop_sensitive` takes the sensitive
    columns out of the features.
    """
    if sensitive not in SENSITIVE:
        raise unknown("sensitive column", sensitive, SENSITIVE)
    require(races in (2, len(RACES)), f"acs-income: races must be 2 or {len(RACES)}, got {races}.")
    require(rows_per_state >= 0, f"acs-income: rows_per_state must be at least 0 (0: all rows), got {rows_per_state}.")
    names = chosen_states(states, source)
    draws = Draws(seed, "rows")
    tables = [_some(read_state(name, source), rows_per_state, draws.at(CODES[name])) for name in names]
    table = dict(zip(COLUMNS, np.concatenate(tables, axis=1), strict=True))
    owner = np.repeat(np.arange(len(names)), [t.shape[1] for t in tables])
    blank = np.zeros((len(owner), 1), np.float32)
    rows = Rows(blank, table["PINCP"].astype(np.int32), ("<=50K", ">50K"), "acs-income").grouped(_groups(table, sensitive, races))
    federation = natural(rows, owner, names=names, shares=(train, valid), split_seed=split_seed)
    return replace(federation, x=features(table, sensitive if drop_sensitive else "", federation.train.rows))


def chosen_states(states: str | Sequence[str], source: str) -> list[str]:
    """The states asked for, in order; without any, all that the source has (of the Census Bureau's: whose files are here)."""
    if source not in SOURCES:
        raise unknown("source", source, SOURCES)
    known = PLAIN if source == "feda4fair" else CODES
    given = [word.strip() for word in states.split(",") if word.strip()] if isinstance(states, str) else list(states)
    for name in given:
        if name not in known:
            raise unknown("state", str(name), known)
    if given or source == "feda4fair":
        return sorted(set(given)) or list(known)
    here = [name for name in known if place(census_file(name)).is_file()]
    if not here:
        raise MissingData(missing_sentence(census_file("AL")))
    return sorted(here)


def read_state(name: str, source: str) -> np.ndarray:
    """A state's rows as numbers, [columns, rows]."""
    if source == "census":
        _, (path,) = use(((census_file(name),),))
        return read_census(path)
    _, (path,) = use(((PLAIN[name],), (PACKED[name],)))
    return read_published(path)


def features(table: dict[str, np.ndarray], dropped: str, training: np.ndarray) -> np.ndarray:
    """The features, float32 [rows, 57] or fewer; a code that no class begins with or below is none of its column's classes."""
    columns: list[np.ndarray] = [standardised(np.stack([table[name] for name in NUMBERS], axis=1), training), (table["MAR"] == 1)[:, None]]
    columns += [] if "sex" in dropped else [(table["SEX"] == 2)[:, None]]
    for name, first in FIRST.items():
        if not (name == "RAC1P" and "race" in dropped):
            columns.append((np.searchsorted(first, table[name], side="right") - 1)[:, None] == np.arange(len(first)))
    return np.concatenate(columns, axis=1, dtype=np.float32, casting="unsafe")


def _groups(table: dict[str, np.ndarray], sensitive: str, races: int) -> Groups:
    white = table["RAC1P"] == 1
    race = (
        Sensitive("race", ("not White", "White"), white.astype(np.int32))
        if races == 2
        else Sensitive("race", RACES, table["RAC1P"].astype(np.int32) - 1, RACES.index("Black"))
    )
    parts = {"sex": Sensitive("sex", ("Female", "Male"), (table["SEX"] == 1).astype(np.int32)), "race": race}
    groups = cross([parts[name] for name in sensitive.split(",")], sensitive.split(",")[0])
    others = tuple(g for g, name in enumerate(groups.names) if name != "White")
    return groups._replace(unprivileged=others) if sensitive == "race" else groups


def _some(table: np.ndarray, most: int, draw: np.random.Generator) -> np.ndarray:
    rows = table.shape[1]
    return table[:, np.sort(draw.permutation(rows)[:most])] if 0 < most < rows else table


CARD = DatasetCard(
    name="acs-income",
    title="Census income 2018; every US state is a client, sex and race are the groups",
    load=acs_income,
    layouts=LAYOUTS,
    licence="Census microdata are in the US public domain; the repository that holds these files is GPL-3.",
    provenance="US Census Bureau, American Community Survey 2018 (1-year sample), through folktables and FeDa4Fair.",
    citation="Ding, Hardt, Miller, Schmidt: Retiring Adult: new datasets for fair machine learning. NeurIPS 2021.",
    notes=(
        "35 of 51 states: those that FeDa4Fair left as they were and whose files are small enough. CA, FL, NY and TX are missing.",
        "898,610 rows are 205 MB of features; rows_per_state=2000 is enough for a first look.",
        "FeDa4Fair merges marital status into married or not and race into five; the Census Bureau's files are merged alike here. Of "
        "these, Native Hawaiian and Pacific Islander people count as other.",
        "With races=5 every group but White is unprivileged, while the attribute's one unprivileged value is Black.",
        "Occupations and birthplaces are merged into 25 and 8 classes, so accuracies are not those of folktables' papers.",
        "Sampling weights are not used: rates are of the sample, not of the population.",
    ),
    expected=Sizes(clients=35, train=718873, valid=89859, test=89878),
)
