"""The server."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from task import Net

from evenly.flower import strategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    rounds = strategy("q-fedavg(q=1, learning_rate=0.1)", fraction_train=1.0, fraction_evaluate=1.0)
    result = rounds.start(
        grid, ArrayRecord(Net().state_dict()), num_rounds=int(context.run_config["rounds"])
    )
    torch.save(result.arrays.to_torch_state_dict(), str(context.run_config["save"]))
