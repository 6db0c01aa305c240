"""Ways to deal rows to clients, one file each: rows -> Federation. `PARTITIONS` names those that invent clients."""

from collections.abc import Callable

from evenly.federation import Federation
from evenly.partitions.card import ClientCard, describe
from evenly.partitions.dirichlet import dirichlet
from evenly.partitions.equal import equal
from evenly.partitions.natural import choose_clients, natural
from evenly.partitions.official import official
from evenly.partitions.rows import Rows, federate

__all__ = [
    "PARTITIONS", "ClientCard", "Rows", "choose_clients", "describe", "dirichlet", "equal", "federate", "natural", "official",
]  # fmt: skip

PARTITIONS: dict[str, Callable[..., Federation]] = {"dirichlet": dirichlet, "equal": equal}
