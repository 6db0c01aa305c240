"""A device: it says how well the model it received serves it, and trains it on its own rows."""

from flwr.app import Context

from devices.task import TASK
from evenly import synthetic
from evenly.flower.clients.jax import app as answering
from evenly.flower.clients.rows import ClientData, client_of


def own_rows(context: Context) -> ClientData:
    """This device's part of a federation whose devices differ. Read your own rows here."""
    federation = synthetic(clients=int(context.node_config["num-partitions"]))
    return client_of(federation, int(context.node_config["partition-id"]))


app = answering(own_rows, TASK)
