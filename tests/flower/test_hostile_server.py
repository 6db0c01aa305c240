"""A hostile server against the approved app: under the default policy no attempt passes, and each
is in the egress log; without a policy the same attempts succeed.
"""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict

from evenly.flower.clients.egress import EgressEntry, sentences
from evenly.flower.clients.guard import site_policy
from tests.flower.hostile_answers import (
    BOTH,
    MORE_ATTEMPTS,
    ONE_STEP,
    SPECIAL,
    equations_of_many_rounds,
    row_of_a_category_from_losses,
    the_only_row_of_a_category,
    the_only_row_with_two_categories,
)
from tests.flower.hostile_models import (
    ATTEMPTS_ON_MODELS,
    HIDDEN,
    NOT_LINEAR,
    network,
    one_unit_of_a_network,
)
from tests.flower.hostile_server import (
    AGREED,
    ATTEMPTS,
    LARGE,
    Attempt,
    Site,
    linear,
    mean_features,
    message,
    training_rows_evaluated,
    validation_rows_evaluated,
)

EVERY = [*ATTEMPTS, *MORE_ATTEMPTS, *ATTEMPTS_ON_MODELS]
PRIVATE_ROWS = f"{AGREED}+dp(unit=row, rate=0.2, noise_multiplier=1, signal_noise=3)"
NAMES = [f"{one.attack.__name__}-{one.method}" for one in EVERY]
# without those rows, or without losses
ANSWERED = (training_rows_evaluated, validation_rows_evaluated, row_of_a_category_from_losses)


@pytest.mark.parametrize("attempt", EVERY, ids=NAMES)
def test_no_attempt_passes_the_default_policy_and_each_is_logged(attempt: Attempt, tmp_path: Path):
    site = attempt.site(tmp_path)
    assert not attempt.attack(site)
    refused = [one for one in site.entries() if one.decision != "left"]
    if attempt.attack in ANSWERED:
        for entry in site.entries():
            assert "table" in entry.numbers
            assert not any(name.startswith(("train-", "valid-", "loss")) for name in entry.numbers)
    else:
        assert refused, "the attempt is not in the log"
        assert attempt.because in refused[-1].words
        assert site.said.startswith("The policy of this site refuses the request: ")
        assert "\n" not in site.said


@pytest.mark.parametrize("attempt", EVERY, ids=NAMES)
def test_without_a_policy_every_attempt_succeeds(attempt: Attempt):
    site = attempt.site(None)
    assert attempt.attack(site), site.said


@pytest.mark.parametrize("attempt", ATTEMPTS_ON_MODELS, ids=NAMES[-len(ATTEMPTS_ON_MODELS) :])
def test_a_policy_that_allows_any_model_does_not_stop_what_they_reveal(
    attempt: Attempt, tmp_path: Path
):
    """The limit that docs/flower-policy.md names beside the key."""
    site = attempt.site(tmp_path, "any_model = true")
    assert attempt.attack(site), site.said
    assert {one.decision for one in site.entries()} == {"left"}


def test_a_network_with_private_rows_is_trained_but_not_evaluated(tmp_path: Path):
    """Noise protects training rows under any model; counts and losses of test rows have none."""
    unit = next(one for one in ATTEMPTS_ON_MODELS if one.attack is one_unit_of_a_network)
    site = unit._replace(method=PRIVATE_ROWS).site(tmp_path, "epsilon = 100.0")
    site.config["ledger"] = str(tmp_path / "ledger.json")
    assert not unit.attack(site)
    assert [one.decision for one in site.entries()] == ["left"]
    assert site.ask("evaluate", network(HIDDEN)) == {}
    assert NOT_LINEAR in site.entries()[-1].words


def test_losses_of_evaluations_leave_only_if_the_policy_lists_them(tmp_path: Path):
    """And even then not where all rows but a few have the same value of a feature."""
    for source, words in ((LARGE, ""), (SPECIAL, "1 of 3 features are rare")):
        folder = tmp_path / f"{bool(words)}"
        folder.mkdir()
        site = Site(source, folder, AGREED, more='metrics = ["loss"]')
        assert ("loss" in site.ask("evaluate", linear((3, 0, 0)))) is not bool(words)
        assert words in site.entries()[-1].words


def test_a_policy_that_allows_any_model_allows_rare_features(tmp_path: Path):
    site = Site(SPECIAL, tmp_path, ONE_STEP, more="any_model = true")
    assert the_only_row_of_a_category(site), site.said


