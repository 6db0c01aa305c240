"""The client."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from task import Net, fit, load_data, test

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    net, (loader, rows) = Net(), load_data(int(context.node_config["partition-id"]))
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    metrics = {"num-examples": rows, "loss": test(net, loader)[0]}
    fit(net, loader, epochs=2, lr=0.1)
    return Message(
        RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(metrics)}),
        reply_to=message,
    )


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    net, (loader, rows) = Net(), load_data(int(context.node_config["partition-id"]))
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    loss, accuracy = test(net, loader)
    metrics = {"num-examples": rows, "loss": loss, "accuracy": accuracy}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
