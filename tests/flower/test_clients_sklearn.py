"""Clients in scikit-learn: coefficients travel, signals are those of the received model, and
estimators go on from it.
"""

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier

from evenly.data.federation import Federation
from evenly.flower import wire
from evenly.flower.clients import sklearn as in_sklearn
from evenly.flower.clients.rows import client_of
from tests import federations
from tests.flower.one_room import Room, config, plain_rounds


def by_steps() -> SGDClassifier:
    return SGDClassifier(
        loss="log_loss", learning_rate="constant", eta0=0.05, alpha=0.0, shuffle=False
    )


@pytest.fixture(scope="module")
def two() -> Federation:
    return federations.tiny(classes=2)


def zeros(labels: int) -> dict[str, np.ndarray]:
    return {name: wire.read(array) for name, array in in_sklearn.first_arrays(5, labels).items()}


def test_partial_fit_goes_on_from_the_received_model(two: Federation) -> None:
    rows = client_of(two, 5).train
    expected: Any = by_steps()
    expected.partial_fit(rows.x.astype(np.float64), rows.y, classes=[0, 1])
    expected.partial_fit(rows.x.astype(np.float64), rows.y)
    sent = Room(in_sklearn.app(by_steps, two), 6).ask(
        5, "train", in_sklearn.first_arrays(5, 2), config("fedavg(epochs=2)", 1, 5)
    )
    np.testing.assert_allclose(wire.read(sent[wire.ARRAYS]["coef_"]), expected.coef_, rtol=1e-9)
    np.testing.assert_allclose(
        wire.read(sent[wire.ARRAYS]["intercept_"]), expected.intercept_, rtol=1e-9
    )


@pytest.mark.parametrize(
    "notation",
    [
        "fedavg(epochs=3)+full",
        "q-fedavg(q=1)+full",
        "fairfed(metric=eod)+reweigh+full",
        "fedfb+full",
    ],
)
def test_methods_that_weigh_clients_or_rows_lower_the_loss(notation: str, tiny: Federation) -> None:
    room = Room(in_sklearn.app(by_steps, tiny), 6)
    model = plain_rounds(notation, room, tiny, None, 4, zeros(3))  # pyright: ignore[reportArgumentType]
    evaluated = [
        np.mean(
            [
                room.ask(k, "evaluate", wire.to_arrays(m), config(notation, 1, k))[wire.METRICS][
                    "train-loss"
                ]
                for k in range(6)
            ]
        )
        for m in (zeros(3), model)
    ]
    assert evaluated[0] == pytest.approx(np.log(3))
    assert evaluated[1] < evaluated[0] - 0.05


def test_a_solver_goes_on_for_a_few_iterations(two: Federation) -> None:
    room = Room(in_sklearn.app(lambda: LogisticRegression(warm_start=True), two), 6)
    notation = "q-fedavg(q=1, epochs=2)"
    first = room.ask(5, "train", in_sklearn.first_arrays(5, 2), config(notation, 1, 5))
    second = room.ask(5, "train", first[wire.ARRAYS], config(notation, 2, 5))
    assert first[wire.METRICS][wire.LOSS] == pytest.approx(np.log(2))
    assert second[wire.METRICS][wire.LOSS] < np.log(2)
    with pytest.raises(ValueError, match="warm_start=True"):
        Room(in_sklearn.app(LogisticRegression, two), 6).ask(
            5, "train", in_sklearn.first_arrays(5, 2), config(notation, 1, 5)
        )


def test_measure_counts_by_group(two: Federation) -> None:
    rows, model = client_of(two, 5).train, by_steps()
    in_sklearn.load(model, in_sklearn.first_arrays(5, 2), labels=2)
    in_sklearn.train(model, rows.x, rows.y)
    found = in_sklearn.measure(
        model, rows.x, rows.y, rows.group, ("loss", "table", "unprivileged"), groups=2
    )
    table = wire.get(found, wire.TABLE)
    assert table is not None
    predicted = model.predict(rows.x.astype(np.float64))
    assert table[1, 0, 1] == ((rows.group == 1) & (rows.y == 0) & (predicted == 1)).sum()
    assert found[wire.UNPRIVILEGED] == (rows.group == 0).sum()


def test_measure_counts_rows_that_are_held_out(two: Federation) -> None:
    client, model = client_of(two, 5), by_steps()
    in_sklearn.load(model, in_sklearn.first_arrays(5, 2), labels=2)
    in_sklearn.train(model, client.train.x, client.train.y)
    given = client.train.x, client.train.y, client.train.group, ("valid_table",)
    found = in_sklearn.measure(
        model, *given, groups=2, valid=(client.valid.x, client.valid.y, client.valid.group)
    )
    expected = in_sklearn.measure(
        model, client.valid.x, client.valid.y, client.valid.group, ("table",), groups=2
    )
    assert (found[wire.EXAMPLES], found[wire.VALID_TABLE]) == (
        client.train.size,
        expected[wire.TABLE],
    )
    none = client_of(two, 0).valid
    assert none.size == 0
    assert not any(
        in_sklearn.measure(model, *given, groups=2, valid=(none.x, none.y, none.group))[
            wire.VALID_TABLE
        ]
    )
    with pytest.raises(
        ValueError, match=r"measure needs held-out rows for valid_table: pass valid=\(x, y, group\)"
    ):
        in_sklearn.measure(model, *given, groups=2)


def test_what_an_estimator_cannot_do_is_said(two: Federation) -> None:
    room = Room(in_sklearn.app(by_steps, two), 6)
    for notation in ("fedprox(mu=1)", "propfair", "ditto"):
        with pytest.raises(ValueError, match="PyTorch or JAX clients"):
            room.ask(0, "train", in_sklearn.first_arrays(5, 2), config(notation, 1, 0))
    for model in (RandomForestClassifier(warm_start=True), HistGradientBoostingClassifier()):
        trees = Room(in_sklearn.app(lambda model=model: model, two), 6)
        with pytest.raises(ValueError, match=f"{type(model).__name__} is not a linear classifier"):
            trees.ask(0, "train", in_sklearn.first_arrays(5, 2), config("fedavg", 1, 0))
    hinge = Room(in_sklearn.app(SGDClassifier, two), 6)
    with pytest.raises(ValueError, match="log_loss"):
        hinge.ask(0, "train", in_sklearn.first_arrays(5, 2), config("q-fedavg", 1, 0))
