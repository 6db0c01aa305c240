"""q-FedSGD: the q-FFL objective solved with one full gradient per client and round.

Li et al., "Fair Resource Allocation in Federated Learning" (q-FFL), Algorithm 3. Client: F_k and
its full gradient at w; Delta_k = F_k^q grad F_k; h_k = q F_k^(q-1) ||grad F_k||^2 + L F_k^q;
server: w+ = w - sum Delta_k / sum h_k. It is q-FedAvg whose local training is one full-batch step
at rate 1/L, and that is how it is built here: L is the inverse of the best step size at q = 0.
"""

from evenly.algorithms.method import Method
from evenly.algorithms.q_fedavg import METHOD as Q_FEDAVG
from evenly.algorithms.q_fedavg import QFedAvg, lipschitz_from_rate
from evenly.parts.work import FullGradient

METHOD = Method(
    name="q-fedsgd",
    title="q-FedSGD",
    reference="Li et al., Fair Resource Allocation in Federated Learning, ICLR 2020, Algorithm 3",
    bibtex=Q_FEDAVG.bibtex,
    formula="w⁺ = w − ΣFₖ^q ∇Fₖ / Σ(q Fₖ^(q−1) ‖∇Fₖ‖² + L Fₖ^q)",
    rule=QFedAvg,
    work=FullGradient,
    defaults={"lipschitz": None},
    resolve=lipschitz_from_rate,
)
