"""FairMNISTRotate: who is rotated how, and what is shared."""

from typing import Any, cast

import numpy as np
import pytest
from scipy import ndimage

from evenly.datasets import DATASETS, Sizes
from evenly.datasets.formats import IDX_NAMES, read_idx_set
from evenly.datasets.mnist import MNIST_LAYOUT, SIZES, fair_mnist_rotate, rotate_images
from tests.datasets.making import idx, put
from tests.datasets.real_data import need

SMALL = {"sizes": (1, 3, 2), "angle_step": 90.0, "images": 5, "test_images": 8}


@pytest.fixture
def toy(made):
    """Forty training and ten test images; the first pixel of each is its number."""
    draw = np.random.default_rng(0)
    for file, n in zip(IDX_NAMES, (40, 40, 10, 10), strict=True):
        values = draw.integers(0, 256, (n, 28, 28)) if "images" in file else np.arange(n) % 10
        put(made / "mnist" / file, idx(values))
    return made


@pytest.mark.parametrize("quarters", [0, 1, 2, 3, -1, 4])
def test_quarter_turns_are_exact(quarters: int):
    x = np.random.default_rng(1).integers(0, 256, (3, 28, 28, 1), np.uint8)
    np.testing.assert_array_equal(
        rotate_images(x, 90.0 * quarters), np.rot90(x, quarters, axes=(1, 2))
    )


@pytest.mark.parametrize("angle", [36.0, 10.0, 200.0])
def test_other_turns_are_bilinear_with_zeros_outside(angle: float):
    x = np.random.default_rng(1).integers(0, 256, (2, 28, 28, 1), np.uint8)
    turn = np.radians(angle)
    matrix = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    offset = np.full(2, 13.5) - matrix @ np.full(2, 13.5)
    for image, found in zip(x, rotate_images(x, angle), strict=True):
        exact = ndimage.affine_transform(
            image[..., 0].astype(float), matrix, cast(Any, offset), order=1, mode="grid-constant"
        )
        np.testing.assert_allclose(found[..., 0], exact, atol=0.5 + 1e-4)
    assert (rotate_images(x, angle)[:, 0, 0] == 0).all(), "a corner shows what was outside"


def test_clients_of_a_group_share_angle_and_test_rows(toy):
    federation = fair_mnist_rotate(**SMALL)
    assert Sizes.of(federation) == (6, 30, 0, 6 * 8, 0)
    assert federation.client_group is not None
    assert federation.client_group.tolist() == [0, 1, 1, 1, 2, 2]
    assert federation.names[:2] == ("0° client 0", "90° client 1")
    assert federation.x.dtype == np.uint8
    assert federation.x.shape == (30 + 3 * 8, 28, 28, 1), "test images once for each group"
    x, y, tested = read_idx_set(MNIST_LAYOUT)
    for k, g in enumerate(np.asarray(federation.client_group)):
        own = federation.test.of(k)
        np.testing.assert_array_equal(federation.x[own], np.rot90(x[tested][:8], g, axes=(1, 2)))
        np.testing.assert_array_equal(federation.y[own], y[tested][:8])


def test_every_training_image_is_used_once_and_turned_with_its_group(toy):
    federation = fair_mnist_rotate(**SMALL)
    x, y, tested = read_idx_set(MNIST_LAYOUT)
    upright = {image.tobytes(): label for image, label in zip(x[~tested], y[~tested], strict=True)}
    seen = []
    for k, g in enumerate(np.asarray(federation.client_group)):
        for row in federation.train.of(k):
            back = np.ascontiguousarray(np.rot90(federation.x[row], -g)).tobytes()
            assert upright[back] == federation.y[row]
            seen.append(back)
    assert len(set(seen)) == 30


def test_the_seed_deals(toy):
    one, same, other = (fair_mnist_rotate(**SMALL, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.x, same.x)
    assert (one.x[:30] != other.x[:30]).any()
    np.testing.assert_array_equal(one.x[30:], other.x[30:])


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"sizes": ()}, "sizes must be each group's number of clients"),
        ({"sizes": (3, 0)}, r"at least 1, such as .*got \(3, 0\)"),
        ({"images": 0}, "images must be at least 1 for each client, got 0"),
        (
            {"images": 20},
            "6 clients with 20 images each need 120 training images, but there are 40",
        ),
        ({"test_images": 11}, "test_images must be between 1 and 10, got 11"),
    ],
)
def test_impossible_federations_are_refused(toy, settings: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        fair_mnist_rotate(**{**SMALL, **settings})


@pytest.mark.data
@pytest.mark.slow
def test_the_whole_set():
    need("fair_mnist_rotate")
    federation = fair_mnist_rotate()
    assert Sizes.of(federation) == DATASETS["fair_mnist_rotate"].expected
    assert np.bincount(np.asarray(federation.client_group)).tolist() == list(SIZES)
    assert sum(SIZES) == 1000
    assert federation.x.nbytes == 160_000 * 784
    # Turning keeps most of the ink inside: digits lie in the middle.
    ink = [
        federation.x[federation.test.of(k)].mean()
        for k in np.searchsorted(np.asarray(federation.client_group), np.arange(10))
    ]
    assert max(ink) / min(ink) < 1.01


def test_with_reuse_images_are_distinct_within_a_group_only(toy):
    settings: Any = {"sizes": (2, 2), "angle_step": 0.0, "images": 15, "test_images": 8}
    federation = fair_mnist_rotate(**settings, reuse=True)
    group = np.asarray(federation.client_group)
    for g in range(2):
        rows = np.concatenate([federation.train.of(int(k)) for k in np.flatnonzero(group == g)])
        pictures = {federation.x[row].tobytes() for row in rows}
        assert len(pictures) == 30, "distinct within the group"
    everyone = {federation.x[row].tobytes() for k in range(4) for row in federation.train.of(k)}
    assert 30 < len(everyone) < 60, "of 40 images, groups share some and draw their own"


def test_reuse_allows_more_images_than_clients_could_have_alone(toy):
    with pytest.raises(ValueError, match=r"4 clients .* need 60 training images.*reuse=true"):
        fair_mnist_rotate(sizes=(2, 2), images=15, test_images=8)
    with pytest.raises(ValueError, match="3 clients with 15 images each need 45 training images"):
        fair_mnist_rotate(sizes=(3, 2), images=15, test_images=8, reuse=True)
