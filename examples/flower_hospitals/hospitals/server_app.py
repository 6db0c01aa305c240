"""The server: it asks hospitals to train, decides how much each of them counts, and keeps what the
report needs.
"""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from evenly.flower import strategy
from hospitals.task import make_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    torch.manual_seed(0)
    fair = strategy(
        str(config["method"]),
        folder=str(config["folder"]),
        introduce=True,  # hospitals say who they are, so that the report can name them
        min_available_nodes=int(config["clients"]),
    )
    fair.start(grid, ArrayRecord(make_model().state_dict()), num_rounds=int(config["rounds"]))
