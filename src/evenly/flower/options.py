"""What a strategy can be told, and what stays the same through a deployment."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict

from evenly.data.federation import Census
from evenly.flower.caps import Caps
from evenly.flower.model_arrays import Form
from evenly.flower.nodes import Roll
from evenly.types import Algorithm, Seeds, Several

Average = Callable[[list[RecordDict], str], MetricRecord]
# From what each client sent in a two-phase round to the sum, by the names of the arrays: the model's, of several "0/..." and so on.
Adding = Callable[[Mapping[int, ArrayRecord]], Mapping[str, np.ndarray]]


class Options(NamedTuple):
    """Most of it can be told to Flower's own FedAvg, too."""

    seeds: Seeds
    caps: Caps | None
    introduce: bool
    fraction_train: float | None
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int
    weighted_by_key: str
    arrayrecord_key: str
    configrecord_key: str
    train_metrics_aggr_fn: Average
    evaluate_metrics_aggr_fn: Average
    two_phase: Adding | None = None  # None: rounds of one phase
    max_reply_bytes: int | None = None  # None: reckoned from the model


class Setting(NamedTuple):
    """A deployment whose clients are known."""

    algorithm: Algorithm
    options: Options
    roll: Roll
    form: Form
    census: Census  # what rule and sampling begin with: the roll's, within the caps

    @property
    def models(self) -> int:
        """How many models are kept; 0: one for all."""
        return self.algorithm.rule.groups if isinstance(self.algorithm.rule, Several) else 0

    @property
    def apart(self) -> bool:
        """Whether clients train the model that they chose; else all of them train the same."""
        return isinstance(self.algorithm.rule, Several) and self.algorithm.rule.apart
