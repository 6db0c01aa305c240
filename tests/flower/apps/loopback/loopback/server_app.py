"""The strategy under test; the final model goes to a file."""

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from tests.flower.small import SEEDS, algorithm_of, task_of

from evenly.flower import first_arrays, strategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    method = algorithm_of(str(config["method"]))
    made = strategy(
        method,
        seeds=SEEDS,
        introduce=bool(config["introduce"]),
        min_available_nodes=int(config["clients"]),
        min_train_nodes=int(config["least"]),
        min_evaluate_nodes=int(config["least"]),
        fraction_evaluate=float(config["evaluate"]),
        folder=str(config["folder"]) or None,
        two_phase=bool(config["two-phase"]),
    )
    first = first_arrays(method, task_of(str(config["method"])), SEEDS)
    result = made.start(
        grid, first, num_rounds=int(config["rounds"]), timeout=float(config["timeout"])
    )
    if config["save"]:
        assert result.arrays is not None
        np.savez(
            str(config["save"]), **{name: array.numpy() for name, array in result.arrays.items()}
        )  # pyright: ignore[reportArgumentType]
