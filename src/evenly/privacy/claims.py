"""Claims: which promise a method with a sampling supports, and what is refused.

Whether a claim holds depends on the sampling. Where clients are drawn at random, each with the same
probability, somebody who does not know who took part learns less, and the account uses it. Where a
fixed number is drawn, a newcomer displaces somebody else, so that one client moves the sum by twice
its bound.

The number of clients is public and the same for both neighbours: a missing client is one that
contributes nothing.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from evenly.data.federation import Census
from evenly.parts.sampling import SAMPLINGS, Fraction, Full, Parity, Poisson, Uniform, Weighted
from evenly.parts.work import PersonalTraining, TrainingAlone
from evenly.privacy.accounting import (
    ADD_OR_REMOVE,
    REPLACE,
    ZERO_OUT,
    Releases,
    epsilon_of,
    noise_for,
    usual_delta,
)
from evenly.privacy.gate import VECTOR_SHARE, ClientGate
from evenly.privacy.request import Privacy
from evenly.records import replace
from evenly.types import Algorithm, Rule, Select

SECRECY = "nobody against whom it holds sees who took part in a round"
NOTHING = "nothing, even if everybody sees who took part"
FEWEST = 50  # expected clients in a round, below which noise drowns the mean
CLIENT = "client"


class SamplingClaim(NamedTuple):
    """What a sampling supports, in an account and in words."""

    releases: Releases  # of one round
    expected: float  # clients in a round
    assumes: str  # what must hold for the claim
    reason: str = ""  # why nothing can be claimed; else empty


def sampling_claim(algorithm: Algorithm, clients: int) -> SamplingClaim:
    """What may be claimed about a method with its sampling of this many clients.

    Amplification needs a draw that is independent of all that clients know. Where a fixed number is
    drawn, others take part because one does not: their memories then tell who took part earlier.
    """
    claim = _claim_of_draws(algorithm.select, clients)
    if claim.releases.relation == REPLACE and _remembers(algorithm):
        return claim._replace(releases=claim.releases._replace(rate=1.0), assumes=NOTHING)
    return claim


def _remembers(algorithm: Algorithm) -> bool:
    """Whether what a client sends may depend on the rounds in which it took part before."""
    rule, work = type(algorithm.rule), algorithm.work
    # personal training sends the update of the shared model, which its memory does not touch
    keeps = jax.tree.leaves(work.remember(np.zeros(()))) and type(work) is not PersonalTraining
    return rule.remember is not Rule.remember or bool(keeps)


def _claim_of_draws(select: Any, clients: int) -> SamplingClaim:
    # exact types: a sampling of one's own that extends one of these may draw otherwise
    kind = type(select)
    if kind is Poisson and select.rate < 1:
        slots = select.slots(_of(clients))
        return SamplingClaim(
            Releases(1, select.rate, slots=slots, registered=clients),
            select.rate * clients,
            SECRECY,
        )
    if kind in (Full, Poisson):
        return SamplingClaim(Releases(1), clients, NOTHING)
    if kind in (Uniform, Fraction):
        slots = select.slots(_of(clients))
        if slots >= clients:
            return SamplingClaim(Releases(1), slots, NOTHING)
        releases = Releases(1, slots / clients, REPLACE, slots=slots, registered=clients)
        return SamplingClaim(releases, slots, SECRECY)
    if kind is Weighted and not select.replace:
        return SamplingClaim(
            Releases(1, relation=ZERO_OUT), min(select.clients, clients),
            "the number of training rows of every client is public",
        )  # fmt: skip
    return SamplingClaim(Releases(1), 0, "", "sampling without analysis")


def _of(clients: int) -> Any:
    """A census of which only the number of clients counts."""
    return Census(np.ones(clients, int), np.ones((clients, 1, 1), int))


# What is refused.


def refuse(algorithm: Algorithm, clients: int) -> None:
    """Raise ValueError, with the reason and an alternative, if a method cannot be private for
    clients.
    """
    why = _why_not(algorithm) or _few(algorithm, clients) or _much(algorithm.privacy.delta, clients)
    if why:
        raise ValueError(f"{algorithm.label}: {why}")


def refuse_several(members: Sequence[Algorithm]) -> None:
    """Raise ValueError if a private method trains several models at once."""
    first = members[0]
    if len(members) > 1 and first.privacy is not None:
        raise ValueError(
            f"{first.label}: {len(members)} models of the same clients reveal far more than one."
            " Train one of them, such as q-fedavg(q=1)."
        )


def _why_not(algorithm: Algorithm) -> str:
    return _why_not_method(algorithm) or _why_not_sampling(algorithm.select)


def _why_not_method(algorithm: Algorithm) -> str:
    rule = algorithm.rule
    kind = f"+dp(unit={CLIENT})"
    if isinstance(algorithm.work, TrainingAlone):
        return f"clients send nothing, so that there is nothing to protect. Leave {kind} out."
    if rule.whole_cohort:
        other = ALTERNATIVES.get(type(rule).__name__, FEWER)
        return (
            f"{kind} bounds what one client can move, but here the weight of one client depends on"
            f" all others: {rule.whole_cohort}. {other}"
        )
    if algorithm.network is not None:
        return (
            f"clients send rankings of edges, whose noise would have to be many times as large as"
            f" a ranking of all clients. {kind} is not offered for them; train a model with"
            " fedavg or ifca."
        )
    if rule.final_pass:
        return (
            "all clients send their update once more after the last round, which no epsilon counts."
            " Leave final_pass=true out."
        )
    if rule.people:
        return (
            "each group of people of a client takes part on its own, so that one client counts"
            " several times. Leave people=true out."
        )
    if rule.stages > MOST_STAGES:
        return (
            f"the weights need {rule.stages} sums before training, and noise in each would use up"
            f" the budget. {ALTERNATIVES.get(type(rule).__name__, FEWER)}"
        )
    if getattr(rule, "clamp", True) is False:
        return f"weights may be negative, which {kind} does not bound. Leave clamp=false out."
    if getattr(rule, "renormalise", True) is False:
        return (
            "the model would be multiplied by a noised sum of weights. Leave renormalise=false out."
        )
    return ""


def _why_not_sampling(select: Select) -> str:
    if isinstance(select, Parity):
        return (
            "parity sampling takes the clients with the most rows of some people, so that a"
            " newcomer displaces another and changes whom later rounds choose. Sample with"
            " +poisson(rate=0.1)."
        )
    if isinstance(select, Weighted) and select.replace:
        return (
            "a client that is drawn twice moves a sum by twice its bound. Sample with"
            " +poisson(rate=0.1), or leave replace=true out."
        )
    return ""


ALTERNATIVES = {
    "FedMGDA": "q-fedavg or term also help the clients with a large loss, and need only sums.",
    "AFL": "Set bins, such as afl(bins=32): clients then sum one histogram.",
    "Term": "Leave form=authors out.",
    "PFedAvg": "Set bins, such as p-fedavg(bins=32): clients then sum a histogram of their losses.",
}
FEWER = "Choose a method that needs few sums, such as term or q-fedavg."
MOST_STAGES = 4


def _few(algorithm: Algorithm, clients: int) -> str:
    privacy, expected = algorithm.privacy, sampling_claim(algorithm, clients).expected
    if privacy.forced or expected >= FEWEST or not expected:
        return ""
    return (
        f"about {expected:g} of {clients:,} clients take part in a round, but the noise that hides"
        f" one client drowns the mean of fewer than {FEWEST}. Sample more clients, protect rows"
        " with unit=row where clients are organisations, or train all the same with forced=true."
    )


def _much(delta: float | None, clients: int) -> str:
    if delta is None or delta * clients < 1:
        return ""
    return (
        f"a delta of {delta:g} allows to publish everything about one in {1 / delta:,.0f} clients,"
        f" and there are {clients:,}. Choose one far below 1 / {clients:,}, or leave it out."
    )


# The noise, and the gate.


class Promise(NamedTuple):
    """The promise of a run: its account and what it rests on."""

    epsilon: float
    delta: float
    noise_multiplier: float
    claim: SamplingClaim
    rounds: int
    no_claim: str = ""  # why there is no number; else empty


def calibrated(algorithm: Algorithm, clients: int, rounds: int) -> Algorithm:
    """The algorithm with the noise that its epsilon needs over these rounds, and its delta.

    Raises:
        ValueError: If the method or its sampling cannot be private.
        ModuleNotFoundError: If the noise is not known yet and dp-accounting is not installed.
    """
    privacy: Privacy = algorithm.privacy
    refuse(algorithm, clients)
    delta = usual_delta(clients) if privacy.delta is None else privacy.delta
    noise = privacy.noise_multiplier
    if noise is None:
        claim = sampling_claim(algorithm, clients)
        if claim.reason:
            raise ValueError(
                f"{algorithm.label}: no epsilon can be claimed for this sampling. Sample with"
                " +poisson(rate=0.1), or give noise_multiplier."
            )
        noise = noise_for(privacy.epsilon, _all_releases(privacy, claim, rounds), delta)
    return replace(algorithm, privacy=replace(privacy, noise_multiplier=noise, delta=delta))


def promise(algorithm: Algorithm, clients: int, rounds: int) -> Promise:
    """What a run of this many rounds may claim."""
    made = calibrated(algorithm, clients, rounds)
    privacy, claim = made.privacy, sampling_claim(made, clients)
    reason = claim.reason or ("noise is 0" if privacy.noise_multiplier == 0 else "")
    reason = reason or ("evaluations of clients are published" if privacy.publish else "")
    epsilon = math.inf
    if not reason:
        releases = _all_releases(privacy, claim, rounds)
        seen = releases._replace(rate=1.0)  # as if everybody saw who took part
        epsilon, whole = (
            epsilon_of(privacy.noise_multiplier, one, privacy.delta) for one in (releases, seen)
        )
        if claim.releases.relation == REPLACE and epsilon == whole:
            claim = claim._replace(assumes=NOTHING)
    return Promise(epsilon, privacy.delta, privacy.noise_multiplier, claim, rounds, reason)


def _all_releases(privacy: Privacy, claim: SamplingClaim, rounds: int) -> Releases:
    """The rounds, and the histogram of client accuracies where one is released."""
    more = () if privacy.histogram is None else (histogram_noise(privacy.histogram, claim),)
    return claim.releases._replace(times=rounds, more=more)


def histogram_noise(deviation: float, claim: SamplingClaim) -> float:
    """The noise multiplier of a histogram with this noise. A client counts in one bin; one that
    takes the place of another changes two.
    """
    return deviation / (math.sqrt(2) if claim.releases.relation == REPLACE else 1.0)


def gate_of(algorithm: Algorithm, census: Census, rounds: int) -> ClientGate | None:
    """The gate of a run; None without privacy for clients."""
    if algorithm.privacy is None or algorithm.privacy.unit != CLIENT:
        return None
    clients = len(census.examples)
    privacy: Privacy = calibrated(algorithm, clients, rounds).privacy
    expected = sampling_claim(algorithm, clients).expected
    equal = has_equal_weights(algorithm.rule)
    return ClientGate(
        noise=float(privacy.noise_multiplier or 0.0),
        weight=1.0 if equal else privacy.weight,
        clip=privacy.first_clip if privacy.adapts else float(privacy.clip),
        unclipped=privacy.unclipped,
        cohort=float(expected or algorithm.select.slots(census)),
        clients=float(clients),
        rows=float(census.examples.mean()),
        loss=math.log(max(census.cells.shape[2], 2)),
        tag=gate_tag(algorithm.label),
        adapts=privacy.adapts,
        equal=equal,
    )


def gate_tag(label: str) -> float:
    """The number of a method's noise, so that methods have noise of their own."""
    return float(zlib.crc32(label.encode()) % 2**24)


