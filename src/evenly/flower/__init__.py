"""Deployments with Flower: every method as a strategy, and clients for JAX, PyTorch and
scikit-learn.

`strategy("q-fedavg(q=1)")` returns a strategy for the `ServerApp` of a Flower app. Its method
`start` runs the rounds.

Modules of the server, in the order in which a round passes through them:

- `adapter`: the strategy. `lifecycle`: the start, the end and resuming. `roster`: who takes part.
  `joining`: clients that come later.
- `wire`: the names of everything that clients and server send. `messages`: the server's questions.
- `replies`, `checks`: reading the answers, and excluding those that cannot be used. `caps`: limits
  on what a client can claim.
- `aggregation`, `two_phase`: the round, with the functions of `evenly.round`. `private_rounds`:
  noise for rounds that protect clients, and the count of what was released.
- `recorder`, `server_state`: the files of a deployment, and its checkpoint. `final_model`: the
  model at the end. `array_files`: the arrays of one model in a file.

`clients` has the ready clients (`clients.rows` computes the numbers that they send), `app` writes
apps from `templates`, and `deploy` runs a whole federation on one machine. `site_audit` audits a
model at the sites. `versions` knows what differs between versions of Flower.
"""

from importlib import import_module, util
from typing import TYPE_CHECKING, Any

if util.find_spec("flwr") is None:
    raise ImportError(
        "evenly.flower needs Flower, which is not installed. Install it with: pip install"
        ' "evenly[flower]"'
    )

if TYPE_CHECKING:
    from evenly.flower.adapter import strategy as strategy
    from evenly.flower.caps import Caps as Caps
    from evenly.flower.final_model import final_arrays as final_arrays
    from evenly.flower.roster import first_arrays as first_arrays
    from evenly.flower.site_audit import audit as audit

_HOME = {
    "Caps": "evenly.flower.caps",
    "audit": "evenly.flower.site_audit",
    "final_arrays": "evenly.flower.final_model",
    "first_arrays": "evenly.flower.roster",
    "strategy": "evenly.flower.adapter",
}

__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'evenly.flower' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
