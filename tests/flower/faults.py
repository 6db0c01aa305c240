"""What a client can do wrong in a round. Each of these makes one reply wrong in one way."""

import os
import signal
import time
from collections.abc import Callable

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from evenly.flower import wire

HANGING = 3600.0  # far beyond any time-out


def spoilt(fault: str, message: Message, honest: Callable[[], Message]) -> Message:
    """The reply of a client with this fault, if it replies at all."""
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hangs":
        time.sleep(HANGING)
    if fault == "raises":
        raise RuntimeError("the disk of this hospital is full")
    content = honest().content
    arrays, metrics = content[wire.ARRAYS], content[wire.METRICS]
    assert isinstance(arrays, ArrayRecord)
    assert isinstance(metrics, MetricRecord)
    changed = {name: array.numpy() for name, array in arrays.items()}
    first = next(iter(changed))
    if fault == "nan":
        changed[first] = np.full_like(changed[first], np.nan)
    elif fault == "shape":
        changed[first] = changed[first].reshape(-1)[1:]
    elif fault == "missing array":
        del changed[first]
    elif fault == "extra array":
        changed["extra"] = np.zeros(3, np.float32)
    elif fault == "negative size":
        metrics[wire.EXAMPLES] = -5
    elif fault == "absurd size":
        metrics[wire.EXAMPLES] = 10**18
    elif fault == "no loss":
        del metrics[wire.LOSS]
    elif fault == "absurd loss":
        metrics[wire.LOSS] = 1e30
    elif fault == "nan loss":
        metrics[wire.LOSS] = float("nan")
    else:
        raise ValueError(f"There is no fault {fault!r}.")
    record = ArrayRecord({name: Array(array) for name, array in changed.items()})
    return Message(RecordDict({wire.ARRAYS: record, wire.METRICS: metrics}), reply_to=message)