def has_equal_weights(rule: Rule) -> bool:
    """Whether every client has the same weight whatever it says, so that only the number of
    clients counts.
    """
    own = rule.needs or rule.stages or rule.groups is not None
    same = all(getattr(type(rule), name) is getattr(Rule, name) for name in ("norm", "remember"))
    return same and not own


RELATIONS = {
    ADD_OR_REMOVE: "one client more or less",
    REPLACE: "another client in the place of one",
    ZERO_OUT: "a client that stays on the list and sends zeros",
}


# What is said about a run, as plain data: in plan.json, run.json and the report.


def facts(members: Sequence[Algorithm], clients: int, rounds: int) -> dict[str, Any]:
    """What a method with privacy for clients promises, after it was calibrated.

    Raises:
        ValueError: If it cannot be private, or trains several models at once.
    """
    refuse_several(members)
    made = promise(members[0], clients, rounds)
    return {
        "unit": CLIENT,
        "epsilon": None if math.isinf(made.epsilon) else made.epsilon,
        "delta": made.delta,
        "noise_multiplier": made.noise_multiplier,
        "relation": made.claim.releases.relation,
        "assumes": made.claim.assumes,
        "sampling": _sampling_name(members[0].select),
        "expected_clients": made.claim.expected,
        "clients": clients,
        "update_share": update_share(members[0]),
        "rounds": rounds,
        "no_claim": made.no_claim,
        "histogram": members[0].privacy.histogram,
        "published": members[0].privacy.publish,
    }


