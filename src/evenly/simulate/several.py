"""A round, and an evaluation, of runs that keep several models: coefficients are [models, K], and every model has a total.

Such runs lie in a program of their own, runs in front. Two kinds: clients choose a model and train that one (apart), or all
train one shared model and vote on several; then the server holds those.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from evenly import trees
from evenly.simulate.choosing import GIVEN, chosen
from evenly.simulate.layout import Band, Chosen, Data, RunParts, Shape, State, shared_loop
from evenly.simulate.measuring import Counts, by_cell, counted, nothing_counted
from evenly.simulate.training import Cohort, trained_sum
from evenly.types import Array, Effort, Server, Several, Signals, Task, Tree


def one_round(task: Task, shape: Shape, parts: RunParts, data: Data, block: Any, t: Array, state: State) -> tuple[State, Array]:
    """Choose, weigh, train, step. Returns the new state and each client's coefficient in its model. [K, runs]"""
    band, rule = _only(parts)
    who = block.cohort[t]
    invited = jnp.broadcast_to(block.returned[t][:, None], (who.shape[0], shape.runs))
    choice = state.chosen.model[who] if rule.known_votes else _choices(task, shape, parts, data, state, who)
    signals = Signals(
        client=who, returned=invited, examples=data.examples[who], unprivileged=data.unprivileged[who], choice=choice,
        chance=block.chance[t],
    )  # fmt: skip
    axes = Signals(client=None, returned=-1, examples=None, choice=-1)
    weigh = jax.vmap(lambda own, before, s: own.weigh(before, s), (0, 0, axes), (-1, 0))
    coefficients, rules = weigh(band.rule, state.rule[0], signals)  # [models, K, runs]
    sane = jnp.isfinite(coefficients).all((0, 1))
    coefficients = jnp.where(sane, coefficients, 0.0)

    cohort = Cohort(task, shape, parts, data, block, state, t, None, choice if rule.apart else None)
    trained = trained_sum(cohort, jnp.moveaxis(coefficients, 1, 0))
    came = trained.finite & invited
    kept = jnp.where(came, coefficients, 0.0)
    total = trained.total
    if rule.apart:  # each model's mean is over those of its clients that returned; votes are whole as they are
        mass = kept.sum(1)
        share = jnp.where(mass != 0, coefficients.sum(1) / jnp.where(mass != 0, mass, 1.0), 0.0)  # [models, runs]
        kept = kept * share[:, None]
        total = jax.tree.map(lambda leaf: leaf * share.T.reshape(*share.T.shape, *(1,) * (leaf.ndim - 2)), total)
    norms = Effort(jnp.where(came, trained.square_norm, 0.0))
    moved = jax.vmap(_move, (0, 0, 0, 0, 0, axes, Effort(-1)))
    model, rules, servers = moved(band, rules, state.server[0], state.model, total, signals._replace(returned=came), norms)

    anyone = sane & (kept != 0).any((0, 1))
    new = State(
        model=trees.where(anyone, model, state.model, 0),
        rule=(trees.where(anyone, rules, state.rule[0], 0),),
        server=(trees.where(anyone, servers, state.server[0], 0),),
        memory=trained.memory,
        excluded=state.excluded.at[who].add((invited & ~came).astype(jnp.int32)),
        broken=jnp.where(sane, state.broken, jnp.minimum(state.broken, t)),
        chosen=Chosen(state.chosen.model.at[who].set(choice), state.chosen.begun | anyone),
    )
    return new, kept.sum(0)


def _only(parts: RunParts) -> tuple[Band, Several]:
    (band,) = parts.bands  # a rule that keeps several models is in no company but its own
    assert isinstance(band.rule, Several)
    return band, band.rule


def _move(band: Band, rule: Tree, server: Tree, model: Tree, total: Tree, signals: Signals, effort: Effort) -> tuple[Tree, Tree, Tree]:
    change, rule = band.rule.step(rule, signals, effort, total)
    if band.server is None:
        return trees.add(model, change), rule, server
    model, server = band.server.update(change, server, model)
    return model, rule, server


def offered(parts: RunParts, state: State) -> Tree:
    """The models among which clients choose. [runs, models, ...]"""
    _, rule = _only(parts)
    return state.model if rule.apart else state.server[0]


def served(parts: RunParts, state: State) -> Tree:
    """The models that clients are given to use. [runs, models, ...]"""
    band, _ = _only(parts)
    return state.model if band.server is None else jax.vmap(_serve)(band.server, state.model, state.server[0])


def _serve(server: Server, model: Tree, own: Tree) -> Tree:
    return server.serve(model, own)


def _choices(task: Task, shape: Shape, parts: RunParts, data: Data, state: State, who: Array) -> Array:
    """The model of each of these clients: given, or chosen once the models can be told apart. int32 [K, runs]"""
    _, rule = _only(parts)
    last = state.chosen.model[who]
    if rule.inference in GIVEN:
        return last
    own = lax.map(lambda models: chosen(task, shape, data, models, who, rule.inference), offered(parts, state))
    return own.T if rule.known_votes else jnp.where(state.chosen.begun, own.T, last)


def evaluated(task: Task, shape: Shape, parts: RunParts, data: Data, state: State) -> tuple[Array, Array, Array]:
    """Tables and summed losses by owner, each client with its own model, and which that is. [clients, runs]

    The central test set sees the shared model; where there is none, the one that most clients chose.
    """
    _, rule = _only(parts)
    choice = _choices(task, shape, parts, data, state, jnp.arange(shape.clients))
    models = served(parts, state)
    most = jax.vmap(lambda own: jnp.argmax(jnp.bincount(own, length=shape.models)), 1)(choice)
    shared = jax.vmap(lambda own, q: jax.tree.map(lambda leaf: leaf[q], own))(models, most) if rule.apart else state.model
    every = jax.tree.map(lambda own, one: jnp.concatenate([own, one[:, None]], 1), models, shared)
    tables, losses = lax.map(lambda run: _one_run(task, shape, data, *run), (every, choice.T))
    return jnp.moveaxis(tables, 0, -1), losses.T, choice


def _one_run(task: Task, shape: Shape, data: Data, models: Tree, choice: Array) -> Counts:
    """Each list of rows once for each model that one of its owners uses; those share the counts."""
    owner = jnp.append(jnp.tile(choice, 3), shape.models)  # the model of each owner: the shared one comes last
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
            row = data.eval_rows[jnp.minimum(data.eval_start[own] + at - (ends - wanted)[own], last)]
            return counted(task, shape, data, model, jnp.where(at < ends[-1], row, data.y.shape[0] - 1), number, counts)

        chunks = (ends[-1] + shape.eval_chunk - 1) // shape.eval_chunk
        tables, losses = by_cell(shape, shared_loop(shape, chunks, chunk, nothing_counted(shape, shape.lists, 1)))
        before, sums = carry
        return jnp.where(mine[:, None, None, None], tables[of_list, ..., 0], before), jnp.where(mine, losses[of_list, 0], sums)

    tables, losses = by_cell(shape, nothing_counted(shape, shape.owners, 1))
    return lax.fori_loop(0, shape.models + 1, one_model, (tables[..., 0], losses[..., 0]))
