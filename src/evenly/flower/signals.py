"""What a cohort's clients said, stacked in the order of its slots."""

import logging
from collections.abc import Mapping

import numpy as np

from evenly.flower import wire
from evenly.flower.replies import Reply
from evenly.flower.rounds import ServerState
from evenly.types import Algorithm, Signals

LOG = logging.getLogger("flwr")  # Flower's own


def signals_of(algorithm: Algorithm, state: ServerState, cohort: np.ndarray, heard: Mapping[int, Reply], chance: np.ndarray) -> Signals:
    """Signals of the cohort [K]; those of clients that were not heard are zeros, and are not read."""
    who = cohort.tolist()
    told = {}
    for name in sorted(algorithm.rule.needs & wire.SIGNALS.keys()):
        known = {k: reply.signals[name] for k, reply in heard.items() if name in reply.signals}
        if name == "choice":
            assert state.choice is not None
            told[name] = np.array([int(known.get(k, state.choice[k])) for k in who], np.int32)
        elif known:
            nothing = np.zeros_like(next(iter(known.values())))
            told[name] = np.stack([known.get(k, nothing) for k in who]).astype(np.float32)
            if name == "valid_table" and not told[name].any():
                LOG.warning("%s: nobody in this round has validation rows, on which it measures: nobody's weight moves", algorithm.label)
    return Signals(
        client=cohort,
        returned=np.array([k in heard for k in who]),
        examples=np.array([heard[k].examples if k in heard else 0 for k in who], np.float32),
        chance=chance,
        **told,
    )
