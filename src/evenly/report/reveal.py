"""What each method makes its clients reveal besides their update."""

from typing import NamedTuple

import numpy as np

from evenly.algorithms import METHODS, variants
from evenly.experiment.results import Comparison, Run
from evenly.notation import parse
from evenly.sampling import Full
from evenly.types import Select

WORDS = {
    "examples": "how many training rows it has",
    "loss": "its loss: how badly the model it received fits its training rows",
    "table": "counts of its training rows by group, label and prediction",
    "choice": "which of the models suits it best",
    "square_norm": "how long its update is (one number; without masking the server sees it anyway)",
}


class Revealed(NamedTuple):
    """What a client that takes part in a round sends under one method."""

    label: str
    title: str  # the method's name in words, "" if it is not registered
    needs: tuple[str, ...] | None  # fields of Signals and Effort; None if not known
    upload: float  # bytes
    download: float

    @property
    def words(self) -> list[str]:
        return [WORDS.get(name, name) for name in self.needs or ()]


def revealed(comparison: Comparison, label: str) -> Revealed:
    run = comparison.of(label)[0]
    title = METHODS[run.algorithm].title if run.algorithm in METHODS else ""
    return Revealed(label, title, needs_of(run), float(run.trace.upload), float(run.trace.download))


def needs_of(run: Run) -> tuple[str, ...] | None:
    """What a run's rule needs, in the order of WORDS; None for a label that is not in the notation."""
    try:
        usual, whole = _needs(run, None), _needs(run, Full())
    except (ValueError, TypeError):
        return None
    # FedAvg's weights follow the sampling, which a label may leave out; unequal weights show that sizes were counted.
    found = whole if usual != whole and _unequal(run) else usual
    return tuple(sorted(found, key=lambda name: list(WORDS).index(name) if name in WORDS else len(WORDS)))


def _needs(run: Run, select: Select | None) -> frozenset[str]:
    return variants(parse(run.label), run.settings, select)[0].members[0].rule.needs


def _unequal(run: Run) -> bool:
    weights = np.where(run.trace.weights > 0, run.trace.weights, np.nan)
    with np.errstate(invalid="ignore"):
        low, high = np.nanmin(weights, axis=1, initial=np.inf), np.nanmax(weights, axis=1, initial=-np.inf)
    return bool((high > low * 1.0001).any())
