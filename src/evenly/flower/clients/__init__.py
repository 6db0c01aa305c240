"""Clients in several frameworks: `jax`, `torch` and `sklearn`, each imported only when it is used.

Each has an `app(...)` that answers every message of a server, and the functions it is made of. A
client that is written by hand needs none of them: it sends the records that docs/flower-record.md
describes.
"""
