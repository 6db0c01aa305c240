"""PropFair: proportional fairness, the Nash bargaining solution between clients.

Zhang et al., "Proportional Fairness in Federated Learning", TMLR 2023. Clients train on -log(M - l)
of each batch's mean loss l, so that a client already served well pulls less; the server is FedAvg
by size. M must exceed the usual loss, or training runs in the fallback l / M, that is FedAvg at
rate / M (expected early on for M = 2 and ten classes).

Departures. Epsilon is not in the paper; 0.2 is the authors' code's. `huber` is an option of that
code: at the threshold the plain fallback drops the slope from 1/epsilon to 1/M, huber keeps it. The
value is shifted by log M, which changes no gradient.
"""

from evenly.algorithms.fedavg import FedAvg, follow_sampling
from evenly.algorithms.method import Method
from evenly.parts.sampling import Full
from evenly.parts.work import NashBargaining

METHOD = Method(
    name="propfair",
    title="PropFair",
    reference="Zhang et al., Proportional Fairness in Federated Learning, TMLR 2023",
    bibtex="""
@article{zhang2023proportional,
  author        = {Zhang, Guojun and Malekmohammadi, Saber and Chen, Xi and Yu, Yaoliang},
  title         = {Proportional Fairness in Federated Learning},
  journal       = {Transactions on Machine Learning Research},
  year          = {2023},
  url           = {https://openreview.net/forum?id=ryUHgEdWCQ},
  archivePrefix = {arXiv},
  eprint        = {2202.01666}
}""",
    formula="clients minimise −log(M − ℓ) of each batch;  w⁺ = Σ aₖ wₖ, aₖ ∝ nₖ",
    rule=FedAvg,
    shape=NashBargaining,
    select=Full(),
    defaults={"weights": ""},
    resolve=follow_sampling,
)
