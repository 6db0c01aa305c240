"""The first and last value that each setting takes, what it is by default, and what a method makes
clients reveal.
"""

from typing import Any

import pytest

from evenly.algorithms import algorithm

TAKEN = [
    "afl(rate_lambda=0)",
    "term(alpha=0)",
    "q-fedavg(q=0)",
    "q-fedavg(lipschitz=0.5)",
    "q-fedavg(learning_rate=0.5)",
    "fedsgd(q=0)",
    "fedsgd(learning_rate=0.5)",
    "fairfed(beta=0)",
    "fairfed(form=exponential)",
    "fairfed(clamp=false, carry=normalised)",
    "fedcvg(alpha=0)",
    "fedcvg-ratio(alpha=0)",
    "fedcvg-ratio(memory=0)",
    "fedcvg-ratio(memory=1)",
    "fedfb(alpha=0)",
    "fedmgda(epsilon=0)",
    "fedmgda(epsilon=1)",
    "fedmgda(server_rate=0.5)",
    "p-fedavg(ratio=1)",
    "p-fedavg(ratio=0.001)",
    "p-fedavg(first=0.5)",
    "p-fedavg(difference=0)",
    "propfair(M=0.5, epsilon=0.5)",
    "fedprox(mu=0)",
    "ditto(pull=0)",
    "fedavg(max_steps=0)",
    "fedavg(epochs=1, batch_size=1, max_steps=1)",
    "local(epochs=1, batch_size=1)",
    "ifca(groups=0)",
    "ifca(groups=1)",
    "e2fl(groups=0)",
    "e2fl(groups=1)",
    "e2fl(layer=0)",
    "e2fl(layer=1)",
    "e2fl(iterations=1)",
    "e2fl(restarts=1)",
    "e2fl(people=true)",
    "e2fl(inference=lowest-loss, known_votes=true)",
    "frl(momentum=0)",
    "frl(momentum=0.999)",
    "frl(weight_decay=0)",
    "frl(learning_rate=0.5)",
    "fedavg+server-sgd(learning_rate=0.5)",
    "fedavg+server-fedadam(beta1=0, beta2=0)",
    "fedavg+server-fedyogi(beta1=0.999, beta2=0.999)",
    "fedavg+server-fedadagrad(tau=0.5)",
    "fedavg+server-adam(b1=-1)",  # optax's own settings are left to optax
    "fedavg+reweigh(cap=0)",
    "fedavg+reweigh(cap=0.5)",
]
REFUSED = [
    "afl(rate_lambda=-0.5)",
    "term(alpha=-0.5)",
    "q-fedavg(q=-0.5)",
    "q-fedavg(lipschitz=0)",
    "q-fedavg(learning_rate=0)",
    "fedsgd(q=-0.5)",
    "fedsgd(weights=half)",
    "fedsgd(learning_rate=0)",
    "fairfed(beta=-0.5)",
    "fairfed(weights=half)",
    "fairfed(form=exponential, clamp=false)",
    "fairfed(form=exponential, carry=normalised)",
    "fedcvg(alpha=-0.5)",
    "fedcvg(weights=half)",
    "fedcvg-ratio(alpha=-0.5)",
    "fedcvg-ratio(memory=-0.5)",
    "fedcvg-ratio(memory=1.5)",
    "fedcvg-ratio(start=half)",
    "fedcvg-ratio(weights=half)",
    "fedfb(alpha=-0.5)",
    "fedfb(weights=half)",
    "fedmgda(epsilon=-0.5)",
    "fedmgda(epsilon=1.5)",
    "fedmgda(server_rate=0)",
    "fedmgda(weights=half)",
    "p-fedavg(ratio=0)",
    "p-fedavg(ratio=1.5)",
    "p-fedavg(first=0)",
    "p-fedavg(difference=-0.5)",
    "p-fedavg(ties=half)",
    "p-fedavg(sort_key=half)",
    "p-fedavg(weights=half)",
    "propfair(M=0)",
    "propfair(epsilon=0)",
    "fedprox(mu=-0.5)",
    "ditto(pull=-0.5)",
    "fedavg(max_steps=-1)",
    "fedavg(epochs=0)",
    "local(batch_size=0)",
    "ditto(epochs=0)",
    "frl(epochs=0)",
    "ifca(groups=-1)",
    "ifca(weights=half)",
    "e2fl(groups=-1)",
    "e2fl(layer=-1)",
    "e2fl(iterations=0)",
    "e2fl(restarts=0)",
    "e2fl(restarts=1.5)",
    "e2fl(known_votes=true)",
    "e2fl(inference=rank-clustering, known_votes=true)",
    "e2fl(inference=lowest-loss, people=true)",
    "frl(momentum=1)",
    "frl(momentum=-0.5)",
    "frl(weight_decay=-0.5)",
    "frl(learning_rate=0)",
    "fedavg+server-sgd(learning_rate=0)",
    "fedavg+server-fedadam(beta1=1)",
    "fedavg+server-fedadam(beta2=1)",
    "fedavg+server-fedyogi(beta1=-0.5)",
    "fedavg+server-fedadagrad(tau=0)",
    "fedavg+server-adam(b1=true)",
    "fedavg+server-adam(b1=high)",
    "fedavg+local-fedadam",  # of servers only
    "fedavg+reweigh(cap=-0.5)",
    "fedavg+reweigh(cap=true)",
]


