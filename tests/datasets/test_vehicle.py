import gzip
import json

import numpy as np
import pytest

from evenly.datasets import DATASETS, DataError, MissingData, Sizes, vehicle
from tests.datasets.making import leaf, put
from tests.datasets.real_data import need

# Samples of the users f_00000 to f_00022, counted in the file.
COUNTS = [
    59,
    8,
    20,
    156,
    17,
    13,
    43,
    25,
    71,
    388,
    21,
    13,
    534,
    84,
    147,
    36,
    7,
    13,
    15,
    130,
    20,
    30,
    10,
]


def sensor(n: int, value: float = 0.5) -> tuple[list, list]:
    return [[value] * 100 for _ in range(n)], [[1 if i % 2 else -1] for i in range(n)]


@pytest.mark.data
def test_the_public_subset():
    need("vehicle")
    federation = vehicle()
    assert federation.name == "vehicle subset"
    assert federation.names == tuple(f"f_{k:05d}" for k in range(23))
    assert (
        federation.train.counts + federation.valid.counts + federation.test.counts
    ).tolist() == COUNTS
    assert federation.train.counts.tolist() == [int(0.8 * n) for n in COUNTS]
    assert Sizes.of(federation) == DATASETS["vehicle"].expected
    assert federation.x.shape == (1860, 100)
    assert federation.labels == ("-1", "+1")
    assert set(federation.y.tolist()) == {0, 1}


def test_the_full_set_pools_both_files(made):
    put(made / "vehicle/full/mytrain.json", leaf({"b": sensor(10), "a": sensor(20)}))
    put(made / "vehicle/full/mytest.json", leaf({"a": sensor(5, 2.0), "b": sensor(3)}))
    federation = vehicle("full")
    assert federation.name == "vehicle full"
    assert federation.names == ("a", "b")
    assert (
        federation.train.counts + federation.valid.counts + federation.test.counts
    ).tolist() == [25, 13]
    assert (federation.x[:, 0] == 2.0).sum() == 5
    assert federation.y[:4].tolist() == [0, 1, 0, 1]


def test_the_full_set_says_what_is_missing(made):
    put(made / "vehicle/full/mytrain.json", leaf({"a": sensor(4)}))
    with pytest.raises(
        MissingData,
        match=r"vehicle/full/mytest.json .* It cannot be fetched: prepare the sensor data",
    ):
        vehicle("full")
    with pytest.raises(ValueError, match="kind must be one of subset, full"):
        vehicle("whole")


@pytest.mark.parametrize(
    "content, sentence",
    [
        (leaf({"a": sensor(4)})[:-9], "is not whole JSON"),
        (
            json.dumps({"users": []}).encode(),
            "must be a LEAF file, an object with users, num_samples and user_data",
        ),
        (
            leaf({"a": sensor(4)}).replace(b'"num_samples": [4]', b'"num_samples": [5]'),
            "user 'a' must have 5 samples .* got 4 x and 4 y",
        ),
        (
            leaf({"a": sensor(4)}).replace(b'"users": ["a"]', b'"users": ["b"]'),
            "must list the same users",
        ),
        (
            leaf({"a": ([[0.0] * 99] * 4, [1, 1, -1, 1])}),
            r"must have 100 finite features per sample, got an array of shape \(4, 99\)",
        ),
        (
            leaf({"a": ([[0.0] * 100] * 4, [1, 1, 0, 1])}),
            "labels must be -1 or .1, sensor 'a' has 0",
        ),
        (leaf({"a": ([[0.0] * 99 + [float("nan")]] * 2, [1, -1])}), "100 finite features"),
    ],
)
def test_broken_files(made, content, sentence):
    put(made / "vehicle/mytrain.json", content)
    with pytest.raises(DataError, match=sentence):
        vehicle()


def test_gzipped_or_not(made):
    plain = leaf({"a": sensor(10), "b": sensor(10)})
    put(made / "vehicle/mytrain.json.gz", gzip.compress(plain))
    zipped = vehicle()
    put(made / "vehicle/mytrain.json", plain)
    np.testing.assert_array_equal(vehicle().x, zipped.x)
