"""Follow a running experiment on a page of this machine's browser."""

from evenly.watch.server import Watch

__all__ = ["Watch"]
