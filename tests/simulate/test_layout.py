"""How arrays lie in a program, and how several devices or simulations share a loop; against plain
loops.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import Ragged
from evenly.records import replace
from evenly.simulate import choosing
from evenly.simulate.layout import (
    AXIS,
    NEVER,
    SEEDS,
    Shape,
    batch_max,
    device_loop,
    map_runs,
    replicate,
    runs_last,
    shard,
    sum_over_devices,
    unweighted,
)
from evenly.simulate.measuring import device_data

SHAPE = Shape(
    runs=5, bounds=(0, 2, 5), axis=0, clients=4, groups=1, labels=2, lanes=1, stride=1, unroll=1,
    equal=0, devices=1, chunk=1, eval_chunk=1, lists=13,
)  # fmt: skip


def test_a_shape_has_three_owners_for_each_client_and_a_central_one():
    assert SHAPE.owners == 13
    assert (SHAPE.runs_of(0), SHAPE.runs_of(1)) == (slice(0, 2), slice(2, 5))
    assert (SHAPE.models, SHAPE.seeds, SHAPE.fused) == (0, 1, False)
    assert np.iinfo(np.int32).max == NEVER


def test_simulations_side_by_side_go_on_as_long_as_the_longest():
    values = jnp.array([3, 7, 5])
    assert jax.vmap(lambda v: batch_max(v, SHAPE._replace(seeds=3)), axis_name=SEEDS)(
        values
    ).tolist() == [7, 7, 7]
    assert batch_max(values, SHAPE) is values


@pytest.mark.parametrize("axis", [-1, 0])
def test_runs_are_one_product_or_one_after_another(axis: int):
    shapes: list[Any] = []
    values = jnp.arange(6.0).reshape(2, 3)
    found = map_runs(lambda v: shapes.append(v.shape) or v + 1, axis, values)
    np.testing.assert_array_equal(found, values + 1)
    assert shapes == [(2, 3) if axis == -1 else (3,)]
    assert runs_last(values, axis).shape == ((2, 3) if axis == -1 else (3, 2))


@pytest.mark.parametrize("devices, count", [(1, 5), (3, 7), (3, 6), (3, 2), (3, 0), (4, 1)])
def test_devices_take_every_turn_once(devices: int, count: int):
    """The devices are pretended: `vmap` gives an axis of the same name."""
    shape = SHAPE._replace(devices=devices)

    def counted(_: Any) -> jax.Array:
        return device_loop(
            shape,
            jnp.int32(count),
            lambda i, sums: sums.at[i].add(1, mode="drop"),
            jnp.zeros(9, jnp.int32),
        )

    found = jax.vmap(counted, axis_name=AXIS)(jnp.arange(devices))
    assert found.tolist() == [[1] * count + [0] * (9 - count)] * devices
    sums = jax.vmap(lambda v: sum_over_devices(v, shape), axis_name=AXIS)(jnp.arange(devices))
    assert sums.tolist() == [sum(range(devices))] * devices
    assert replicate(sums, 1) is sums


@pytest.fixture
def two() -> Federation:
    """Client 0 trains on five rows, client 1 on two, the last of all."""
    made = Federation.from_arrays(
        np.arange(1.0, 8)[:, None], np.arange(7) % 2, np.array([0] * 5 + [1] * 2), shares=(1.0, 0.0)
    )
    return replace(
        made,
        x=np.arange(1.0, 8, dtype=np.float32)[:, None],
        train=Ragged(np.arange(7), np.array([0, 5, 7])),
    )


def test_padding_counts_nothing_and_weights_are_left_out_of_reports(two: Federation):
    rows = jnp.array([6, 7, 0])
    batch = shard(device_data(two, None, 1), rows)
    assert batch.x[:, 0].tolist() == [7, 1, 1]  # padding repeats the first row
    assert batch.mask.tolist() == [1, 0, 1]
    assert batch.weight.tolist() == [1, 1, 1]
    weighted_sum = shard(device_data(two, np.arange(7, dtype=np.float32), 1), rows)
    assert weighted_sum.weight.tolist() == [6, 0, 0]
    assert unweighted(weighted_sum).weight.tolist() == [1, 1, 1]


@pytest.mark.parametrize("client, first, mask", [(0, [1, 2, 3], [1, 1, 1]), (1, [6, 7], [1, 1, 0])])
def test_a_client_looks_at_its_first_rows(
    monkeypatch: pytest.MonkeyPatch, two: Federation, client: int, first: list, mask: list
):
    monkeypatch.setattr(choosing, "MOST_ROWS", 3)
    batch = choosing.first_rows(device_data(two, None, 1), jnp.int32(client))
    assert batch.mask.tolist() == mask
    assert batch.x[: len(first), 0].tolist() == first
    monkeypatch.setattr(choosing, "MOST_ROWS", 6)
    batch = choosing.first_rows(device_data(two, None, 1), jnp.int32(0))
    assert batch.x[:, 0].tolist() == [1, 2, 3, 4, 5, 1]  # padded with the first row
    assert batch.mask.tolist() == [1, 1, 1, 1, 1, 0]