def _sampling_name(select: Select) -> str:
    kinds = {kind: name for name, kind in SAMPLINGS.items()}
    return kinds.get(type(select), type(select).__name__)


def update_share(algorithm: Algorithm) -> float:
    """The share of a round's budget, measured by 1 / noise², that the sum of the updates gets."""
    equal = has_equal_weights(algorithm.rule)
    return 1.0 if equal and not algorithm.privacy.adapts else VECTOR_SHARE


def withheld(privacy: Privacy | None) -> bool:
    """Whether figures of evaluations are left out of what is meant to be shared."""
    return privacy is not None and privacy.unit == CLIENT and not privacy.publish


def uncounted(privacy: Privacy) -> dict[str, Any]:
    """What is said, in place of `facts`, about a deployment without a record of its releases."""
    return {
        "unit": CLIENT,
        "epsilon": None,
        "delta": privacy.delta,
        "noise_multiplier": privacy.noise_multiplier,
        "relation": ADD_OR_REMOVE,
        "assumes": "",
        "sampling": "",
        "expected_clients": 0.0,
        "clients": 0,
        "update_share": None,
        "rounds": 0,
        "no_claim": "this folder does not say what was released",
        "histogram": None,
        "published": privacy.publish,
    }


def with_facts(algorithm: Algorithm, known: Mapping[str, Any]) -> Algorithm:
    """The algorithm with the noise and the delta of a resolved plan."""
    noise, delta = known["noise_multiplier"], known["delta"]
    return replace(
        algorithm, privacy=replace(algorithm.privacy, noise_multiplier=noise, delta=delta)
    )


