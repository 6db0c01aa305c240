"""Clients in any framework: `jax`, `torch` and `sklearn` are imported only by those who ask for them.

Each offers a ready `app(...)` that answers everything a server asks, and the few functions it is made of. A client that is
written by hand needs none of them: it sends the documented record.
"""
