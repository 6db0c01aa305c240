"""PyTorch with the axis of clients made by torch.func: vmap of grad."""

import torch_models
from plan import Plan
from protocol import serve
from torch import Tensor
from torch.func import grad, vmap
from torch_side_by_side import SideBySide


def make(plan: Plan) -> SideBySide:
    forward, criterion = torch_models.forward(plan), torch_models.criterion(plan)

    def loss(parameters: list[Tensor], x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        return (criterion(forward(parameters, x), y, reduction="none") * weights).sum()

    return SideBySide(plan, vmap(grad(loss)))


if __name__ == "__main__":
    serve(make, "torch", "numpy")
