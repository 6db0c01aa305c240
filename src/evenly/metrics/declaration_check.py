"""Check that a metric's value depends only on the data that it declares with `rests_on`.

The declaration decides what is hidden where figures must not rest on few people, so a wrong one
would reveal data about individuals. The check computes the metric on random counts twice, with
different values for all data that it must not use. Both values must be equal.
"""

from typing import Any

import numpy as np

from evenly.metrics.clients import tenth
from evenly.metrics.groups import GroupedRates, view
from evenly.metrics.metric import (
    BEST_CLIENT,
    BEST_TENTH,
    CLIENT_GROUPS,
    CLIENTS,
    GROUPS,
    OF_CLIENTS,
    OF_PEOPLE,
    RESTS_ON,
    ROWS,
    SIDES,
    SOME_CLIENTS,
    WORST_TENTH,
    Metric,
)
from evenly.randomness import generator
from evenly.validation import shortened

Array = np.ndarray
TRIALS, CLIENTS_TRIED = 8, 31
FEW = CLIENTS_TRIED // 3  # clients that are too few to decide a metric of all clients


def check_declaration(metric: Metric) -> None:
    """Raise a ValueError unless the metric can be computed and uses only the data that it declares.

    >>> formula = lambda accuracy, rows: 100 * np.median(accuracy)
    >>> metric = Metric("median", "median", "median aₖ", "0 to 100 %", 1, formula, CLIENTS)
    >>> check_declaration(metric)
    Traceback (most recent call last):
    ValueError: Metric 'median' declares rests_on='clients' (the accuracies of all clients), but \
only 1 of 31 clients decided its value. It would not be hidden where it must be. Declare \
rests_on='some clients'.
    """
    if metric.rests_on in OF_PEOPLE:
        _check_people(metric)
    elif metric.rests_on in OF_CLIENTS:
        _check_clients(metric)
    elif metric.rests_on == CLIENT_GROUPS:
        _number(metric, _compute(metric, np.linspace(0.2, 0.9, 6), np.arange(6) % 3))


def _check_people(metric: Metric) -> None:
    draw = generator(0, "declaration")
    first, second = (
        view(draw.integers(20, 90, (TRIALS, 3, 2, 2)), favourable=1, unprivileged=(0,))
        for _ in range(2)
    )
    value = np.asarray(_compute(metric, first), np.float64)
    if value.shape != (TRIALS,):
        raise ValueError(
            f"Metric {metric.name!r}: the function must return one number for each leading axis of"
            f" the counts, as NumPy does where only the last axis is reduced: {TRIALS} tables gave"
            f" shape {list(value.shape)}."
        )
    exchanged = {
        ROWS: GroupedRates(second.groups, second.sides, first.whole),
        SIDES: GroupedRates(second.groups, first.sides, first.whole),
        GROUPS: first,
    }
    if not np.array_equal(
        value, np.asarray(_compute(metric, exchanged[metric.rests_on])), equal_nan=True
    ):
        levels = {ROWS: "the two sides or single groups", SIDES: "single groups"}
        raise _wrong_declaration(
            metric,
            f"its value depends on {levels[metric.rests_on]}",
            SIDES if metric.rests_on == ROWS else GROUPS,
        )


def _check_clients(metric: Metric) -> None:
    draw = generator(0, "declaration")
    shares = np.sort(draw.uniform(0.05, 0.95, (TRIALS, CLIENTS_TRIED)), axis=1)
    rows = draw.integers(20, 90, shares.shape)
    values = [_number(metric, _compute(metric, a, n)) for a, n in zip(shares, rows, strict=True)]
    if metric.rests_on == CLIENTS:
        deciding = [_deciding(metric, a, n) for a, n in zip(shares, rows, strict=True)]
        if all(0 < number <= FEW for number in deciding):
            raise _wrong_declaration(
                metric,
                f"only {max(deciding)} of {CLIENTS_TRIED} clients decided its value",
                SOME_CLIENTS,
            )
    elif metric.rests_on != SOME_CLIENTS:
        number = tenth(CLIENTS_TRIED) if metric.rests_on in (WORST_TENTH, BEST_TENTH) else 1
        best = metric.rests_on in (BEST_TENTH, BEST_CLIENT)
        end, others = (
            (slice(-number, CLIENTS_TRIED - number + 1), slice(-number))
            if best
            else (slice(number - 1, number), slice(number, None))
        )
        # nearer to the end, but not beyond it
        shares[:, others] = (shares[:, others] + shares[:, end]) / 2
        changed = [
            _number(metric, _compute(metric, a, n)) for a, n in zip(shares, rows, strict=True)
        ]
        if not np.allclose(values, changed, equal_nan=True):
            raise _wrong_declaration(metric, "its value depends on other clients", SOME_CLIENTS)


def _deciding(metric: Metric, shares: Array, rows: Array) -> int:
    """How many clients change the value when their accuracy changes a little, in the same order.
    None do where it counts clients, for example those below one half.
    """
    before = _number(metric, _compute(metric, shares, rows))
    little = np.diag(np.diff(shares, append=1) / 1000)
    values = [_number(metric, _compute(metric, shares + step, rows)) for step in little]
    return int((~np.isclose(values, before, rtol=1e-12, atol=0, equal_nan=True)).sum())


def _compute(metric: Metric, *arguments: Any) -> Any:
    try:
        return metric.function(*arguments)
    except Exception as error:
        raise ValueError(
            f"Metric {metric.name!r} rests on {RESTS_ON[metric.rests_on]}, and its function failed"
            f" on an example: {type(error).__name__}: {error}. See docs/add-a-metric.md for what it"
            " is called with."
        ) from error


def _number(metric: Metric, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"Metric {metric.name!r}: the function must return one number, or NaN, got"
            f" {shortened(value)}."
        ) from None


def _wrong_declaration(metric: Metric, why: str, instead: str) -> ValueError:
    return ValueError(
        f"Metric {metric.name!r} declares rests_on={metric.rests_on!r}"
        f" ({RESTS_ON[metric.rests_on]}), but {why}. It would not be hidden where it must be."
        f" Declare rests_on={instead!r}."
    )
