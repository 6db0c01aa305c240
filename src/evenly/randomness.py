"""Random numbers: every draw has a generator for its seed and purpose. Nothing draws from a global
state.
"""

import zlib
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenly.records import record, static


@record
class Seeds:
    """Independent seeds of a run.

    Args:
        data: Seed of the split into training, validation and test rows, where the data are
            generated or partitioned.
        model: Seed of the initial model.
        cohort: Seed of client sampling and dropout.
        batches: Seed of the order of batches.

    Example:
        >>> Seeds.all(3).cohort, Seeds(batches=1).cohort
        (3, 0)
    """

    data: int = static(default=0)
    model: int = static(default=0)
    cohort: int = static(default=0)
    batches: int = static(default=0)

    @staticmethod
    def all(seed: int) -> "Seeds":
        """The same seed four times."""
        return Seeds(data=seed, model=seed, cohort=seed, batches=seed)


# Counter-based random draws on the host.
#
# Every draw is keyed by (seed, purpose, round, client) and does not depend on earlier draws. Runs
# can therefore be chunked, resumed, sharded or executed by a client of a deployment, and still use
# the same cohorts and the same batches.


class Draws:
    """A source of generators that share one seed and one purpose ("cohort", "batches", "split",
    ...).
    """

    def __init__(self, seed: int, purpose: str) -> None:
        self.key = int(seed) & (2**64 - 1), zlib.crc32(purpose.encode())
        # One Philox object is rewound for each draw: building a new one costs about ten times as
        # much.
        self._bits = np.random.Philox(key=np.array(self.key, np.uint64))
        self._generator = np.random.Generator(self._bits)
        # a copy, which drawing does not change; nothing is buffered in it
        self._state = self._bits.state
        self._counter = self._state["state"]["counter"]

    def at(self, first: int = 0, second: int = 0, third: int = 0) -> np.random.Generator:
        """The generator at a counter of up to three numbers, usually (round, client). Valid until
        the next call.
        """
        # The lowest word is Philox's own block counter; ours sit above it and can never overlap
        # with it.
        self._counter[1], self._counter[2], self._counter[3] = first, second, third
        self._bits.state = self._state
        return self._generator


def generator(seed: int, purpose: str, *counter: int) -> np.random.Generator:
    """An independent generator for one draw; see `Draws` where many are needed."""
    return Draws(seed, purpose).at(*counter)


