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
    formula="clients minimise Fₖ(v) + (μ/2)‖v − w‖²;  w⁺ = Σ aₖ wₖ",
    rule=FedAvg,
    defaults={"weights": "", "mu": 0.1},
    resolve=follow_sampling,
)
