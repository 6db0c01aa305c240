"""What clients do: local training, memories, optimisers; and what they do once before it, by name."""

from evenly.clients.reweighing import Reweigh
from evenly.types import Prepare

__all__ = ["PREPARES", "Reweigh"]

PREPARES: dict[str, type[Prepare]] = {"reweigh": Reweigh}
