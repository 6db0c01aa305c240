"""Fair federated learning: one model that works for every client and every group, not only on
average.

>>> import evenly
>>> federation = evenly.synthetic(clients=20)
>>> task = evenly.models.Softmax(features=60, classes=10)
>>> method = "q-fedavg(q=1, learning_rate=0.01)"
>>> (trace,) = evenly.train(task, federation, method, rounds=300)
>>> worst = evenly.final_metrics(trace, "test")["worst10"]
>>> print(f"{worst:.1f} % accuracy for the worst-served 10 % of clients")
62.8 % accuracy for the worst-served 10 % of clients
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from evenly import algorithms as algorithms
    from evenly import data as data
    from evenly import datasets as datasets
    from evenly import flower as flower
    from evenly import metrics as metrics
    from evenly import models as models
    from evenly import parts as parts
    from evenly import simulate as simulate
    from evenly import types as types
    from evenly.algorithms import Method as Method
    from evenly.algorithms import algorithm as algorithm
    from evenly.algorithms import variants as variants
    from evenly.api.experiments import compare as compare
    from evenly.api.experiments import load_results as load_results
    from evenly.api.experiments import reproduce as reproduce
    from evenly.api.experiments import run as run
    from evenly.api.results import Results as Results
    from evenly.api.search import TuningResults as TuningResults
    from evenly.api.search import tune as tune
    from evenly.api.study_results import StudyResults as StudyResults
    from evenly.auditing import audit as audit
    from evenly.catalogue import cite as cite
    from evenly.catalogue import describe as describe
    from evenly.data.federation import Federation as Federation
    from evenly.datasets import DatasetCard as DatasetCard
    from evenly.datasets import synthetic as synthetic
    from evenly.metrics import final_metrics as final_metrics
    from evenly.plugins import register as register
    from evenly.saved_models import Model as Model
    from evenly.saved_models import from_trace as from_trace
    from evenly.saved_models import load as load
    from evenly.saved_models import save as save
    from evenly.simulate import companions as companions
    from evenly.simulate.train import train as train
    from evenly.torch_models import from_torch as from_torch
    from evenly.types import Algorithm as Algorithm
    from evenly.types import Seeds as Seeds
    from evenly.types import Trace as Trace

# Names are imported on first use: the command line must set XLA's flags before JAX is imported, and
# --help must be fast.
_HOME = {
    "Algorithm": "evenly.types", "DatasetCard": "evenly.datasets",
    "Federation": "evenly.data.federation", "Method": "evenly.algorithms",
    "Model": "evenly.saved_models",
    "Results": "evenly.api.results", "Seeds": "evenly.types",
    "StudyResults": "evenly.api.study_results", "Trace": "evenly.types",
    "TuningResults": "evenly.api.search", "algorithm": "evenly.algorithms",
    "audit": "evenly.auditing", "cite": "evenly.catalogue", "companions": "evenly.simulate",
    "compare": "evenly.api.experiments", "describe": "evenly.catalogue",
    "final_metrics": "evenly.metrics",
    "from_torch": "evenly.torch_models", "from_trace": "evenly.saved_models",
    "load": "evenly.saved_models",
    "load_results": "evenly.api.experiments", "register": "evenly.plugins",
    "reproduce": "evenly.api.experiments", "run": "evenly.api.experiments",
    "save": "evenly.saved_models", "synthetic": "evenly.datasets", "train": "evenly.simulate.train",
    "tune": "evenly.api.search", "variants": "evenly.algorithms",
}  # fmt: skip
# these load installed plugins first
_READ_REGISTRIES = (
    "algorithm", "audit", "cite", "compare", "describe", "final_metrics", "load_results",
    "reproduce", "run", "train", "tune", "variants",
)  # fmt: skip
_MODULES = ("algorithms", "data", "datasets", "metrics", "models", "parts", "simulate")
# `from evenly import *` leaves these out: Flower may not be installed, and Python has `types`, too
_NOT_LISTED = ("flower", "types")

__all__ = [*_MODULES, *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES + _NOT_LISTED:
        return import_module(f"evenly.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'evenly' has no attribute {name!r}{_elsewhere(name)}")
    if name in _READ_REGISTRIES:
        import_module("evenly.plugins").load_installed()
    return getattr(import_module(_HOME[name]), name)


def _elsewhere(name: str) -> str:
    """Where a class is that somebody looked for here. Names of modules are looked up here, too,
    before they are imported: for them nothing else must be.
    """
    homes = ("types", "metrics", "models") if name[:1].isupper() else ()
    found = [home for home in homes if name in import_module(f"evenly.{home}").__all__]
    return f"; it is evenly.{found[0]}.{name}" if found else ""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_NOT_LISTED})
