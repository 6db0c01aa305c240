"""Three networks beside the same work in PyTorch, for `gpu.py`: ResNet-18, a character LSTM, and
the network of pfl's own benchmark.

Both sides do the same steps on the same kind of data with the same precision, in one process.
PyTorch's side is a plain loop over clients: load the model, take the steps, add up the change.
Where PyTorch is not installed, evenly is timed alone. `resnet` and `lstm` take turns; a time per
round is that of many rounds less that of few, so that evaluations and compilation are left out.
`pfl` is timed once for each side, one after the other, as a whole with its evaluations.
"""

import copy
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import evenly
from evenly.data.federation import Shard
from evenly.datasets.cifar import cifar10
from evenly.datasets.files import MissingData
from evenly.models.layers import (
    PIXELS,
    by_size,
    convolve,
    dense,
    max_pool,
    standardised,
    uniform_layer,
)
from evenly.models.linear import Classifier, flat
from evenly.records import record, static
from evenly.simulate import simulate
from evenly.types import Array, Key, Tree

try:
    import torch
    from torch import nn
except ImportError:  # evenly is then timed alone
    torch = None

TURNS = 3


def resnet(*, quick: bool) -> dict[str, Any]:
    """Milliseconds of a client's step of ResNet-18 with GroupNorm in bfloat16: ten clients, batches
    of 64.
    """
    clients, batch, steps, rounds = (2, 8, 1, 1) if quick else (10, 64, 5, 8)
    shape = {"width": 8, "blocks": (1, 1)} if quick else {}
    draw = np.random.default_rng(0)
    x = draw.integers(0, 256, (clients * steps * batch, 32, 32, 3), dtype=np.uint8)
    y = np.arange(len(x)) % 10
    task = evenly.models.ResNet(precision="bfloat16", **shape)
    method = f"fedavg(learning_rate=0.005, batch_size={batch}, shuffle=false)+full"
    contenders = {"evenly": _rounds_of(task, x, y, clients, method)}
    if torch is not None:
        model = _torch_resnet(**shape)
        pictures = torch.tensor(_floats(x, "cifar10")).permute(0, 3, 1, 2)
        contenders["PyTorch"] = _torch_rounds(
            model, pictures, y, clients=clients, batch=batch, rate=0.005, bfloat16=True
        )
    return _per_step(contenders, rounds, clients * steps)


def lstm(*, quick: bool) -> dict[str, Any]:
    """Milliseconds of a step of ten lanes: two LSTM layers of 256, 80 symbols, batch 10."""
    clients, hidden, length, steps, rounds = (2, 16, 12, 1, 1) if quick else (10, 256, 80, 8, 8)
    symbols = 20 if quick else 80
    draw = np.random.default_rng(0)
    x = draw.integers(0, symbols, (clients * steps * 10, length), dtype=np.uint8)
    y = np.arange(len(x)) % symbols
    task = evenly.models.CharLSTM(symbols=symbols, hidden=hidden)
    method = "fedavg(learning_rate=0.8, batch_size=10, shuffle=false)+full"
    contenders = {"evenly": _rounds_of(task, x, y, clients, method)}
    if torch is not None:
        contenders["PyTorch"] = _torch_rounds(
            _torch_lstm(symbols, hidden),
            torch.tensor(x).long(),
            y,
            clients=clients,
            batch=10,
            rate=0.8,
        )
    return _per_step(contenders, rounds, steps)


def pfl(*, quick: bool) -> dict[str, Any]:
    """Seconds of pfl's own workload: CIFAR-10 dealt to 1,000 users of 50 pictures, 50 of them in
    each of 1,500 rounds, batch 10, rate 0.1, and an evaluation of 10,000 pictures every 10 rounds.
    """
    users, cohort, rounds, central = (20, 5, 2, 100) if quick else (1000, 50, 1500, 10_000)
    federation = _pictures(users, central, real=not quick)
    method = f"fedavg(learning_rate=0.1, batch_size=10, weights=size)+uniform(clients={cohort})"
    algorithm, few = evenly.algorithm(method), np.arange(1)

    def ours(rounds: int) -> float:
        trace = simulate(
            DropoutCNN(), federation, [algorithm], rounds, evaluate_every=10, panel=few
        )[0]
        table = trace.central[-1].sum(0)
        return 100 * float(np.trace(table) / table.sum())

    contenders: dict[str, Callable[[int], float]] = {"evenly": ours}
    if torch is not None:
        contenders["PyTorch"] = _torch_pfl(federation, cohort)
    found: dict[str, Any] = {"data": federation.name, "rounds": rounds}
    for name, run in contenders.items():
        # the program of all rounds is compiled before it is timed; PyTorch compiles nothing
        first = _seconds(partial(run, rounds if name == "evenly" else 1))
        begun = time.perf_counter()
        accuracy = run(rounds)
        found[name] = {
            "seconds": round(time.perf_counter() - begun, 2), "first_seconds": round(first, 2),
            "accuracy": round(accuracy, 2),
        }  # fmt: skip
    return found | _share({name: found[name]["seconds"] for name in contenders})


