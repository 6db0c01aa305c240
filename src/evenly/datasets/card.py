"""What is known of a data set besides its rows."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from evenly.data.federation import Federation
from evenly.datasets.files import Layout, fetchable
from evenly.records import record, static


class Sizes(NamedTuple):
    """Clients and rows of a federation, to be compared with what a loader gives."""

    clients: int
    train: int
    valid: int
    test: int
    central: int = 0

    @staticmethod
    def of(federation: Federation) -> "Sizes":
        parts = (federation.train, federation.valid, federation.test)
        return Sizes(federation.clients, *(len(part.rows) for part in parts), central=len(federation.central))


@record
class DatasetCard:
    """A data set: how to load it, what it is made of, where it comes from and what to beware of."""

    name: str = static(doc="how the command line and experiment files call it")
    title: str = static(doc="one line")
    load: Callable[..., Federation] = static(doc="load(**settings, split_seed=0)")
    layouts: tuple[Layout, ...] = static(default=(), doc="accepted sets of files; the first complete one is read")
    papers: tuple[str, ...] = static(default=(), doc="of the papers we follow, those that use it")
    licence: str = static(default="", doc="as the publisher gives it, or that none is given")
    provenance: str = static(default="", doc="who made it, from what, when")
    citation: str = static(default="", doc="what to cite")
    notes: tuple[str, ...] = static(default=(), doc="cautions, and departures from the papers")
    memory: Callable[[Mapping[str, Any]], float] | None = static(
        default=None, doc="bytes that the rows take at least with all of these settings; None: not known, as of files"
    )
    expected: Sizes | None = static(default=None, doc="of the federation with default settings; None: never seen here, or not fixed")

    @property
    def files(self) -> Layout:
        """The files that `evenly data fetch` gets, or that a user has to provide."""
        return fetchable(self.layouts) if self.layouts else ()
