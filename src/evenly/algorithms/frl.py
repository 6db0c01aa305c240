"""FRL: clients rank the edges of a random network, and the server counts the ranks as votes.

Mozaffari, Shejwalkar, Houmansadr, "FRL: Federated Rank Learning", 2021. The weights of a network
are drawn once and never change. Every client looks for the edges that serve its own rows
(edge-popup) and sends their order; the server adds up the places that clients give an edge, and
sorts the sums (a Borda count). A model keeps the best share k of every layer.

A vote counts one, whatever the size of the client: coefficients are 1, and sum to the number of
clients that returned. A vote of equals is theirs; ties go to the edge with the lower number.
"""

import jax.numpy as jnp

from evenly.algorithms.method import Method
from evenly.parts.ranking import Frozen
from evenly.parts.ranking_work import EdgePopup, RankServer
from evenly.parts.sampling import Uniform
from evenly.records import record
from evenly.types import Array, Own, Rule, Totals, Tree, Weighed


@record
class FRL(Rule):
    """Count each ballot once."""

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        return Weighed(1.0)

    def norm(self, public: Tree, totals: Totals) -> Array:
        return jnp.ones(())  # votes are counted, not averaged


METHOD = Method(
    name="frl",
    title="FRL",
    reference="Mozaffari et al., FRL: Federated Rank Learning, 2021",
    bibtex="""
@misc{mozaffari2021frl,
  author        = {Mozaffari, Hamid and Shejwalkar, Virat and Houmansadr, Amir},
  title         = {{FRL}: Federated Rank Learning},
  year          = {2021},
  archivePrefix = {arXiv},
  eprint        = {2110.04350}
}""",
    formula="R⁺ = argsort Σ argsort Rₖ",
    rule=FRL,
    work=EdgePopup,
    network=Frozen,
    server_of=lambda chosen: RankServer(),
    select=Uniform(),
)
