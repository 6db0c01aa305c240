"""Requirements on an audit, and the exit status of the command."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import evenly
from evenly.auditing.estimates import NOTHING, Estimate
from evenly.auditing.requirements import parse_requirement
from evenly.cli import app
from tests.auditing.invented import predictions
from tests.auditing.made import audit, group_view, rate

COLUMNS = {"client": "hospital", "label": "y", "prediction": "p", "sensitive": ["sex"]}


def found(**more):
    return evenly.audit(predictions(800), **COLUMNS, **more)


@pytest.mark.parametrize(
    "text", ["impact_ratio", "impact_ratio=0.8", ">=0.8", "spd>=x", "spd>=nan"]
)
def test_a_requirement_that_cannot_be_read_is_refused(text: str):
    with pytest.raises(ValueError, match="A requirement must be a metric"):
        parse_requirement(text)


def test_every_compared_value_must_satisfy_it():
    made = found()
    ratios = [each.value for each in made.groups[0].against["impact_ratio"]]
    lowest = min(ratios)
    (met,) = made.check(f"impact_ratio>={lowest - 0.01}")
    (not_met,) = made.check(f"impact_ratio>={lowest + 0.01}")
    assert met.met
    assert met.sentence.startswith("Met: impact_ratio at least")
    assert not not_met.met
    assert f"it is {lowest:.3g}" in not_met.sentence
    # where several fail, the farthest is named, and where all hold, the closest
    (neither,) = made.check(f"impact_ratio>={max(ratios) + 0.5}")
    (all_hold,) = made.check("impact_ratio>=0")
    assert f"it is {lowest:.3g}" in neither.sentence
    assert f"it is {lowest:.3g}" in all_hold.sentence


def test_a_named_value_is_the_only_one_that_counts():
    ratios = dict(zip(("female", "male"), found().groups[0].against["impact_ratio"], strict=True))
    worst = min(ratios, key=lambda name: ratios[name].value)
    other = "male" if worst == "female" else "female"
    bound = f"impact_ratio>={ratios[worst].value + 0.01}"
    assert not found(unprivileged=worst).check(bound)[0].met
    assert found(unprivileged=other).check(bound)[0].met


def test_metrics_of_the_model_and_of_clients_count_once():
    made = found()
    assert [each.met for each in made.check("accuracy>=2", "accuracy<1", "worst10>=2")] == [
        True,
        False,
        True,
    ]
    within = made.groups[0].origins["spd"].within.value
    assert made.check(f"spd_within_clients>={within - 0.01}")[0].met
    with pytest.raises(ValueError, match="There is no metric 'impact'"):
        made.check("impact>=0.8")
    assert made.check("accuracy>=2")[0].sentence.startswith(
        "Met: accuracy at least 2 %. For the model"
    )


@pytest.mark.parametrize("text", ["accuracy>=0.9", "tpr>1"])
def test_a_share_where_a_percentage_is_meant_is_refused(text: str):
    """Nearly every model would be released."""
    with pytest.raises(ValueError, match=r"is in percent, .* Write (accuracy>=90|tpr>100)\."):
        found().check(text)


def test_what_is_hidden_does_not_meet_a_requirement():
    hidden = audit(group_view(gaps={"impact_ratio": NOTHING}, by_default=True))
    (check,) = hidden.check("impact_ratio>=0.8")
    assert not check.met
    assert "cannot be checked for sex=f" in check.sentence
    shown = audit(group_view(gaps={"impact_ratio": Estimate(0.9)}, by_default=True))
    assert shown.check("impact_ratio>=0.8")[0].met
    assert not audit(whole={"accuracy": rate(float("nan"))}).check("accuracy>=0")[0].met


def test_the_command_exits_with_1_and_its_files_tell_why(tmp_path: Path):
    table, out = tmp_path / "p.csv", tmp_path / "out"
    predictions(800).to_csv(table, index=False)
    words = ["audit", str(table), "--client", "hospital", "--label", "y", "--prediction", "p"]
    words += ["--sensitive", "sex", "--out", str(out)]
    met = CliRunner().invoke(app, [*words, "--require", "accuracy>=2"])
    assert met.exit_code == 0
    assert "Met: accuracy at least 2 %." in met.output
    not_met = CliRunner().invoke(app, [*words, "--require", "accuracy>=2", "--require", "spd>=0.9"])
    assert not_met.exit_code == 1
    assert "Not met: spd at least 0.9." in not_met.output
    told = json.loads((out / "audit.json").read_text())["requirements"]
    assert [each["met"] for each in told] == [True, False]
    assert "Not met: spd at least 0.9." in (out / "report.html").read_text()


@pytest.mark.parametrize("wrong", ["accuracy", "nothing>=1"])
def test_a_wrong_requirement_is_one_sentence_and_writes_nothing(tmp_path: Path, wrong: str):
    table, out = tmp_path / "p.csv", tmp_path / "out"
    predictions(800).to_csv(table, index=False)
    words = ["audit", str(table), "--client", "hospital", "--label", "y", "--prediction", "p"]
    done = CliRunner().invoke(app, [*words, "--out", str(out), "--require", wrong])
    assert done.exit_code == 2
    assert not out.exists()
