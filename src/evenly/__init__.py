"""Fair federated learning: one model that works for every client and every group, not only on average.

import evenly

federation = evenly.synthetic()
task = evenly.models.Softmax(features=60, classes=10)
(trace,) = evenly.simulate(task, federation, [evenly.algorithm("q-fedavg(q=1)")], rounds=200)
evenly.final_metrics(trace, "test")["worst10"]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from evenly import models as models
    from evenly.algorithms import algorithm as algorithm
    from evenly.algorithms import variants as variants
    from evenly.auditing import audit as audit
    from evenly.datasets import synthetic as synthetic
    from evenly.experiment.tuning import tune as tune
    from evenly.federation import Federation as Federation
    from evenly.metrics import final_metrics as final_metrics
    from evenly.plugins import register as register
    from evenly.saving import Model as Model
    from evenly.saving import from_trace as from_trace
    from evenly.saving import load as load
    from evenly.saving import save as save
    from evenly.simulate import companions as companions
    from evenly.simulate import simulate as train  # noqa: F401
    from evenly.types import Algorithm as Algorithm
    from evenly.types import Seeds as Seeds
    from evenly.types import Trace as Trace

# Names are imported when first used: the command line must set XLA's flags before JAX is imported, and --help be quick.
_HOME = {
    "Algorithm": "evenly.types", "Federation": "evenly.federation", "Model": "evenly.saving", "Seeds": "evenly.types",
    "Trace": "evenly.types", "algorithm": "evenly.algorithms", "audit": "evenly.auditing", "companions": "evenly.simulate",
    "final_metrics": "evenly.metrics", "from_trace": "evenly.saving", "load": "evenly.saving", "register": "evenly.plugins",
    "save": "evenly.saving", "synthetic": "evenly.datasets", "train": "evenly.simulate", "tune": "evenly.experiment.tuning",
    "variants": "evenly.algorithms",
}  # fmt: skip
_RENAMED = {"train": "simulate"}  # evenly.simulate is the package; a function of that name would hide it

__all__ = ["models", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "models":
        return import_module("evenly.models")
    if name not in _HOME:
        raise AttributeError(f"module 'evenly' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), _RENAMED.get(name, name))
