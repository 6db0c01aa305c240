"""The server: a few devices in each round, and those that the model serves badly count more."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from devices.task import TASK
from evenly import Seeds
from evenly.flower import first_arrays, strategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    method, clients = str(config["method"]), int(config["clients"])
    fair = strategy(
        method,
        fraction_train=float(config["fraction"]),
        seeds=Seeds.all(0),  # who takes part, and in which order devices read their rows
        folder=str(config["folder"]),
        introduce=True,
        min_available_nodes=clients,
    )
    fair.start(grid, first_arrays(method, TASK, Seeds.all(0)), num_rounds=int(config["rounds"]))