@pytest.mark.parametrize("text", TAKEN)
def test_values_up_to_the_border_are_taken(text: str):
    assert algorithm(text)


@pytest.mark.parametrize("text", REFUSED)
def test_values_beyond_it_are_refused(text: str):
    with pytest.raises(ValueError, match=r"must|has|no |needs|leave|between"):
        algorithm(text)


def test_a_range_is_for_a_search():
    with pytest.raises(ValueError, match=r"number, got '0\.\.10'\. Ranges are for `evenly tune`"):
        algorithm("q-fedavg(q=0..10)")


@pytest.mark.parametrize(
    "text, part, settings",
    [
        ("q-fedavg", "rule", {"q": 1.0, "lipschitz": 10.0, "scale_update": True}),
        ("term", "rule", {"alpha": 0.1, "form": "normalised"}),
        ("afl", "rule", {"form": "full", "rate_lambda": 0.1}),
        (
            "fairfed",
            "rule",
            {
                "metric": "eod",
                "beta": 1.0,
                "form": "additive",
                "clamp": True,
                "carry": "raw",
                "measured_on": "train",
            },
        ),
        (
            "p-fedavg",
            "rule",
            {"family": "gini", "first": 1.0, "difference": 2.0, "ratio": 0.5, "ties": "share"},
        ),
        (
            "fedcvg-ratio",
            "rule",
            {"alpha": 0.5, "memory": 0.5, "start": "first-seen", "renormalise": True},
        ),
        ("fedmgda", "rule", {"epsilon": 0.1, "server_rate": 1.0}),
        ("fedfb", "rule", {"alpha": 0.3}),
        ("fedsgd", "rule", {"q": None}),
        (
            "fedsgd",
            "work",
            {
                "learning_rate": 0.1,
                "batch_size": 128,
                "epochs": 1,
                "shuffle": False,
                "max_steps": 0,
            },
        ),
        ("ifca", "rule", {"groups": 2, "apart": True, "known_votes": False, "final_pass": False}),
        (
            "e2fl",
            "rule",
            {
                "groups": 0,
                "inference": "known",
                "layer": 0,
                "iterations": 20,
                "restarts": 5,
                "apart": False,
                "people": False,
            },
        ),
        (
            "frl",
            "work",
            {
                "learning_rate": 0.1,
                "momentum": 0.9,
                "weight_decay": 1e-4,
                "epochs": 2,
                "batch_size": 8,
                "max_steps": 0,
            },
        ),
        (
            "fedavg",
            "work",
            {
                "learning_rate": 0.1,
                "epochs": 1,
                "batch_size": 10,
                "mu": 0.0,
                "max_steps": 0,
                "shuffle": True,
            },
        ),
        (
            "ditto",
            "work",
            {
                "learning_rate": 0.1,
                "pull": 1.0,
                "epochs": 1,
                "batch_size": 10,
                "max_steps": 0,
                "shuffle": True,
            },
        ),
        (
            "local",
            "work",
            {"learning_rate": 0.1, "epochs": 1, "batch_size": 10, "max_steps": 0, "shuffle": True},
        ),
        ("fedavg+reweigh", "prepare", {"rescale": False, "cap": 0.0}),
    ],
)
def test_settings_that_are_left_out_are_the_documented_ones(
    text: str, part: str, settings: dict[str, Any]
):
    found = getattr(algorithm(text), part)
    assert {name: getattr(found, name) for name in settings} == settings


@pytest.mark.parametrize(
    "text, needs",
    [
        ("fedavg(weights=size)+full", {"examples"}),
        ("fedavg(weights=equal)+full", set()),
        ("fedsgd(weights=size)+full", {"examples"}),
        ("fedsgd(weights=equal)+full", set()),
        ("fedsgd(weights=size, q=0)+full", {"examples", "loss"}),
        ("fedsgd(weights=equal, q=1)+full", {"loss"}),
        ("q-fedavg", {"loss", "square_norm"}),
        ("term(weights=equal)+full", {"loss"}),
        ("term(weights=size)+full", {"loss", "examples"}),
        ("term(form=authors)+full", {"loss"}),
        ("afl", {"loss"}),
        ("afl(form=stochastic)", {"loss", "chance"}),
        ("afl(form=per-domain)", {"loss"}),
        ("p-fedavg", {"loss"}),
        ("p-fedavg(weights=size)+full", {"loss", "examples"}),
        ("p-fedavg(sort_key=n)", {"examples"}),
        ("p-fedavg(sort_key=n, weights=size)+full", {"examples"}),
        ("fairfed(weights=equal)+full", {"table"}),
        ("fairfed(weights=size, measured_on=valid)+full", {"valid_table", "examples"}),
        ("fedcvg(weights=equal)+full", {"unprivileged"}),
        ("fedcvg(weights=size)+full", {"unprivileged", "examples"}),
        ("fedcvg-ratio(weights=equal)+full", {"unprivileged", "examples"}),
        ("fedmgda(weights=equal)+full", {"gram"}),
        ("fedmgda(weights=size)+full", {"gram", "examples"}),
        ("ifca(weights=equal)+full", {"choice"}),
        ("ifca(weights=size)+full", {"choice", "examples"}),
        ("frl", set()),
        ("e2fl", {"choice"}),
    ],
)
def test_clients_reveal_what_the_weights_are_made_of_and_no_more(text: str, needs: set[str]):
    rule = algorithm(text).rule
    assert rule.needs == needs
    assert rule.counts_sizes == ("weights=size" in text)
