"""What each method makes its clients reveal besides their update."""

from typing import NamedTuple

from evenly.algorithms import METHODS
from evenly.experiment.results import Comparison, Run

WORDS = {
    "examples": "how many training rows it has",
    "loss": "its loss: how badly the model it received fits its training rows",
    "table": "counts of its training rows by group, label and prediction",
    "valid_table": "counts of its validation rows by group, label and prediction",
    "cell_loss": "its losses, summed by group and label",
    "unprivileged": "how many of its training rows belong to unprivileged people",
    "choice": "which of the models suits it best",
    "gram": "its whole update: the server cannot work from a sum alone",
    "square_norm": "how long its update is (one number; without masking the server sees it anyway)",
}


class Revealed(NamedTuple):
    """What a client that takes part in a round sends under one method."""

    label: str
    title: str  # the method's name in words, "" if it is not registered
    needs: tuple[str, ...] | None  # in the order of WORDS; None if not known
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
    """What a run's rule and sampling need of clients, in the order of WORDS; None if it is not known."""
    return None if run.needs is None else tuple(name for name in WORDS if name in run.needs)
