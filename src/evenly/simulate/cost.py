"""What a client sends and receives in a round of an algorithm."""

from collections.abc import Sequence

from evenly.metrics.runs import SCALAR, Cost, round_cost
from evenly.parts.work import TrainingAlone
from evenly.simulate.choosing import GIVEN
from evenly.simulate.layout import Shape
from evenly.types import Algorithm, RowRule, Several

NOT_SENT = {"square_norm", "gram", "chance"}  # read off the updates themselves, or drawn by the server


def cost_of(algorithm: Algorithm, sizes: Sequence[int], shape: Shape) -> Cost:
    """Bytes up and down, from the sizes of the model's layers, how the method talks and what it makes clients reveal."""
    rule = algorithm.rule
    models = rule.groups if isinstance(rule, Several) else 1
    if isinstance(algorithm.work, TrainingAlone):
        kind = "none"
    elif algorithm.network is not None:
        kind = "ranking" if not isinstance(rule, Several) or rule.known_votes or rule.inference in GIVEN else "ranking and masks"
    else:
        kind = "clusters" if isinstance(rule, Several) else "model"
    cells = shape.groups * shape.labels
    many = {"table": cells * shape.labels, "valid_table": cells * shape.labels, "cell_loss": cells}
    scalars = sum(many.get(need, 1) for need in rule.needs - NOT_SENT)
    told = SCALAR * cells if isinstance(rule, RowRule) else 0.0
    cost = round_cost(kind, sizes, models=models, scalars=scalars)
    return cost._replace(down=cost.down + told)
