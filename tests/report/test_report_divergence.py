"""Training that diverged is said in the terminal by every command that trains or reports, not only
on the page.
"""

import numpy as np
import pytest
from tests.report.invented import comparison, federation
from tests.studies import study
from tests.tunings import Trainer
from typer.testing import CliRunner

from evenly.algorithms import algorithm
from evenly.api.results import Results
from evenly.cli import app
from evenly.cli.terminal_tables import warnings_of
from evenly.experiment.comparison import Comparison
from evenly.experiment.plan import Plan
from evenly.experiment.study import Study
from evenly.privacy.row_account import row_facts
from evenly.report.charts.focus import choose_focus
from evenly.report.html import Html
from evenly.report.opening import opening
from evenly.report.page import Report
from evenly.report.setup_sections import divergence
from evenly.report.values import final_values

SAID = (
    "Training diverged under fedavg in 2 of 2 seeds: 8 updates or losses of clients were not finite"
    " numbers and did not count."
)
FILE = (
    'title = "T"\nmethods = ["fedavg"]\nrounds = 2\nseeds = 2\n[data]\nname = "synthetic"\nclients'
    " = 4\n"
)
PLAN = Plan(
    name="test", data={"name": "synthetic", "clients": 4}, methods=("fedavg",), rounds=2, seeds=(0,)
)


def broken(found: Comparison) -> Comparison:
    """The same results, where one update of every client was not finite."""
    return found._replace(
        runs=[
            run._replace(trace=run.trace._replace(excluded=run.trace.excluded + 1))
            for run in found.runs
        ]
    )


DIVERGED = broken(comparison(("fedavg",), data=federation(4), seeds=2))


def with_losses(*means: float, rounds: int = 0) -> Comparison:
    """One seed whose training loss is the same for all clients at each evaluation."""
    found = comparison(("fedavg",), data=federation(3), seeds=1, evaluations=len(means))
    trace = found.runs[0].trace
    losses = np.array(means, np.float32)[:, None, None] * np.ones(trace.losses.shape, np.float32)
    return found._replace(
        runs=[
            found.runs[0]._replace(
                trace=trace._replace(losses=losses, rounds=trace.rounds + rounds)
            )
        ]
    )


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """Commands get finished results instead of training: a folder without anything in it, and what
    diverged.
    """
    found = lambda *given, **options: Results(DIVERGED, folder=tmp_path)  # noqa: E731
    monkeypatch.setattr("evenly.cli.experiment_runs.run_plan", found)
    monkeypatch.setattr("evenly.experiment.reopen.open_results", lambda folder: DIVERGED)
    # charts take seconds
    monkeypatch.setattr(
        "evenly.report.page.build", lambda *given, **options: Report("", Html(""), {}, {})
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "compare",
        "run file.toml",
        "resume begun",
        "reproduce qffl/synthetic",
        "report begun --out r.html",
    ],
)
def test_every_command_says_that_training_diverged(trained, command):
    (trained / "file.toml").write_text(FILE)
    (trained / "begun").mkdir()
    (trained / "begun" / "plan.json").write_text(PLAN.to_json())
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    assert SAID in " ".join(done.stdout.split())


def test_with_json_it_is_said_on_standard_error(trained):
    done = CliRunner().invoke(app, ["compare", "--json"])
    assert SAID in " ".join(done.stderr.split())
    assert "diverged" not in done.stdout


def test_a_search_says_that_what_it_chose_diverged(monkeypatch, tmp_path):
    trainer = Trainer()
    monkeypatch.setattr(
        "evenly.experiment.tuning.execute",
        lambda *given, **options: broken(trainer(*given, **options)),
    )
    monkeypatch.setattr("evenly.report.tuning_page.write_tuning", lambda tuning, folder: [])
    options = (
        "--data synthetic(clients=2) --method q-fedavg(q=[1]) --rounds 10 --seeds 2 --out"
        f" {tmp_path / 'found'}"
    )
    done = CliRunner().invoke(app, ["tune", *options.split()])
    assert done.exit_code == 0, done.output
    assert "! Training diverged under q-fedavg(q=1) in 2 of 2 seeds" in " ".join(
        done.stdout.split()
    )


def test_a_study_names_the_partition_where_training_diverged():
    found: Study = study()
    name, cell = next(iter(found.cells.items()))
    assert next(str(words) for words in warnings_of(broken(cell), name)).startswith(
        f"! {name}: Training diverged under "
    )


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        (
            (0.69, 0.5, 0.8),
            "the mean training loss rose from 0.69 to 0.8. Use a smaller learning rate.",
        ),
        ((0.69, np.inf), "the mean training loss is no longer a finite number."),
        ((0.69, 0.9, 0.7), ""),
        ((0.69, 0.3), ""),
        ((5.0,), ""),
    ],
    ids=["rose", "infinite", "came back", "fell", "never trained"],
)
def test_a_loss_that_ends_above_the_untrained_model_is_divergence(losses, words):
    said = " ".join(divergence(with_losses(*losses)))
    assert words in said
    assert bool(said) == bool(words)


def test_a_page_that_protects_training_rows_says_nothing_of_their_loss():
    rows = {"fedavg": row_facts([algorithm("fedavg+dp(unit=row, noise_multiplier=1)")], 1)}
    private = with_losses(1.79, 598)._replace(privacy=rows)
    said = "the mean training loss rose from 1.79 to 598"
    assert said in divergence(private)[0]  # in the terminal
    assert said in str(page_of(private._replace(privacy={})))
    assert "598" not in str(page_of(private))
    assert "diverged" in str(page_of(broken(private)))


def page_of(found: Comparison) -> Html:
    values = final_values(found, "test")
    return opening(found, values, choose_focus(found, values))


def test_nothing_is_said_where_the_untrained_model_was_not_evaluated():
    assert divergence(with_losses(0.5, 0.9, rounds=5)) == []


def test_of_many_methods_the_rest_is_counted():
    found = divergence(broken(comparison([f"m{i}" for i in range(6)], data=federation(3), seeds=1)))
    assert len(found) == 4
    assert found[-1] == "Training of 3 more methods diverged as well."
