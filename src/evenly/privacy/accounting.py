"""The account: which epsilon a number of noised releases gives, and which noise an epsilon needs.

Noise is stated as a *noise multiplier* z: the standard deviation divided by the most that one
client, or one row, can move what is released. Where a round releases several numbers, z is that of
all of them together (`joint`). Both phases of a round see the same sample of clients, so that they
are one release, not two.

    Poisson sampling     the loss distribution is composed numerically (PLD, by dp-accounting)
    no amplification     T Gaussian releases are one with z / sqrt(T), in closed form
    a fixed number       one client replaces another: Renyi differential privacy or, where it is
                         smaller, the closed form without amplification

dp-accounting is installed by `evenly[privacy]`. It is needed to calibrate and to report, not to
train: a resolved plan holds the noise.
"""

import math
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

INTERVAL = 1e-3  # of the discretised loss; a finer one changes epsilon by about 1e-4
# Below this noise, with and without sampling, a discretised loss needs gigabytes and minutes; Renyi
# privacy gives an upper bound instead. A server could else make clients compute for hours.
SMALLEST_NOISE, SMALLEST_UNSAMPLED = 0.3, 0.1
DIGITS = 5  # of a calibrated noise multiplier, rounded up
ADD_OR_REMOVE, REPLACE, ZERO_OUT = "add or remove one", "replace one", "zero out one"


class Releases(NamedTuple):
    """Releases of the same kind: T rounds of training, or T local steps.

    Example:
        >>> Releases(500, rate=0.05).amplified
        True
    """

    times: int
    rate: float = 1.0  # the chance of a client or row to be in the sample
    relation: str = ADD_OR_REMOVE
    # of those registered, at most this many take part, whatever the draw; 0: all that are drawn
    slots: int = 0
    registered: int = 0
    # noise multipliers of further releases that all clients take part in
    more: tuple[float, ...] = ()

    @property
    def amplified(self) -> bool:
        """Whether the sampling hides who took part, so that less is revealed."""
        return self.rate < 1


def joint(multipliers: Iterable[float]) -> float:
    """The noise multiplier of several releases about the same sample together.

    Example:
        >>> round(joint([3.0, 1.0606601717798212]), 6)
        1.0
    """
    total = sum(z**-2 for z in multipliers)
    return total**-0.5 if total else math.inf


@cache
def epsilon_of(noise_multiplier: float, releases: Releases, delta: float) -> float:
    """The epsilon of releases with this noise, at this delta.

    Args:
        noise_multiplier: Noise of each release, as a multiple of what one client can move.
        releases: How many releases, and the sampling.
        delta: How much probabilities may differ beyond epsilon.

    Returns:
        Epsilon; infinity without noise.

    Raises:
        ValueError: If a number is not legal.
        ModuleNotFoundError: If dp-accounting is not installed.

    Example:
        500 rounds, each client takes part with probability 0.05:

        >>> round(epsilon_of(1.0, Releases(500, rate=0.05), delta=1e-5), 3)
        7.524
    """
    check_delta(delta)
    if releases.times < 0 or noise_multiplier < 0:
        raise ValueError(
            "The number of releases and the noise must be at least 0, got"
            f" {releases.times} and {noise_multiplier}."
        )
    if not releases.times and not releases.more:
        return 0.0
    if min((noise_multiplier, *releases.more) if releases.times else releases.more) <= 0:
        return math.inf
    if not releases.amplified or not releases.times:
        return _unamplified(noise_multiplier, releases, delta)
    if releases.relation != REPLACE:
        accountant = accountant_for(noise_multiplier, joint(releases.more))
        return _composed(accountant, noise_multiplier, releases, delta)
    rdp, relation = _dp_accounting().rdp, _dp_accounting().relation
    accountant = rdp.RdpAccountant(neighboring_relation=relation.REPLACE_ONE)
    return min(
        _unamplified(noise_multiplier, releases, delta),
        _composed(accountant, noise_multiplier, releases, delta),
    )


def _unamplified(noise: float, releases: Releases, delta: float) -> float:
    """The epsilon against those who see who takes part: all releases are one Gaussian mechanism."""
    # a client that takes the place of another moves the sum by twice its bound
    noise = noise / 2 if releases.relation == REPLACE else noise
    rounds = [noise / math.sqrt(releases.times)] if releases.times else []
    gaussian = _dp_accounting().gaussian
    return float(gaussian.get_epsilon_gaussian(joint([*rounds, *releases.more]), delta))


