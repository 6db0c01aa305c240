"""Flower clients in scikit-learn: linear classifiers that learn by partial_fit (SGDClassifier) or
go on from where they were (LogisticRegression with warm_start).

    make = lambda: SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01)
    app = evenly.flower.clients.sklearn.app(make, federation)

A model is the estimator's coefficients and intercepts. Estimators train in their own way, with
their own step size: of a method's local work only the epochs and the weights of rows apply. Give
SGDClassifier a constant learning rate; its default schedule would begin anew in every round. An
estimator without a random_state visits rows in an order that follows from the seed of the batches,
the round and the client.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.clientapp import ClientApp

from evenly.flower import wire
from evenly.flower.clients.client import RoundConfig, client_app, read_config, weighted_rows
from evenly.flower.clients.client import reply as client_reply
from evenly.flower.clients.rows import (
    LOOKS,
    NO_ROWS,
    ClientData,
    ClientRows,
    Look,
    Metrics,
    RowOutcomes,
    Source,
    rows,
    signals_from_outcomes,
    table,
)
from evenly.parts.work import LocalTraining
from evenly.randomness import generator
from evenly.records import require

__all__ = [
    "app",
    "arrays",
    "first_arrays",
    "load",
    "measure",
    "read_config",
    "reply",
    "told",
    "train",
]

told = read_config  # the former name, for clients that use it

Estimator = Any  # scikit-learn names no type for what has coef_ and intercept_
State = dict[str, np.ndarray]
TINY = 1e-15


def first_arrays(features: int, labels: int) -> ArrayRecord:
    """Initial arrays of zeros, for the server."""
    return wire.to_arrays(_zeros(features, labels))


def load(estimator: Estimator, received: ArrayRecord, labels: int) -> None:
    """Load the coefficients of a record into an estimator; labels are numbers from 0."""
    _put(estimator, {name: wire.read(array) for name, array in received.items()}, labels)


def arrays(estimator: Estimator) -> ArrayRecord:
    """Coefficients of an estimator as a record."""
    return wire.to_arrays(_state(estimator))


def measure(
    estimator: Estimator, x: Any, y: Any, group: Any = None, needs: Iterable[str] = ("loss",), *,
    labels: int = 2, groups: int = 1, unprivileged: Iterable[int] = (0,),
    valid: tuple[Any, Any, Any] | None = None,
) -> Metrics:  # fmt: skip
    """Metrics of the received model that a method needs; call it before training. `valid` are x, y
    and group of held-out rows, for methods that need them.
    """
    own, needs = rows(x, y, group), frozenset(needs)
    require(
        valid is not None or "valid_table" not in needs,
        "measure needs held-out rows for valid_table: pass valid=(x, y, group).",
    )
    found: Metrics = {wire.EXAMPLES: own.size}
    if "unprivileged" in needs:
        found[wire.UNPRIVILEGED] = int(np.isin(own.group, list(unprivileged)).sum())
    if valid is not None and "valid_table" in needs:
        held_out = rows(*valid) if len(valid[1]) else NO_ROWS
        outcome = _outcomes_of(estimator, held_out).outcome if held_out.size else held_out.y
        wire.put(
            found, wire.VALID_TABLE, table(held_out.y, held_out.group, outcome, (groups, labels))
        )
    return found | (
        signals_from_outcomes(
            _outcomes_of(estimator, own), own.y, own.group, needs, shape=(groups, labels)
        )
        if needs & LOOKS
        else {}
    )


def train(estimator: Estimator, x: Any, y: Any, *, epochs: int = 1, weight: Any = None) -> None:
    """Continue training for some epochs of `partial_fit`, or iterations of a solver with warm
    start.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y)
    weight = None if weight is None else np.asarray(weight, np.float64)
    if hasattr(estimator, "partial_fit"):
        for _ in range(epochs):
            estimator.partial_fit(x, y, sample_weight=weight)
        return
    name, missing = type(estimator).__name__, sorted(set(estimator.classes_) - set(y))
    require(
        getattr(estimator, "warm_start", False),
        f"{name} must continue from the received model. Create it with warm_start=True.",
    )
    require(
        not missing,
        f"{name} needs rows of every label, and this client has none of {missing}. Use"
        " SGDClassifier, which does not.",
    )
    estimator.set_params(max_iter=epochs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few iterations are not meant to converge
        estimator.fit(x, y, sample_weight=weight)


def reply(message: Message, estimator: Estimator, metrics: Metrics) -> Message:
    """Reply to a train message: the trained model or, in two-phase rounds, coefficient times
    update; and the metrics.
    """
    return client_reply(message, arrays(estimator), metrics)


def app(
    make_estimator: Callable[[], Estimator], source: Source, *, require_policy: bool = False
) -> ClientApp:
    """ClientApp for an estimator. `source` is a Federation, the data of one client, or a function
    from the context to it. With `require_policy`, a node without a policy answers nothing.
    """
    return client_app(source, SklearnEngine(make_estimator), require_policy=require_policy)


class SklearnEngine:
    """Trains and evaluates linear estimators."""

    reduction = "mean"
    clips_rows = False

    def __init__(self, make_estimator: Callable[[], Estimator]) -> None:
        self._make = make_estimator

    def text(self, now: RoundConfig) -> str:
        return type(self).__name__

    def form(self, now: RoundConfig, client: ClientData) -> State:
        return _zeros(int(np.prod(client.train.x.shape[1:])), len(client.labels))

    def has_one_logit(self, now: RoundConfig) -> bool:
        estimator = self._make()
        kind = f"{type(estimator).__module__.partition('.')[0]}.{type(estimator).__name__}"
        return kind == "sklearn.LogisticRegression" or (
            kind == "sklearn.SGDClassifier" and estimator.loss == "log_loss"
        )

    def look(self, now: RoundConfig, model: State) -> Look:
        estimator = self._make()
        _put(estimator, model, max(len(model["intercept_"]), 2))
        return lambda own: _outcomes_of(estimator, own)

    def penalty(self, now: RoundConfig, model: State) -> float:
        return 0.0

    def probabilities(self, now: RoundConfig, model: State, own: ClientRows) -> np.ndarray | None:
        estimator = self._make()
        _put(estimator, model, max(len(model["intercept_"]), 2))
        if not hasattr(estimator, "predict_proba"):
            return None
        return estimator.predict_proba(np.asarray(own.x, np.float64).reshape(own.size, -1))

    def most_certain_model(self, now: RoundConfig, models: list[State], client: ClientData) -> int:
        raise ValueError(
            f"{now.algorithm.label}: edges of a scikit-learn model cannot be ranked. Use PyTorch or"
            " JAX clients."
        )

    def train(
        self, now: RoundConfig, client: ClientData, received: State, memory: Any
    ) -> tuple[State, Any]:
        work, own = now.algorithm.work, weighted_rows(now, client)
        plain = isinstance(work, LocalTraining) and not work.mu and work.shape is None
        require(
            plain,
            f"{now.algorithm.label}: scikit-learn estimators minimise their own loss and keep no"
            " personal model, so methods that change what clients do need PyTorch or JAX clients;"
            " those that only weigh clients or rows do not.",
        )
        estimator = self._make()
        _put(estimator, received, len(client.labels))
        if (
            estimator.get_params().get("random_state", 0) is None
        ):  # the same request, the same answer
            draws = generator(now.batch_seed, "estimator", now.server_round, now.client)
            estimator.set_params(random_state=int(draws.integers(2**31)))
        train(estimator, own.x.reshape(own.size, -1), own.y, epochs=work.epochs, weight=own.weight)
        return {name: leaf - received[name] for name, leaf in _state(estimator).items()}, memory


def _outcomes_of(estimator: Estimator, own: ClientRows) -> RowOutcomes:
    require(
        hasattr(estimator, "predict_proba"),
        f"{type(estimator).__name__} has no predict_proba, so its loss cannot be computed. Use"
        " loss='log_loss', or send your own metrics.",
    )
    p = estimator.predict_proba(np.asarray(own.x, np.float64).reshape(own.size, -1))
    return RowOutcomes(-np.log(np.maximum(p[np.arange(own.size), own.y], TINY)), p.argmax(1))


def _zeros(features: int, labels: int) -> State:
    units = 1 if labels == 2 else labels
    return {"coef_": np.zeros((units, features)), "intercept_": np.zeros(units)}


def _state(estimator: Estimator) -> State:
    return {
        "coef_": np.array(estimator.coef_, np.float64),
        "intercept_": np.array(estimator.intercept_, np.float64),
    }


def _put(estimator: Estimator, state: State, labels: int) -> None:
    kind = type(estimator)
    linear = any(base.__name__ == "LinearClassifierMixin" for base in kind.__mro__)
    require(
        linear or not kind.__module__.startswith("sklearn."),
        f"{kind.__name__} is not a linear classifier. The server averages coefficients, which it"
        " does not have. Use SGDClassifier, or LogisticRegression with warm_start=True; `evenly"
        " audit` reads the predictions of any model.",
    )
    # Writable copies in the type that solvers ask for.
    estimator.coef_, estimator.intercept_ = (
        np.array(state[name], np.float64) for name in ("coef_", "intercept_")
    )
    estimator.classes_, estimator.n_features_in_ = np.arange(labels), estimator.coef_.shape[1]
