"""PyTorch as most people write it: a module, torch.optim.SGD and backward(), one client after
another.
"""

import torch
import torch_models
from plan import Plan
from protocol import serve
from torch import Tensor
from torch_one_by_one import Local, OneByOne


def make(plan: Plan) -> OneByOne:
    model, criterion = torch_models.module(plan), torch_models.criterion(plan)
    # built once, not once for each client
    optimiser = torch.optim.SGD(model.parameters(), lr=plan.rate)

    def step(x: Tensor, y: Tensor) -> None:
        optimiser.zero_grad()
        criterion(model(x), y).backward()
        optimiser.step()

    return OneByOne(plan, Local(list(model.parameters()), model, step))


if __name__ == "__main__":
    serve(make, "torch", "numpy")