def accountant_for(sampled: float, unsampled: float) -> Any:
    """The accountant of dp-accounting for releases of which the least noisy one of a sample has
    this noise, and those without sampling together.
    """
    dp = _dp_accounting()
    if sampled < SMALLEST_NOISE or unsampled < SMALLEST_UNSAMPLED:
        return dp.rdp.RdpAccountant()
    return dp.pld.PLDAccountant(value_discretization_interval=INTERVAL)


def _composed(accountant: Any, noise: float, releases: Releases, delta: float) -> float:
    """The epsilon that an accountant finds for all releases."""
    event = _dp_accounting().event
    more = [event.GaussianDpEvent(joint(releases.more))] if releases.more else []
    one = _sampled(event, noise, releases)
    if not accountant.supports(one):  # a draw beyond the slots is rarer than any delta
        one = _sampled(event, noise, releases._replace(slots=0))
    rounds = event.SelfComposedDpEvent(one, releases.times)
    return float(accountant.compose(event.ComposedDpEvent([rounds, *more])).get_epsilon(delta))


def _sampled(event: Any, noise: float, releases: Releases) -> Any:
    """One release over a sample."""
    if releases.relation == REPLACE:
        inner = event.GaussianDpEvent(noise / 2)
        return event.SampledWithoutReplacementDpEvent(releases.registered, releases.slots, inner)
    if releases.slots:
        return event.TruncatedSubsampledGaussianDpEvent(
            releases.registered, releases.rate, releases.slots, noise
        )
    return event.PoissonSampledDpEvent(releases.rate, event.GaussianDpEvent(noise))


@cache
def noise_for(epsilon: float, releases: Releases, delta: float) -> float:
    """The smallest noise multiplier, to five digits, whose epsilon is at most the given one.

    Args:
        epsilon: The most that may be spent.
        releases: How many releases, and the sampling.
        delta: How much probabilities may differ beyond epsilon.

    Returns:
        The noise multiplier of each release.

    Raises:
        ValueError: If epsilon is not above 0, or is spent by `releases.more` alone.

    Example:
        >>> noise_for(8.0, Releases(500, rate=0.05), delta=1e-5)
        0.9693
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon must be above 0, got {epsilon}.")
    if releases.more and epsilon_of(1.0, releases._replace(times=0), delta) >= epsilon:
        raise ValueError(
            f"An epsilon of {epsilon:g} is spent before training, by releases with noise of"
            f" {', '.join(f'{z:g}' for z in releases.more)}. Give them more noise, or raise"
            " epsilon."
        )
    fits = lambda z: epsilon_of(z, releases, delta) <= epsilon  # noqa: E731
    low, high = 0.0, 1.0
    while not fits(high):
        low, high = high, 2 * high
        if high > 1e6:
            raise ValueError(f"No noise below 1e6 gives an epsilon of {epsilon:g}.")
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return _up(high)


def _up(value: float) -> float:
    """A number rounded up to `DIGITS` digits, so that plans of several machines are the same."""
    scale = 10 ** (DIGITS - 1 - math.floor(math.log10(value)))
    return math.ceil(value * scale - 1e-9) / scale


def usual_delta(clients: int) -> float:
    """The usual delta: 1e-5, or less where there are so many clients that 1e-5 would cover one.

    Example:
        >>> usual_delta(1000), usual_delta(10**6) < 1e-5
        (1e-05, True)
    """
    return min(1e-5, max(clients, 1) ** -1.1)


def check_delta(delta: float) -> None:
    """Refuse a delta that promises nothing."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must be above 0 and below 1, got {delta}.")


class _Library(NamedTuple):
    event: Any
    gaussian: Any
    pld: Any
    rdp: Any
    relation: Any


@cache
def _dp_accounting() -> _Library:
    try:
        from dp_accounting import dp_event, gaussian_mechanism, pld, rdp
        from dp_accounting.privacy_accountant import NeighboringRelation
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "The account of privacy needs dp-accounting, which is not installed:"
            " pip install 'evenly[privacy]'. Plans that hold a noise_multiplier train without it.",
            name=error.name,
        ) from None
    return _Library(dp_event, gaussian_mechanism, pld, rdp, NeighboringRelation)
