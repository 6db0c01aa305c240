"""A round and an evaluation of runs that keep several models: coefficients are [models, K], and
every model has a total.

These runs have a program of their own, with runs in front. There are two kinds: clients choose a
model and train that one (`apart`), or all clients train one shared model and vote on several
models, which the server holds.
"""

import jax
import jax.numpy as jnp
from jax import lax

from evenly import trees
from evenly.simulate.choosing import BEFORE_TRAINING, choose_models
from evenly.simulate.layout import (
    Inputs,
    ModelChoices,
    RuleGroup,
    RunParts,
    Shape,
    State,
    device_loop,
)
from evenly.simulate.measuring import Counts, by_cell, count_rows, zero_counts
from evenly.simulate.training import Cohort, CohortUpdate, move_model, train_and_sum
from evenly.types import Array, Effort, Server, Several, Signals, Tree


def round_of_several(cohort: Cohort) -> tuple[State, Array]:
    """One round with several models: choose, weigh, train, step.

    Rounds with one model are in `program.one_round`.

    Returns:
        The new state, and each client's coefficient in its model. [K, runs]
    """
    shape, inputs, block, state, t, *_ = cohort
    group, rule = _only(inputs.parts)
    clients = block.cohort[t]
    invited = jnp.broadcast_to(block.returned[t][:, None], (clients.shape[0], shape.runs))
    choice = (
        state.choices.model[clients]
        if rule.known_votes
        else _choices(shape, inputs, state, clients)
    )
    signals = _signals(cohort, invited, choice)
    axes = Signals(client=None, returned=-1, examples=None, choice=-1)
    coefficients, sane, rules = _weigh(rule, state.rule[0], signals, axes)
    update = train_and_sum(
        cohort._replace(choice=choice if rule.apart else None), jnp.moveaxis(coefficients, 1, 0)
    )
    returned = update.finite & invited
    counting, total = _renormalise(rule, coefficients, returned, update)
    signals, norms = (
        signals._replace(returned=returned),
        Effort(jnp.where(returned, update.square_norm, 0.0)),
    )
    step = jax.vmap(move_model, (0, 0, 0, axes, Effort(-1)))
    model, rules, servers = step(
        group, (rules, state.server[0]), (state.model, total), signals, norms
    )

    anyone = sane & (counting != 0).any((0, 1))
    new = State(
        model=trees.where(anyone, model, state.model, 0),
        rule=(trees.where(anyone, rules, state.rule[0], 0),),
        server=(trees.where(anyone, servers, state.server[0], 0),),
        memory=update.memory,
        excluded=state.excluded.at[clients].add((invited & ~returned).astype(jnp.int32)),
        broken=jnp.where(sane, state.broken, jnp.minimum(state.broken, t)),
        choices=ModelChoices(
            state.choices.model.at[clients].set(choice), state.choices.distinct | anyone
        ),
    )
    return new, counting.sum(0)


def _signals(cohort: Cohort, invited: Array, choice: Array) -> Signals:
    """The signals of the clients of a cohort before training."""
    clients, data = cohort.block.cohort[cohort.t], cohort.inputs.data
    return Signals(
        client=clients,
        returned=invited,
        examples=data.examples[clients],
        unprivileged=data.unprivileged[clients],
        choice=choice,
        chance=cohort.block.chance[cohort.t],
    )


def _weigh(
    rule: Several, state: Tree, signals: Signals, axes: Signals
) -> tuple[Array, Array, Tree]:
    """Coefficients [models, K, runs] (0 where a run's are not finite), which runs are finite, and
    the new state of the rule.
    """
    weigh = jax.vmap(lambda own, before, s: own.weigh(before, s), (0, 0, axes), (-1, 0))
    coefficients, new = weigh(rule, state, signals)
    sane = jnp.isfinite(coefficients).all((0, 1))
    return jnp.where(sane, coefficients, 0.0), sane, new


def _renormalise(
    rule: Several, coefficients: Array, returned: Array, update: CohortUpdate
) -> tuple[Array, Tree]:
    """The coefficients of clients that returned, and the total that they lead to. [models, K, runs]

    Where clients train models apart, each model's mean is over those of its clients that returned.
    Votes are counted, not averaged.
    """
    counting = jnp.where(returned, coefficients, 0.0)
    if not rule.apart:
        return counting, update.total
    mass = counting.sum(1)
    # [models, runs]
    share = jnp.where(mass != 0, coefficients.sum(1) / jnp.where(mass != 0, mass, 1.0), 0.0)
    total = jax.tree.map(
        lambda leaf: leaf * share.T.reshape(*share.T.shape, *(1,) * (leaf.ndim - 2)), update.total
    )
    return counting * share[:, None], total


