"""Every chart of every kind of page follows Vega-Lite's schema: asking takes a third of a page's
time, so pages are written without.
"""

import altair as alt
import pytest
from jsonschema import ValidationError
from tests.auditing.invented import WHO, predictions
from tests.report.invented import comparison, federation, specs, with_groups
from tests.studies import study
from tests.tunings import searched

import evenly
from evenly.papers.study_page import render_study
from evenly.report.page import render
from evenly.report.tuning_page import render_tuning


def check(text: str, least: int) -> None:
    found = specs(text)
    assert len(found) >= least
    for spec in found.values():
        alt.LayerChart.validate(spec)


def test_charts_of_a_comparison():
    methods = ("fedavg", "q-fedavg(q=1)", "term(alpha=1)")
    check(
        render(
            with_groups(comparison(methods, data=federation(12, rows=(40, 10, 40))), central=200)
        ),
        12,
    )


def test_charts_of_a_study():
    check(render_study([study()], "Adult by sex"), 16)


def test_charts_of_a_search(monkeypatch):
    found = searched(
        monkeypatch,
        "q-fedavg(q=0.01..100:log, learning_rate=0.01..1:log)",
        objectives=("average", "variance"),
    )[0]
    check(render_tuning(found, "chosen/report.html"), 3)


def test_charts_of_an_audit(tmp_path):
    check(
        evenly.audit(predictions(), **WHO, score="s").report(tmp_path / "page.html").read_text(), 3
    )


def test_a_chart_that_does_not_is_found():
    text = render(comparison(("fedavg",)))
    broken = text.replace('"width": "container"', '"width": "everywhere"').replace(
        '"width":"container"', '"width":"everywhere"'
    )
    with pytest.raises(ValidationError, match="everywhere"):
        check(broken, 3)
