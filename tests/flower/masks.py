"""Clients that hide what they send behind pairwise masks, and a server that only ever adds: with
the primitives that Flower has for secure aggregation. Every two clients share a key; one adds the
numbers drawn from it and the other subtracts them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.quantization import dequantize, quantize
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from tests.flower.grids import settings

CLIP, TARGET = 64.0, 2**28  # powers of two: whole numbers, such as votes, stay what they are
MODULUS = 2**32
# Flower and evenly read arrays that NumPy wrote: whoever else looked into one of these would fail
STYPE = "masked"
STEP = 2 * CLIP / TARGET  # the error of one entry of one client is at most this

Leaves = list[np.ndarray]


class Masking:
    """Clients around others; keys are drawn from a seed so that a test is the same every time."""

    def __init__(self, answer: Any, clients: Iterable[int], seed: int = 0) -> None:
        self._answer = answer
        draw = np.random.default_rng(seed)
        self._secret = {
            k: ec.derive_private_key(int(draw.integers(1, 2**62)), ec.SECP384R1()) for k in clients
        }
        self._public = {k: secret.public_key() for k, secret in self._secret.items()}
        self.sent: list[tuple[Leaves, Leaves]] = []  # what clients had, and what left them

    def __call__(self, message: Message, context: Context) -> Message:
        reply = self._answer(message, context)
        if message.metadata.message_type == "train":
            arrays, told = reply.content["arrays"], settings(message)
            own = [np.asarray(array.numpy(), np.float64) for array in arrays.values()]
            hidden = self.masked(int(told["client"]), int(told["server-round"]), own)  # pyright: ignore[reportArgumentType]
            self.sent.append((own, hidden))
            reply.content["arrays"] = ArrayRecord(
                {name: closed(leaf) for name, leaf in zip(arrays, hidden, strict=True)}
            )
        return reply

    def masked(self, client: int, number: int, leaves: Leaves) -> Leaves:
        """Quantised, then shifted by the masks that this client shares with each of the others in
        this round.
        """
        found: Leaves = [np.asarray(leaf, np.int64) for leaf in quantize(leaves, CLIP, TARGET)]  # pyright: ignore[reportArgumentType]
        shapes = [leaf.shape for leaf in leaves]
        for other, public in self._public.items():
            if other == client:
                continue
            seed = generate_shared_key(self._secret[client], public) + number.to_bytes(4, "little")
            mask = pseudo_rand_gen(seed, MODULUS, shapes)
            found = (parameters_addition if client < other else parameters_subtraction)(found, mask)  # pyright: ignore[reportArgumentType]
        return parameters_mod(found, MODULUS)

    def added(self, sent: Mapping[int, ArrayRecord]) -> dict[str, np.ndarray]:
        """What a server does that has no keys: the masks cancel only in the sum over all
        clients.
        """
        # without one of them the sum is noise: nothing here recovers it
        assert sent.keys() == self._public.keys()
        names = next(iter(sent.values())).keys()
        total = [np.zeros(array.shape, np.int64) for array in next(iter(sent.values())).values()]
        for record in sent.values():
            total = parameters_mod(
                parameters_addition(total, [opened(array) for array in record.values()]), MODULUS
            )
        found = dequantize(total, CLIP, TARGET)  # pyright: ignore[reportArgumentType]
        # each brought a shift of its own
        return {
            name: leaf - (len(sent) - 1) * CLIP for name, leaf in zip(names, found, strict=True)
        }


def closed(leaf: np.ndarray) -> Array:
    return Array(str(leaf.dtype), leaf.shape, STYPE, leaf.tobytes())


def opened(array: Array) -> np.ndarray:
    assert array.stype == STYPE
    return np.frombuffer(array.data, array.dtype).reshape(array.shape)
