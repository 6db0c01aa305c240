"""Before the first round: who is there, what they are like where the method asks, and whose model is whose."""

import logging
from typing import NamedTuple

import jax
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid

from evenly.experiment.deployment import Flag, LeftOut
from evenly.flower import first, messages, model_arrays, rounds, wire
from evenly.flower.checking_census import check_censuses
from evenly.flower.gathering import replies_to
from evenly.flower.hearing import Asked, beside_arrays, heard, quoted, require_enough
from evenly.flower.messages import Standing
from evenly.flower.nodes import Roll, introduced, present, reads_census, unknown_clients
from evenly.flower.options import Options, Setting
from evenly.parts.sampling import Fraction, Uniform
from evenly.records import replace, require
from evenly.types import Algorithm, Several

LOG = logging.getLogger("flwr")


class Opened(NamedTuple):
    """A deployment that is about to begin."""

    setting: Setting
    standing: Standing
    left_out: list[LeftOut]
    flagged: list[Flag]


def opened(algorithm: Algorithm, options: Options, arrays: ArrayRecord, config: ConfigRecord, grid: Grid, timeout: float) -> Opened:
    """Wait for enough clients, ask them what the method begins with, and settle the first models."""
    nodes = present(grid, options.min_available_nodes)
    # Clients that keep a model of their own begin with the first one, also if they are drawn late; those that are not asked for a
    # census begin with the first that they are sent.
    shown = {options.arrayrecord_key: arrays} if jax.tree.leaves(algorithm.work.remember(np.zeros(1))) else {}
    asks = options.introduce or reads_census(algorithm)
    roll, left_out = _asked(algorithm, options, nodes, config, shown, grid, timeout) if asks else (unknown_clients(sorted(nodes)), [])
    algorithm = first.suited(with_sampling(algorithm, options, roll), roll)
    census, flagged = roll.census, []
    if options.caps is not None:
        census, flagged = options.caps.census(census)
        options.caps.require_feasible(algorithm.select.slots(census))
    rule = algorithm.rule
    apart = rule.groups if isinstance(rule, Several) and rule.apart else 0
    form, (model, carried) = model_arrays.opened(arrays, ranks=rounds.ranks(algorithm), apart=apart)
    choice = first.given_choices(algorithm, roll, options.seeds)
    state = rounds.begin(algorithm, model, census, choice=choice, begun=first.tell_apart(algorithm, model))
    return Opened(Setting(algorithm, options, roll, form, census), Standing(state, carried), left_out, flagged)


def with_sampling(algorithm: Algorithm, options: Options, roll: Roll) -> Algorithm:
    """With `fraction_train`, as many clients as Flower would draw."""
    if options.fraction_train is None:
        return algorithm
    share = Fraction(share=options.fraction_train).slots(roll.census)
    return replace(algorithm, select=Uniform(clients=max(share, options.min_train_nodes)))


def as_asked(algorithm: Algorithm, options: Options) -> Algorithm:
    """With `fraction_train` as the share that it is: the same sampling, however many clients there are."""
    return algorithm if options.fraction_train is None else replace(algorithm, select=Fraction(share=options.fraction_train))


def joined(setting: Setting, roll: Roll) -> Setting:
    """With other clients, of whom nothing is known; a share of them is another number."""
    return setting._replace(algorithm=with_sampling(setting.algorithm, setting.options, roll), roll=roll, census=roll.census)


def _asked(
    algorithm: Algorithm,
    options: Options,
    nodes: list[int],
    config: ConfigRecord,
    shown: dict[str, ArrayRecord],
    grid: Grid,
    timeout: float,
) -> tuple[Roll, list[LeftOut]]:
    """Ask every client for its census; those whose answer cannot be used are not part of the federation, if enough others are."""
    asked = [messages.message(wire.CENSUS, node, shown, ConfigRecord(dict(config)), options.configrecord_key) for node in nodes]
    rule, most = algorithm.rule, options.max_reply_bytes or beside_arrays(None)
    groups = rule.groups if isinstance(rule, Several) and rule.inference == "known" else 0
    usable, left_out = check_censuses(replies_to(grid, asked, timeout), nodes, groups=groups, most=most)
    for one in left_out:
        LOG.warning("Node %d %s; it is not one of the clients.", one.node, one.reason)
    least = max(min(options.min_train_nodes, options.min_available_nodes), 1)
    require(
        len(usable) >= least,
        f"{algorithm.label} begins with what clients say of themselves ({wire.CENSUS!r}), and {len(usable)} of {len(nodes)} nodes said "
        f"it so that it can be used; at least {least} must (min_train_nodes). Give the ClientApp a function for it, "
        f"@app.query('census'): see docs/flower-record.md. {quoted(left_out, most=len(left_out))}",
    )
    return introduced(usable), left_out


def clustered(setting: Setting, standing: Standing, config: ConfigRecord, grid: Grid, timeout: float) -> tuple[Standing, list[LeftOut]]:
    """E2FL's rank clustering, where asked for: every client trains once from the first order, with its batches of the first round."""
    rule = setting.algorithm.rule
    if not (isinstance(rule, Several) and rule.inference == "rank-clustering"):
        return standing, []
    everyone = tuple(range(setting.roll.clients))
    asked = Asked(0, np.array(everyone, np.int32), everyone)
    told = messages.to_train(setting, standing, 1, everyone, config, messages.trained_record(setting, standing))
    came = heard(setting, asked, replies_to(grid, told, timeout))
    require_enough(setting, asked, came)
    places = {k: model_arrays.received(setting.form, r.arrays).model for k, r in came.replies.items() if r.arrays is not None}
    drawn = standing.state.choice
    assert drawn is not None
    choice = first.clustered(setting.algorithm, places, drawn, setting.options.seeds)
    return standing._replace(state=standing.state._replace(choice=choice)), came.left_out
