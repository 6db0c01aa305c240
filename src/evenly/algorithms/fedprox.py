"""FedProx: FedAvg with a proximal term that keeps local models close to the received model.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020. The local loss becomes
F_k(v) + (mu/2) ||v - w||^2; mu = 0 is FedAvg. The server side is FedAvg's.
"""

from evenly.algorithms.fedavg import FedAvg, follow_sampling
from evenly.algorithms.method import Method

METHOD = Method(
    name="fedprox",
    title="FedProx",
    reference="Li et al., MLSys 2020",
    bibtex="""
@inproceedings{li2020federated,
  author        = {Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar and
                   Talwalkar, Ameet and Smith, Virginia},
  title         = {Federated Optimization in Heterogeneous Networks},
  booktitle     = {Proceedings of Machine Learning and Systems},
  volume        = {2},
  pages         = {429--450},
  year          = {2020},
  archivePrefix = {arXiv},
  eprint        = {1812.06127}
}""",
    formula="clients minimise Fₖ(v) + (μ/2)‖v − w‖²;  w⁺ = Σ aₖ wₖ",
    rule=FedAvg,
    defaults={"weights": "", "mu": 0.1},
    resolve=follow_sampling,
)
