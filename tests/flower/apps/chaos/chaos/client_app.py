"""Honest clients, of which the last waits where it is told to."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from tests.flower.holding import Hold
from tests.flower.small import small, task_of

from evenly.flower import wire
from evenly.flower.clients.jax import app as answering

app = ClientApp()


def answer(stage: str, message: Message, context: Context) -> Message:
    clients, config = int(context.node_config["num-partitions"]), context.run_config
    if context.node_config["partition-id"] == clients - 1:
        told = message.content.config_records.get(wire.CONFIG, {})
        Hold.of(config).at(stage, int(str(told.get(wire.ROUND, 0))))
    return answering(small(clients), task_of(str(config["method"])))(message, context)


@app.query("census")
def census(message: Message, context: Context) -> Message:
    return answer("census", message, context)


@app.query("measure")
def measure(message: Message, context: Context) -> Message:
    return answer("measuring", message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    return answer("training", message, context)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    return answer("evaluation", message, context)
