"""Data sets, one module per family. `DATASETS` has a card for each, by name; a new module is added
there. Only this package uses the network.

>>> DATASETS["synthetic"].load(clients=5).clients
5
"""

from evenly.datasets.acs_bias import CARD as _ACS_BIAS
from evenly.datasets.acs_bias import acs_bias
from evenly.datasets.acs_income import CARD as _ACS_INCOME
from evenly.datasets.acs_income import acs_income
from evenly.datasets.adult import ADULT_SEX_CARD as _ADULT_SEX
from evenly.datasets.adult import CARD as _ADULT
from evenly.datasets.adult import adult, adult_sex
from evenly.datasets.cifar import CIFAR10_CARD as _CIFAR10
from evenly.datasets.cifar import CIFAR100_CARD as _CIFAR100
from evenly.datasets.cifar import CINIC10_CARD as _CINIC10
from evenly.datasets.cifar import cifar10, cifar100, cinic10
from evenly.datasets.compas import CARD as _COMPAS
from evenly.datasets.compas import compas
from evenly.datasets.files import (
    Content,
    DataError,
    DataFile,
    DatasetCard,
    MissingData,
    Sizes,
    check,
    checked_files,
    data_folder,
    fetch,
    locate,
)
from evenly.datasets.heart_disease import CARD as _HEART_DISEASE
from evenly.datasets.heart_disease import heart_disease
from evenly.datasets.leaf import FEMNIST_CARD as _FEMNIST
from evenly.datasets.leaf import SENT140_CARD as _SENT140
from evenly.datasets.leaf import femnist, sent140
from evenly.datasets.mnist import CARD as _MNIST
from evenly.datasets.mnist import FASHION_CARD as _FASHION_MNIST
from evenly.datasets.mnist import ROTATE_CARD as _FAIR_MNIST_ROTATE
from evenly.datasets.mnist import fair_mnist_rotate, fashion_mnist, mnist
from evenly.datasets.shakespeare import CARD as _SHAKESPEARE
from evenly.datasets.shakespeare import shakespeare
from evenly.datasets.stackoverflow import CARD as _STACKOVERFLOW
from evenly.datasets.stackoverflow import stackoverflow
from evenly.datasets.synthetic import CENSUS_CARD as _SYNTHETIC_CENSUS
from evenly.datasets.synthetic import CROWD_CARD as _SYNTHETIC_CROWD
from evenly.datasets.synthetic import is_qualified, synthetic, synthetic_census, synthetic_crowd
from evenly.datasets.synthetic import memory as _synthetic_memory
from evenly.datasets.vehicle import CARD as _VEHICLE
from evenly.datasets.vehicle import vehicle
from evenly.registry import add

__all__ = [
    "DATASETS", "Content", "DataError", "DataFile", "DatasetCard", "MissingData", "Sizes",
    "acs_bias", "acs_income", "adult", "adult_sex", "check", "checked_files", "cifar10", "cifar100",
    "cinic10", "compas", "data_folder", "fair_mnist_rotate", "fashion_mnist", "femnist", "fetch",
    "heart_disease", "is_qualified", "locate", "mnist", "register", "sent140", "shakespeare",
    "stackoverflow", "synthetic", "synthetic_census", "synthetic_crowd", "vehicle",
]  # fmt: skip

_SYNTHETIC = DatasetCard(
    name="synthetic",
    title="Linear models that disagree by a chosen amount; nothing is downloaded",
    load=synthetic,
    memory=_synthetic_memory,
    papers=("q-FFL", "p-FFL"),
    licence="Made here",
    provenance="Drawn as in Appendix E of q-FFL.",
    citation=(
        "Li, Sanjabi, Beirami, Smith: Fair resource allocation in federated learning. ICLR 2020."
    ),
)

DATASETS: dict[str, DatasetCard] = {
    card.name: card
    for card in (
        _SYNTHETIC,
        _SYNTHETIC_CENSUS,
        _SYNTHETIC_CROWD,
        _ADULT,
        _ADULT_SEX,
        _COMPAS,
        _ACS_INCOME,
        _ACS_BIAS,
        _HEART_DISEASE,
        _FASHION_MNIST,
        _MNIST,
        _FAIR_MNIST_ROTATE,
        _VEHICLE,
        _SHAKESPEARE,
        _CIFAR10,
        _CIFAR100,
        _CINIC10,
        _FEMNIST,
        _SENT140,
        _STACKOVERFLOW,
    )
}


def register(card: DatasetCard, *, replace: bool = False) -> None:
    """Register a data set of your own under the name on its card, for commands and experiment
    files.

    Args:
        card: Name, loader and description of the data set.
        replace: Replace a data set of the same name instead of raising an error.

    Raises:
        ValueError: If the name is taken and `replace` is false.
    """
    add("data set", DATASETS, card, replace=replace)