@record
class DropoutCNN(Classifier):
    """Two 3 x 3 convolutions without padding (32 and 64 channels), a 2 x 2 max-pool, a dense layer
    of 128, and dropout before both dense layers (0.25 and 0.5): the network of pfl's benchmark.
    """

    joint: bool = static(default=False)
    reduction: str = static(default="mean")

    def init(self, key: Key) -> Tree:
        shapes = {
            "conv1": (3, 3, 3, 32), "conv2": (3, 3, 32, 64), "dense1": (14 * 14 * 64, 128),
            "dense2": (128, 10),
        }  # fmt: skip
        keys = jax.random.split(key, len(shapes))
        return {
            name: uniform_layer(k, shape)
            for k, (name, shape) in zip(keys, shapes.items(), strict=True)
        }

    def logits(self, params: Tree, x: Array) -> Array:
        def network(x: Array, *, direct: bool) -> Array:
            hidden = jax.nn.relu(dense(self._features(params, x, direct), params["dense1"]))
            return dense(hidden, params["dense2"], last=True)

        return by_size(network, x)

    def train_losses(self, model: Tree, shard: Shard, key: Any) -> tuple[Array, Tree]:
        first, second = jax.random.split(key)
        seen = _dropped(first, self._features(model, shard.x, False), 0.25)
        hidden = _dropped(second, jax.nn.relu(dense(seen, model["dense1"])), 0.5)
        scores = jax.nn.log_softmax(dense(hidden, model["dense2"], last=True))
        return -jnp.take_along_axis(scores, shard.y[:, None], axis=-1)[:, 0], ()

    def _features(self, params: Tree, x: Array, direct: bool) -> Array:
        x = standardised(x, PIXELS["cifar10"].mean, PIXELS["cifar10"].deviation)
        for name in ("conv1", "conv2"):
            x = jax.nn.relu(convolve(x, params[name], padding="valid", direct=direct))
        return flat(max_pool(x))


def _dropped(key: Any, x: Array, share: float) -> Array:
    return jnp.where(jax.random.bernoulli(key, 1 - share, x.shape), x / (1 - share), 0.0)


