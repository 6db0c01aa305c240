"""MNIST and Fashion-MNIST, and what image sets share."""

import gzip

import numpy as np
import pytest

from evenly.datasets import DATASETS, DataError, Sizes, data_folder, fashion_mnist, mnist
from evenly.datasets.formats import IDX_NAMES, read_idx, read_idx_set
from evenly.datasets.mnist import FASHION_LAYOUT
from evenly.datasets.partitioning import scale_pixels
from tests.datasets.making import idx, put
from tests.datasets.real_data import need


@pytest.fixture(scope="module")
def fashion():
    need("fashion_mnist")
    return fashion_mnist()


@pytest.fixture
def toy(made):
    """Forty training and ten test images of 28 x 28 with labels 0 to 9 in turn."""
    draw = np.random.default_rng(0)
    for name in ("mnist", "fashion_mnist"):
        for file, n in zip(IDX_NAMES, (40, 40, 10, 10), strict=True):
            values = draw.integers(0, 256, (n, 28, 28)) if "images" in file else np.arange(n) % 10
            put(made / name / file, idx(values))
    return made


@pytest.mark.data
def test_three_clients_with_one_class_each(fashion):
    assert fashion.names == ("shirt", "pullover", "T-shirt")
    assert fashion.labels == ("T-shirt", "pullover", "shirt")
    assert Sizes.of(fashion) == DATASETS["fashion_mnist"].expected == (3, 16200, 1800, 3000, 0)
    for k, label in enumerate((2, 1, 0)):
        for part in (fashion.train, fashion.valid, fashion.test):
            assert (fashion.y[part.of(k)] == label).all()


@pytest.mark.data
def test_pixels_are_standardised_with_all_training_images(fashion):
    x, y, tested = read_idx_set(FASHION_LAYOUT)
    assert np.bincount(y[~tested]).tolist() == [6000] * 10
    assert np.bincount(y[tested]).tolist() == [1000] * 10
    few = x[:, ::9, ::9]  # some pixels, at the dark border and inside
    training = few[~tested].astype(np.float64)
    expected = (few[np.isin(y, [0, 2, 6])] - training.mean(0)) / (training.std(0) + 0.001)
    np.testing.assert_allclose(fashion.x[:, ::9, ::9], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.data
def test_mnist_counts_and_central_test_images():
    need("mnist")
    federation = mnist()
    assert Sizes.of(federation) == DATASETS["mnist"].expected
    assert federation.x.shape == (70000, 28, 28, 1)
    # Published counts of the labels, and pixel mean and deviation of the training images.
    assert np.bincount(federation.y[:60000]).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    assert np.bincount(federation.y[federation.central]).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    assert federation.x[:60000].mean() == pytest.approx(0.1307, abs=5e-5)
    assert federation.x[:60000].std() == pytest.approx(0.3081, abs=5e-5)
    held = np.concatenate([federation.train.rows, federation.valid.rows, federation.test.rows])
    np.testing.assert_array_equal(np.sort(held), np.arange(60000))


def test_partitions_of_small_sets(toy):
    even = mnist("equal", clients=4, pixels="bytes")
    assert Sizes.of(even) == (4, 32, 4, 4, 10)
    assert even.x.dtype == np.uint8
    mixed = fashion_mnist("all", clients=2, beta=50.0, min_samples=5, pixels="unit")
    assert mixed.labels[6] == "shirt"
    assert Sizes.of(mixed).central == 10
    assert 0 <= mixed.x.min() < mixed.x.max() <= 1
    with pytest.raises(ValueError, match=r"no partition 'iid'.*Known: dirichlet, equal"):
        mnist("iid")
    with pytest.raises(ValueError, match="kind must be one of tops, all"):
        fashion_mnist("shirts")
    with pytest.raises(ValueError, match="none of 1000 draws"):
        mnist(clients=10, min_samples=39)


def test_the_default_federation_of_a_small_set(toy):
    federation = fashion_mnist(valid=0.25)
    assert Sizes.of(federation) == (3, 9, 3, 3, 0)


def test_pixels():
    x = np.array([[[0, 255]], [[0, 1]]], np.uint8)
    assert scale_pixels(x, "bytes") is x
    np.testing.assert_allclose(scale_pixels(x, "unit"), x / 255)
    np.testing.assert_allclose(
        scale_pixels(x, "standard"), [[[0, 127 / 127.001]], [[0, -127 / 127.001]]], rtol=1e-6
    )
    with pytest.raises(
        ValueError, match="pixels must be one of bytes, unit, standard, got 'float'"
    ):
        scale_pixels(x, "float")


@pytest.mark.parametrize(
    "content, sentence",
    [
        (gzip.compress(b"\0\0\x0d\x01"), "must be an IDX file of bytes .* found 00 00 0d 01"),
        (gzip.compress(b""), "found nothing"),
        (idx(np.zeros((3, 2)))[:-9], "not a whole gzip file"),
        (b"plain", "not a whole gzip file"),
        (
            gzip.compress(gzip.decompress(idx(np.zeros((3, 2))))[:-1]),
            "must hold 3 x 2 bytes, as its header says, got 5",
        ),
    ],
    # gzip writes the time: contents would make other ids each second
    ids=["another kind", "empty", "cut off", "not gzip", "too short"],
)
def test_broken_idx_files(tmp_path, content, sentence):
    with pytest.raises(DataError, match=sentence):
        read_idx(put(tmp_path / "file.gz", content))


def test_images_without_labels_are_refused(toy):
    put(data_folder() / "mnist" / IDX_NAMES[1], idx(np.zeros(39)))
    with pytest.raises(
        DataError, match=r"one image per label, got shape \(40, 28, 28\) for 39 labels"
    ):
        mnist()
