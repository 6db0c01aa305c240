"""A server that wants rows, from models other than linear ones with two classes: of one of their
weights, few rows can decide while every row has an ordinary loss.
"""

from typing import Any

import numpy as np
from flwr.clientapp import ClientApp

from evenly.models import MLP, LinearSVM, Softmax
from tests.flower.hostile_answers import ONE_STEP
from tests.flower.hostile_server import FEATURES, LARGE, Attempt, Site, jax_client

HIDDEN, UNITS = 8, 64
THREE = LARGE._replace(labels=("no", "yes", "unknown"))  # nobody at this site has the third
NOT_LINEAR = "Under another model"


def moved_by_one_unit(
    model: dict[str, np.ndarray], got: dict[str, Any], w: str = "w", b: str = "b"
) -> tuple[np.ndarray, np.ndarray]:
    """Changes of the weights [features, units] and biases [units] of a layer."""
    arrays = got["arrays"]
    return arrays[w].astype(float) - model[w], arrays[b].astype(float) - model[b]


def found_among(rows: np.ndarray, guess: np.ndarray, within: float) -> bool:
    return bool(np.isclose(rows, guess, atol=within).all(1).any())


def highest_two(values: np.ndarray) -> tuple[float, float]:
    return tuple(np.sort(values)[:-3:-1])


def network(hidden: int) -> dict[str, np.ndarray]:
    return {
        "0.w": np.zeros((FEATURES, hidden), np.float32),
        "0.b": np.full(hidden, -1.0, np.float32),
        "1.w": np.zeros((hidden, 2), np.float32),
        "1.b": np.zeros(2, np.float32),
    }


def one_unit_of_a_network(site: Site) -> bool:
    """A unit that only the row with the highest value of a column switches on, and so small weights
    after it that every row stays undecided.
    """
    own, model = site.source.train, network(HIDDEN)
    first, second = highest_two(own.x[:, 2])
    model["0.w"][2, 0], model["0.b"][0] = 1, -(first + second) / 2
    model["1.w"][0] = (0.1, -0.1)
    got = site.ask("train", model)
    if "arrays" not in got:
        return False
    weights, biases = moved_by_one_unit(model, got, "0.w", "0.b")
    return found_among(own.x, weights[:, 0] / biases[0], within=1e-3)


def a_ladder_of_units(site: Site) -> bool:
    """A unit for each of many values of a column, chosen blindly: where one row is between two
    values, it is the difference of two units. Several rows in one request.
    """
    own, model, steps = site.source.train, network(UNITS), np.linspace(-2.5, 2.5, UNITS)
    model["0.w"][2], model["0.b"] = 1e-3, (-steps * 1e-3).astype(np.float32)
    model["1.w"][:] = (1e-4, -1e-4)
    got = site.ask("train", model)
    if "arrays" not in got:
        return False
    weights, biases = moved_by_one_unit(model, got, "0.w", "0.b")
    with np.errstate(all="ignore"):
        guesses = (np.diff(weights) / np.diff(biases)).T
    known = {
        int(np.abs(own.x - guess).max(1).argmin())
        for guess in guesses
        if np.isfinite(guess).all() and found_among(own.x, guess, within=5e-3)
    }
    return len(known) > 2


def one_class_of_three(site: Site) -> bool:
    """A class that nobody has, and that one row alone may have under the model. For all rows, the
    other two are as likely as each other.
    """
    own = site.source.train
    model = {"b": np.zeros(3, np.float32), "w": np.zeros((FEATURES, 3), np.float32)}
    first, _ = highest_two(own.x[:, 2])
    model["w"][2, 2], model["b"][2] = 200, -200 * first - 0.5
    got = site.ask("train", model)
    if "arrays" not in got:
        return False
    weights, biases = moved_by_one_unit(model, got)
    return found_among(own.x[:, :2], weights[:2, 2] / biases[2], within=1e-2)


def one_row_between_two_hinges(site: Site) -> bool:
    """Weights so small that all rows are close to the hinge, and two models between which one row
    passes it. A row counts fully as soon as its loss is above 0, however little.
    """
    own, updates = site.source.train, []
    found = np.sort(own.x[own.y == 1][:, 1])
    k = len(found) // 2
    for number, end in enumerate(((found[k - 1] + found[k]) / 2, (found[k] + found[k + 1]) / 2), 1):
        model = {
            "b": np.array(1 - 1e-2 * end, np.float32),
            "w": np.array([0, 1e-2, 0], np.float32),
        }
        got = site.ask("train", model, number, coefficient=1.0)
        if "arrays" not in got:
            return False
        updates.append(got["arrays"])
    change = {name: updates[0][name] - updates[1][name] for name in updates[0]}
    with np.errstate(all="ignore"):
        return found_among(own.x, change["w"] / change["b"], within=1e-4)


def normalised(source: Any) -> ClientApp:
    """A client in PyTorch whose module normalises by the statistics of batches."""
    from torch import nn

    from evenly.flower.clients.torch import app

    return app(lambda: nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 2)), source)


def statistics_of_another_batch(site: Site) -> bool:
    """Statistics under which an evaluation finds all rows undecided. Training normalises by those
    of its batch, and the model is then certain of all rows but one.
    """
    own, scale, variance = site.source.train, 1e4, 1e30
    column = own.x[:, 0]
    middle = (column[own.y == 1].min() - column.mean()) / column.std() - 1e-5
    weight, mean = np.zeros((2, FEATURES), np.float32), np.zeros(FEATURES, np.float32)
    weight[1, 0], mean[0] = scale, -middle * variance**0.5
    model = {
        "0.weight": np.ones(FEATURES, np.float32),
        "0.bias": np.zeros(FEATURES, np.float32),
        "0.running_mean": mean,
        "0.running_var": np.array([variance, 1, 1], np.float32),
        "0.num_batches_tracked": np.array(0),
        "1.weight": weight,
        "1.bias": np.array([scale * middle, 0], np.float32),
    }
    got = site.ask("train", model, coefficient=1.0)
    if "arrays" not in got:
        return False
    moved = {name: change[..., 1:] for name, change in got["arrays"].items() if change.ndim}
    mean = moved["0.running_mean"] / 0.1
    variance = (1 + moved["0.running_var"] / 0.1) * (own.size - 1) / own.size
    guess = moved["1.weight"][1] / moved["1.bias"] * np.sqrt(variance + 1e-5) + mean
    return found_among(own.x[:, 1:], guess, within=1e-2)


def perceptron(hidden: int) -> MLP:
    return MLP(features=FEATURES, classes=2, hidden=(hidden,))


SOFTMAX = Softmax(features=FEATURES, classes=3)
SVM = LinearSVM(features=FEATURES, regularisation=0.0)
ATTEMPTS_ON_MODELS = [
    Attempt(one_unit_of_a_network, NOT_LINEAR, client=jax_client(perceptron(HIDDEN))),
    Attempt(a_ladder_of_units, NOT_LINEAR, client=jax_client(perceptron(UNITS))),
    Attempt(one_class_of_three, NOT_LINEAR, THREE, client=jax_client(SOFTMAX)),
    Attempt(one_row_between_two_hinges, NOT_LINEAR, method=ONE_STEP, client=jax_client(SVM)),
    Attempt(statistics_of_another_batch, NOT_LINEAR, method=ONE_STEP, client=normalised),
]
