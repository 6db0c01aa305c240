"""Which sampling supports which claim (PRIVACY.md 3.5), and what is refused for clients, with the
reason and what to use instead.
"""

import math
from typing import Any

import pytest

from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.parts.sampling import Poisson, Uniform
from evenly.privacy.accounting import ADD_OR_REMOVE, REPLACE, ZERO_OUT, Releases, epsilon_of
from evenly.privacy.claims import facts, refuse
from evenly.records import replace
from evenly.simulate.gating import gates_of
from tests.models.stateful import Normalised

CLIENTS, ROUNDS = 1000, 500
PRIVATE = "dp(noise_multiplier=1, delta=1e-5)"
HIDDEN = "nobody against whom it holds sees who took part in a round"
NOTHING = "nothing, even if everybody sees who took part"

CLAIMS = {
    "poisson(rate=0.05)": (ADD_OR_REMOVE, 7.524, HIDDEN),
    "poisson(rate=1)": (ADD_OR_REMOVE, 344.451, NOTHING),
    "full": (ADD_OR_REMOVE, 344.451, NOTHING),
    # a newcomer displaces somebody
    "uniform(clients=50)": (REPLACE, 130.811, HIDDEN),
    "fraction(share=0.05)": (REPLACE, 130.811, HIDDEN),
    # who has many rows takes part more often: the draw hides nobody
    "weighted(clients=50)": (ZERO_OUT, 344.451, "training rows of every client is public"),
}


@pytest.mark.parametrize("sampling", CLAIMS)
def test_each_sampling_supports_its_claim_and_no_other(sampling: str):
    relation, epsilon, assumes = CLAIMS[sampling]
    known = facts([algorithm(f"fedavg+{sampling}+{PRIVATE}")], CLIENTS, ROUNDS)
    assert known["relation"] == relation
    assert known["epsilon"] == pytest.approx(epsilon, abs=2e-3)
    assert assumes in known["assumes"]
    assert not known["no_claim"]


@pytest.mark.parametrize("method", ["fairfed", "fedcvg-ratio", "afl(bins=32)"])
def test_of_a_fixed_number_the_draw_hides_nobody_where_clients_remember_earlier_rounds(method: str):
    """The memories of others tell who took part, because a client that takes part keeps one out."""
    part = "dp(noise_multiplier=20, delta=1e-5)"
    known, plain, poisson = (
        facts([algorithm(f"{one}+{part}")], CLIENTS, 100)
        for one in (f"{method}+uniform(clients=60)", "fedavg+uniform(clients=60)",
                    f"{method}+poisson(rate=0.06)")
    )  # fmt: skip
    assert known["epsilon"] == pytest.approx(epsilon_of(20 / 2 / 10, Releases(1), 1e-5))
    assert (known["relation"], known["assumes"]) == (REPLACE, NOTHING)
    assert known["epsilon"] > 5 * max(plain["epsilon"], poisson["epsilon"])
    assert (plain["assumes"], poisson["assumes"]) == (HIDDEN, HIDDEN)


@pytest.mark.parametrize(
    "method, share", [("fedavg(weights=equal)", 1.0), ("fedavg", 0.9), ("q-fedavg", 0.9)]
)
def test_facts_name_the_sampling_and_the_share_of_the_updates(method: str, share: float):
    made = algorithm(f"{method}+poisson(rate=0.05)+{PRIVATE[:-1]}, clip=1)")
    known = facts([made], CLIENTS, ROUNDS)
    assert (known["sampling"], known["expected_clients"], known["clients"]) == ("poisson", 50, 1000)
    assert known["update_share"] == share


def test_personal_models_are_memories_that_nobody_sends():
    known = facts([algorithm(f"ditto+uniform(clients=50)+{PRIVATE}")], CLIENTS, ROUNDS)
    assert known["epsilon"] == pytest.approx(130.811, abs=2e-3)


