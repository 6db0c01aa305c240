"""The server."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    rounds = FedAvg(fraction_train=1.0, fraction_evaluate=1.0)
    result = rounds.start(
        grid, ArrayRecord(Net().state_dict()), num_rounds=int(context.run_config["rounds"])
    )
    torch.save(result.arrays.to_torch_state_dict(), str(context.run_config["save"]))
