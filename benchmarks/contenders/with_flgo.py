"""flgo: its own qfedavg and fedavg. Time is taken around its server's rounds, so that its
evaluations fall outside.

Its clients shuffle their own batches. Logistic regression is a softmax over two classes at half the
rate, which is the same model.
"""

import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import flgo
import flgo.algorithm.fedavg as fedavg
import flgo.algorithm.qfedavg as qfedavg
import flgo.benchmark.synthetic_regression as benchmark
import flgo.benchmark.synthetic_regression.core as core
import torch
from flgo.utils.fmodule import FModule
from plan import Plan
from protocol import Ran, serve

FEW = 50  # rows of flgo's own test set, which has to be there


class Flgo:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.stamps = plan, []
        self.folder = tempfile.TemporaryDirectory()
        self.task = str(Path(self.folder.name) / "task")
        core.TaskGenerator.load_data = _loader(plan)
        flgo.gen_task(
            {"benchmark": {"name": benchmark, "para": {"num_clients": plan.clients}}}, self.task
        )
        base = qfedavg if plan.fair else fedavg
        self.algorithm = SimpleNamespace(
            Server=_server(plan, base.Server, self.stamps),
            Client=base.Client,
            __name__=base.__name__,
        )
        self.model = SimpleNamespace(
            init_local_module=lambda _: None, init_global_module=_giver(plan), __name__="linear"
        )

    def run(self, rounds: int) -> Ran:
        self.stamps.clear()
        plan, two = self.plan, self.plan.kind == "logistic"
        option = {
            "num_rounds": rounds, "proportion": plan.cohort.shape[1] / plan.clients,
            "num_epochs": plan.epochs, "batch_size": plan.batch,
            "learning_rate": plan.rate / 2 if two else plan.rate, "weight_decay": 0.0,
            "train_holdout": 0.0, "test_holdout": 0.0, "eval_interval": -1, "log_file": False,
            "no_log_console": True,
        }  # fmt: skip
        runner = flgo.init(self.task, self.algorithm, model=self.model, option=option)
        runner.run()
        w, b = (p.detach().cpu().numpy() for p in runner.model.parameters())
        return Ran(
            [w[1:] - w[:1], b[1:] - b[:1]] if two else [w, b], sum(self.stamps), len(self.stamps)
        )


def _loader(plan: Plan):
    """In the place of flgo's generator of synthetic data."""

    def load_data(self):
        rows = [plan.own(k) for k in range(plan.clients)]
        self.local_datas = [
            {"x": plan.x[r].tolist(), "y": plan.y[r].tolist(), "w": 0} for r in rows
        ]
        self.test_data = {"x": plan.x[:FEW].tolist(), "y": plan.y[:FEW].tolist()}
        self.optimal_local = []
        return [], [], []

    return load_data


def _server(plan: Plan, base: type, stamps: list[float]) -> type:
    class Server(base):
        """Takes the plan's cohorts, and the time."""

        def sample(self):
            return plan.cohort[self.current_round - 1].tolist()

        def iterate(self):
            begun = time.perf_counter()
            done = super().iterate()
            stamps.append(time.perf_counter() - begun)
            return done

    return Server


def _giver(plan: Plan):
    class Linear(FModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(plan.x.shape[1], plan.classes)
            for parameter in self.parameters():
                torch.nn.init.zeros_(parameter)

        def forward(self, x):
            return self.layer(x)

    def give(owner) -> None:
        if "Server" in type(owner).__name__:
            owner.model = Linear()

    return give


if __name__ == "__main__":
    serve(Flgo, "flgo", "torch", "numpy")
