import pytest

from evenly.algorithms import METHODS, algorithm, register, variants
from evenly.algorithms.fedavg import METHOD
from evenly.notation import parse
from evenly.parts.optimisers import OptimisedServer
from evenly.parts.sampling import Full, Uniform, Weighted


def test_a_sweep_becomes_one_variant_per_value():
    found = variants(parse("q-fedavg(q=[0, 1], learning_rate=[0.1, 0.3])+uniform(clients=4)"))
    assert [(v.members[0].rule.q, v.members[0].work.learning_rate) for v in found] == [
        (0, 0.1),
        (0, 0.3),
        (1, 0.1),
        (1, 0.3),
    ]  # pyright: ignore[reportAttributeAccessIssue]
    assert (
        found[1].label
        == found[1].members[0].label
        == "q-fedavg(q=0, learning_rate=0.3)+uniform(clients=4)"
    )
    assert found[1].settings == {"q": 0, "learning_rate": 0.3}
    assert all(v.members[0].select.clients == 4 for v in found)  # pyright: ignore[reportAttributeAccessIssue]


def test_common_settings_apply_where_the_method_has_them_and_the_notation_does_not():
    (own,) = variants(parse("q-fedavg(q=2)"), {"q": 5, "learning_rate": 0.3, "unheard_of": 1})
    assert (own.members[0].rule.q, own.members[0].work.learning_rate) == (
        2,
        0.3,
    )  # pyright: ignore[reportAttributeAccessIssue]
    assert own.settings == {"q": 2, "learning_rate": 0.3}
    (gradient,) = variants(parse("fedsgd"), {"epochs": 3, "learning_rate": 0.3})
    assert gradient.settings == {"learning_rate": 0.3}


def test_a_method_is_built_without_common_settings_and_refuses_those_it_does_not_have():
    assert METHODS["fedavg"].build({}).work.epochs == 1  # pyright: ignore[reportAttributeAccessIssue]
    built = METHODS["fedavg"].build({"batch_size": 3}, common={"batch_size": 5, "epochs": 4})
    assert (built.work.batch_size, built.work.epochs) == (3, 4)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match=r"^fedavg: .*unheard_of"):
        METHODS["fedavg"].build({}, common={"unheard_of": 1})


def test_the_given_sampling_is_used_unless_the_notation_names_one():
    (plain,) = variants(parse("fedavg"), select=Full())
    (named,) = variants(parse("fedavg+uniform(clients=2)"), select=Full())
    assert isinstance(plain.members[0].select, Full)
    assert isinstance(named.members[0].select, Uniform)
    assert isinstance(algorithm("fedavg").select, Weighted)


def test_server_and_local_optimisers_are_parts():
    built = algorithm(
        "fedavg+server-adam(learning_rate=0.01, b1=0.5)+local-momentum(learning_rate=0.2,"
        " momentum=0.8)"
    )
    assert isinstance(built.server, OptimisedServer)
    assert (built.server.optimiser.kind, built.server.optimiser.learning_rate) == ("adam", 0.01)
    assert built.server.optimiser.options == {"b1": 0.5}
    assert (built.work.optimiser, built.work.learning_rate, built.work.options) == (
        "momentum",
        0.2,
        {"momentum": 0.8},
    )  # pyright: ignore[reportAttributeAccessIssue]


def test_a_local_optimiser_without_a_rate_keeps_the_common_one():
    assert algorithm("fedavg+local-momentum", learning_rate=0.02).work.learning_rate == 0.02  # pyright: ignore[reportAttributeAccessIssue]
    assert (
        algorithm(
            "fedavg(learning_rate=0.03)+local-momentum", learning_rate=0.02
        ).work.learning_rate
        == 0.03
    )  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "text, sentence",
    [
        (
            "q-fedavgg",
            r"There is no method 'q-fedavgg'\. Did you mean 'q-fedavg'\? Known: .*fedavg.*\.",
        ),
        (
            "q-fedavg(qq=1)",
            r"q-fedavg: There is no setting 'qq'\. Did you mean 'q'\? Known: .*lipschitz.*\.",
        ),
        (
            "fedavg+unifrom",
            r"There is no part 'unifrom'\. Did you mean 'uniform'\? Known: .*server-adam.*\.",
        ),
        (
            "fedavg+server-adamm",
            r"There is no part 'server-adamm'\. Did you mean 'server-adam'\? Known: .*",
        ),
        (
            "fedavg+uniform(client=3)",
            r"uniform: There is no setting 'client'\. Did you mean 'clients'\? Known: clients\.",
        ),
        ("fedavg+full(clients=3)", r"full: it has no settings, got 'clients'\."),
        (
            "fedavg+uniform(clients=0)",
            r"uniform: clients must be a whole number of at least 1, got 0\.",
        ),
        (
            "fedavg+weighted(clients=2.5)",
            r"weighted: clients must be a whole number of at least 1, got 2\.5\.",
        ),
        ("fedavg+fraction(share=0)", r"fraction: share must be above 0 and at most 1, got 0\."),
        (
            "fedavg+fraction(share=1.5)",
            r"fraction: share must be above 0 and at most 1, got 1\.5\.",
        ),
        (
            "fedavg+server-adam(b9=1)",
            r"adam has no setting 'b9'; it has learning_rate, b1, b2, eps\.",
        ),
        ("fedavg+server-sgd(learning_rate=0)", r"learning_rate must be above 0, got 0\."),
        (
            "q-fedavg(q=[0, 1])",
            r"'q-fedavg\(q=\[0, 1\]\)' stands for 2 runs, but one is needed\. evenly\.variants.*",
        ),
        ("fedavg, ditto", r"'fedavg, ditto' stands for 2 runs, but one is needed\. .*"),
        ("", r"A method is written like q-fedavg\(q=1\)\+uniform\(clients=10\), got ''\."),
        (
            "fedsgd+local-adam",
            (
                r"fedsgd: clients take one full-gradient step and have no local optimiser, got"
                r" 'local-adam'\..*"
            ),
        ),
    ],
)
def test_mistakes_are_answered_with_a_sentence(text: str, sentence: str):
    with pytest.raises(ValueError, match=f"^{sentence}( Meaning: .*)?$"):
        algorithm(text)


def test_a_method_of_your_own_can_be_registered(registries: None):
    import dataclasses

    register(dataclasses.replace(METHOD, name="mine"))
    assert algorithm("mine(learning_rate=0.4)").work.learning_rate == 0.4  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match=r"mine: learning_rate must be above 0"):
        algorithm("mine(learning_rate=0)")
