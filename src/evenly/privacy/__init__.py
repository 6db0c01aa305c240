"""Differential privacy: what is promised, the gate that bounds what a client can move, and the
account.

- `request`: the part `+dp(...)` of the notation.
- `accounting`: epsilon of rounds with noise, and the noise for an epsilon.
- `claims`: which sampling supports which claim, and what is refused.
- `row_account`: what training and signals of private rows reveal together.
- `search_account`: what all trials of a search reveal together.
- `gate`: bounds and noise of a round, which `evenly.round` applies. `simulate.gating` and
  `flower.private_rounds` provide its first state and the key of its noise.
"""

from evenly.privacy.accounting import Releases, epsilon_of, noise_for
from evenly.privacy.request import PRIVACIES, Privacy

__all__ = ["PRIVACIES", "Privacy", "Releases", "epsilon_of", "noise_for"]