@pytest.mark.parametrize("noise, share, epsilon", [(10, 0.6, 10.0), (20, 0.9, 4.377)])
def test_a_draw_of_most_clients_claims_what_holds_without_secrecy(noise, share, epsilon):
    """The bound for a draw of a fixed number is not tight: 13.50 and 9.64."""
    made = algorithm(f"fedavg+fraction(share={share})+dp(noise_multiplier={noise}, delta=1e-5)")
    known = facts([made], CLIENTS, 100)
    assert known["epsilon"] == pytest.approx(epsilon, abs=5e-3)
    assert (known["relation"], known["assumes"]) == (REPLACE, NOTHING)


def test_a_sampling_of_ones_own_that_extends_another_supports_no_claim():
    class MyPoisson(Poisson):
        pass

    class MyUniform(Uniform):
        pass

    for select in (MyPoisson(rate=0.1), MyUniform(clients=60)):
        made = replace(algorithm(f"fedavg+{PRIVATE}"), select=select)
        assert facts([made], CLIENTS, ROUNDS)["no_claim"] == "sampling without analysis"


@pytest.mark.parametrize(
    "part, reason",
    [
        ("dp(noise_multiplier=0)", "noise is 0"),
        ("dp(noise_multiplier=1, publish=true)", "evaluations of clients are published"),
    ],
)
def test_without_noise_or_with_published_figures_there_is_no_number(part: str, reason: str):
    known = facts([algorithm(f"fedavg+full+{part}")], CLIENTS, ROUNDS)
    assert (known["epsilon"], known["no_claim"]) == (None, reason)


REFUSED = {
    "fedmgda+full": "the weight of one client depends on all others.* q-fedavg or term",
    "p-fedavg+full": "set bins.* Set bins, such as p-fedavg",
    "afl+full": "12 sums before training.* Set bins, such as afl",
    "afl(form=stochastic)+full": "one client is drawn from lambda.* Set bins",
    "term(form=authors)+full": "largest of the cohort.* Leave form=authors out",
    "frl+full": "rankings of edges.* train a model with fedavg or ifca",
    "e2fl+full": "rankings of edges.* train a model with fedavg or ifca",
    "local+full": "there is nothing to protect. Leave",
    "fairfed(clamp=false)+full": "weights may be negative.* Leave clamp=false out",
    "fedcvg-ratio(renormalise=false)+full": "noised sum of weights. Leave renormalise=false out",
    "fedavg+parity": r"a newcomer displaces another.* \+poisson",
    "fedavg+weighted(clients=60, replace=true)": "drawn twice .* leave replace=true out",
    "fedavg+uniform(clients=49)": "about 49 of 1,000 clients.* unit=row .* forced=true",
    "fedavg+poisson(rate=0.049)": "about 49 of 1,000 clients.* unit=row .* forced=true",
}


@pytest.mark.parametrize("notation", REFUSED)
def test_what_cannot_be_private_is_refused_with_a_reason(notation: str):
    made = algorithm(f"{notation}+{PRIVATE}")
    with pytest.raises(ValueError, match=REFUSED[notation]):
        refuse(made, CLIENTS)


def test_several_models_of_the_same_clients_are_refused():
    members = [algorithm(f"q-fedavg(q={q})+full+{PRIVATE}") for q in (0, 1)]
    with pytest.raises(ValueError, match=r"2 models .* Train one of them, such as q-fedavg"):
        facts(members, CLIENTS, ROUNDS)


def test_few_clients_train_where_they_are_forced_to():
    made = algorithm("fedavg+uniform(clients=2)+dp(noise_multiplier=1, forced=true)")
    refuse(made, CLIENTS)
    assert math.isfinite(facts([made], CLIENTS, 1)["epsilon"])


def test_a_model_with_running_statistics_is_refused(tiny: Federation):
    made = algorithm("fedavg+full+dp(noise_multiplier=1, forced=true)")
    task: Any = Normalised(features=5, classes=3)
    with pytest.raises(ValueError, match=r"running statistics.* Choose a model without batch norm"):
        gates_of(task, [made], tiny.census(), 1)
