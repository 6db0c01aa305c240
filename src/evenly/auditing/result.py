"""What an audit found, as views, as tidy rows and as files."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evenly.auditing.estimates import Estimate
from evenly.auditing.views import AGAINST, ClientView, GroupView
from evenly.metrics import EVERY_METRIC
from evenly.report.worst_served import Trivial
from evenly.writing import csv_cell, write_whole

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
PERCENT, FRACTION = "percent", "fraction"


class Figure(NamedTuple):
    """One figure of an audit, as audit.csv has it."""

    level: str  # model, clients (all together), client, column, group, intersections (all together) or intersection
    name: str
    metric: str
    value: float
    low: float
    high: float
    rows: int
    unit: str


class AuditFacts(NamedTuple):
    """What was audited, and how."""

    source: str
    rows: int
    columns: dict[str, str]  # role -> name
    labels: tuple[str, ...]
    favourable: str | None
    least: int  # people that a figure must rest on to be shown
    anonymous: bool  # whether clients have numbers instead of names
    command: str = ""


class Audit(NamedTuple):
    """What an audit found. Everything in it may be shown: what rests on too few people was left out when it was measured."""

    about: AuditFacts
    whole: dict[str, Estimate]  # rates of everybody, in percent; scores as fractions
    clients: ClientView | None
    groups: tuple[GroupView, ...]  # one per sensitive column
    crossed: GroupView | None  # their intersections
    notes: tuple[str, ...]
    trivial: Trivial | None = None  # the model that predicts the most frequent label for everybody; None: it may not be shown

    @property
    def figures(self) -> list[Figure]:
        """Every figure that is known, in the order in which they are read."""
        return [figure for figure in _figures(self) if np.isfinite(figure.value)]

    @property
    def table(self) -> "pd.DataFrame":
        """All figures as a tidy table."""
        import pandas as pd

        return pd.DataFrame(self.figures, columns=list(Figure._fields))

    @property
    def client_table(self) -> "pd.DataFrame":
        """One row per client that is shown, the worst served first."""
        found = _wide(self.figures, ("client",))
        return found.sort_values("accuracy", kind="stable") if len(found) else found

    @property
    def group_table(self) -> "pd.DataFrame":
        """One row per group that is shown: the values of every sensitive column, then their intersections."""
        return _wide(self.figures, ("group", "intersection"))

    @property
    def sentences(self) -> list[str]:
        """What was found, in a few sentences."""
        from evenly.auditing.words import findings

        return findings(self)

    @property
    def warnings(self) -> list[str]:
        """What to bear in mind with it: small samples, what is hidden, what was read how."""
        from evenly.auditing.words import cautions

        return [*cautions(self), *self.notes]

    def json(self) -> dict[str, Any]:
        """Everything for machines; numbers that do not exist are null."""
        return {
            "schema": SCHEMA,
            "source": self.about.source,
            "audited": {"rows": self.about.rows, "columns": self.about.columns, "favourable": self.about.favourable},
            "min_cell": self.about.least,
            "trivial": None if self.trivial is None else {"label": self.trivial.label, "accuracy": self.trivial.accuracy},
            "sentences": self.sentences,
            "warnings": self.warnings,
            "rows": [{key: _plain(value) for key, value in figure._asdict().items()} for figure in self.figures],
        }

    def report(self, path: str | Path) -> Path:
        """Write the page."""
        return _written(Path(path), self._page())

    def write(self, folder: str | Path) -> Path:
        """Write audit.csv, audit.json and report.html into a folder, which is returned. All are made before the first is written."""
        files = {
            "audit.csv": _csv(self.figures),
            "audit.json": json.dumps(self.json(), ensure_ascii=False, indent=1, allow_nan=False),
            "report.html": self._page(),
        }
        for name, text in files.items():
            _written(Path(folder) / name, text)
        return Path(folder)

    def _page(self) -> str:
        from evenly.auditing.page import render

        return render(self)


def _written(path: Path, text: str) -> Path:
    return write_whole(path, lambda file: file.write(text.encode()))


def _csv(figures: list[Figure]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Figure._fields)
    # What is not known stays empty.
    writer.writerows(("" if value != value else csv_cell(value) for value in figure) for figure in figures)
    return text.getvalue()


def unit_of(metric: str) -> str:
    """In what a metric is given: percent, percent² or fraction (differences, ratios, indices)."""
    if metric in AGAINST or metric not in EVERY_METRIC:
        return FRACTION
    known = EVERY_METRIC[metric].range
    return "percent²" if "%²" in known else PERCENT if "%" in known else "degrees" if "°" in known else FRACTION


def _figures(audit: Audit) -> Iterator[Figure]:
    source = audit.about.source
    yield from (_figure("model", source, name, found) for name, found in audit.whole.items())
    if audit.clients is not None:
        yield from _client_figures(audit.clients)
    for view in audit.groups:
        yield from _group_figures(view, "column", "group", [f"{view.title}={name}" for name in view.names])
        if view.within is not None and audit.clients is not None:
            yield _figure("column", view.title, "spd_within", view.within.mean)
            for metric, gaps in {"spd": view.within.spd, "eod": view.within.eod}.items():
                names = audit.clients.names
                yield from (_figure("client", name, f"{metric}:{view.title}", gap) for name, gap in zip(names, gaps, strict=True))
    if audit.crossed is not None:
        yield from _group_figures(audit.crossed, "intersections", "intersection", list(audit.crossed.names))


def _client_figures(view: ClientView) -> Iterator[Figure]:
    yield from (_figure("clients", view.column, name, found) for name, found in view.summary.items())
    if not view.listed:
        return
    for k, name in enumerate(view.names):
        yield _figure("client", name, "accuracy", view.accuracy[k])
        yield from (_figure("client", name, metric, found[k]) for metric, found in view.scores.items())


def _group_figures(view: GroupView, level: str, single: str, names: list[str]) -> Iterator[Figure]:
    if view.unprivileged is not None:
        yield from (_figure(level, view.title, metric, found[view.unprivileged]) for metric, found in view.against.items())
    yield from (_figure(level, view.title, metric, found) for metric, found in view.ranges.items())
    for g, name in enumerate(names):
        for found in (view.rates, view.against, view.scores):
            yield from (_figure(single, name, metric, each[g]) for metric, each in found.items())


RATE_UNITS = {"accuracy", "selection_rate", "base_rate", "tpr", "fpr"}


def _figure(level: str, name: str, metric: str, found: Estimate) -> Figure:
    return Figure(level, name, metric, *found, PERCENT if metric in RATE_UNITS else unit_of(metric))


def _wide(figures: list[Figure], levels: tuple[str, ...]) -> "pd.DataFrame":
    """The figures of these levels with a row for each name and a column for each metric."""
    import pandas as pd

    rows: dict[str, dict[str, Any]] = {}
    for figure in figures:
        if figure.level in levels:
            rows.setdefault(figure.name, {"rows": figure.rows})[figure.metric] = figure.value
    return pd.DataFrame.from_dict(rows, orient="index")


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
