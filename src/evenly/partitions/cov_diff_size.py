"""Clients of different size, some of which cover the unprivileged people well and some badly (`cov_diff_size` of the study).

A good client gets coverage * U[1 - t, 1 + 2t] unprivileged rows (t the tolerance), a bad one coverage * U[0.08, 0.12]; these
ranges are the extremes that the study's Table 5.6 reports. Where there are too few unprivileged rows, what good clients have
above 1 - t shrinks, then what bad ones have above 0.08. Privileged rows are all dealt, by Dir(5, ..., 5) shares.
Unprivileged rows that are left over belong to no one. How many clients there are, and how many are good, is as for equal sizes.
"""

import numpy as np

from evenly.federation import Federation, split_rows
from evenly.partitions.coverage import LEAST_BAD, MOST_BAD, Quota, plan
from evenly.partitions.dirichlet import draw_once
from evenly.partitions.rows import Rows, client_rows, federate, notation, numbered
from evenly.partitions.strata import deal_counts
from evenly.randomness import generator

NAME = "cov-diff-size"
EVENNESS = 5.0  # of the privileged rows: the concentration of their Dirichlet shares


def cov_diff_size(
    rows: Rows,
    *,
    coverage: float,
    clients: int = 0,
    tolerance: float = 0.1,
    good_share: float = 0.5,
    count_rule: str = "table",
    scale: bool = True,
    shares: tuple[float, float] = (0.9, 0.1),
    central: np.ndarray | None = None,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Deal rows so that good clients, which come first, have at least `coverage` * (1 - `tolerance`) unprivileged rows.

    The settings are those of `cov_same_size`.
    """
    dealt = client_rows(rows, central)
    quota, unprivileged = plan(
        rows, dealt, coverage=coverage, clients=clients, tolerance=tolerance, good_share=good_share, count_rule=count_rule, scale=scale
    )
    draw = generator(seed, NAME)
    total = int(unprivileged[dealt].sum())
    wanted = draw_unprivileged(quota, total, tolerance, draw)
    others = draw_once(np.array([len(dealt) - total]), quota.clients, EVENNESS, draw)
    owner = deal_counts(unprivileged.astype(int), dealt, np.concatenate([others, wanted[None]]), seed)
    parts = split_rows(owner, quota.clients, shares=shares, seed=split_seed)
    made = notation(NAME, clients=quota.clients, coverage=coverage)
    return federate(rows, parts, names=numbered(quota.clients), central=central, partition=made)


def draw_unprivileged(quota: Quota, available: int, tolerance: float, draw: np.random.Generator) -> np.ndarray:
    """The unprivileged rows of each client, good ones first; at most as many as there are. int64 [clients]"""
    bad = quota.clients - quota.good
    least_good = np.ceil((1 - tolerance) * quota.coverage)
    good_rows = np.maximum(least_good, np.floor(quota.coverage * draw.uniform(1 - tolerance, 1 + 2 * tolerance, quota.good)))
    least_bad = np.ceil(LEAST_BAD * quota.coverage)
    bad_rows = np.maximum(least_bad, np.floor(quota.coverage * draw.uniform(LEAST_BAD, MOST_BAD, bad)))
    good_rows = _shrunk(good_rows, least_good, available - bad_rows.sum())
    bad_rows = _shrunk(bad_rows, least_bad, available - good_rows.sum())
    if good_rows.sum() + bad_rows.sum() > available:
        raise ValueError(
            f"{NAME}: {quota.good} good clients with at least {least_good:.0f} unprivileged rows and {bad} bad ones with at least "
            f"{least_bad:.0f} need {quota.good * least_good + bad * least_bad:.0f}, but there are {available}. Ask for a smaller coverage."
        )
    return np.concatenate([good_rows, bad_rows]).astype(np.int64)


def _shrunk(rows: np.ndarray, least: float, available: float) -> np.ndarray:
    """The same counts, with what exceeds `least` multiplied down until they fit, as far as that goes."""
    surplus = (rows - least).sum()
    if rows.sum() <= available or surplus == 0:
        return rows
    kept = max(0.0, (available - least * len(rows)) / surplus)
    return least + np.floor((rows - least) * kept)
