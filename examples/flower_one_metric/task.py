"""A PyTorch project as it was before anybody thought of fairness: a module, its data, and loops to
train and to test it.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def load_data(number: int) -> tuple[DataLoader, int]:
    """The rows of one client, and how many there are. Clients disagree, and the last one, which is
    like no other, has the fewest rows.
    """
    draw = torch.Generator().manual_seed(number)
    turned = torch.roll(torch.eye(8), number % 4, 1)
    x = torch.randn(200 // (number + 1), 8, generator=draw)
    return DataLoader(TensorDataset(x, (x @ turned)[:, :3].argmax(1)), batch_size=20), len(x)


def fit(net: nn.Module, loader: DataLoader, epochs: int, lr: float) -> None:
    optimiser = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    for _ in range(epochs):
        for x, y in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()


def test(net: nn.Module, loader: DataLoader) -> tuple[float, float]:
    """Mean loss and accuracy."""
    loss, right, rows = 0.0, 0, 0
    net.eval()
    with torch.no_grad():
        for x, y in loader:
            output = net(x)
            loss += float(nn.functional.cross_entropy(output, y, reduction="sum"))
            right += int((output.argmax(1) == y).sum())
            rows += len(y)
    return loss / rows, right / rows
