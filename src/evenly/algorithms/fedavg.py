"""FedAvg: the weighted mean of the clients' models.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
2017.

    w+ = sum_k a_k w_k,   a_k = n_k / sum n  (weights = size)   or   a_k = 1/|R|  (weights = equal)

Which of the two is right goes with the sampling: if clients are drawn in proportion to their size,
the plain mean already counts sizes (q-FFL, Algorithm 2); if they are drawn uniformly or all take
part, sizes belong in the weights. The default follows the sampling, and counting sizes twice raises
an error.
"""

from typing import Any

from evenly.algorithms.method import Method
from evenly.algorithms.weights import weights_setting
from evenly.records import record
from evenly.types import Own, Rule, Select, Tree, Weighed


@record
class FedAvg(Rule):
    """Average the updates, by size or equally."""

    weights: str = weights_setting()

    def weigh(self, public: Tree, own: Own, sums: tuple[Tree, ...]) -> Weighed:
        return Weighed(self.size(own))


def follow_sampling(settings: dict[str, Any], select: Select) -> dict[str, Any]:
    """Equal weights where the sampling already counts sizes."""
    chosen = settings["weights"]
    return {**settings, "weights": chosen or ("equal" if select.by_size else "size")}


METHOD = Method(
    name="fedavg",
    title="FedAvg",
    reference="McMahan et al., AISTATS 2017",
    bibtex=r"""
@inproceedings{mcmahan2017communication,
  author    = {McMahan, Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and
               {Ag{\"u}era y Arcas}, Blaise},
  title     = {Communication-Efficient Learning of Deep Networks from Decentralized Data},
  booktitle = {Proceedings of the 20th International Conference on Artificial Intelligence and
               Statistics},
  series    = {Proceedings of Machine Learning Research},
  volume    = {54},
  pages     = {1273--1282},
  year      = {2017},
  url       = {https://proceedings.mlr.press/v54/mcmahan17a.html}
}""",
    formula="w⁺ = Σ aₖ wₖ,  aₖ ∝ nₖ or 1",
    rule=FedAvg,
    defaults={"weights": ""},
    resolve=follow_sampling,
)
