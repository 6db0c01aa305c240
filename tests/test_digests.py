"""Digests tell objects apart that compute different things, and are the same in another process."""

import functools
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import evenly
from evenly.digests import digest_of
from evenly.models import MLP, Augmented, Custom, crop_and_flip, from_equinox


def noise(strength: float) -> Callable[..., Any]:
    def augment(key: Any, x: Any) -> Any:
        return x + strength * jax.random.normal(key, x.shape)

    return augment


def shifted(by: Any) -> Callable[..., Any]:
    def augment(key: Any, x: Any, by: Any = by) -> Any:
        return x + by

    return augment


class Scaled:
    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def __call__(self, key: Any, x: Any) -> Any:
        return x * self.scale


def class_of(scale: float) -> Callable[..., Any]:
    class Inner:
        def __call__(self, key: Any, x: Any) -> Any:
            return x * scale

    return Inner()


def recursive(depth: int) -> Callable[..., Any]:
    def augment(key: Any, x: Any, level: int = 0) -> Any:
        return x if level == depth else augment(key, x, level + 1)

    return augment


def custom(scale: float) -> Custom:
    return Custom(
        initialise=lambda key: jnp.zeros((4, 3)), apply=lambda params, x: scale * (x @ params)
    )


def network(width: int) -> Custom:
    return from_equinox(lambda key: eqx.nn.MLP(4, 3, width_size=width, depth=1, key=key))


LARGE = np.zeros(2000)  # numpy writes only its ends
OTHER = np.eye(1, 2000, 1000)[0]


@pytest.mark.parametrize(
    ("make", "one", "other"),
    [
        (noise, 0, 50),
        (shifted, 1, 2),
        (shifted, LARGE, OTHER),
        (lambda by: functools.partial(noise(1), by), LARGE, OTHER),
        (lambda by: jax.jit(noise(by)), 1, 2),
        (lambda by: jax.vmap(noise(by)), 1, 2),
        (lambda by: Scaled(by).__call__, 1, 2),
        (Scaled, LARGE, OTHER),
        (Scaled, jax.random.key(0), jax.random.key(1)),
        (class_of, 1, 2),
        (recursive, 1, 2),
        (crop_and_flip, 1, 4),
        (custom, 1, 9),
        (network, 8, 9),
        (optax.adam, 0.1, 0.2),
        (lambda pattern: Scaled(re.compile(pattern)), "a", "b"),
        (lambda which: (lambda x: x, lambda x: -x)[which], 0, 1),
    ],
)
def test_what_a_function_holds_counts(make: Callable[..., Any], one: Any, other: Any):
    digests = [digest_of(make(by)) for by in (one, one, other)]
    assert digests[0] == digests[1] != digests[2]


def test_global_values_that_a_function_reads_count():
    def loaded(number: int, code: str) -> Any:
        names = {"number": number, "unused": number}
        exec(code, names)
        return names["scaled"]

    reads, ignores = "def scaled(x):\n return x * number", "def scaled(x):\n return x * 2"
    assert digest_of(loaded(1, reads)) == digest_of(loaded(1, reads))
    assert digest_of(loaded(1, reads)) != digest_of(loaded(2, reads))
    assert digest_of(loaded(1, ignores)) == digest_of(loaded(2, ignores))
    assert digest_of(loaded(1, ignores)) != digest_of(loaded(1, reads))


def test_what_cannot_be_read_equals_nothing():
    held = Scaled(threading.Lock())
    with pytest.warns(UserWarning, match="A lock is part of .* cannot be read"):
        assert digest_of(held) != digest_of(held)


PROCESS = """
from evenly.digests import digest_of
from tests.test_digests import *
held = [noise(1), Scaled({"a", "b", "c"}), crop_and_flip(2), custom(1.0), network(8), jax.nn.relu,
        class_of(2), jax.grad(noise(1)), lambda x: x in {"a", "b", "c"}, jnp.add, optax.adam(0.1)]
print(digest_of(held))
"""


@pytest.mark.further
def test_digests_are_the_same_in_another_process():
    found = set()
    for seed in ("1", "2"):
        paths = [str(Path(evenly.__file__).parents[1]), str(Path(__file__).parents[1])]
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:0] = {paths}\n{PROCESS}"],
            capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed},
        )  # fmt: skip
        found.add(done.stdout)
    assert len(found) == 1


def test_results_of_another_augmentation_are_never_reused(tmp_path: Path):
    def compared(strength: float) -> Any:
        task = Augmented(task=MLP(features=60, classes=6, hidden=(4,)), augment=noise(strength))
        return evenly.compare(
            "synthetic(clients=4)", "fedavg", model=task, rounds=1, seeds=1, out=tmp_path / "out",
            progress=False,
        )  # fmt: skip

    compared(0.0)
    compared(0.0)
    with pytest.raises(ValueError, match="different settings"):
        compared(50.0)
