"""A hospital: it measures the model it received by group, trains it on its own reweighed rows, and
replies with counts.
"""

from flwr.app import Context

from evenly.datasets.synthetic import synthetic_census
from evenly.flower.clients import torch
from evenly.flower.clients.rows import NO_ROWS, ClientData, rows
from hospitals.task import GROUPS, LABELS, make_model


def own_patients(context: Context) -> ClientData:
    """This hospital's rows, some of them kept for testing. Read your own table here; everything
    else stays as it is.
    """
    number, hospitals = (
        int(context.node_config["partition-id"]),
        int(context.node_config["num-partitions"]),
    )
    everyone = synthetic_census(clients=hospitals, rows=300 * hospitals, label_bias=0.3, valid=0.0)
    own = everyone.train.of(number)
    x, y, group = everyone.x[own], everyone.y[own], everyone.group[own]
    cut = int(0.8 * len(y))
    return ClientData(
        train=rows(x[:cut], y[:cut], group[:cut]), valid=NO_ROWS,
        test=rows(x[cut:], y[cut:], group[cut:]), labels=LABELS, groups=GROUPS, number=number,
        name=f"hospital {number + 1}",
    )  # fmt: skip


app = torch.app(make_model, own_patients)