def _rounds_of(
    task: Any, x: np.ndarray, y: np.ndarray, clients: int, method: str
) -> Callable[[int], object]:
    owner = np.repeat(np.arange(clients), len(x) // clients)
    data = evenly.Federation.from_arrays(x, y, owner, split=["train"] * len(x))
    algorithm, none = evenly.algorithm(method), np.arange(1)
    return lambda rounds: simulate(task, data, [algorithm], rounds, panel=none)


def _pictures(users: int, central: int, *, real: bool) -> evenly.Federation:
    """CIFAR-10 dealt evenly, or random pictures of its shape where it is missing."""
    if real:
        try:
            return cifar10("equal", clients=users, train=1.0)
        except MissingData:
            print("CIFAR-10 is missing: random pictures", file=sys.stderr)
    draw, count = np.random.default_rng(0), 50 * users + central
    x = draw.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    owner = np.append(np.arange(50 * users) // 50, np.full(central, -1))
    split = np.where(owner < 0, "central", "train")
    return evenly.Federation.from_arrays(
        x, np.arange(count) % 10, owner, split=split, name="random pictures"
    )


def _floats(x: np.ndarray, name: str) -> np.ndarray:
    pixels = PIXELS[name]
    return ((x / 255 - np.array(pixels.mean)) / np.array(pixels.deviation)).astype(np.float32)


# Timing.


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _per_step(
    contenders: dict[str, Callable[[int], object]], rounds: int, steps: int
) -> dict[str, Any]:
    """Milliseconds of a step of each contender, in turns, and evenly's share of PyTorch's time."""
    first = {name: _seconds(lambda run=run: run(1)) for name, run in contenders.items()}
    for run in contenders.values():
        run(1 + rounds)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(TURNS):
        for name, run in contenders.items():
            more = _seconds(lambda run=run: run(1 + rounds)) - _seconds(lambda run=run: run(1))
            times[name].append(1e3 * more / rounds / steps)
    found = {
        name: {
            "ms": round(float(np.median(own)), 3), "all": [round(one, 3) for one in own],
            "first_seconds": round(first[name], 2),
        }
        for name, own in times.items()
    }  # fmt: skip
    return found | _share({name: own["ms"] for name, own in found.items()})


def _share(times: dict[str, float]) -> dict[str, float]:
    return {"share": round(times["evenly"] / times["PyTorch"], 3)} if "PyTorch" in times else {}


# PyTorch's side.


def _device() -> Any:
    torch.backends.cuda.matmul.allow_tf32 = True  # as JAX computes float32 on a GPU
    torch.backends.cudnn.allow_tf32 = True
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _train_client(
    model: Any, received: Any, x: Any, y: Any, *, batch: int, rate: float, bfloat16: bool = False
) -> None:
    """One epoch of SGD from the received model, in place."""
    model.load_state_dict(received)
    optimiser = torch.optim.SGD(model.parameters(), rate)
    for begin in range(0, len(y), batch):
        optimiser.zero_grad()
        with torch.autocast(x.device.type, torch.bfloat16, enabled=bfloat16):
            output = model(x[begin : begin + batch])
        nn.functional.cross_entropy(output.float(), y[begin : begin + batch]).backward()
        optimiser.step()


def _torch_round(
    model: Any, shares: list[tuple[Any, Any]], *, batch: int, rate: float, bfloat16: bool = False
) -> None:
    """FedAvg: train each client from the same model, and take the mean of what they have."""
    received = copy.deepcopy(model.state_dict())
    total = {name: torch.zeros_like(value) for name, value in received.items()}
    for x, y in shares:
        _train_client(model, received, x, y, batch=batch, rate=rate, bfloat16=bfloat16)
        for name, value in model.state_dict().items():
            total[name] += value / len(shares)
    model.load_state_dict(total)


def _wait(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _torch_rounds(
    model: Any, x: Any, y: np.ndarray, *, clients: int, **options: Any
) -> Callable[[int], object]:
    device = _device()
    model, x, labels = model.to(device), x.to(device), torch.tensor(y).to(device)
    shares = list(zip(x.chunk(clients), labels.chunk(clients), strict=True))

    def train(rounds: int) -> None:
        for _ in range(rounds):
            _torch_round(model, shares, **options)
        _wait(device)

    return train


def _torch_pfl(federation: evenly.Federation, cohort: int) -> Callable[[int], float]:
    device, draw = _device(), np.random.default_rng(0)
    pictures = torch.tensor(_floats(federation.x, "cifar10")).permute(0, 3, 1, 2).contiguous()
    pictures, labels = pictures.to(device), torch.tensor(federation.y).long().to(device)
    own = [torch.tensor(federation.train.of(k)).long() for k in range(federation.clients)]
    test = torch.tensor(federation.central).long().to(device)

    def train(rounds: int) -> float:
        model, right = _torch_cnn().to(device), 0.0
        for t in range(rounds):
            shares = []
            for k in draw.choice(federation.clients, cohort, replace=False):
                rows = own[k][torch.randperm(len(own[k]))].to(device)
                shares.append((pictures[rows], labels[rows]))
            model.train()
            _torch_round(model, shares, batch=10, rate=0.1)
            if (t + 1) % 10 == 0 or t + 1 == rounds:
                right = _right(model, pictures[test], labels[test])
        _wait(device)
        return right

    return train


def _torch_cnn() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.25), nn.Flatten(), nn.Linear(64 * 14 * 14, 128), nn.ReLU(),
        nn.Dropout(0.5), nn.Linear(128, 10),
    )  # fmt: skip


def _right(model: Any, x: Any, y: Any) -> float:
    model.eval()
    with torch.no_grad():
        guesses = torch.cat([model(part).argmax(1) for part in x.split(1000)])
    return 100 * float((guesses == y).float().mean())


def _torch_lstm(symbols: int, hidden: int) -> Any:
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(symbols, 8)
            self.lstm = nn.LSTM(8, hidden, 2, batch_first=True)
            self.dense = nn.Linear(hidden, symbols)

        def forward(self, x: Any) -> Any:
            return self.dense(self.lstm(self.embedding(x))[0][:, -1])

    return Text()


def _torch_resnet(width: int = 64, blocks: tuple[int, ...] = (2, 2, 2, 2)) -> Any:
    def normed(inputs: int, outputs: int, size: int, stride: int) -> list[Any]:
        return [
            nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
            nn.GroupNorm(2, outputs),
        ]

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.main = nn.Sequential(
                *normed(inputs, outputs, 3, stride), nn.ReLU(), *normed(outputs, outputs, 3, 1)
            )
            self.aside = nn.Sequential(
                *(normed(inputs, outputs, 1, stride) if inputs != outputs else [])
            )

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.main(x) + self.aside(x))

    parts, inputs = [*normed(3, width, 3, 1), nn.ReLU()], width
    for stage, count in enumerate(blocks):
        for i in range(count):
            parts.append(Block(inputs, width * 2**stage, 2 if stage and i == 0 else 1))
            inputs = width * 2**stage
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))
