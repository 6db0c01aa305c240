"""PyTorch without what a module and an optimiser cost: torch.autograd.grad and a step in place, one
client after another.
"""

import torch
import torch_models
from plan import Plan
from protocol import serve
from torch import Tensor
from torch_one_by_one import Local, OneByOne, foreach_add


def make(plan: Plan) -> OneByOne:
    forward, criterion = torch_models.forward(plan), torch_models.criterion(plan)
    parameters = [value.clone().requires_grad_() for value in torch_models.start(plan)]

    def step(x: Tensor, y: Tensor) -> None:
        slopes = torch.autograd.grad(criterion(forward(parameters, x), y), parameters)
        with torch.no_grad():
            foreach_add(parameters, slopes, alpha=-plan.rate)

    return OneByOne(plan, Local(parameters, lambda x: forward(parameters, x), step))


if __name__ == "__main__":
    serve(make, "torch", "numpy")
