"""Common PyTorch modules, small enough for tests, and inputs for them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 3


class MLP(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 8), nn.Tanh(),
            nn.Linear(8, CLASSES),
        )  # fmt: skip


class LeNet5(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 5, padding=2), nn.Conv2d(4, 6, 5)
        self.fc1, self.fc2 = nn.Linear(6 * 5 * 5, 12), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.avg_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(torch.flatten(x, 1))))


class Block(nn.Module):
    """A basic block of ResNet-18."""

    def __init__(self, inputs: int, width: int, stride: int, norm: Callable[[int], nn.Module]):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn1, self.bn2, self.relu = norm(width), norm(width), nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != width:
            aside = nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.downsample = nn.Sequential(aside, norm(width))

    def forward(self, x: Tensor) -> Tensor:
        aside = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += aside
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module], width: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), norm(width), nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        blocks, inputs = [], width
        for stage in range(4):
            outputs = width * 2**stage
            for i in range(2):
                blocks.append(Block(inputs, outputs, 2 if stage and not i else 1, norm))
                inputs = outputs
        self.blocks, self.pool = nn.Sequential(*blocks), nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(inputs, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class VGG(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers, inputs = [], 3
        for width in (4, 6, 8):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            inputs = width
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d((3, 3))
        self.classifier = nn.Sequential(
            nn.Dropout2d(0.2), nn.Flatten(), nn.Linear(72, 16), nn.ReLU(), nn.Dropout(),
            nn.Linear(16, CLASSES),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 16, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, 16) * 0.02)
        self.position = nn.Parameter(torch.randn(1, 10, 16) * 0.02)
        layer = nn.TransformerEncoderLayer(
            16, 4, 32, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.encoder(x)[:, 0]))


class TextLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 5, padding_idx=0)
        self.lstm = nn.LSTM(5, 6, 2, batch_first=True, dropout=0.2, bidirectional=True)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        outputs, (last, _) = self.lstm(self.embedding(x))
        return self.head(outputs.mean(1) + torch.cat([last[-2], last[-1]], dim=1))


class TextGRU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.gru = nn.Embedding(11, 5), nn.GRU(5, 6, 2)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        _, last = self.gru(self.embedding(x.t()))
        return self.head(self.drop(last[-1]))


class TabTransformer(nn.Module):
    """Three columns of categories and four of numbers, in one row of floats."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 8) for size in (4, 3, 5))
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Sequential(
            nn.Linear(28, 16), nn.BatchNorm1d(16), nn.SiLU(), nn.Linear(16, CLASSES)
        )

    def forward(self, x: Tensor) -> Tensor:
        codes = x[:, :3].long()
        tokens = torch.stack([e(codes[:, i]) for i, e in enumerate(self.embeddings)], dim=1)
        mixed, _ = self.attention(tokens, tokens, tokens)
        tokens = self.norm(tokens + mixed)
        return self.head(torch.cat([tokens.flatten(1), x[:, 3:]], dim=1))


class UNet(nn.Module):
    """Down, up and across, then the mean of each class's map."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.down = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1)
        self.up, self.again = nn.ConvTranspose2d(8, 4, 2, 2), nn.ConvTranspose2d(8, 4, 3, 2, 1, 1)
        self.mix = nn.Conv2d(20, 6, 3, padding=2, dilation=2)
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.norm, self.maps = nn.InstanceNorm2d(6, affine=True), nn.Conv2d(6, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        inside = functional.leaky_relu(self.inside(x), 0.1)
        deep = functional.elu(self.down(inside))
        wide = functional.interpolate(deep, scale_factor=2, mode="nearest")
        parts = torch.cat([inside, self.up(deep), self.again(deep), wide], dim=1)
        mixed = functional.hardswish(self.norm(self.depthwise(self.mix(parts))))
        smooth = functional.interpolate(mixed, scale_factor=2, mode="bilinear")
        maps = self.maps(smooth)
        return maps.mean((2, 3)) + functional.adaptive_max_pool2d(maps, 3).sum((2, 3))


class NormedMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.norm = nn.Linear(6, 12), nn.LayerNorm(12)
        self.wide, self.narrow = nn.Linear(12, 24), nn.Linear(24, 12)
        self.head = nn.Linear(12, CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.inside(x))
        x = x + self.narrow(functional.gelu(self.wide(self.norm(x)), approximate="tanh"))
        return self.head(functional.normalize(x, dim=1) * 3)


class Operations(nn.Module):
    """What the others do not use."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.pair = nn.Linear(6, 6), nn.Bilinear(6, 6, 4)
        self.bag, self.centres = nn.EmbeddingBag(5, 4), nn.Parameter(torch.randn(4, 6))
        self.drop, self.head = nn.AlphaDropout(0.2), nn.Linear(34, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        w = self.inside(x)
        order, changed = x.argsort(1), w.clone()
        changed[:, 1], changed[:, 2:4] = x[:, 0], 2 * x[:, 2:4]
        placed = torch.zeros_like(w).scatter(1, order, w).scatter_add(1, order % 3, w.tanh())
        variance, mean = torch.var_mean(w, 1, keepdim=True)
        parts = [
            changed.cumprod(1) + placed, w.logcumsumexp(1), variance, mean, self.pair(w, x),
            self.bag((2 * x.abs()).long().clamp(max=4)), torch.cdist(w, self.centres),
            torch.erfinv(0.9 * w.tanh()), w[:, :2].atanh().nan_to_num(),
        ]  # fmt: skip
        return self.head(self.drop(torch.cat(parts, dim=1)))


class Case(NamedTuple):
    """A module and the shape of its rows; `symbols` are the numbers of rows of text."""

    build: Callable[[], nn.Module]
    row: tuple[int, ...]
    symbols: int = 0

    def rows(self, n: int, seed: int = 0) -> Tensor:
        """Rows of features."""
        draw = torch.Generator().manual_seed(seed)
        if self.symbols:
            return torch.randint(0, self.symbols, (n, *self.row), generator=draw)
        x = torch.randn(n, *self.row, generator=draw)
        if self.build is TabTransformer:
            x[:, :3] = torch.randint(0, 3, (n, 3), generator=draw).float()
        return x


CASES = {
    "mlp": Case(MLP, (6,)),
    "lenet": Case(LeNet5, (1, 28, 28)),
    "resnet18-batch": Case(lambda: ResNet18(nn.BatchNorm2d), (3, 32, 32)),
    "resnet18-group": Case(lambda: ResNet18(lambda c: nn.GroupNorm(2, c)), (3, 32, 32)),
    "vgg": Case(VGG, (3, 24, 24)),
    "vit": Case(ViT, (1, 12, 12)),
    "text-lstm": Case(TextLSTM, (7,), symbols=11),
    "text-gru": Case(TextGRU, (7,), symbols=11),
    "tabular": Case(TabTransformer, (7,)),
    "unet": Case(UNet, (1, 8, 8)),
    "normed-mlp": Case(NormedMLP, (6,)),
    "operations": Case(Operations, (6,)),
}