def _only(parts: RunParts) -> tuple[RuleGroup, Several]:
    # a rule that keeps several models shares its program with no other structure
    (group,) = parts.rules
    assert isinstance(group.rule, Several)
    return group, group.rule


def model_choices(parts: RunParts, state: State) -> Tree:
    """The models among which clients choose. [runs, models, ...]"""
    _, rule = _only(parts)
    return state.model if rule.apart else state.server[0]


def served_models(parts: RunParts, state: State) -> Tree:
    """The models that clients use. [runs, models, ...]"""
    group, _ = _only(parts)
    return (
        state.model
        if group.server is None
        else jax.vmap(_serve)(group.server, state.model, state.server[0])
    )


def _serve(server: Server, model: Tree, state: Tree) -> Tree:
    return server.serve(model, state)


def _choices(shape: Shape, inputs: Inputs, state: State, clients: Array) -> Array:
    """The model of each of these clients: set before training, or chosen once the models differ.
    int32 [K, runs]
    """
    _, rule = _only(inputs.parts)
    last = state.choices.model[clients]
    if rule.inference in BEFORE_TRAINING:
        return last
    choose = lambda models: choose_models(shape, inputs, models, clients, rule.inference)  # noqa: E731
    choice = lax.map(choose, model_choices(inputs.parts, state)).T
    return choice if rule.known_votes else jnp.where(state.choices.distinct, choice, last)


def evaluate(shape: Shape, inputs: Inputs, state: State) -> tuple[Array, Array, Array]:
    """Tables and summed losses by owner, each client with its own model, and the choice of that
    model. [clients, runs]

    The central test set is evaluated with the shared model, or with the model that most clients
    chose where there is none.
    """
    _, rule = _only(inputs.parts)
    choice = _choices(shape, inputs, state, jnp.arange(shape.clients))
    models = served_models(inputs.parts, state)
    most = jax.vmap(lambda own: jnp.argmax(jnp.bincount(own, length=shape.models)), 1)(choice)
    shared = (
        jax.vmap(lambda own, q: jax.tree.map(lambda leaf: leaf[q], own))(models, most)
        if rule.apart
        else state.model
    )
    every = jax.tree.map(lambda own, one: jnp.concatenate([own, one[:, None]], 1), models, shared)
    tables, losses = lax.map(lambda run: _evaluate_run(shape, inputs, *run), (every, choice.T))
    return jnp.moveaxis(tables, 0, -1), losses.T, choice


def _evaluate_run(shape: Shape, inputs: Inputs, models: Tree, choice: Array) -> Counts:
    """Read each list of rows once for each model that one of its owners uses; these owners share
    the counts.
    """
    data = inputs.data
    # the model of each owner: the shared one comes last
    owner = jnp.append(jnp.tile(choice, 3), shape.models)
    of_list = jnp.arange(shape.owners) if data.eval_shared is None else data.eval_shared
    lengths = jnp.diff(data.eval_start)
    last = data.eval_rows.shape[0] - 1

    def one_model(q: Array, carry: Counts) -> Counts:
        model = jax.tree.map(lambda leaf: leaf[q][None], models)
        mine = owner == q
        wanted = jnp.where(jnp.zeros(shape.lists, bool).at[of_list].max(mine), lengths, 0)
        ends = jnp.cumsum(wanted)

        def chunk(i: Array, counts: Counts) -> Counts:
            at = i * shape.eval_chunk + jnp.arange(shape.eval_chunk)
            number = jnp.searchsorted(ends, at, side="right")  # past the last list: padding
            own = jnp.minimum(number, shape.lists - 1)
            row = data.eval_rows[
                jnp.minimum(data.eval_start[own] + at - (ends - wanted)[own], last)
            ]
            rows = jnp.where(at < ends[-1], row, data.y.shape[0] - 1)
            return count_rows(shape, inputs, model, (rows, number), counts)

        chunks = (ends[-1] + shape.eval_chunk - 1) // shape.eval_chunk
        tables, losses = by_cell(
            shape, device_loop(shape, chunks, chunk, zero_counts(shape, shape.lists, 1))
        )
        before, sums = carry
        return jnp.where(mine[:, None, None, None], tables[of_list, ..., 0], before), jnp.where(
            mine, losses[of_list, 0], sums
        )

    tables, losses = by_cell(shape, zero_counts(shape, shape.owners, 1))
    return lax.fori_loop(0, shape.models + 1, one_model, (tables[..., 0], losses[..., 0]))
