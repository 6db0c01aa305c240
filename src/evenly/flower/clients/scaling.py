"""The second half of a two-phase round at a client: what leaves it is its coefficient times its update.

The server sees the sum of these. What nobody learns among a model's arrays, such as PyTorch's `running_mean` and `num_batches_tracked`,
goes the same way, but is no part of the update's length.
"""

import jax
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from evenly.flower import wire
from evenly.flower.clients.measuring import Metrics
from evenly.flower.clients.told import Told, told
from evenly.records import require
from evenly.types import Tree


def scaled(vector: Tree, coefficient: np.ndarray) -> ArrayRecord:
    """Coefficient times update. With a coefficient for each of several models, one for each, so that a model's sum is one, too."""
    require(
        all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(vector)),
        "Training gave NaN or infinity. Nothing is sent, because in a sum nobody could tell whose it is; try a smaller learning rate.",
    )
    if coefficient.ndim == 0:
        return wire.to_arrays(_times(vector, coefficient))
    return wire.several([_times(vector, own) for own in coefficient])


def said(now: Told, vector: Tree) -> Metrics:
    """What is told beside it: what it was multiplied by, and the update's length where the method needs that."""
    metrics: Metrics = {}
    wire.put(metrics, wire.COEFFICIENT, now.coefficient)
    if "square_norm" in now.algorithm.needs:
        metrics[wire.SQUARE_NORM] = _square_norm(vector)
    return metrics


def reply(message: Message, trained: ArrayRecord, metrics: Metrics) -> Message:
    """The answer to a train message, from a trained model: the model, or in two-phase rounds coefficient times update."""
    config = next(iter(message.content.config_records.values()), {})
    if wire.COEFFICIENT in config:
        now = told(config)
        assert now.coefficient is not None
        vector = _update(now, trained, next(iter(message.content.array_records.values())))
        trained, metrics = scaled(vector, now.coefficient), {**metrics, **said(now, vector)}
    return Message(RecordDict({wire.ARRAYS: trained, wire.METRICS: MetricRecord(metrics)}), reply_to=message)


def _update(now: Told, trained: ArrayRecord, received: ArrayRecord) -> dict[str, np.ndarray]:
    """Trained minus received, or of several models minus the client's own; places of edges are votes as they are."""
    if now.algorithm.network is not None:
        return {name: wire.read(array) for name, array in trained.items()}
    prefix = "" if now.group is None else wire.prefix_of(now.group)
    return {name: wire.read(array) - wire.read(received[prefix + name]) for name, array in trained.items()}


def _times(vector: Tree, coefficient: np.ndarray) -> Tree:
    return jax.tree.map(lambda leaf: np.float32(coefficient) * np.asarray(leaf), vector)


def _square_norm(vector: Tree) -> float:
    leaves = zip(wire.names_of(vector), wire.leaves_of(vector), strict=True)
    learned = [leaf for name, leaf in leaves if leaf.dtype.kind == "f" and not wire.is_statistic(name)]
    return float(sum(np.sum(np.square(leaf, dtype=np.float64)) for leaf in learned))
