"""The sentences say what the numbers bear, and the page shows them, whatever the table's
words are.
"""

import json
import re

import numpy as np
import pandas as pd
import pytest

import evenly
from tests.auditing.invented import WHO, predictions

HOSTILE = "<script>alert(1)</script> & \"'"


@pytest.fixture(scope="module")
def found():
    return evenly.audit(predictions(), **WHO, score="s")


def test_the_sentences_name_whom_the_model_fails(found):
    text = " ".join(found.sentences)
    accuracy = found.whole["accuracy"]
    right = (
        f"right for {accuracy.value:.1f} % of 3,000 people (95 % interval {accuracy.low:.1f} to"
        f" {accuracy.high:.1f})"
    )
    assert (
        found.sentences[0]
        == f"The model is {right}; always predicting “1”, the most frequent label, would be right"
        f" for {100 * predictions()['y'].mean():.1f} %."
    )
    assert "Of the clients, it serves hospital “hospital 00” worst: right for" in text
    assert "Of the groups, it serves race “C” worst" in text
    # a tenth of twelve is the one that is named
    assert "For the tenth of clients that it serves worst" not in text
    assert re.search(
        r"People with sex “female” are predicted “1” \d+\.\d points less often than all others \(95"
        r" % interval −",
        text,
    )
    assert "the extremes of 6 intersections" in text
    assert "The score's AUC is 0." in text


def test_a_missing_value_is_no_extreme_of_the_intersections():
    frame = predictions()
    frame.loc[frame.index % 50 == 0, "race"] = None
    frame.loc[frame.index % 50 == 0, "p"] = 1  # all of them are selected
    (sentence,) = (one for one in evenly.audit(frame, **WHO).sentences if "extremes" in one)
    assert "missing" not in sentence
    assert "the extremes of 6 intersections." in sentence


def test_extremes_are_said_to_be_of_what_is_shown():
    frame = predictions()
    frame.loc[(frame["sex"] == "female") & (frame["race"] == "C"), "race"] = "A"
    frame.loc[frame.index[frame["sex"] == "female"][:3], "race"] = "C"
    (sentence,) = (one for one in evenly.audit(frame, **WHO).sentences if "extremes" in one)
    assert re.search(r"the extremes of the \d intersections that are shown\.", sentence)


def test_one_client_at_the_end_has_no_interval_from_resampling(found):
    assert not found.clients.summary["worst10"].has_interval
    assert not found.clients.summary["best10"].has_interval
    assert found.clients.summary["variance"].has_interval
    view = evenly.audit(predictions(clients=20), **WHO).clients
    assert view is not None
    many = view.summary["worst10"]
    assert many.low < many.value < many.high


def test_a_gap_that_chance_explains_is_said_to_be_so():
    frame = predictions(300)
    fair = frame.assign(
        sex=np.where(np.arange(300) % 2, "female", "male"),
        p=frame["y"].where(frame.index % 7 != 0, 1 - frame["y"]),
    )
    texts = " ".join(evenly.audit(fair, **WHO).sentences)
    assert "No value of sex differs significantly from all others" in texts
    asked = evenly.audit(fair, **WHO, unprivileged={"sex": "female"}).sentences
    gaps = [text for text in asked if "“female” are" in text and "less often" in text]
    assert any("a difference that chance alone could explain" in text for text in gaps)


def test_the_largest_harm_is_named_though_another_value_is_selected_least():
    """Race B is found far less often, while race C is selected least."""
    draw = np.random.default_rng(1)
    race, label = draw.choice(["A", "B", "C"], 3000, p=[0.6, 0.3, 0.1]), draw.random(3000) < 0.4
    chance = np.where(label, 0.7, 0.1)
    chance = np.where(race == "B", np.where(label, 0.3, 0.35), chance)
    frame = pd.DataFrame({"race": race, "y": label.astype(int)})
    frame["p"] = (draw.random(3000) < chance).astype(int)
    frame.loc[(frame["race"] == "C") & (draw.random(3000) < 0.1), "p"] = 0
    found = evenly.audit(frame, label="y", prediction="p", sensitive="race")
    assert found.groups[0].names[found.groups[0].unprivileged or 0] == "C"
    text = " ".join(found.sentences)
    assert re.search(r"Of those labelled “1”, people with race “B” are predicted so [34]\d", text)
    assert "This is the largest difference by race that is statistically significant" in text


