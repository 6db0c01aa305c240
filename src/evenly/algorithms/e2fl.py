"""E2FL: each group of clients elects its own model, and the groups elect the model from which all
clients start, with one vote each.

Mozaffari, Houmansadr, "E2FL: Equal and Equitable Federated Learning", 2022, on top of FRL: clients
rank the edges of a random network. In every round all clients start from the order of all, R, and
send theirs. The clients of a group elect the group's order (one vote each), and the groups elect
the next R (one vote each), so that a group of three counts as much as one of three hundred: equity.
A client uses the model of its own group: equality.

Groups are known, or inferred. "rank-clustering": before the first round every client trains once,
and the server clusters the orders. "lowest-loss", "one-shot", "binary": in every round, and when it
is served, a client chooses among the groups' models by the loss on its training rows, or by how
sure they are. Groups start equal and cannot be told apart: in the first round they are drawn. With
`known_votes` groups are known while training, and inferred only to serve: how well a newcomer would
find its group, as the paper's Figure 4 seems to have it, whose clients find theirs from the first
rounds on. A client's vote counts one, whatever its size, so coefficients are 0 or 1, a row for each
group.

Where a client holds rows of several groups of people (`people`), it sends one order for each group,
trained on those rows alone, and these vote as if they came from clients of their own; all are then
served the model of all.

Of a group that is absent in a round the paper says nothing. It keeps its last order and does not
vote (`absent_vote` makes it); `final_pass` adds a round in which everybody votes, so that no
group's model rests on the few clients that were drawn last.
"""

import jax.numpy as jnp

from evenly.algorithms.method import Method
from evenly.parts.client_groups import CHOOSERS
from evenly.parts.ranking import Frozen
from evenly.parts.ranking_work import EdgePopup, GroupServer, GroupVotes
from evenly.parts.sampling import Uniform
from evenly.records import record, require, static
from evenly.types import Array, Own, Rule, Totals, Tree, Weighed

INFERENCE = ("known", "rank-clustering", *CHOOSERS)


@record
class E2FL(Rule):
    """Count each ballot once, in the group of its client."""

    groups: int = static(
        default=0, least=0, doc="number of groups; 0 uses the number of client groups in the data"
    )
    inference: str = static(
        default="known",
        choices=INFERENCE,
        doc=f"how the group of a client is determined: {', '.join(INFERENCE)}",
    )
    known_votes: bool = static(
        default=False,
        doc="whether clients vote in their known group and infer only the model that serves them",
    )
    absent_vote: bool = static(
        default=False,
        doc="whether a group without clients in a round votes again with its last ranking",
    )
    final_pass: bool = static(
        default=False, doc="whether all clients train and vote once more after the last round"
    )
    global_model: bool = static(
        default=False,
        doc="whether clients use the global model instead of their group's model, as in E2FL (GM)",
    )
    people: bool = static(
        default=False,
        doc="whether groups are groups of people within clients; clients then use the global model",
    )
    layer: int = static(
        default=0,
        least=0,
        doc="layer whose ranking is clustered, counted from 1; 0 uses all layers",
    )
    iterations: int = static(
        default=20, least=1, doc="maximum number of iterations of the clustering"
    )
    restarts: int = static(
        default=5, least=1, doc="number of random initialisations of the clustering"
    )
    apart: bool = static(default=False)

    def __post_init__(self) -> None:
        inferred = not self.known_votes or self.inference in CHOOSERS
        require(
            inferred,
            f"known_votes needs an inference of clients: one of {', '.join(CHOOSERS)}, got"
            f" {self.inference!r}.",
        )
        known = not self.people or self.inference == "known"
        require(
            known,
            "with people = true the groups are known, so inference must be 'known', got"
            f" {self.inference!r}.",
        )

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"choice"})

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        return Weighed(jnp.equal(own.choice, jnp.arange(self.groups)).astype(jnp.float32))

    def norm(self, public: Tree, totals: Totals) -> Array:
        return jnp.ones(())  # votes are counted, not averaged

    def step(self, public: Tree, sums: tuple[Tree, ...], totals: Totals) -> tuple[GroupVotes, Tree]:
        return GroupVotes(totals.mean, totals.weight > 0), public


METHOD = Method(
    name="e2fl",
    title="E2FL",
    reference="Mozaffari and Houmansadr, E2FL: Equal and Equitable Federated Learning, 2022",
    bibtex="""
@misc{mozaffari2022e2fl,
  author        = {Mozaffari, Hamid and Houmansadr, Amir},
  title         = {{E2FL}: Equal and Equitable Federated Learning},
  year          = {2022},
  archivePrefix = {arXiv},
  eprint        = {2205.10454}
}""",
    formula="R_q = argsort Σ argsort Rₖ over the clients of group q;  R⁺ = argsort Σ argsort R_q",
    rule=E2FL,
    work=EdgePopup,
    network=Frozen,
    server_of=lambda chosen: GroupServer(
        groups=chosen["groups"],
        absent_vote=chosen["absent_vote"],
        global_model=chosen["global_model"] or chosen["people"],
    ),
    select=Uniform(),
    example="e2fl(inference=lowest-loss, groups=2)",
)
