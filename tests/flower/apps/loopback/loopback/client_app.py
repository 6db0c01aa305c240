"""An honest client; or, where its node is told so, one that does wrong in a round."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from tests.flower.faults import spoilt
from tests.flower.small import small, task_of

from evenly.flower import wire
from evenly.flower.clients.jax import app as answering

app = ClientApp()


def _honest(message: Message, context: Context) -> Message:
    clients = int(context.node_config["num-partitions"])
    return answering(small(clients), task_of(str(context.run_config["method"])))(message, context)


@app.query("census")
def census(message: Message, context: Context) -> Message:
    return _honest(message, context)


@app.query("measure")
def measure(message: Message, context: Context) -> Message:
    return _honest(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content[wire.CONFIG]
    fault = (
        context.node_config.get(f"round-{config[wire.ROUND]}")
        if context.run_config["faults"]
        else None
    )
    return (
        spoilt(str(fault), message, lambda: _honest(message, context))
        if fault
        else _honest(message, context)
    )


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    return _honest(message, context)
