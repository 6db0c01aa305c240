"""What is settled before the first round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.data.federation import Federation
from evenly.data.splits import Ragged
from evenly.models import MLP
from evenly.records import replace
from evenly.simulate import choosing, run
from evenly.types import Algorithm, Seeds
from tests.simulations import algorithms

TASK = MLP(features=2, classes=2, hidden=(2,))


def fitted(algorithm: Algorithm, federation: Federation) -> Algorithm:
    return choosing.fit_to_data(algorithm, federation.census(), federation.client_group)


@pytest.mark.parametrize(
    "text, groups",
    [
        ("ifca(groups=6)", 6),
        ("ifca(groups=0)", 3),
        ("e2fl", 3),
        ("e2fl(inference=one-shot, groups=6)", 6),
    ],
)
def test_there_are_as_many_models_as_asked_for_or_as_the_data_have_groups(
    tiny: Federation, text: str, groups: int
):
    (one,) = algorithms(text)
    found = fitted(one, tiny)
    assert found.rule.groups == groups  # type: ignore[attr-defined]
    if found.server is not None:
        assert found.server.groups == groups  # type: ignore[attr-defined]
    assert (found is one) == ("=6" in text)


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("ifca(groups=7)", "7 groups need at least as many clients, but there are 6"),
        ("ifca(groups=0)", "set the number of groups"),
        ("e2fl(groups=2)", "the data do not say which group each client belongs to"),
        (
            "e2fl(groups=2, inference=one-shot, known_votes=true)",
            "the data do not say which group each client belongs to",
        ),
    ],
)
def test_what_the_data_do_not_say_must_be_said(tiny: Federation, text: str, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        fitted(algorithms(text)[0], replace(tiny, client_group=None))


def test_a_method_of_one_model_is_left_as_it_is(tiny: Federation):
    (one,) = algorithms("fedavg")
    assert fitted(one, replace(tiny, client_group=None)) is one


@pytest.mark.parametrize(
    "text, most, fits",
    [
        ("frl+uniform(clients=3)", 3, True),
        ("frl+uniform(clients=3)", 2, False),
        ("frl+full", 5, False),
        ("e2fl+uniform(clients=3)", 3, True),
        ("e2fl(final_pass=true)+uniform(clients=3)", 6, True),  # everybody votes in the end
        ("e2fl(final_pass=true)+uniform(clients=3)", 5, False),
        ("fedavg+full", 1, True),  # nothing is counted exactly
    ],
)
def test_no_more_may_vote_than_can_be_counted(
    monkeypatch: pytest.MonkeyPatch, tiny: Federation, text: str, most: int, fits: bool
):
    monkeypatch.setattr(choosing, "MOST_BALLOTS", most)
    (one,) = algorithms(text)
    if fits:
        assert fitted(one, tiny)
        return
    with pytest.raises(
        ValueError, match=rf"at most {most} clients can vote in a round, got \d\. Sample fewer\.$"
    ):
        fitted(one, tiny)


def test_validation_rows_are_missed_only_where_they_are_looked_at(tiny: Federation):
    none = replace(tiny, valid=Ragged(np.zeros(0, np.int64), np.zeros(7, np.int64)))
    on_valid, on_train = algorithms("fairfed(measured_on=valid)+full,fairfed+full")
    run.refuse_without_validation(on_valid, tiny)
    run.refuse_without_validation(on_train, none)
    with pytest.raises(ValueError, match="but tiny hold none out"):
        run.refuse_without_validation(on_valid, none)


def test_models_that_train_apart_begin_apart_and_the_first_is_the_usual_one():
    usual, several, together = (
        choosing.initial_model(TASK, algorithms(text)[0].rule, Seeds(model=4))
        for text in ("fedavg", "ifca(groups=3)", "e2fl(groups=3)")
    )
    for one, three, shared in zip(*map(jax.tree.leaves, (usual, several, together)), strict=True):
        assert three.shape == (3, *one.shape)
        np.testing.assert_array_equal(three[0], one)
        np.testing.assert_array_equal(shared, one)
    key = jax.random.key(4)
    for i in (1, 2):
        expected = TASK.init(jax.random.fold_in(key, i))
        for leaf, own in zip(jax.tree.leaves(several), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(leaf[i], own)


@pytest.mark.parametrize("layer, kept", [(0, [0, 1, 2]), (1, [0]), (2, [1]), (3, [2])])
def test_clients_are_compared_by_all_layers_or_by_one_counted_from_1(layer: int, kept: list[int]):
    places = [jnp.full(2, i) for i in range(3)]
    assert [int(leaf[0]) for leaf in choosing._layers_to_compare(places, layer)] == kept
    with pytest.raises(
        ValueError, match=r"^e2fl: layer must be 0 \(all\) or from 1 to 3, got 4\.$"
    ):
        choosing._layers_to_compare(places, 4)
