"""CINIC-10 as folders of pictures, as an archive, and packed."""

import numpy as np
import pytest

from evenly.datasets import DataError, Sizes, cinic10
from evenly.datasets.cifar import CLASSES, SPLITS, pack
from tests.datasets.making import png, put, tar

SETTINGS = {"clients": 2, "beta": 50.0, "min_samples": 2}


def pictures() -> dict[str, bytes]:
    draw = np.random.default_rng(0)
    return {
        f"{split}/{kind}/{kind}-{i}.png": png(
            draw.integers(0, 256, (32, 32, 1 if i else 3), dtype=np.uint8), [i, 4, 2]
        )
        for split in SPLITS
        for kind in CLASSES[:3]
        for i in range(2)
    }


def test_folder_archive_and_packed_are_the_same(made):
    backwards = dict(reversed([(f"./{name}", content) for name, content in pictures().items()]))
    put(made / "cinic10/CINIC-10.tar.gz", tar({"./README.md": b"hello", **backwards}))
    archived = cinic10(**SETTINGS)
    for name, content in pictures().items():
        put(made / "cinic10" / name, content)
    unpacked = cinic10(**SETTINGS)
    assert [path.name for path in pack()] == ["train.bin", "valid.bin", "test.bin"]
    packed = cinic10(**SETTINGS)
    assert Sizes.of(packed).clients == 2
    assert packed.x.shape == (18, 32, 32, 3)
    assert packed.y.tolist() == [0, 0, 1, 1, 2, 2] * 3
    for other in (archived, unpacked):
        np.testing.assert_array_equal(other.x, packed.x)
        np.testing.assert_array_equal(other.y, packed.y)
        np.testing.assert_array_equal(other.train.rows, packed.train.rows)


def test_pictures_elsewhere_are_refused(made):
    put(made / "cinic10/CINIC-10.tar.gz", tar({"train/zebra/a.png": b""}))
    with pytest.raises(DataError, match=r"its class and its file name, found train/zebra/a.png"):
        cinic10()


def test_a_split_without_pictures_is_named(made):
    put(
        made / "cinic10/CINIC-10.tar.gz",
        tar({name: c for name, c in pictures().items() if not name.startswith("valid")}),
    )
    with pytest.raises(DataError, match="there must be PNG pictures in valid/<class>/, found none"):
        cinic10()


def test_a_damaged_picture_is_named(made):
    put(made / "cinic10/CINIC-10.tar.gz", tar({name: c[:-30] for name, c in pictures().items()}))
    with pytest.raises(
        DataError, match=r"cinic10: a picture near test/bird/bird-1\.png is damaged"
    ):
        cinic10()