def batches(
    rows: np.ndarray,
    size: int,
    *,
    epochs: int,
    shuffle: np.random.Generator | None,
    padding: int,
    most: int | None = None,
) -> np.ndarray:
    """Row numbers in batches: each epoch is shuffled anew and padded to full batches. int32 [steps,
    size]

    `most` is a limit on the steps, which may end the last epoch early. Without `shuffle` rows keep
    their order.
    """
    per_epoch = -(-len(rows) // size)
    order = np.empty((epochs, per_epoch * size), np.int32)
    order[:, len(rows) :] = padding
    for epoch in order:
        epoch[: len(rows)] = rows if shuffle is None else shuffle.permutation(rows)
    return order.reshape(-1, size)[:most]


# Batches whose rows are drawn independently of each other (Poisson sampling), which accounts of
# differential privacy are about. A batch that is shuffled and dealt gets no such account.

# chance that a batch has more rows than there is room for: too small to show in any delta
OVERFLOW = 1e-18


def poisson_steps(rate: float, epochs: int, most: int = 0) -> int:
    """Number of batches in a round: as many as hold every row `epochs` times on average."""
    steps = max(1, round(epochs / rate))
    return min(steps, most) if most else steps


@cache
def poisson_room(rows: int, rate: float) -> int:
    """Entries that hold any batch of so many rows, but for a chance of OVERFLOW."""
    from scipy.special import betainc  # here, because few runs need it

    if rate >= 1:
        return max(1, rows)
    # chance of more than k rows, for every k: it falls
    more = np.arange(rows, dtype=float)
    fits = betainc(more + 1, rows - more, rate) <= OVERFLOW
    return max(1, int(np.argmax(fits)) if fits.any() else rows)


def fill_poisson(
    batches: np.ndarray, rows: np.ndarray, rate: float, generator: np.random.Generator
) -> None:
    """Write row numbers into batches [steps, room] of padding: each row is in each batch with
    probability `rate`, independently.
    """
    # the number of rows first, then which: the same distribution in the time of the rows drawn
    counts = np.minimum(generator.binomial(len(rows), rate, len(batches)), batches.shape[1])
    for batch, count in zip(batches, counts.tolist(), strict=True):
        batch[:count] = rows[generator.choice(len(rows), count, replace=False, shuffle=False)]


# Many short shuffles at once, bit for bit those of NumPy's generators.
#
# Rewinding a generator takes longer than shuffling a dozen rows, which dominated rounds of many
# small clients. Here the random words of all shuffles are computed side by side (Philox 4x64-10:
# Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), and all shuffles take their
# steps together.

LONGEST = 64  # entries; longer shuffles are faster one by one
ENOUGH = 2048  # shuffles; fewer are faster one by one
AT_ONCE = 8192  # shuffles whose words fit into a core's cache

FACTORS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
KEY_STEPS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
ROUNDS = 10
HALF, LOW = np.uint64(32), np.uint64(2**32 - 1)
# the smallest 2**n - 1 that is at least i
ALL_ONES = np.array([2 ** i.bit_length() - 1 for i in range(LONGEST)])


def shuffle_each(
    draws: Draws,
    entries: np.ndarray,
    begins: np.ndarray,
    sizes: np.ndarray,
    *,
    counter: tuple[np.ndarray, np.ndarray],
) -> None:
    """Shuffle parts of `entries` in place, each at most LONGEST long, as the generator
    `draws.at(*counter)` of each would.
    """
    # the longest first: those with steps left stay together
    order = np.argsort(-sizes, kind="stable")
    for start in range(0, len(order), AT_ONCE):
        some = order[start : start + AT_ONCE]
        first, second = (numbers[some].astype(np.uint64) for numbers in counter)
        _shuffle(draws.key, entries, begins[some], sizes[some], counter=(first, second))


@cache
def like_numpy() -> bool:
    """Whether the installed version of NumPy shuffles in the same way; other versions may not."""
    draws, size, many = Draws(1, "shuffles"), LONGEST, 8
    expected, actual = (np.tile(np.arange(size, dtype=np.int32), many) for _ in range(2))
    for i in range(many):
        draws.at(i, i + 1).shuffle(expected[i * size : (i + 1) * size])
    at = np.arange(many)
    shuffle_each(draws, actual, at * size, np.full(many, size), counter=(at, at + 1))
    return bool((actual == expected).all())


def _shuffle(
    key: tuple[int, int],
    entries: np.ndarray,
    begins: np.ndarray,
    sizes: np.ndarray,
    *,
    counter: tuple[np.ndarray, np.ndarray],
) -> None:
    """From the last entry to the second, swap each with an entry that is not behind it. Draws that
    point behind it are rejected.
    """
    (first, second), block = counter, 0
    last, unfinished = sizes - 1, int(np.count_nonzero(sizes > 1))
    while unfinished:
        block += 1
        begins, last, first, second = (
            numbers[:unfinished] for numbers in (begins, last, first, second)
        )
        for word in _words(key, np.full_like(first, block), first, second, np.zeros_like(first)):
            for half in (word & LOW, word >> HALF):
                draw = half.astype(np.int64) & ALL_ONES[last]
                fits = draw <= last
                here, there = begins + last, begins + np.where(fits, draw, last)
                entries[here], entries[there] = entries[there], entries[here]
                last = np.maximum(last - fits, 0)
        unfinished = int(np.max(np.flatnonzero(last), initial=-1)) + 1


def _words(key: tuple[int, int], *counter: np.ndarray) -> tuple[np.ndarray, ...]:
    """Philox's four words of 64 bits at each counter."""
    a, b, c, d = counter
    for i in range(ROUNDS):
        keys = (
            np.uint64((word + i * step) % 2**64) for word, step in zip(key, KEY_STEPS, strict=True)
        )
        (high_a, low_a), (high_c, low_c) = _product(FACTORS[0], a), _product(FACTORS[1], c)
        a, b, c, d = high_c ^ b ^ next(keys), low_c, high_a ^ d ^ next(keys), low_a
    return a, b, c, d


def _product(factor: int, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The higher and the lower 64 bits of products of 64 bits, from products of halves."""
    factor_high, factor_low = np.uint64(factor >> 32), np.uint64(factor % 2**32)
    high, low = words >> HALF, words & LOW
    middle = factor_high * low + (factor_low * low >> HALF)
    carry = factor_low * high + (middle & LOW)
    return factor_high * high + (middle >> HALF) + (carry >> HALF), words * np.uint64(factor)


# Random numbers of local steps, on the device: dropout, augmentation and noise.
#
# Every visit of a client has a key for its seed, round and client, which each step splits. Keys are
# kept as arrays of two numbers, because loops and conditions of the simulator hold plain arrays.


def key_data(seed: int) -> np.ndarray:
    """The numbers of `jax.random.key(seed)`. uint32 [2]"""
    return np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def visit_key(seed: Any, number: Any, client: Any) -> Any:
    """The key of a client's visit in round `number`, counted from 0. uint32 [2]"""
    key = jax.random.wrap_key_data(seed, impl="threefry2x32")
    return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(key, number), client))


def next_key(key: Any) -> tuple[Any, Any]:
    """The key for the next step, as numbers, and the key of this step."""
    keys = jax.random.split(jax.random.wrap_key_data(key, impl="threefry2x32"))
    return jax.random.key_data(keys[0]), keys[1]


# Noise of differential privacy, on the device.
#
# `jax.random.normal` makes a number of 23 random bits, so that it lies between -5.42 and 5.22. A
# client that moves a sum by one deviation of its noise takes it above 5.22 with a probability of
# 1.2e-5. Nothing else does, so that delta would be larger than an account of Gaussians says.

TAIL = 4.0  # numbers beyond it, on either side, are drawn again
TAIL_CHANCE = 3.167124e-5  # of a number above TAIL
TAIL_KEY = 2**32 - 1  # apart from the counters of the numbers that a key gives


def gaussian(key: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> jax.Array:
    """Standard normal numbers, with tails that end at 7.8 deviations and not at 5.2.

    They are those of `jax.random.normal`, but for one in 16,000, which lies beyond 4. It is drawn
    from the tail with 32 further bits.

    Example:
        >>> gaussian(jax.random.key(0), (2,)).shape
        (2,)
    """
    wide = jnp.promote_types(dtype, np.float32)  # half the bits would end far earlier
    inner = jax.random.normal(key, shape, wide)
    bits = jax.random.bits(jax.random.fold_in(key, np.uint32(TAIL_KEY)), shape, np.uint32)
    chance = TAIL_CHANCE * ((bits.astype(wide) + 0.5) / 2.0**32)
    outer = -jnp.sign(inner) * jax.scipy.special.ndtri(chance)
    return jnp.where(jnp.abs(inner) > TAIL, outer, inner).astype(dtype)
