"""What users add to evenly: methods, metrics and data sets of their own, all with `evenly.register`."""

from evenly.algorithms import Method
from evenly.algorithms import register as register_method
from evenly.datasets import DatasetCard
from evenly.datasets import register as register_dataset
from evenly.metrics import Metric
from evenly.metrics import register as register_metric


def register(thing: Method | Metric | DatasetCard, *, replace: bool = False) -> None:
    """Add a method, a metric or a data set of your own, so that notation, command line, tables and reports know it.

    Its name must be free. `replace=True` replaces what you registered under that name before, for example in a notebook.
    """
    if isinstance(thing, Method):
        register_method(thing, replace=replace)
    elif isinstance(thing, Metric):
        register_metric(thing, replace=replace)
    elif isinstance(thing, DatasetCard):
        register_dataset(thing, replace=replace)
    else:
        raise TypeError(
            "evenly.register needs a Method (evenly.algorithms), a Metric (evenly.metrics) or a DatasetCard (evenly.datasets), "
            f"got {thing!r:.80}."
        )