def claim_words(known: Mapping[str, Any]) -> str:
    """The promise in words: epsilon and delta, or why there is none."""
    if known["no_claim"]:
        return f"no claim: {known['no_claim']}"
    return f"epsilon {rounded_up(known['epsilon'])} at delta {rounded_up(known['delta'], 2)}"


def rounded_up(number: float, digits: int = 3) -> str:
    """A number in so many digits, never smaller than it is.

    Example:
        >>> rounded_up(7.524), rounded_up(8.0), rounded_up(0.00011, 2)
        ('7.53', '8', '0.00011')
    """
    if not 0 < number < math.inf:
        return f"{number:g}"
    unit = 10.0 ** (math.floor(math.log10(number)) + 1 - digits)
    # 8.000000000001 is 8: the digits of the calibration are not those of the promise
    return f"{math.ceil(round(number / unit, 6)) * unit:.{digits}g}"


def price(made: Algorithm, clients: int, rounds: int) -> dict[str, Any]:
    """The noise that a promise needs and what may be claimed, before anyone trains.

    Args:
        made: A method with its sampling and `+dp`.
        clients: Number of clients that are registered.
        rounds: Number of rounds.

    Returns:
        The promise (see `facts`), and `noise_of_mean`: the standard deviation of the noise in each
        parameter of the mean update, as a multiple of the longest update.

    Raises:
        ValueError: If the method cannot be private.

    Example:
        >>> import evenly
        >>> made = evenly.algorithm("fedavg(weights=equal)+poisson(rate=0.05)+dp(epsilon=8)")
        >>> known = price(made, clients=1000, rounds=500)
        >>> round(known["noise_multiplier"], 3), known["relation"]
        (0.969, 'add or remove one')
    """
    known, equal = facts([made], clients, rounds), has_equal_weights(made.rule)
    weight = 1.0 if equal else made.privacy.weight
    size = known["noise_multiplier"] * weight / math.sqrt(update_share(made))
    return {**known, "noise_of_mean": size / max(known["expected_clients"], 1.0)}
