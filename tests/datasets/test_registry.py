"""Every data set has a full card, and its loader takes settings the way experiments give them."""

import inspect
import re
from pathlib import Path
from urllib.parse import urlparse

import pytest

import evenly.datasets
from evenly.datasets import DATASETS, MissingData, Sizes, synthetic

PUBLISHERS = {
    "archive.ics.uci.edu", "raw.githubusercontent.com", "storage.googleapis.com",
    "ossci-datasets.s3.amazonaws.com", "yann.lecun.com",
    "fashion-mnist.s3-website.eu-central-1.amazonaws.com", "www.cs.toronto.edu",
    "datashare.ed.ac.uk",
}  # fmt: skip
PAPERS = ("q-FFL", "p-FFL", "PropFair", "FedCvg-Ratio")
# Of sets that do not lie under their own name.
FOLDERS = {
    "adult-sex": ("adult",),
    "acs-income": ("acs_income_2018",),
    "acs-bias": ("acs_income_2018",),
    "heart-disease": ("heart_disease",),
    "fair_mnist_rotate": ("mnist",),
}
cards = pytest.mark.parametrize("card", DATASETS.values(), ids=list(DATASETS))


def test_the_papers_sets_are_all_there():
    used = {
        paper: {name for name, card in DATASETS.items() if paper in card.papers} for paper in PAPERS
    }
    assert used["q-FFL"] == {
        "synthetic",
        "vehicle",
        "sent140",
        "shakespeare",
        "adult",
        "fashion_mnist",
    }
    assert used["p-FFL"] == {"synthetic", "fashion_mnist"}
    assert used["FedCvg-Ratio"] == {"adult-sex", "compas"}
    assert used["PropFair"] == {"cifar10", "cifar100", "cinic10", "shakespeare", "stackoverflow"}


@cards
def test_a_card_says_everything(card):
    assert card.title
    assert card.licence
    assert card.provenance
    assert card.citation
    assert getattr(evenly.datasets, card.name.replace("-", "_")) is card.load
    assert card.files or card.name.startswith("synthetic")


@cards
def test_a_data_set_is_on_its_page(card):
    page = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text()
    assert f"\n| `{card.name}` |" in page


@cards
def test_a_loader_takes_only_named_settings_and_a_split_seed(card):
    parameters = inspect.signature(card.load).parameters
    assert parameters["split_seed"].default == 0
    assert all(p.default is not inspect.Parameter.empty for p in parameters.values())


@cards
def test_files_lie_under_their_data_sets_name_and_come_from_publishers(card):
    for layout in card.layouts:
        for file in layout:
            assert file.path.split("/")[0] in FOLDERS.get(card.name, (card.name,))
            assert {urlparse(url).hostname for url in file.urls} <= PUBLISHERS
            assert all(
                re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", content.digest)
                for content in file.contents
            )
    for file in card.files:
        assert (file.urls and file.contents) or file.by_hand


@pytest.mark.parametrize(
    "card", [card for card in DATASETS.values() if card.files], ids=lambda card: card.name
)
def test_without_its_files_a_loader_says_what_to_do(card, folder):
    with pytest.raises(MissingData) as error:
        card.load()
    assert str(folder) in str(error.value)
    hint = re.search(r"evenly data fetch ([\w-]+)", str(error.value))
    assert bool(hint) == bool(card.files[0].urls)
    assert hint is None or DATASETS[hint[1]].files == card.files


def test_sizes_are_counted():
    assert Sizes.of(synthetic(clients=3)) == (
        3,
        *(len(part.rows) for part in _parts(synthetic(clients=3))),
        0,
    )


def _parts(federation):
    return federation.train, federation.valid, federation.test