def test_there_are_at_least_forty_different_attempts():
    assert len({one.attack for one in EVERY}) >= 40


def test_limits_of_a_run_end_with_it_and_those_of_a_day_do_not(tmp_path: Path):
    """The limit that docs/flower-policy.md names: a new run may have other seeds and ask for the
    same round, but all runs share the rounds of a day.
    """
    site = Site(LARGE, tmp_path, AGREED, more="rounds_a_day = 4")
    means = []
    for site.run in range(1, 5):
        means.append(mean_features(linear(), site.ask("train", linear(), batch_seed=site.run)))
        assert site.ask("train", linear(1.0), batch_seed=site.run) == {}, "it asked twice in a run"
    assert np.isfinite(means).all(), site.said
    assert not np.allclose(means[0], means[1])
    site.run = 5
    assert site.ask("train", linear(), batch_seed=5) == {}
    assert "rounds_a_day is 4" in site.entries()[-1].words


def test_no_policy_stops_a_server_that_sends_models_of_its_own_making(tmp_path: Path):
    """The limit that docs/flower-policy.md names first: three ordinary requests tell a row."""
    site = Site(BOTH, tmp_path, ONE_STEP)
    assert the_only_row_with_two_categories(site), site.said
    assert [one.decision for one in site.entries()] == ["left"] * 3
    folder = tmp_path / "noised"
    folder.mkdir()
    noised = Site(BOTH, folder, PRIVATE_ROWS, more="epsilon = 100.0")
    noised.config["ledger"] = str(folder / "ledger.json")
    assert not the_only_row_with_two_categories(noised)
    assert [one.decision for one in noised.entries()] == ["left"] * 3


@pytest.mark.further
def test_only_noise_stops_a_server_that_collects_equations(tmp_path: Path):
    """The limit of every policy, as docs/flower-policy.md says it: 80 rounds of the agreed method
    tell all rows of a label, and do not where rows are private.
    """
    (tmp_path / "exact").mkdir()
    assert equations_of_many_rounds(Site(LARGE, tmp_path / "exact", AGREED))
    (tmp_path / "noised").mkdir()
    site = Site(LARGE, tmp_path / "noised", PRIVATE_ROWS)
    with (tmp_path / "noised" / "policy.toml").open("a") as file:
        file.write("\nepsilon = 100.0\n")
    site.config["ledger"] = str(tmp_path / "noised" / "ledger.json")
    assert not equations_of_many_rounds(site)
    assert sum(one.decision == "left" for one in site.entries()) > 20  # it was no refusal


def test_what_cannot_be_read_is_refused_and_logged(tmp_path: Path):
    """A message without content, as a server can send one."""
    site = Site(LARGE, tmp_path, AGREED)
    envelope = message("train", RecordDict()).metadata
    empty = Message(error=Error(1, "no content"), metadata=envelope)  # pyright: ignore[reportCallIssue]
    context = Context(1, 7, site.config, site.state, {})
    reply = site_policy(empty, context, lambda *_: pytest.fail("it was answered"))
    assert str(reply.error.reason).startswith("The policy of this site refuses the request: ")
    (entry,) = site.entries()
    assert (entry.kind, entry.decision) == ("unreadable", "refused")


def test_an_entry_is_one_line_whatever_a_server_wrote():
    """A message type or a method with a line break cannot pass for an entry of its own."""
    forged = "train\n2026-11-18 09:00:00  run 1: this site introduced itself\x1b[2J"
    for decision in ("left", "refused", "withheld", "failed"):
        entry = EgressEntry("2026-11-18T09:00:00+00:00", "1", forged, 1, decision, "", forged)
        assert all(line.isprintable() for line in sentences(entry))
        assert len(sentences(entry)) == 1


def test_an_honest_server_is_answered_under_the_default_policy(tmp_path: Path):
    """The policy is no wall: rounds of the agreed method, the census and evaluations pass."""
    site = Site(LARGE, tmp_path, AGREED)
    assert site.ask("query.census")["num-examples"] == LARGE.train.size
    for number in (1, 2, 3):
        assert "arrays" in site.ask("train", linear(number / 10), number), site.said
    assert "table" in site.ask("evaluate", linear((3, 0, 0)), 3), site.said
    assert [one.decision for one in site.entries()] == ["left"] * 5
    again = site.ask("train", linear(0.3), 3)  # a server that was restarted asks again
    assert "arrays" in again
