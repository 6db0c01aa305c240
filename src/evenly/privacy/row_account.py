"""The account of private rows: what training and signals reveal together, and how the budget is
shared between them.

Each row is in each batch with the same probability in every client, and all clients take the same
number of steps. They therefore need the same noise for the same epsilon, whatever their size. A
small client pays in accuracy: the same noise falls on fewer rows.

    training  `steps` releases a round, of which each sees a row with probability `rate`
    signals   one release every `measure_every` rounds, which sees every row
    counts    one release before the first round, for reweighing and for methods that read counts

By default signals and counts get a tenth of the budget: a tenth of mu squared, where one Gaussian
release of the sensitivity mu would have the whole epsilon and delta. Training gets the rest.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

import jax
import numpy as np

from evenly.data.federation import Census
from evenly.notation import Part
from evenly.parts.row_privacy import (
    ONCE,
    NoisedReweigh,
    PrivateTraining,
    SignalNoise,
    noised_signals,
    with_private_rows,
)
from evenly.privacy.accounting import (
    ADD_OR_REMOVE,
    Releases,
    _dp_accounting,
    _up,
    accountant_for,
    epsilon_of,
    joint,
    noise_for,
)
from evenly.privacy.claims import refuse_several
from evenly.privacy.request import PRIVACIES, Privacy
from evenly.randomness import poisson_steps
from evenly.records import replace, require
from evenly.types import Algorithm

ROW = "row"
ROW_CLIP = 1.0
ROW_DELTA = 1e-5
SIGNAL_SHARE = 0.1
USUAL_SIGNAL_NOISE = 20.0  # rows, where no epsilon is given
# Noise that was not calibrated yet. Whoever trained with it by mistake would reveal nothing.
UNCALIBRATED = math.inf


class RowNoise(NamedTuple):
    """The noise of a run."""

    noise_multiplier: float  # of a step
    signal_noise: float  # of signals and counts


def with_privacy(algorithm: Algorithm, privacy: Privacy | None) -> Algorithm:
    """The algorithm with the privacy that its notation asks for."""
    algorithm = replace(algorithm, privacy=privacy)
    if privacy is None or privacy.unit != ROW:
        return algorithm
    given = privacy.noise_multiplier is not None
    usual = USUAL_SIGNAL_NOISE if given else UNCALIBRATED
    return with_private_rows(
        algorithm,
        clip=ROW_CLIP if privacy.adapts else privacy.clip,
        noise_multiplier=privacy.noise_multiplier if given else UNCALIBRATED,
        rate=privacy.rate,
        signals=SignalNoise(
            noise=usual if privacy.signal_noise is None else privacy.signal_noise,
            loss_bound=privacy.loss_bound,
            every=privacy.measure_every,
        ),
    )


def without_privacy(algorithm: Algorithm) -> Algorithm:
    """The algorithm that `with_privacy` was given."""
    work, prepare = algorithm.work, algorithm.prepare
    return replace(
        algorithm,
        work=work.plain() if isinstance(work, PrivateTraining) else work,
        prepare=prepare.reweigh if isinstance(prepare, NoisedReweigh) else prepare,
        privacy=None,
    )


def privacy_part(algorithm: Algorithm) -> Part | None:
    """The part of the notation that asks for the algorithm's privacy, with its calibrated noise;
    None if it has none.
    """
    privacy, work = algorithm.privacy, algorithm.work
    if privacy is None:
        return None
    name = next(name for name, kind in PRIVACIES.items() if kind is type(privacy))
    defaults = {field.name: field.default for field in dataclasses.fields(privacy)}
    settings = {
        key: value
        for key, default in defaults.items()
        if (value := getattr(privacy, key)) != default
    }
    if isinstance(work, PrivateTraining) and math.isfinite(_number(work.noise_multiplier)):
        assert work.signals is not None
        settings |= {
            "noise_multiplier": _number(work.noise_multiplier),
            "signal_noise": _number(work.signals.noise),
        }
    return Part(name, settings)


def row_releases(algorithm: Algorithm, rounds: int, *, census: bool = False) -> tuple[int, int]:
    """Number of steps, and of releases of signals and counts, of a client that takes part in every
    round. `census` says whether a server asks for the counts that weights of rows rest on, as it
    does in deployments of methods that read them (`reads_census`). A simulation takes no census.
    """
    work = algorithm.work
    assert isinstance(work, PrivateTraining)
    assert work.signals is not None
    names = set(noised_signals(algorithm.rule.needs))
    measured = -(-rounds // work.signals.every) if names - ONCE else 0
    counts = bool(names & ONCE) + (census or isinstance(algorithm.prepare, NoisedReweigh))
    return rounds * poisson_steps(work.rate, work.epochs, work.max_steps), measured + counts


def reads_census(algorithm: Algorithm) -> bool:
    """Whether a deployment asks its clients for a census: the first public numbers of the rule or
    the sampling depend on more than the number of clients. Two random censuses then lead to
    different ones, or a blank one is refused.
    """
    if algorithm.rule.inference == "known":
        return True
    draw = np.random.default_rng(2)
    one, other = (_random_census(draw, *numbers) for numbers in permutations(range(2)))
    blank = Census(np.ones(2, np.int64), np.ones((2, 1, 1), np.int64))
    return any(
        _refuses(begin, blank) or not _same(begin(one), begin(other))
        for begin in (algorithm.rule.begin, algorithm.select.init)
    )


def _random_census(draw: np.random.Generator, unprivileged: int, favourable: int) -> Census:
    """A census of two clients with random counts in two groups and two labels."""
    cells = draw.integers(2, 99, (2, 2, 2))
    return Census(np.einsum("kgl->k", cells), cells, (unprivileged,), favourable)


def _refuses(begin: Callable[[Census], Any], census: Census) -> bool:
    try:
        begin(census)
    except ValueError:
        return True
    return False


def _same(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)


def calibrated(algorithm: Algorithm, rounds: int, *, census: bool = False) -> Algorithm:
    """The algorithm with the noise that its epsilon needs in so many rounds, and in the census of a
    deployment that takes one; unchanged where noise is given.

    Raises:
        ModuleNotFoundError: If noise must be calibrated and dp-accounting is not installed.
    """
    work = algorithm.work
    if not isinstance(work, PrivateTraining) or is_calibrated(algorithm):
        return algorithm
    noise = row_noise(algorithm, rounds, census=census)
    assert work.signals is not None
    signals = replace(work.signals, noise=noise.signal_noise)
    work = replace(work, noise_multiplier=noise.noise_multiplier, signals=signals)
    prepare = algorithm.prepare
    if isinstance(prepare, NoisedReweigh):
        prepare = replace(prepare, noise=noise.signal_noise)
    return replace(algorithm, work=work, prepare=prepare)


def is_calibrated(algorithm: Algorithm) -> bool:
    """Whether the noise of private rows is known."""
    work = algorithm.work
    return not isinstance(work, PrivateTraining) or math.isfinite(_number(work.noise_multiplier))


def row_noise(algorithm: Algorithm, rounds: int, *, census: bool = False) -> RowNoise:
    """The noise for the epsilon of an algorithm."""
    privacy, work = algorithm.privacy, algorithm.work
    assert isinstance(work, PrivateTraining)
    require(
        privacy.epsilon is not None,
        f"{algorithm.label}: give epsilon, such as +dp(unit=row, epsilon=8), or noise_multiplier.",
    )
    steps, others = row_releases(algorithm, rounds, census=census)
    delta = privacy.delta or ROW_DELTA
    epsilon = float(privacy.epsilon)
    signal_noise = privacy.signal_noise
    if signal_noise is None:
        signal_noise = _signal_noise(epsilon, delta, others) if others else 0.0
    more = (signal_noise / math.sqrt(others),) if others else ()
    releases = Releases(steps, rate=work.rate, more=more)
    return RowNoise(noise_for(epsilon, releases, delta), float(signal_noise))


@cache
def _signal_noise(epsilon: float, delta: float, releases: int) -> float:
    """Noise of so many releases that together have a tenth of the budget."""
    whole = float(_dp_accounting().gaussian.get_sigma_gaussian(epsilon, delta))  # 1 / mu
    return _up(whole * math.sqrt(releases / SIGNAL_SHARE))


def row_facts(members: Sequence[Algorithm], rounds: int, *, census: bool = False) -> dict[str, Any]:
    """What a method with private rows promises, as `claims.facts` says it for clients. `census` as
    for `row_releases`.

    Raises:
        ValueError: If it trains several models at once.

    Example:
        >>> from evenly.algorithms import algorithm
        >>> method = algorithm("fedavg+dp(unit=row, noise_multiplier=1, rate=0.02)")
        >>> known = row_facts([method], rounds=100)
        >>> round(known["epsilon"], 3), known["steps"]
        (9.403, 5000)
    """
    refuse_several(members)
    made = calibrated(members[0], rounds, census=census)
    work, privacy = made.work, made.privacy
    assert isinstance(work, PrivateTraining)
    assert work.signals is not None
    noise = _number(work.noise_multiplier)
    steps, others = row_releases(made, rounds, census=census)
    noises = [noise, *([_number(work.signals.noise)] if others else [])]
    delta = ROW_DELTA if privacy.delta is None else privacy.delta
    epsilon = run_epsilon(made, rounds, delta, census=census) if min(noises) > 0 else math.inf
    return {
        "unit": ROW,
        "epsilon": None if math.isinf(epsilon) else epsilon,
        "delta": delta,
        "noise_multiplier": noise,
        "signal_noise": _number(work.signals.noise),
        "relation": ADD_OR_REMOVE,
        "rate": work.rate,
        "steps": steps,
        "signals": others,
        "signal_share": SIGNAL_SHARE if others and _shares(privacy) else None,
        "rounds": rounds,
        "no_claim": "noise is 0" if math.isinf(epsilon) else "",
        "published": True,  # figures are of rows that the promise is not about
    }


def _shares(privacy: Privacy) -> bool:
    """Whether the noise of signals follows from their share of the budget."""
    return privacy.noise_multiplier is None and privacy.signal_noise is None


def unverified(privacy: Privacy) -> dict[str, Any]:
    """What a server says in place of `row_facts`: the clients add the noise, each with a ledger."""
    return {
        "unit": ROW,
        "epsilon": None,
        "delta": privacy.delta or ROW_DELTA,
        "noise_multiplier": privacy.noise_multiplier,
        "signal_noise": privacy.signal_noise,
        "relation": ADD_OR_REMOVE,
        "rate": privacy.rate,
        "no_claim": "the server cannot tell which clients have a ledger",
        "published": True,
    }


def with_row_facts(algorithm: Algorithm, known: Mapping[str, Any]) -> Algorithm:
    """The algorithm with the noise of a resolved plan."""
    noises = {name: known[name] for name in ("noise_multiplier", "signal_noise")}
    privacy = replace(algorithm.privacy, **noises, delta=known["delta"])
    return replace(with_privacy(without_privacy(algorithm), privacy), label=algorithm.label)


def run_epsilon(
    algorithm: Algorithm, rounds: int, delta: float | None = None, *, census: bool = False
) -> float:
    """The epsilon of a row after so many rounds in which its client took part. `census` as for
    `row_releases`.

    Example:
        >>> from evenly.algorithms import algorithm
        >>> method = algorithm("fedavg+dp(unit=row, noise_multiplier=1, rate=0.02)")
        >>> round(run_epsilon(method, 100), 3)
        9.403
    """
    work = algorithm.work
    assert isinstance(work, PrivateTraining)
    assert work.signals is not None
    steps, others = row_releases(algorithm, rounds, census=census)
    noise = _number(work.signals.noise)
    more = (noise / math.sqrt(others),) if others else ()
    releases = Releases(steps, rate=work.rate, more=more)
    return epsilon_of(_number(work.noise_multiplier), releases, delta or ROW_DELTA)


def row_epsilon(releases: Sequence[tuple[float, float, int]], delta: float) -> float:
    """The epsilon of any releases about a row, each given by rate, noise and number: those of
    several deployments, for example.

    Example:
        >>> round(row_epsilon([(0.02, 1.0, 5000), (1.0, 20.0, 100)], delta=1e-5), 3)
        9.779
    """
    return _epsilon_of_all(
        tuple(sorted((float(r), float(z), int(n)) for r, z, n in releases)), delta
    )


@cache
def _epsilon_of_all(releases: tuple[tuple[float, float, int], ...], delta: float) -> float:
    if any(noise <= 0 for _, noise, times in releases if times):
        return math.inf
    whole = [noise / math.sqrt(times) for rate, noise, times in releases if rate >= 1 and times]
    parts = [one for one in releases if one[0] < 1 and one[2]]
    more = (joint(whole),) if whole else ()
    if len(parts) <= 1:
        rate, noise, times = parts[0] if parts else (1.0, 1.0, 0)
        return epsilon_of(noise, Releases(times, rate=rate, more=more), delta)
    library = _dp_accounting()
    event = library.event
    sampled = [
        event.SelfComposedDpEvent(
            event.PoissonSampledDpEvent(rate, event.GaussianDpEvent(noise)), times
        )
        for rate, noise, times in parts
    ]
    accountant = accountant_for(min(noise for _, noise, _ in parts), joint(whole))
    both = event.ComposedDpEvent([*sampled, *(event.GaussianDpEvent(z) for z in more)])
    return float(accountant.compose(both).get_epsilon(delta))


def _number(value: Any) -> float:
    return float(value)
