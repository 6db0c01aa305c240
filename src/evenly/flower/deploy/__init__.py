"""Flower's processes on one machine, and the certificates and keys of a federation."""
