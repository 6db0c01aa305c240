"""The result of an audit: its views, all figures as a tidy table, and the files it writes."""

import csv
import io
import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evenly.auditing.estimates import Estimate
from evenly.auditing.requirements import RequirementCheck, check_requirements
from evenly.auditing.views import AGAINST, ClientView, GroupView
from evenly.metrics import EVERY_METRIC
from evenly.records import require
from evenly.report.worst_served import Trivial
from evenly.writing import csv_cell, write_whole

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
AUDIT = "audit.json"
FILES = ("report.html", "audit.csv", AUDIT)
PLAN = "plan.json"  # of a run or a deployment
PERCENT, FRACTION = "percent", "fraction"
DIGITS = {FRACTION: 3}  # after the point, in a notebook; one for other units


class Figure(NamedTuple):
    """One figure of an audit: a row of audit.csv."""

    # model, clients (all together), client, column, group, intersections (all together) or
    # intersection
    level: str
    name: str
    metric: str
    value: float
    low: float
    high: float
    rows: int
    unit: str


class AuditFacts(NamedTuple):
    """The audited table and the settings of the audit."""

    source: str
    rows: int
    columns: dict[str, str]  # role -> name
    labels: tuple[str, ...]
    favourable: str | None
    min_cell: int  # smallest number of people that a visible figure may rest on
    anonymous: bool  # whether names of clients are replaced by numbers
    command: str = ""


class Audit(NamedTuple):
    """The result of an audit. It holds no figure that rests on too few people, so all of it may be
    shown.
    """

    about: AuditFacts
    whole: dict[str, Estimate]  # rates of everybody, in percent; scores as fractions
    clients: ClientView | None
    groups: tuple[GroupView, ...]  # one per sensitive column
    intersections: GroupView | None  # their intersections
    notes: tuple[str, ...]
    # the model that predicts the most frequent label for everybody; None: it is hidden
    trivial: Trivial | None = None
    required: tuple[str, ...] = ()  # requirements that the report shows

    def __repr__(self) -> str:
        return "\n".join([f"Audit of {self.about.rows:,} rows", *self.sentences])

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        table = self.group_table if len(self.group_table) else self.client_table
        digits = {name: DIGITS.get(_unit(name), 1) for name in table}
        return f"<div>{words}</div>{table.round(digits).to_html()}"

    @property
    def figures(self) -> list[Figure]:
        """All defined figures, in the order of the report."""
        return [figure for figure in _figures(self) if np.isfinite(figure.value)]

    @property
    def table(self) -> "pd.DataFrame":
        """All figures as a tidy table."""
        import pandas as pd

        return pd.DataFrame(self.figures, columns=list(Figure._fields))

    @property
    def client_table(self) -> "pd.DataFrame":
        """One row per visible client, the worst served first."""
        table = _wide(self.figures, ("client",))
        return table.sort_values("accuracy", kind="stable") if len(table) else table

    @property
    def group_table(self) -> "pd.DataFrame":
        """One row per visible group: the values of every sensitive column, then their
        intersections.
        """
        return _wide(self.figures, ("group", "intersection"))

    @property
    def sentences(self) -> list[str]:
        """The findings in a few sentences."""
        from evenly.auditing.findings import findings

        return findings(self)

    @property
    def warnings(self) -> list[str]:
        """Limitations of the findings: small samples, hidden figures and assumptions about the
        table.
        """
        from evenly.auditing.findings import cautions

        return [*cautions(self), *self.notes]

    def check(self, *requirements: str) -> tuple[RequirementCheck, ...]:
        """Check whether the model meets requirements, for example before it is released.

        Args:
            requirements: A metric, a comparison and a number each, such as ``impact_ratio>=0.8``.
                Without any, those of the report are checked.

        Returns:
            One check for each, with `met` and a `sentence`. A requirement is not met if everything
            that it is about is hidden or undefined.

        Raises:
            ValueError: If a requirement cannot be read, or the audit has no such metric.

        Example:
            >>> import evenly, pandas as pd
            >>> people = {"sex": ["f", "m"] * 50, "y": [0, 0, 1, 1] * 25, "p": [0, 0, 0, 1] * 25}
            >>> frame = pd.DataFrame(people)
            >>> found = evenly.audit(frame, label="y", prediction="p", sensitive="sex")
            >>> [check.met for check in found.check("impact_ratio>=0.8", "accuracy>=70")]
            [False, True]
        """
        return check_requirements(self, requirements or self.required)

    def json(self) -> dict[str, Any]:
        """The audit as JSON; undefined numbers are null."""
        return {
            "schema": SCHEMA,
            "source": self.about.source,
            "audited": {
                "rows": self.about.rows,
                "columns": self.about.columns,
                "favourable": self.about.favourable,
            },
            "min_cell": self.about.min_cell,
            "trivial": (
                None
                if self.trivial is None
                else {"label": self.trivial.label, "accuracy": self.trivial.accuracy}
            ),
            "sentences": self.sentences,
            "warnings": self.warnings,
            "requirements": [
                {"requirement": str(each.requirement), "met": each.met, "sentence": each.sentence}
                for each in self.check()
            ],
            "rows": [
                {key: _plain(value) for key, value in figure._asdict().items()}
                for figure in self.figures
            ],
        }

    def report(self, path: str | Path) -> Path:
        """Write the report to a file and return its path."""
        return _write(Path(path), self._page())

    def write(self, folder: str | Path) -> Path:
        """Write audit.csv, audit.json and report.html into a folder and return it. All are created
        before the first one is written.

        Raises:
            ValueError: If the folder holds results of something else. An audit replaces only an
                earlier audit.
        """
        refuse_replacing(folder)
        files = {
            "audit.csv": _csv(self.figures),
            "audit.json": json.dumps(self.json(), ensure_ascii=False, indent=1, allow_nan=False),
            "report.html": self._page(),
        }
        for name, text in files.items():
            _write(Path(folder) / name, text)
        return Path(folder)

    def _page(self) -> str:
        from evenly.auditing.page import render

        return render(self)


