"""Data sets of PyTorch, Hugging Face and flwr-datasets become federations."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import evenly
from evenly import Federation
from evenly.api.settings import plan_comparison
from evenly.experiment.execute import setting_of

ROWS = 120
X = np.random.default_rng(0).normal(size=(ROWS, 5)).astype(np.float32)
Y, GROUP = np.arange(ROWS) % 2, np.arange(ROWS) // 2 % 2
CLIENT = np.array(["north", "south", "west"])[np.arange(ROWS) // 40]


class Pictures(Dataset):
    """Small pictures whose classes have names that are not in the order of the alphabet."""

    classes = ("zebra", "ant", "cow")

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, i: int) -> Any:
        return torch.full((1, 4, 4), i, dtype=torch.uint8), i % 3


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return ({"text": [1, 2, i], "label": "ab"[i % 2], "site": i % 3} for i in range(ROWS))


def tensors(label: Any = Y) -> TensorDataset:
    return TensorDataset(torch.tensor(X), torch.tensor(label), torch.tensor(GROUP))


def by_hand(seed: int = 0) -> Federation:
    return Federation.from_arrays(X, Y, CLIENT, group=GROUP, seed=seed)


def assert_same_rows(one: Federation, other: Federation) -> None:
    assert (one.names, one.labels) == (other.names, other.labels)
    for name in ("x", "y", "group"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("train", "valid", "test"):
        np.testing.assert_array_equal(one.split(name).rows, other.split(name).rows)


def test_tensors_with_an_array_of_clients_are_the_arrays():
    found = Federation.from_dataset(tensors(), client=CLIENT, sensitive=2, seed=4)
    assert_same_rows(found, by_hand(seed=4))


def test_one_data_set_for_each_client_is_the_same_federation():
    parts = {name: Subset(tensors(), np.flatnonzero(name == CLIENT)) for name in np.unique(CLIENT)}
    assert_same_rows(Federation.from_dataset(parts, sensitive=2), by_hand())
    several = Federation.from_dataset(list(parts.values()), sensitive=2)
    assert several.names == ("client 0", "client 1", "client 2")
    np.testing.assert_array_equal(several.x, X)


class Changed(Dataset):
    """A data set with tensors that it changes before they are examples."""

    def __init__(self) -> None:
        self.tensors = tensors().tensors

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, i: Any) -> Any:
        return -self.tensors[0][i], *(tensor[i] for tensor in self.tensors[1:])


class ChangedTensors(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        example: Any = super().__getitem__(index)
        return -example[0], *example[1:]


class ChangedSubset(Subset):
    def __getitem__(self, idx: Any) -> Any:
        example: Any = super().__getitem__(idx)
        return -example[0], *example[1:]

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[i] for i in indices]


@pytest.mark.parametrize(
    "dataset",
    [
        Changed(),
        Subset(Changed(), range(ROWS)),
        ChangedTensors(*tensors().tensors),
        ChangedSubset(tensors(), range(ROWS)),
    ],
)
def test_a_transform_of_tensors_is_applied(dataset: Any):
    found = Federation.from_dataset(dataset, client=CLIENT, sensitive=2)
    np.testing.assert_array_equal(found.x, -X)
    np.testing.assert_array_equal(found.y, by_hand().y)


def test_pictures_stay_bytes_and_keep_the_numbers_of_their_classes():
    federation = Federation.from_dataset(Pictures(), client=CLIENT)
    assert federation.x.dtype == np.uint8
    assert federation.x.shape == (ROWS, 1, 4, 4)
    assert federation.x[7, 0, 0, 0] == 7
    assert federation.labels == ("zebra", "ant", "cow")
    assert federation.y.tolist() == [i % 3 for i in range(ROWS)]


def test_classes_that_do_not_occur_keep_their_place():
    class Some(Pictures):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, i: int) -> Any:
            return torch.zeros(2), 2 * (i % 2)

    federation = Federation.from_dataset(Some(), client=[0, 0, 0, 1, 1, 1])
    assert federation.labels == ("zebra", "ant", "cow")
    assert federation.y.tolist() == [0, 2, 0, 2, 0, 2]


def test_examples_that_are_dicts_in_a_stream_without_a_length():
    federation = Federation.from_dataset(Stream(), client="site")
    assert federation.x.dtype == np.int32  # tokens stay whole numbers
    assert federation.x[5].tolist() == [1, 2, 5]
    assert (federation.names, federation.labels) == (("0", "1", "2"), ("a", "b"))


def test_a_central_test_set_belongs_to_no_client():
    own, central = Subset(tensors(), range(80)), Subset(tensors(), range(80, ROWS))
    federation = Federation.from_dataset(own, client=CLIENT[:80], sensitive=2, central=central)
    assert federation.central.tolist() == list(range(80, ROWS))
    assert federation.names == ("north", "south")
    alone = Federation.from_dataset(own, client=CLIENT[:80], sensitive=2)
    np.testing.assert_array_equal(federation.train.rows, alone.train.rows)


def test_a_comparison_splits_a_data_set_anew_for_each_seed():
    settings: dict[str, Any] = {"client": CLIENT, "sensitive": 2, "rounds": 2}
    plan = plan_comparison(tensors(), "fedavg", {**settings, "seeds": [0, 3]})
    for seed in (0, 3):
        alone = Federation.from_dataset(tensors(), client=CLIENT, sensitive=2, seed=seed)
        assert_same_rows(setting_of(plan, seed).federation, alone)
    one = evenly.compare(by_hand(), "fedavg", seeds=[0], rounds=2, progress=False)
    first = evenly.compare(tensors(), "fedavg", seeds=[0], progress=False, **settings)
    assert first.table()["average"].tolist() == one.table()["average"].tolist()


@pytest.mark.parametrize(
    "data, settings, words",
    [
        (tensors(X[:, 0]), {"client": CLIENT}, "regression is not supported"),
        (tensors(), {}, "client is needed"),
        (tensors(), {"client": CLIENT[:5]}, "one entry per row"),
        (tensors(), {"client": CLIENT, "label": 7}, "no column '7' for the label"),
        (DataLoader(tensors()), {"client": CLIENT}, "Pass its .dataset"),
        ({"north": DataLoader(tensors())}, {}, "Pass its .dataset"),
        ({"a": tensors()}, {"client": CLIENT}, "client must not be given"),
        ([(np.zeros(2), 0), (np.zeros(3), 1)], {"client": [0, 1]}, "must have one shape"),
        ([np.zeros(2), np.zeros(2)], {"client": [0, 1]}, "must be a tuple such as"),
        ([(X[0], 0), (X[1],)], {"client": [0, 1]}, "is a tuple: .* from 0 to 0"),
        (
            [{"x": X[0], "y": 0}, {"x": X[1]}],
            {"client": [0, 1], "label": "y"},
            "number 1 .* has 'x'",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(data: Any, settings: Any, words: str):
    if isinstance(data, list):
        data = Examples(data)
    with pytest.raises(ValueError, match=words):
        Federation.from_dataset(data, **settings)


class Examples:
    """A data set of no library."""

    def __init__(self, examples: list[Any]) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, i: int) -> Any:
        return self._examples[i]


# Hugging Face and flwr-datasets


def hub() -> Any:
    return pytest.importorskip("datasets", reason="Hugging Face's datasets is optional")


def rows_of_hub() -> Any:
    library = hub()
    columns = {
        "age": np.arange(ROWS) % 50,
        "ward": np.where(GROUP == 0, "heart", "lung"),
        "site": CLIENT,
        "sex": np.where(np.arange(ROWS) % 3 == 0, "f", "m"),
        "label": Y,
    }
    whole = library.Dataset.from_dict({name: list(v) for name, v in columns.items()})
    return whole.cast_column("label", library.ClassLabel(names=["well", "ill"]))


def test_plain_columns_of_hugging_face_are_a_table():
    found = Federation.from_dataset(
        rows_of_hub(), client="site", sensitive="sex", favourable="well"
    )
    assert found.encoder is not None
    assert found.encoder.features == ("age", "ward=heart", "ward=lung")
    assert found.labels == ("well", "ill")
    np.testing.assert_array_equal(found.y, Y)
    assert found.labels[found.favourable] == "well"
    frame = rows_of_hub().to_pandas()
    roles = {"client": "site", "label": "label", "sensitive": "sex", "favourable": "0"}
    np.testing.assert_array_equal(found.x, Federation.from_frame(frame, **roles).x)


def test_pictures_and_tokens_of_hugging_face_are_arrays():
    library = hub()
    pictures = pytest.importorskip("PIL.Image", reason="pictures are decoded by Pillow")
    columns = {"label": [i % 3 for i in range(30)], "site": [i // 10 for i in range(30)]}
    shown = [pictures.fromarray(np.full((4, 4), i, np.uint8)) for i in range(30)]
    whole = library.Dataset.from_dict({**columns, "image": shown})
    federation = Federation.from_dataset(whole, client="site")
    assert (federation.x.dtype, federation.x.shape) == (np.uint8, (30, 4, 4))
    assert federation.x[9, 0, 0] == 9
    tokens = library.Dataset.from_dict({**columns, "image": [[i, 1, 2] for i in range(30)]})
    federation = Federation.from_dataset(tokens, client="site", features="image")
    assert (federation.x.dtype, federation.x[9].tolist()) == (np.int32, [9, 1, 2])
    short = library.Dataset.from_dict({**columns, "image": [[1] * (i % 3) for i in range(30)]})
    with pytest.raises(ValueError, match="pad texts first"):
        Federation.from_dataset(short, client="site")


def test_relatives_of_a_data_set_are_refused():
    with pytest.raises(ValueError, match=r"such as data\['train'\]"):
        Federation.from_dataset(hub().DatasetDict({"train": rows_of_hub()}), client="site")
    with pytest.raises(ValueError, match="folder of Parquet files"):
        Federation.from_dataset(rows_of_hub().to_iterable_dataset(), client="site")


def test_partitions_of_flwr_datasets_are_clients():
    library = pytest.importorskip("flwr_datasets.partitioner", reason="flwr-datasets is optional")
    natural = library.NaturalIdPartitioner(partition_by="site")
    natural.dataset = rows_of_hub()
    by_site = Federation.from_dataset(natural, drop=["site"])
    alike = Federation.from_dataset(rows_of_hub(), client="site")
    assert_same_rows(by_site, alike)
    assert by_site.names == ("north", "south", "west")
    parts = library.DirichletPartitioner(num_partitions=4, partition_by="label", alpha=1.0)
    parts.dataset = rows_of_hub()
    federation = Federation.from_dataset(parts, drop=["site"], sensitive="sex", favourable="ill")
    sizes = [len(parts.load_partition(i)) for i in range(4)]
    counts = sum(federation.split(name).counts for name in ("train", "valid", "test"))
    assert counts.tolist() == sizes
    results = evenly.compare(
        parts, "fedavg", drop=["site"], sensitive="sex", favourable="ill", rounds=2, seeds=1,
        progress=False,
    )  # fmt: skip
    assert results.federation.names == federation.names
