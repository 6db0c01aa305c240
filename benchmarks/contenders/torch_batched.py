"""PyTorch with the axis of clients written out by hand: one baddbmm for the products of all
clients. Linear models only.
"""

import torch
import torch_models
from plan import Plan
from protocol import serve
from torch import Tensor
from torch_side_by_side import SideBySide


def make(plan: Plan) -> SideBySide:
    criterion = torch_models.criterion(plan)

    def slopes(
        parameters: list[Tensor], x: Tensor, y: Tensor, weights: Tensor
    ) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            w, b = leaves = [value.detach().requires_grad_() for value in parameters]
            logits = torch.baddbmm(b[:, None], x, w.transpose(1, 2))
            each = criterion(logits.flatten(0, 1), y.flatten(), reduction="none")
            return torch.autograd.grad((each * weights.flatten()).sum(), leaves)

    return SideBySide(plan, slopes)


if __name__ == "__main__":
    serve(make, "torch", "numpy")
