"""Two-phase rounds: clients measure, the server computes coefficients, and clients train and send
coefficient times update.

The server then needs only the sum of what clients send. An `Adding` function computes it: from
plain replies by default, or from masked ones. No other function reads a client's arrays;
`finish_round` receives their sum.

Clients are told the coefficient that they have if everybody who measured returns. The sum is
divided afterwards, by what belongs to those who did return, so that the round is exact whoever
drops out in between.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from evenly.experiment.deployment import Flag
from evenly.flower import aggregation, wire
from evenly.flower.aggregation import CohortSums, RoundResult, Weighting
from evenly.flower.caps import Caps
from evenly.flower.checks import ARRAYS, printable
from evenly.flower.messages import (
    DeploymentState,
    RoundRequest,
    TrainingReplies,
    read_replies,
    reply_spec,
    signals_of,
)
from evenly.flower.replies import Reply
from evenly.flower.roster import DeploymentSetting
from evenly.records import require
from evenly.types import Algorithm

LOG = logging.getLogger("flwr")


class Measurement(NamedTuple):
    """Result of the first half of a two-phase round."""

    request: RoundRequest  # the whole cohort
    replies: TrainingReplies
    weighting: Weighting
    all_return: CohortSums  # if everybody who measured returns: clients are told its coefficients
    flags: list[Flag]

    @property
    def coefficients(self) -> np.ndarray:
        """By what clients multiply their vector. float32 [K] or [K, models]"""
        return self.all_return.coefficients


def require_possible(algorithm: Algorithm, caps: Caps | None) -> None:
    """Raise if the algorithm needs more than the sum of updates."""
    rule, why = algorithm.rule, ""
    if "gram" in rule.needs:
        why = "it weighs by inner products of all updates, so the server must see each of them"
    elif rule.inference == "rank-clustering":
        why = "rank clustering compares what each client trained; choose another inference"
    elif caps is not None and caps.norm is not None:
        why = (
            f"caps: norm = {caps.norm!r} shortens updates one by one, and the server sees only"
            " their sum"
        )
    require(not why, f"{algorithm.label} cannot run in two phases: {why}. Remove two_phase.")


def plain_sum(sent: Mapping[int, ArrayRecord]) -> dict[str, np.ndarray]:
    """Sum of unmasked arrays in double precision, in which sums of places are exact."""
    total: dict[str, np.ndarray] = {}
    for record in sent.values():
        for name, array in record.items():
            own = wire.read(array)
            if name in total:
                np.add(total[name], own, out=total[name])
            else:
                total[name] = own.astype(np.float64)
    return total


def weigh_measurements(
    setting: DeploymentSetting,
    current: DeploymentState,
    request: RoundRequest,
    replies: Iterable[Message],
    chance: np.ndarray,
) -> Measurement:
    """Compute coefficients from the replies to "query.measure"."""
    algorithm, state = setting.algorithm, current.state
    usable = read_replies(setting, request._replace(phase="measure"), replies)
    signals = signals_of(algorithm, state, request.cohort, usable.replies, chance)
    weighting, flags = aggregation.weigh(algorithm, state, signals, setting.options.caps)
    nothing = np.zeros(len(request.cohort), np.float32)  # no vector has a length yet
    all_return = aggregation.sum_up(algorithm, state, weighting, nothing)
    return Measurement(request, usable, weighting, all_return, flags)


def sum_request(setting: DeploymentSetting, measurement: Measurement) -> RoundRequest:
    """Request of the second half, to the clients that measured. A client in two slots gets the sum
    of both coefficients.
    """
    cohort, coefficients = measurement.request.cohort, measurement.coefficients
    who = tuple(sorted(measurement.replies.replies))
    return RoundRequest(
        measurement.request.number,
        cohort[np.isin(cohort, who)],
        who,
        setting.algorithm.rule.needs & {"square_norm"},
        coefficients={k: coefficients[cohort == k].sum(0) for k in who},
        masked=setting.options.two_phase is not plain_sum,
    )


def sum_configs(measurement: Measurement, request: RoundRequest) -> dict[int, dict[str, object]]:
    """Config entries of each client in the second half: its coefficient, and the model that it
    chose.
    """
    assert request.coefficients is not None
    found: dict[int, dict[str, object]] = {}
    for k in request.connected:
        found[k] = {}
        wire.put(found[k], wire.COEFFICIENT, request.coefficients[k])
        choice = measurement.weighting.signals.choice
        if choice is not None:
            found[k][wire.GROUP] = int(choice[measurement.request.cohort == k][0])
    return found


def finish_round(
    setting: DeploymentSetting,
    current: DeploymentState,
    measurement: Measurement,
    request: RoundRequest,
    usable: TrainingReplies,
) -> tuple[RoundResult, DeploymentState, TrainingReplies]:
    """Complete the round from the sum of the replies."""
    adding = setting.options.two_phase
    assert adding is not None
    sent = {k: reply.arrays for k, reply in usable.replies.items() if reply.arrays is not None}
    broken = "is not finite"
    try:
        total = adding(sent)
    except Exception as error:  # under masks nobody else has looked at what clients sent
        broken = f"cannot be computed ({type(error).__name__}: {printable(str(error))})"
        total = wire.not_finite(setting.form, measurement.coefficients.shape[1:])
    outcome, after = step_from_sum(setting, current, measurement, total, usable.replies)
    left_out = measurement.replies.left_out + usable.left_out
    if not outcome.counted.any():
        reason = (
            f"was part of a sum that {broken}, and the client that caused it cannot be identified"
        )
        left_out += [
            reply_spec(setting, request, k).left_out(reason, ARRAYS) for k in sorted(usable.replies)
        ]
        LOG.warning(
            "Round %d: the sum of all updates %s and is not used. The client that caused it cannot"
            " be identified.",
            request.number,
            broken,
        )
    return (
        outcome._replace(flags=measurement.flags),
        after,
        TrainingReplies(usable.replies, _both(measurement.replies, usable), left_out),
    )


def step_from_sum(
    setting: DeploymentSetting,
    current: DeploymentState,
    measurement: Measurement,
    total: Mapping[str, np.ndarray],
    replies: Mapping[int, Reply],
) -> tuple[RoundResult, DeploymentState]:
    """Move the model by the sum. Of each client it needs only whether it returned and, for some
    methods, the length of its update.
    """
    algorithm, state = setting.algorithm, current.state
    coefficients, cohort = measurement.coefficients, measurement.request.cohort.tolist()
    learned, carried = wire.split_sum(setting.form, total, coefficients.shape[1:])
    whole = all(bool(np.isfinite(leaf).all()) for leaf in learned)
    norms = np.array([_norm(replies.get(k)) if whole else np.nan for k in cohort])
    sums = aggregation.sum_up(algorithm, state, measurement.weighting, norms)
    share = _share(measurement.all_return, sums)
    divided = [_times(leaf, share) if whole else np.zeros_like(leaf) for leaf in learned]
    mean = aggregation.total_of(algorithm, divided)
    outcome = aggregation.move(algorithm, state, measurement.weighting, sums, mean)
    mass = float(coefficients[[k in replies for k in cohort]].sum())
    if whole and mass > 0:
        return outcome, DeploymentState(
            outcome.state, wire.move_carried(current.carried, carried, mass)
        )
    return outcome, DeploymentState(outcome.state, current.carried)


def _share(all_return: CohortSums, returned: CohortSums) -> np.ndarray:
    """By what the sum is multiplied so that it is that of those who returned. float32 [] or
    [models]
    """
    told, own = (np.asarray(sums.summed.divisor) for sums in (all_return, returned))
    return np.where(told == 0, np.float32(1), told) / np.where(own == 0, np.float32(1), own)


def _times(leaf: np.ndarray, share: np.ndarray) -> np.ndarray:
    """A sum times one number, or times one number for each model."""
    if (share == 1).all():
        return leaf
    return leaf * share.reshape(*share.shape, *(1,) * (leaf.ndim - share.ndim)).astype(leaf.dtype)


def _norm(reply: Reply | None) -> float:
    return np.nan if reply is None else float(reply.metrics.get(wire.SQUARE_NORM, 0.0))


def _both(measurement: TrainingReplies, after: TrainingReplies) -> list[RecordDict]:
    """Metrics of both phases, without arrays, of clients that took part in both."""
    said = {k: reply.metrics for k, reply in measurement.replies.items()}
    return [
        RecordDict({wire.METRICS: MetricRecord({**said[k], **reply.metrics})})
        for k, reply in after.replies.items()
    ]
