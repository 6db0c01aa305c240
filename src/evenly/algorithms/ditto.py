"""Ditto: FedAvg trains a shared model, and each client trains a personal model close to it.

Li, Hu, Beirami, Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML
2021. Only clients that take part in a round move their personal model; a client that never took
part is served the first model. Clients are evaluated with their personal model, the central test
set with the shared one.

Departures. Both models train on the same batches, for the same number of steps; the authors' code
can give the personal model its own number. Their option of choosing lambda per client on validation
rows is a sweep over `pull`.
"""

from evenly.algorithms.fedavg import FedAvg, follow_sampling
from evenly.algorithms.method import Method
from evenly.parts.work import PersonalTraining

METHOD = Method(
    name="ditto",
    title="Ditto",
    reference="Li et al., Ditto, ICML 2021",
    bibtex="""
@inproceedings{li2021ditto,
  author        = {Li, Tian and Hu, Shengyuan and Beirami, Ahmad and Smith, Virginia},
  title         = {{Ditto}: Fair and Robust Federated Learning Through Personalization},
  booktitle     = {Proceedings of the 38th International Conference on Machine Learning},
  series        = {Proceedings of Machine Learning Research},
  volume        = {139},
  pages         = {6357--6368},
  year          = {2021},
  archivePrefix = {arXiv},
  eprint        = {2012.04221}
}""",
    formula="vₖ ← vₖ − η(∇Fₖ(vₖ) + λ(vₖ − w));  w⁺ = Σ aₖ wₖ",
    rule=FedAvg,
    work=PersonalTraining,
    defaults={"weights": ""},
    resolve=follow_sampling,
)
