"""Follow a running experiment in the browser of this machine."""

from evenly.watch.server import Watch

__all__ = ["Watch"]
