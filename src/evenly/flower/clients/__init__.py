"""Clients in several frameworks: `jax`, `torch` and `sklearn`, each imported only when it is used.

Each has an `app(...)` that answers every message of a server, and the functions it is made of. A
client that is written by hand needs none of them: it sends the records that docs/flower-record.md
describes.

- `client`: answers the messages of a server. `rows`: the numbers that it says about its rows.
- `jax`, `sklearn`, `torch`, `torch_training`, `torch_popup`: training in each framework.
- `policy`: what a site allows. `review`: refuses requests. `guard`: refuses replies, and names
  every number that may leave. `egress`: the log of what left.
- `memory`: models of its own that a client keeps between rounds, such as Ditto's.
- `private`, `ledger`: clients whose rows are private, and the account of what they released.
"""
