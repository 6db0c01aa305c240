"""A made-up census whose unfairness is known: how rare a group is, how its labels are spoilt, and how different it is.

Nothing is downloaded. A person has features x, standard normal, and is qualified if w·x > 0. Half of either group is, whatever
the settings: any gap between the groups is one of three that are put in on purpose.

- Representation: the share of unprivileged people goes evenly from share * (1 - skew) at the first client to share * (1 + skew)
  at the last.
- Label bias b: a qualified unprivileged person gets the favourable label only with probability 1 - b. No one else's is touched.
- Angle a (degrees): the unprivileged group's w is turned by a against the privileged group's, so that one linear model cannot be
  right for both, and the group with fewer rows is served worse.

What ideal models show, measured on the recorded labels (unprivileged minus privileged):

    the recorded labels themselves      rate of favourable labels  -b/2
    who is qualified, truly             SPD 0, EOD 0, FPR gap b/(1+b), accuracy gap -b/2
    w of the privileged, for everyone   SPD 0, EOD -a/180, accuracy gap -a/180 where b = 0
"""

import numpy as np

from evenly.data.federation import DRAWN, Federation
from evenly.data.partition import Rows, federate, numbered
from evenly.data.sensitive import Sensitive, cross
from evenly.data.splits import split_rows
from evenly.datasets.card import DatasetCard, Sizes
from evenly.randomness import generator
from evenly.records import require

GROUPS = ("unprivileged", "privileged")
LABELS = ("refused", "granted")


def synthetic_census(
    clients: int = 10,
    *,
    rows: int = 10_000,
    features: int = 10,
    share: float = 0.3,
    skew: float = 0.5,
    label_bias: float = 0.2,
    angle: float = 30.0,
    test: float = 0.2,
    valid: float = 0.1,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """People dealt to clients of equal size; the share `test` of all, with the same share of groups, is a central test set.

    `share` is that of unprivileged people, `skew` how much it differs between clients (0: not at all, 1: from none to twice the
    share), `label_bias` and `angle` are explained in the module. The last feature says who is privileged. `seed` draws people
    and their clients, `split_seed` the validation rows of each client.
    """
    _check(clients, rows, features, share=share, skew=skew, label_bias=label_bias, angle=angle, test=test, valid=valid)
    owner = np.concatenate([np.full(round(test * rows), -1), np.arange(rows - round(test * rows)) * clients // (rows - round(test * rows))])
    rare = generator(seed, "group").random(rows) < _chance(owner, clients, share, skew)
    x = generator(seed, "features").normal(size=(rows, features))
    qualified = is_qualified(x, rare, angle)
    spoilt = rare & qualified & (generator(seed, "labels").random(rows) < label_bias)
    people = Rows(
        np.concatenate([x, ~rare[:, None]], axis=1, dtype=np.float32, casting="unsafe"),
        (qualified & ~spoilt).astype(np.int32),
        LABELS,
        "synthetic-census",
    ).grouped(cross([Sensitive("group", GROUPS, (~rare).astype(np.int32))]))
    parts = split_rows(owner, clients, shares=(1 - valid, valid), seed=split_seed)
    made = f"{DRAWN}, shares of unprivileged people with skew={skew:g}"
    return federate(people, parts, names=numbered(clients), central=np.flatnonzero(owner < 0), partition=made)


def is_qualified(x: np.ndarray, rare: np.ndarray, angle: float) -> np.ndarray:
    """Whether w·x > 0, where w is the first axis for privileged people and turned towards the second for the others."""
    turned = np.cos(np.deg2rad(angle)) * x[:, 0] + np.sin(np.deg2rad(angle)) * x[:, 1]
    return np.where(rare, turned, x[:, 0]) > 0


def _chance(owner: np.ndarray, clients: int, share: float, skew: float) -> np.ndarray:
    """How likely each row is of an unprivileged person: by client, and the plain share in the test set."""
    slope = np.linspace(-1, 1, clients) if clients > 1 else np.zeros(1)
    return np.where(owner < 0, share, share * (1 + skew * slope)[owner])


def _check(clients: int, rows: int, features: int, *, test: float, valid: float, **shares: float) -> None:
    require(features >= 2, f"synthetic-census: features must be at least 2, got {features}.")
    require(0 <= test < 1 and 0 <= valid < 1, f"synthetic-census: test and valid must be at least 0 and below 1, got {test} and {valid}.")
    held = rows - round(test * rows)
    require(
        1 <= clients <= held, f"synthetic-census: clients must be between 1 and the rows that are not test rows, {held}, got {clients}."
    )
    share, skew = shares["share"], shares["skew"]
    require(0 < share < 1, f"synthetic-census: share must be between 0 and 1, got {share}.")
    require(0 <= skew <= 1, f"synthetic-census: skew must be at least 0 and at most 1, got {skew}.")
    require(share * (1 + skew) <= 1, f"synthetic-census: share * (1 + skew) must be at most 1, got {share * (1 + skew):g}.")
    require(0 <= shares["label_bias"] <= 1, f"synthetic-census: label_bias must be at least 0 and at most 1, got {shares['label_bias']}.")
    require(0 <= shares["angle"] <= 180, f"synthetic-census: angle must be between 0 and 180 degrees, got {shares['angle']}.")


CARD = DatasetCard(
    name="synthetic-census",
    title="Made-up people with a known bias against one group; nothing is downloaded",
    load=synthetic_census,
    memory=lambda settings: (8 + 4) * settings["rows"] * settings["features"],  # drawn in double precision, kept in single
    licence="Made here",
    provenance="Drawn as the module evenly.datasets.synthetic_census explains.",
    citation="None: the construction is evenly's own.",
    notes=(
        "The recorded labels are biased, in the test set too: a model that reproduces who is truly qualified is 100 - 100 * label_bias / 2 "
        "percent right about unprivileged people, and its false positive rate is not zero for them.",
        "The last feature is the group itself.",
    ),
    expected=Sizes(clients=10, train=7200, valid=800, test=0, central=2000),
)
