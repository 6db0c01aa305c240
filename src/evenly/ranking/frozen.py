"""The setting of a method that ranks edges: which network is drawn and how its edges are ordered."""

from evenly.ranking.supernetwork import Supernetwork, check_settings, supernetwork
from evenly.records import record, static
from evenly.types import Task


@record
class Frozen:
    """Draw a task's weights once, by the seed of the first model, and learn which of its edges to keep."""

    k: float = static(default=0.5, doc="share of every layer's edges that a model keeps")
    scores: str = static(default="raw", doc="what orders and masks edges: 'raw' scores, 'abs' magnitudes, or 'frl-compat'")
    positive: bool = static(default=False, doc="whether scores start between 0 and 1 / sqrt(fan-in), not on both sides of 0")
    frozen_weights: str = static(default="signed-constant", doc="'signed-constant' or 'normal', both with variance 2 / fan-in")

    def __post_init__(self) -> None:
        check_settings(self.k, self.scores, self.frozen_weights)

    def of(self, task: Task, seed: int) -> Task:
        if isinstance(task, Supernetwork):
            return task
        return supernetwork(task, k=self.k, seed=seed, scores=self.scores, positive=self.positive, weights=self.frozen_weights)