def refuse_replacing(folder: str | Path) -> None:
    """Raise if an audit that is written into a folder would replace anything but an audit."""
    present = [name for name in (PLAN, *FILES) if (Path(folder) / name).exists()]
    require(
        not present or (AUDIT in present and PLAN not in present),
        f"An audit replaces only an earlier audit, but {str(folder)!r} holds the file"
        f" {', '.join(present[:1])} that no audit wrote. Choose another folder for the audit.",
    )


def _write(path: Path, text: str) -> Path:
    return write_whole(path, lambda file: file.write(text.encode()))


def _csv(figures: list[Figure]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Figure._fields)
    # Undefined values stay empty.
    writer.writerows(
        ("" if value != value else csv_cell(value) for value in figure) for figure in figures
    )
    return text.getvalue()


def unit_of(metric: str) -> str:
    """The unit of a metric: percent, percent², degrees or fraction (differences, ratios,
    indices).
    """
    if metric in AGAINST or metric not in EVERY_METRIC:
        return FRACTION
    span = EVERY_METRIC[metric].range
    return (
        "percent²"
        if "%²" in span
        else PERCENT
        if "%" in span
        else "degrees"
        if "°" in span
        else FRACTION
    )


def _figures(audit: Audit) -> Iterator[Figure]:
    source = audit.about.source
    yield from (_figure("model", source, name, estimate) for name, estimate in audit.whole.items())
    if audit.clients is not None:
        yield from _client_figures(audit.clients)
    for view in audit.groups:
        yield from _group_figures(
            view, "column", "group", [f"{view.title}={name}" for name in view.names]
        )
        if view.client_gaps is not None and audit.clients is not None:
            yield _figure("column", view.title, "spd_within", view.client_gaps.mean)
            for metric, gaps in {"spd": view.client_gaps.spd, "eod": view.client_gaps.eod}.items():
                names = audit.clients.names
                yield from (
                    _figure("client", name, f"{metric}:{view.title}", gap)
                    for name, gap in zip(names, gaps, strict=True)
                )
        yield from _origin_figures(audit, view)
    if audit.intersections is not None:
        yield from _group_figures(
            audit.intersections, "intersections", "intersection", list(audit.intersections.names)
        )


def _origin_figures(audit: Audit, view: GroupView) -> Iterator[Figure]:
    """The parts of gaps within and between clients, and those of each client."""
    for metric, origin in view.origins.items():
        yield _figure("column", view.title, f"{metric}_within_clients", origin.within)
        yield _figure("column", view.title, f"{metric}_between_clients", origin.between)
        assert audit.clients is not None
        names = [audit.clients.names[k] for k in origin.clients]
        for part in ("within", "between"):
            for name, value in zip(names, getattr(origin.parts, part), strict=False):
                yield _figure(
                    "client", name, f"{metric}_{part}_clients:{view.title}", Estimate(float(value))
                )


def _client_figures(view: ClientView) -> Iterator[Figure]:
    yield from (
        _figure("clients", view.column, name, estimate) for name, estimate in view.summary.items()
    )
    if not view.can_list:
        return
    for k, name in enumerate(view.names):
        yield _figure("client", name, "accuracy", view.accuracy[k])
        yield from (
            _figure("client", name, metric, estimates[k])
            for metric, estimates in view.scores.items()
        )


def _group_figures(view: GroupView, level: str, single: str, names: list[str]) -> Iterator[Figure]:
    if view.unprivileged is not None:
        yield from (
            _figure(level, view.title, metric, estimates[view.unprivileged])
            for metric, estimates in view.against.items()
        )
    yield from (
        _figure(level, view.title, metric, estimate) for metric, estimate in view.ranges.items()
    )
    for g, name in enumerate(names):
        for metrics in (view.rates, view.against, view.scores):
            yield from (
                _figure(single, name, metric, estimates[g]) for metric, estimates in metrics.items()
            )


RATE_UNITS = {"accuracy", "selection_rate", "base_rate", "tpr", "fpr"}


def _figure(level: str, name: str, metric: str, estimate: Estimate) -> Figure:
    return Figure(level, name, metric, *estimate, _unit(metric))


def _unit(metric: str) -> str:
    return PERCENT if metric in RATE_UNITS else unit_of(metric)


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