def test_small_samples_are_warned_of():
    text = " ".join(evenly.audit(predictions(200), **WHO).warnings)
    assert "clients have fewer than 30 rows" in text
    assert "rest on fewer than 30 people" in text
    assert "would occur by chance with this number of rows" in text


@pytest.mark.parametrize("strange", [["report.html"], ["audit.csv"], ["plan.json", "audit.json"]])
def test_an_audit_replaces_an_audit_and_nothing_else(found, tmp_path, strange: list[str]):
    assert found.write(found.write(tmp_path / "audit")) == tmp_path / "audit"
    for name in strange:
        (tmp_path / name).write_text("of a run")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ValueError, match=f"holds the file {strange[0]} that no audit wrote"):
        found.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert all((tmp_path / name).read_text() == "of a run" for name in strange)


def test_the_files_hold_the_figures_and_no_rows(found, tmp_path):
    folder = found.write(tmp_path / "a")
    table = pd.read_csv(folder / "audit.csv")
    assert list(table.columns) == [
        "level",
        "name",
        "metric",
        "value",
        "low",
        "high",
        "rows",
        "unit",
    ]
    assert len(table) == len(found.figures)
    assert set(table["unit"]) == {"percent", "percent²", "degrees", "fraction"}
    kept = json.loads((folder / "audit.json").read_text())
    assert kept["sentences"] == found.sentences
    assert len(kept["rows"]) == len(table)
    page = (folder / "report.html").read_text()
    assert all(
        name in page
        for name in ("hospital 00", "sex=female, race=B", "Calibration error", "Disparate impact")
    )


def test_words_of_the_table_cannot_become_markup(tmp_path):
    frame = predictions(600).rename(columns={"sex": HOSTILE, "hospital": "<b>"})
    frame[HOSTILE] = frame[HOSTILE].replace("female", HOSTILE)
    found = evenly.audit(
        frame, label="y", prediction="p", client="<b>", sensitive=HOSTILE, score="s", name=HOSTILE
    )
    page = found.report(tmp_path / "page.html").read_text()
    body = page[page.index("<main>") : page.index("</main>")]
    assert "alert(1)</script>" not in body
    assert "&lt;script&gt;alert(1)" in body


def test_names_are_no_formulas_to_a_spreadsheet(tmp_path):
    frame = predictions(600).replace(
        {
            "hospital": {
                "hospital 01": '=HYPERLINK("http://a")',
                "hospital 02": "@x",
                "hospital 03": "-3",
            }
        }
    )
    table = pd.read_csv(evenly.audit(frame, **WHO).write(tmp_path) / "audit.csv")
    names = set(table["name"])
    assert {'\'=HYPERLINK("http://a")', "'@x", "-3"} <= names


def test_the_same_audit_gives_the_same_page(found, tmp_path):
    again = evenly.audit(predictions(), **WHO, score="s")
    assert (
        found.report(tmp_path / "one.html").read_bytes()
        == again.report(tmp_path / "two.html").read_bytes()
    )


def test_where_nothing_may_be_said_of_a_column_the_page_says_so(tmp_path):
    frame = predictions(400)
    frame["sex"] = ["female"] * 4 + ["male"] * 396
    found = evenly.audit(
        frame, label="y", prediction="p", sensitive="sex", client="race", score="s"
    )
    assert (
        "No comparison by sex is possible, because one side has too few people." in found.sentences
    )
    assert not [figure for figure in found.figures if figure.name.startswith("sex")]
    assert (
        "Fewer than two groups have visible rates."
        in found.report(tmp_path / "page.html").read_text()
    )


@pytest.mark.parametrize("who", [{"client": "hospital"}, {"sensitive": "sex"}, {"client": "sex"}])
def test_a_page_can_be_of_clients_or_groups_alone(who: dict, tmp_path):
    page = (
        evenly.audit(predictions(400), label="y", prediction="p", **who)
        .report(tmp_path / "page.html")
        .read_text()
    )
    assert ('id="clients"' in page) == ("client" in who)
    assert ('id="groups"' in page) == ("sensitive" in who)
