"""`evenly privacy`: what a promise needs, for clients and for rows."""

import pytest

from tests.cli.test_cli import run

SAMPLED = "fedavg(weights=equal)+poisson(rate=0.05)"


def test_the_noise_and_the_claim_for_clients():
    ended = run(
        "privacy", "--method", SAMPLED, "--clients", "1000", "--rounds", "500",
        "--noise-multiplier", "1", "--delta", "1e-5",
    )  # fmt: skip
    assert "epsilon 7.53 at delta 1e-05, over 500 rounds" in ended.output
    assert "not against the server" in " ".join(ended.output.split())


def test_the_noise_and_the_claim_for_rows():
    ended = run(
        "privacy", "--unit", "row", "--method", "fairfed", "--rounds", "100",
        "--noise-multiplier", "1",
    )  # fmt: skip
    words = " ".join(ended.output.split())
    assert "epsilon 9.45 at delta 1e-05, over 100 rounds" in words
    assert "in 5,000 steps" in words
    assert "20 rows, in 11 releases. One of the releases is the census" in words
    assert "the server included" in words
    plain = run(
        "privacy", "--unit", "row", "--method", "q-fedavg", "--rounds", "100",
        "--noise-multiplier", "1",
    )  # fmt: skip
    assert "20 rows, in 10 releases" in plain.output
    assert "census" not in plain.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "8"], "Give --clients"),
        (["--clients", "1000"], "Give either --epsilon or --noise-multiplier"),
        (["--unit", "people", "--epsilon", "8"], "--unit must be client or row, got 'people'"),
        (["--unit", "row", "--epsilon", "8", "--method", "multi-q"], "reveal far more than one"),
        (["--unit", "row", "--epsilon", "8", "--method", "q-fedavg(q=[0, 1])"], "without a sweep"),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], words: str):
    method = [] if "--method" in arguments else ["--method", SAMPLED]
    ended = run("privacy", *method, "--rounds", "10", *arguments, code=2)
    assert words in " ".join(ended.output.split())
