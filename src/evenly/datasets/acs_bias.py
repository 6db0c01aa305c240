"""ACS Income with a bias of its own in every state, after FeDa4Fair.

Heilmann, Corbucci, Cerrato and Monreale, "FeDa4Fair: Client-Level Federated Datasets for Fairness
Evaluation" (https://arxiv.org/abs/2506.21095, 2025) describe two ways in which clients can disagree
about who is treated badly. Under *attribute bias* it is another attribute at different clients: sex
at some, race at others. Under *value bias* it is another value of the same attribute. A model can
then look fair on average while every client finds it unfair.

As there, bias is made by removing well-paid people of the disadvantaged value from a client, or by
changing their label. Here every state has exactly one bias, of one strength, and half of the states
have each; the paper chooses states and strengths by hand. The code is evenly's own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evenly.data import Rows, natural
from evenly.data.federation import Federation
from evenly.data.sensitive import Sensitive, cross
from evenly.datasets.acs_income import (
    CODES,
    COLUMNS,
    LAYOUTS,
    features,
    read_state,
    sample,
    select_states,
)
from evenly.datasets.files import DatasetCard
from evenly.notation import unknown
from evenly.randomness import Draws, generator
from evenly.records import replace, require


class Bias(NamedTuple):
    """Whom a client disadvantages: a value of a column of the files."""

    who: str
    column: str
    codes: tuple[int, ...]


WOMEN, MEN = Bias("women", "SEX", (2,)), Bias("men", "SEX", (1,))
NOT_WHITE = Bias("not White", "RAC1P", (2, 3, 4, 5))
BLACK, ASIAN = Bias("Black", "RAC1P", (2,)), Bias("Asian", "RAC1P", (3,))
# The two biases of each kind. The states are divided between them.
KINDS = {
    "attribute": (WOMEN, NOT_WHITE),
    "value": (BLACK, ASIAN),
    "value-sex": (WOMEN, MEN),
}
RACES = ("White", "Black", "Asian", "other")
INCOME = COLUMNS.index("PINCP")


def acs_bias(
    kind: str = "attribute",
    *,
    drop: float = 0.5,
    flip: float = 0.0,
    states: str | Sequence[str] = "",
    rows_per_state: int = 0,
    train: float = 0.8,
    valid: float = 0.1,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Return one client per state, half of them with each of two biases. Names of clients tell
    which.

    `kind` is "attribute" (against women or against people who are not White), "value" (against
    Black or against Asian people) or "value-sex" (against women or against men). In each state, the
    share `drop` of the well-paid people of the disadvantaged value is removed, and the share `flip`
    of the others gets the label of the badly paid, in training, validation and test rows alike.
    `seed` draws the states, the rows and the people. `states` and `rows_per_state` (before people
    are removed) are those of `acs_income`.
    """
    if kind not in KINDS:
        raise unknown("kind of bias", kind, KINDS)
    for name, share in (("drop", drop), ("flip", flip)):
        require(0 <= share < 1, f"acs-bias: {name} must be at least 0 and below 1, got {share}.")
    require(
        rows_per_state >= 0,
        f"acs-bias: rows_per_state must be at least 0 (0: all rows), got {rows_per_state}.",
    )
    names = select_states(states, "feda4fair")
    which = np.argsort(generator(seed, "states").permutation(len(names))) % 2
    rows, people = Draws(seed, "rows"), Draws(seed, "people")
    tables = [
        disadvantage(
            sample(read_state(name, "feda4fair"), rows_per_state, rows.at(CODES[name])),
            KINDS[kind][side],
            drop=drop,
            flip=flip,
            draw=people.at(CODES[name]),
        )
        for name, side in zip(names, which.tolist(), strict=True)
    ]
    table = dict(zip(COLUMNS, np.concatenate(tables, axis=1), strict=True))
    labelled = [f"{n} ({KINDS[kind][side].who})" for n, side in zip(names, which, strict=True)]
    federation = natural(
        _rows(table, kind),
        np.repeat(np.arange(len(names)), [each.shape[1] for each in tables]),
        names=labelled,
        shares=(train, valid),
        split_seed=split_seed,
    )
    x = features(table, "", federation.train.rows)
    return replace(federation, x=x, client_group=which.astype(np.int32))


def disadvantage(
    table: np.ndarray, bias: Bias, *, drop: float, flip: float, draw: np.random.Generator
) -> np.ndarray:
    """Return a state's rows [columns, rows] without a share of the well-paid people of the
    disadvantaged value, and with the label of a share of the others changed.

    Of people whose rate of good pay is r, the rate becomes r (1 - drop) (1 - flip) / (1 - r drop).
    """
    people = np.isin(table[COLUMNS.index(bias.column)], bias.codes) & (table[INCOME] == 1)
    order = draw.permutation(np.flatnonzero(people))
    removed = round(drop * len(order))
    changed = table.copy()
    changed[INCOME, order[removed : removed + round(flip * (len(order) - removed))]] = 0
    return np.delete(changed, order[:removed], axis=1)


def _rows(table: dict[str, np.ndarray], kind: str) -> Rows:
    """Return the rows with the groups that the biases of this kind concern."""
    women = Sensitive("sex", ("Female", "Male"), (table["SEX"] == 1).astype(np.int32))
    race = np.minimum(table["RAC1P"].astype(np.int32) - 1, len(RACES) - 1)
    races = Sensitive("race", RACES, race, RACES.index("Black"))
    white = Sensitive("race", ("not White", "White"), (table["RAC1P"] == 1).astype(np.int32))
    parts = {"attribute": [women, white], "value": [races], "value-sex": [women]}[kind]
    groups = cross(parts, parts[0].name)
    if kind == "value":
        both = tuple(g for g, name in enumerate(groups.names) if name in ("Black", "Asian"))
        groups = groups._replace(unprivileged=both)
    blank = np.zeros((len(race), 1), np.float32)
    labels = ("<=50K", ">50K")
    return Rows(blank, table["PINCP"].astype(np.int32), labels, f"acs-bias {kind}").grouped(groups)


CARD = DatasetCard(
    name="acs-bias",
    title="Census income 2018; states are unfair to different people, by attribute or by value",
    load=acs_bias,
    layouts=LAYOUTS,
    licence=(
        "Census microdata are in the US public domain; the repository that holds these files is"
        " GPL-3."
    ),
    provenance=(
        "US Census Bureau, American Community Survey 2018 (1-year sample), through folktables and"
        " FeDa4Fair; the bias is added when the data are loaded."
    ),
    citation=(
        "Heilmann, Corbucci, Cerrato, Monreale: FeDa4Fair: client-level federated datasets for"
        " fairness evaluation. 2025."
    ),
    notes=(
        (
            "The bias is made: rates of income and gaps between groups say nothing about these"
            " states."
        ),
        (
            "Test rows are biased like training rows, so a model that is fair to everyone loses"
            " accuracy."
        ),
        (
            "Women and people who are not White earn less in the untouched rows as well. The"
            " added bias adds to that: drop=0 shows what was there before."
        ),
        (
            "Many states have few Black or Asian people (Wyoming 18 and 16): with kind=value read"
            " sums over states, or choose states with many."
        ),
        (
            "These are not the files of the paper, which adds bias to states chosen by hand, in"
            " strengths chosen by hand; do not compare with its tables."
        ),
    ),
)
