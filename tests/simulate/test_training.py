"""The training of a cohort, in turn, in lanes and on several devices, against a plain loop over
clients and batches.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import Ragged
from evenly.parts.sampling import Full
from evenly.records import record, replace, static
from evenly.simulate import layout, training
from evenly.simulate.layout import ClientMemories, Inputs, RunParts, Shape, State
from evenly.simulate.measuring import device_data
from evenly.simulate.schedule import Planner
from evenly.simulate.training import Cohort, train_and_sum, train_vectors
from evenly.types import Seeds, Tree

RATES = np.array([1.0, 10.0], np.float32)  # of two runs
SHAPE = Shape(
    runs=2, bounds=(0, 2), axis=0, clients=4, groups=1, labels=2, lanes=1, stride=1, unroll=1,
    equal=0, devices=1, chunk=1, eval_chunk=1, lists=13,
)  # fmt: skip
COEFFICIENTS = np.array([[1, 2], [0, 0], [3, 0], [-1, 1]], np.float32)  # [clients, runs]
MODEL = np.array([100.0, 200.0], np.float32)


@record
class Doubling:
    """Each step doubles a number and adds the rows of its batch: the result depends on the order
    and number of steps.
    """

    rate: float = 1.0
    remembers: bool = static(default=True)
    batch_size: int = static(default=2)
    epochs: int = static(default=1)
    max_steps: int = static(default=0)
    shuffle: bool = static(default=False)

    def start(self, task: Any, model: Tree, memory: Tree) -> Tree:
        return model + memory if self.remembers else model

    def step(self, task: Any, model: Tree, local: Tree, batch: Any) -> Tree:
        return 2 * local + self.rate * (batch.mask * batch.weight * batch.x[:, 0]).sum()

    def finish(self, task: Any, model: Tree, local: Tree) -> tuple[Tree, Tree]:
        return local - model, local if self.remembers else ()


class Expected(NamedTuple):
    """One vector, and the memory afterwards, for each client. [clients, runs]"""

    vectors: np.ndarray
    memory: np.ndarray


def federation(sizes: tuple[int, ...]) -> Federation:
    """Clients with these numbers of training rows; row i holds the number i + 1."""
    rows = sum(sizes)
    made = Federation.from_arrays(
        np.ones((rows, 1)),
        np.arange(rows) % 2,
        np.repeat(np.arange(len(sizes)), sizes),
        shares=(1.0, 0.0),
    )
    x = np.arange(1, rows + 1, dtype=np.float32)[:, None]
    return replace(
        made, x=x, train=Ragged(np.arange(rows), np.concatenate([[0], np.cumsum(sizes)]))
    )


def cohort(
    sizes: tuple[int, ...], *, remembers: bool = True, dropout: float = 0.0, **shape: Any
) -> Cohort:
    """The second of two rounds in which every client takes part."""
    data = federation(sizes)
    task: Any = None
    work: Any = Doubling(remembers=remembers)
    lanes, devices = shape.get("lanes", 1), shape.get("devices", 1)
    planner = Planner(
        data, work, [Full()], seeds=Seeds(), dropout=dropout, lanes=lanes, devices=devices
    )
    # Room for four more steps than the rounds need, which hold padding only.
    block = planner.block(
        0,
        3,
        rounds=3,
        steps=3 * planner.most_steps_per_round + 4,
        stops=np.array([3], np.int32),
        evaluate=np.array([False]),
    )
    memory = jnp.arange(8.0).reshape(4, 2) if remembers else ()
    state = State(jnp.asarray(MODEL), (), (), ClientMemories(memory), (), jnp.zeros(2, jnp.int32))
    parts = RunParts(replace(work, rate=jnp.asarray(RATES)), (), None, None)
    block = jax.tree.map(jnp.asarray, block)
    return Cohort(
        SHAPE._replace(**shape),
        Inputs(task, parts, device_data(data, None, 1)),
        block,
        state,
        jnp.int32(1),
    )


def expected(sizes: tuple[int, ...], c: Cohort) -> Expected:
    """A loop over the clients that return, their batches and the runs."""
    vectors = np.zeros((4, 2), np.float32)
    memory = (
        np.array(c.state.memory.work)
        if len(jax.tree.leaves(c.state.memory.work))
        else np.zeros((4, 2), np.float32)
    )
    starts = np.cumsum((0, *sizes))
    for k in np.flatnonzero(np.asarray(c.block.returned[1])):
        rows = np.arange(starts[k], starts[k + 1]) + 1.0
        for run in range(2):
            local = MODEL[run] + memory[k, run]
            for first in range(0, len(rows), 2):
                local = 2 * local + RATES[run] * rows[first : first + 2].sum()
            vectors[k, run], memory[k, run] = local - MODEL[run], local
    return Expected(vectors, memory)


def trained(c: Cohort, coefficients: np.ndarray = COEFFICIENTS) -> Any:
    """One compiled program: faster than one for each operation."""
    return jax.jit(lambda factors: train_and_sum(c, factors))(coefficients)


def check(
    c: Cohort, sizes: tuple[int, ...], found: Any, coefficients: np.ndarray = COEFFICIENTS
) -> None:
    """Sum, squared norms and memories of those who trained; whoever has no step to take has no
    norm.
    """
    vectors, memory = expected(sizes, c)
    np.testing.assert_array_equal(found.total, (coefficients * vectors).sum(0))
    visited = vectors.any(1) & (
        bool(jax.tree.leaves(c.state.memory.work)) | (c.shape.lanes > 1) | coefficients.any(1)
    )
    np.testing.assert_array_equal(np.asarray(found.square_norm)[visited], (vectors**2)[visited])
    if jax.tree.leaves(c.state.memory.work):
        np.testing.assert_array_equal(found.memory, memory)


UNEQUAL = (5, 2, 3, 1)  # rows: three, one, two and one steps


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("lanes, stride", [(1, 1), (2, 1), (4, 2)])
def test_a_cohort_trains_as_a_loop_over_its_clients_would(lanes: int, stride: int, remembers: bool):
    c = cohort(UNEQUAL, remembers=remembers, lanes=lanes, stride=stride)
    check(c, UNEQUAL, trained(c))


@pytest.mark.parametrize("remembers", [True, False])
def test_lanes_of_equal_clients_take_their_steps_without_a_condition(remembers: bool):
    """One client drops out: its lane takes the same steps, and changes nothing."""
    sizes = (3, 3, 4, 3)
    c = cohort(sizes, remembers=remembers, dropout=0.5, lanes=4, equal=2)
    assert 0 < int(c.block.returned[1].sum()) < 4
    check(c, sizes, trained(c))


@pytest.mark.parametrize("lanes", [3, 4])
def test_a_simulation_that_is_done_waits_for_the_others_of_its_batch(
    lanes: int, monkeypatch: pytest.MonkeyPatch
):
    """Others of a batch of seeds may need more steps: those that follow belong to the next round,
    and must not be taken.
    """
    monkeypatch.setattr(
        training, "batch_max", lambda value, shape: value if value.dtype == bool else value + 2
    )
    c = cohort(UNEQUAL, lanes=lanes)
    check(c, UNEQUAL, trained(c))


def test_a_round_without_steps_leaves_no_sum_and_all_memories():
    """The steps that begin where an empty round does belong to the next round."""
    c = cohort(UNEQUAL, lanes=4)
    lanes = c.block.lanes._replace(
        first_step=c.block.lanes.first_step.at[2].set(c.block.lanes.first_step[1])
    )
    found = trained(c._replace(block=c.block._replace(lanes=lanes)))
    np.testing.assert_array_equal(found.total, [0, 0])
    np.testing.assert_array_equal(found.memory, c.state.memory.work)


@pytest.mark.parametrize("lanes", [1, 2])
def test_devices_add_up_the_clients_that_each_of_them_visits(lanes: int):
    """The devices are pretended: `vmap` gives an axis of the same name."""
    c = cohort(UNEQUAL, lanes=lanes, devices=2)
    turns = jnp.moveaxis(c.block.turns, 1, 0)[:, :, None]  # of each device
    own = [None, None]
    if lanes > 1:
        own = [
            c.block.lanes._replace(
                **{
                    name: getattr(c.block.lanes, name)[:, 2 * d : 2 * d + 2]
                    for name in c.block.lanes._fields[1:]
                }
            )
            for d in range(2)
        ]
    lists = jax.tree.map(lambda *leaves: jnp.stack(leaves), *own)

    def one(turns: jax.Array, lanes: Any) -> Any:
        return train_and_sum(
            c._replace(block=c.block._replace(turns=turns, lanes=lanes)), jnp.asarray(COEFFICIENTS)
        )

    found = jax.jit(jax.vmap(one, axis_name=layout.AXIS))(turns, lists)
    for device in range(2):
        check(c, UNEQUAL, jax.tree.map(lambda leaf, d=device: leaf[d], found))


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_several_models_have_a_sum_each(lanes: int):
    """Coefficients of two models: [clients, models, runs]."""
    c = cohort(UNEQUAL, lanes=lanes, models=2)
    both = np.stack([COEFFICIENTS, np.array([[0, 1], [2, 0], [1, 1], [0, 4]], np.float32)], axis=1)
    found = trained(c, both)
    np.testing.assert_array_equal(
        found.total, np.einsum("kmr,kr->rm", both, expected(UNEQUAL, c).vectors)
    )


def test_a_client_trains_the_model_that_it_chose():
    c = cohort(UNEQUAL, remembers=False)
    models = np.array([[100.0, 1.0], [200.0, 2.0]], np.float32)  # [runs, models]
    choice = np.array([[0, 1], [1, 1], [0, 0], [1, 0]], np.int32)  # [clients, runs]
    c = c._replace(state=c.state._replace(model=jnp.asarray(models)), choice=jnp.asarray(choice))
    for k in range(4):
        np.testing.assert_array_equal(
            c.model_of(jnp.int32(k)), [models[run, choice[k, run]] for run in range(2)]
        )


def test_vectors_are_kept_for_rules_that_compare_them():
    c = cohort(UNEQUAL, dropout=0.5)
    assert 0 < int(c.block.returned[1].sum()) < 4
    found, (vectors, memory) = train_vectors(c, 4), expected(UNEQUAL, c)
    returned = np.asarray(c.block.returned[1])
    np.testing.assert_array_equal(np.asarray(found.total)[returned], vectors[returned])
    np.testing.assert_array_equal(np.asarray(found.memory)[returned], memory[returned])


@pytest.mark.parametrize("fused", [False, True])
def test_a_vector_that_is_not_finite_becomes_zeros_and_its_client_keeps_its_memory(fused: bool):
    c = cohort(UNEQUAL, fused=fused)
    data = c.inputs.data
    # the first row of client 1
    c = c._replace(inputs=c.inputs._replace(data=data._replace(x=data.x.at[5, 0].set(jnp.inf))))
    for k in (0, 1):
        vector, memory, norm = c.visit(jnp.int32(k), c.state.memory.work[k], jnp.bool_(True))
        want, after = (own[k] for own in expected(UNEQUAL, c))
        np.testing.assert_array_equal(vector, np.zeros(2) if k else want)
        np.testing.assert_array_equal(memory, c.state.memory.work[k] if k else after)
        assert np.isfinite(norm).tolist() == [not k] * 2


def test_a_client_that_nobody_needs_takes_no_step():
    c = cohort(UNEQUAL)
    vector, _, _ = c.visit(jnp.int32(0), c.state.memory.work[0], jnp.bool_(False))
    np.testing.assert_array_equal(vector, c.state.memory.work[0])
