"""What the trials of a search spend together."""

from types import SimpleNamespace
from typing import Any

import pytest

from evenly.algorithms import algorithm
from evenly.api.search import TuningResults
from evenly.experiment import tuning as tunings
from evenly.experiment.search_trials import TrialDatabase
from evenly.experiment.tuning import Tuning, _chosen_among, spent_by_search, withholds_trials
from evenly.experiment.tuning_space import plan_tuning
from evenly.privacy.accounting import Releases, epsilon_of, joint
from evenly.privacy.search_account import search_epsilon
from evenly.report.tuning_page import render_tuning

DELTA = 1e-5
METHOD = "q-fedavg(q={q})+poisson(rate={rate})+dp(noise_multiplier={z}, delta=1e-5{more})"


def methods(*qs: float, rate: float = 0.1, z: float = 2.0, more: str = ""):
    return [algorithm(METHOD.format(q=q, rate=rate, z=z, more=more)) for q in qs]


def told(trials, together: bool = True, seeds: int = 1):
    return search_epsilon(trials, clients=1000, rounds=50, seeds=seeds, together=together)


def test_trials_of_one_batch_are_one_release_about_each_cohort():
    slots = algorithm("fedavg+poisson(rate=0.1)").select.slots
    one = told(methods(1))["epsilon"]
    rounds = Releases(50, 0.1, registered=1000, slots=slots(_census(1000)))
    assert one == epsilon_of(2.0, rounds, DELTA)
    four = told(methods(0, 1, 2, 5))["epsilon"]
    assert four == epsilon_of(joint([2.0] * 4), rounds, DELTA) > one
    # cohorts that were drawn anew for every trial would seem to cost less, which is wrong
    assert four > epsilon_of(2.0, rounds._replace(times=200), DELTA)
    # further seeds draw cohorts and noise of their own
    assert told(methods(1), seeds=3)["epsilon"] == epsilon_of(
        2.0, rounds._replace(times=150), DELTA
    )


def test_trials_that_depend_on_results_of_others_support_no_claim():
    known = told(methods(0, 1), together=False)
    assert known["epsilon"] is None
    assert "follow from exact results" in known["no_claim"]
    assert "one batch" in known["no_claim"]


def test_a_trial_whose_clients_remember_leaves_no_amplification_to_the_others():
    part = "+uniform(clients=60)+dp(noise_multiplier=20, delta=1e-5)"
    trials = [algorithm(one + part) for one in ("fedavg", "fairfed")]
    whole = epsilon_of(joint([20.0, 20.0]) / 2, Releases(50), DELTA)
    assert told(trials)["epsilon"] == told(trials[::-1])["epsilon"] == pytest.approx(whole)


def test_histograms_of_trials_are_counted():
    assert told(methods(0, 1, more=", histogram=5"))["epsilon"] > told(methods(0, 1))["epsilon"]


@pytest.mark.parametrize(
    "trials, reason",
    [
        ([*methods(1), algorithm("fedavg")], "without privacy"),
        ([algorithm("fedavg+dp(unit=row, noise_multiplier=1)")], "share batches and noise"),
        (methods(1, more=", publish=true"), "evaluations of clients are published"),
        ([*methods(1), *methods(1, rate=0.2)], "different samplings"),
        (methods(1) * 2, "share their noise"),
        (methods(1, z=0.0), "noise is 0"),
    ],
)
def test_states_without_a_number(trials, reason):
    known = told(trials)
    assert known["epsilon"] is None
    assert reason in known["no_claim"]


def _census(clients: int):
    from evenly.privacy.claims import _of

    return _of(clients)


def made_up(trials: int, *, rate: float = 0.0) -> Tuning:
    """A search whose folder has four trials, as if this many had been asked for; `rate` is the
    learning rate that has the best figures.
    """
    text = "fedavg(weights=equal, learning_rate=[0.1, 0.2, 0.3, 0.4])+full+dp(noise_multiplier=20)"
    plan, _ = plan_tuning(text, {"name": "synthetic-census"}, rounds=2, baseline="fedavg", batch=2)
    study, value = TrialDatabase(plan, None), lambda one: [float(one == rate)] * 3
    study.add_baseline({"variance": [0.5] * 3, "average": [1.0] * 3})
    for one in (0.1, 0.2, 0.3, 0.4):
        figures = {"variance": [1 - v for v in value(one)], "average": [1.0] * 3}
        study.add({"learning_rate": one}, figures)
    final: Any = SimpleNamespace(everyone=SimpleNamespace(clients=1000), privacy={})
    return _chosen_among(plan, study, trials, lambda _: final)


def test_trials_of_a_longer_search_stay_in_the_account(monkeypatch: pytest.MonkeyPatch):
    counted: list[Any] = []
    monkeypatch.setattr(
        tunings, "search_epsilon", lambda methods, **more: counted.append((methods, more))
    )
    for trials in (4, 1):
        spent_by_search(made_up(trials))
    (all_of_them, more), (again, same) = counted
    assert [one.label for one in again] == [one.label for one in all_of_them]
    assert len(again) == 5
    assert same == more


def test_figures_of_private_trials_are_withheld_if_a_method_without_privacy_is_chosen():
    assert made_up(4).chosen.label == "fedavg"
    assert withholds_trials(made_up(4))


def test_the_results_of_a_private_choice_need_no_data(monkeypatch: pytest.MonkeyPatch):
    """The data of a search may be a table in memory, which no folder holds."""
    monkeypatch.setattr("evenly.experiment.tuning_space.load", None)
    found = TuningResults(made_up(4, rate=0.2))
    plan = found.results._plan
    assert plan is not None
    assert found.best in plan.methods


@pytest.mark.slow
def test_the_page_of_a_search_states_what_was_spent_and_withholds_figures():
    from evenly.experiment.tuning import tune

    text = (
        "fedavg(weights=equal, learning_rate=[0.1, 0.2])+full+dp(noise_multiplier=20, forced=true)"
    )
    base = "fedavg(weights=equal, learning_rate=0.05)+full+dp(noise_multiplier=20, forced=true)"
    tuning = tune(text, data="synthetic-census", rounds=2, seeds=1, baseline=base)
    page = render_tuning(tuning, "chosen/report.html")
    assert "All trials spend" in page
    assert "epsilon" in page
    assert 'id="trials"' not in page
