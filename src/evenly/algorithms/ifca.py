"""IFCA: several models, of which each client chooses and trains the one that fits it best.

Ghosh, Chung, Yin, Ramchandran, "An Efficient Framework for Clustered Federated Learning", NeurIPS
2020. The models start from different random weights (equal ones would tie, and every client would
choose the first for ever; where the model always starts equal, as linear ones do at 0, the clusters
of the first round are drawn). In a round the server sends all of them; a client chooses the one
with the lowest loss on its training rows, trains it, and says which. The members of a cluster are
averaged as FedAvg does; a model that no client chose stays. A client uses the model that it would
choose.

Clusters may collapse: models that start badly are never chosen. Which model serves whom is in the
results; where models stay empty, start again from another seed and keep the run with the lowest
training loss.
"""

import jax.numpy as jnp

from evenly.algorithms.fedavg import follow_sampling
from evenly.algorithms.method import Method
from evenly.algorithms.weights import weights_setting
from evenly.records import record, static
from evenly.types import Own, Rule, Tree, Weighed


@record
class IFCA(Rule):
    """Average the updates within each cluster, by size or equally: a client counts in the cluster
    that it chose.
    """

    groups: int = static(
        default=2,
        least=0,
        doc="number of models; 0 uses the number of client groups in the data",
    )
    weights: str = weights_setting()
    inference: str = static(default="lowest-loss")
    known_votes: bool = static(default=False)
    apart: bool = static(default=True)
    final_pass: bool = static(default=False)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"choice", "examples"} if self.counts_sizes else {"choice"})

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        return Weighed(self.size(own) * jnp.equal(own.choice, jnp.arange(self.groups)))


METHOD = Method(
    name="ifca",
    title="IFCA",
    reference="Ghosh et al., An Efficient Framework for Clustered Federated Learning, NeurIPS 2020",
    bibtex="""
@inproceedings{ghosh2020efficient,
  author        = {Ghosh, Avishek and Chung, Jichan and Yin, Dong and Ramchandran, Kannan},
  title         = {An Efficient Framework for Clustered Federated Learning},
  booktitle     = {Advances in Neural Information Processing Systems},
  volume        = {33},
  year          = {2020},
  archivePrefix = {arXiv},
  eprint        = {2006.04088}
}""",
    formula="qₖ = argmin_q Fₖ(w_q);  w_q⁺ = Σ aₖ wₖ over the clients with qₖ = q",
    rule=IFCA,
    defaults={"weights": ""},
    resolve=follow_sampling,
    fixed_server=True,
)
