"""Data sets, one file each."""

from evenly.datasets.synthetic import synthetic

__all__ = ["synthetic"]
