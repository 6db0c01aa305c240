"""Device-specific q: one q-FedAvg model per q, of which each client uses the one that is most
accurate on its validation rows.

Li et al., "Fair Resource Allocation in Federated Learning" (q-FFL), Appendix F. All models see the
same clients and batches. Each client picks the model with the best accuracy on its own *validation*
rows; ties go to the smallest q, and a client without validation rows takes the first model.
Communication is multiplied by the number of models.
"""

from collections.abc import Sequence

import numpy as np

from evenly.algorithms.method import Method
from evenly.algorithms.q_fedavg import METHOD as Q_FEDAVG
from evenly.algorithms.q_fedavg import QFedAvg, lipschitz_from_rate
from evenly.data.splits import SPLITS
from evenly.types import Trace

GRID = [0.0, 0.001, 0.01, 0.1, 1.0, 2.0, 5.0, 10.0]


def pick(traces: Sequence[Trace]) -> np.ndarray:
    """Which model each client keeps at each evaluation: best validation accuracy, ties to the
    first. [evaluations, clients]
    """
    # [models, evaluations, clients, ...]
    valid = np.stack([t.tables[:, SPLITS.index("valid")] for t in traces])
    right = np.trace(valid, axis1=-2, axis2=-1).sum(-1)
    # every model has the same validation rows, so counts compare like accuracies
    return right.argmax(0)


def combine(traces: Sequence[Trace]) -> Trace:
    """One result in which every client is served by the model it picked."""
    chosen = pick(traces)
    evaluations, clients = np.indices(chosen.shape)
    # [evaluations, clients, splits, ...]
    tables = np.stack([t.tables for t in traces])[chosen, evaluations, :, clients]
    losses = np.stack([t.losses for t in traces])[chosen, evaluations, :, clients]
    first = traces[0]
    return first._replace(
        tables=np.moveaxis(tables, 2, 1),
        losses=np.moveaxis(losses, 2, 1),
        excluded=np.sum([t.excluded for t in traces], axis=0),
        upload=sum(t.upload for t in traces),
        download=sum(t.download for t in traces),
        model=[t.model for t in traces],
    )


METHOD = Method(
    name="multi-q",
    title="device-specific q",
    reference="Li et al., Fair Resource Allocation in Federated Learning, ICLR 2020, Appendix F",
    bibtex=Q_FEDAVG.bibtex,
    formula="one q-FedAvg model per q; client k keeps argmax of its validation accuracy",
    rule=QFedAvg,
    defaults={"lipschitz": None, "q": GRID},
    resolve=lipschitz_from_rate,
    combine=combine,
)
