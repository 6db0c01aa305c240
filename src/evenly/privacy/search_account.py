"""The account of a search for settings: what all of its trials reveal together.

The models of all trials count as released, whoever sees them. Three things decide the account.

    noise      differs between methods, because it follows from their labels, and between seeds
    cohorts    all methods of a seed see the same ones. A round of all trials is therefore one
               release about one sample, with the noise of all of them together, and not as many
               samples as there are trials
    order      nothing is claimed if settings of later trials follow from results of earlier ones.
               These results are exact figures of validation rows, and models that are trained with
               such settings reveal something about them

The choice itself reads figures of validation rows without noise, too, and no epsilon covers it.
"""

import math
from collections.abc import Sequence
from typing import Any

from evenly.privacy.accounting import epsilon_of, joint, usual_delta
from evenly.privacy.claims import CLIENT, calibrated, gate_tag, histogram_noise, sampling_claim
from evenly.types import Algorithm

FOLLOWS = (
    "settings of later trials follow from exact results of earlier ones. Train all trials in one"
    " batch to have none that do"
)


def search_epsilon(
    methods: Sequence[Algorithm], *, clients: int, rounds: int, seeds: int, together: bool
) -> dict[str, Any]:
    """The epsilon that all trials of a search spend together, and its delta.

    Args:
        methods: All methods that were trained, each once.
        clients: Number of clients that are registered.
        rounds: Rounds of each run.
        seeds: Runs of each method.
        together: Whether no trial was proposed from the results of others.

    Returns:
        `epsilon` (None without a claim), `delta` and `no_claim`, as in `claims.facts`.
    """
    if why := _no_claim(methods) or ("" if together else FOLLOWS):
        return {"epsilon": None, "delta": None, "no_claim": why}
    made = [calibrated(one, clients, rounds) for one in methods]
    # of methods with the same sampling, one that supports no amplification decides for all
    claim = max((sampling_claim(one, clients) for one in made), key=lambda c: c.releases.rate)
    noises = [float(one.privacy.noise_multiplier) for one in made]
    delta = min([usual_delta(clients), *(float(one.privacy.delta) for one in made)])
    if claim.reason or min(noises) <= 0:
        return {"epsilon": None, "delta": delta, "no_claim": claim.reason or "noise is 0"}
    more = tuple(
        histogram_noise(one.privacy.histogram, claim)
        for one in made
        if one.privacy.histogram is not None
    )
    noise, releases = joint(noises), claim.releases
    epsilon = epsilon_of(noise, releases._replace(times=rounds * seeds, more=more), delta)
    return {"epsilon": epsilon if math.isfinite(epsilon) else None, "delta": delta, "no_claim": ""}


def _no_claim(methods: Sequence[Algorithm]) -> str:
    """Why nothing can be claimed about these methods together; else empty."""
    for one in methods:
        if one.privacy is None:
            return f"{one.label} is trained on the same clients without privacy"
        if one.privacy.unit != CLIENT:
            return "trials with private rows share batches and noise"
        if one.privacy.publish:
            return "evaluations of clients are published"
    if len({repr(one.select) for one in methods}) > 1:
        return "trials with different samplings draw related cohorts"
    if len({gate_tag(one.label) for one in methods}) < len(methods):
        return "two trials share their noise"
    return ""
