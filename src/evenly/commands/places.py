"""`--on` and `--address`: where an experiment's programs are trained."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from evenly.experiment.execute import Where

On = Annotated[str | None, typer.Option("--on", help="ray: spread the programs over a Ray cluster. By default they are trained here.")]
Address = Annotated[
    str | None, typer.Option("--address", help="Of the Ray cluster, as auto or 10.0.0.1:6379. By default one is started on this machine.")
]
PLACES = ("ray",)


@contextmanager
def place(on: str | None, address: str | None) -> "Iterator[Where | None]":
    """Where programs are to be trained, for as long as they are; None: here."""
    from evenly.notation import unknown

    if on is None:
        if address is not None:
            raise ValueError(f"--address {address} is of a Ray cluster, so it needs --on ray.")
        yield None
        return
    if on not in PLACES:
        raise unknown("place for --on", on, PLACES)
    from evenly.experiment.cluster import on_ray

    with on_ray(address) as where:
        yield where
