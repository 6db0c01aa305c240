"""Results that are stored in docs/results: how they get there, and the pages that show them.

    python -m tools.results FOLDER [LABEL ...]

FOLDER is the folder that `evenly reproduce NAME --out FOLDER` wrote; nothing is trained again. The
script writes its figures to docs/results/NAME.json: beside the paper's, or, without a paper, with
their changes from the first method, or the course of the groups that clients chose. LABELs are
methods; their distributions over clients are drawn to docs/pictures/NAME.svg, those of a typical
draw where the data are drawn several times. Then `python -m tools.generate` writes the pages.
"""

import json
import sys
from collections.abc import Iterator
from datetime import date
from math import isfinite
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evenly.experiment.comparison import Comparison, group_metrics
from evenly.experiment.config import Experiment, read_packaged
from evenly.experiment.execute import execute
from evenly.experiment.folder import Store, read_record
from evenly.experiment.paper import PaperLine, paper_rows, side_by_side
from evenly.experiment.plan import Plan
from evenly.experiment.study import Outcome, Study, StudyPlan, execute_study
from evenly.metrics import Spread, half_width, spread
from evenly.metrics.statistics import is_clear
from evenly.papers.study_findings import findings
from evenly.papers.thesis import COLUMNS as STUDY_COLUMNS
from evenly.papers.thesis import FRACTIONS, SCORES, StudyView, study_views
from evenly.report.charts.accuracy import distribution
from evenly.report.charts.theme import save_chart
from evenly.report.group_values import group_split
from evenly.report.setup_sections import SPREADS, WHO, metric_title, paper_figures
from evenly.report.values import (
    COLUMNS,
    client_split,
    difference,
    final_values,
    format_spread,
    over_seeds,
)
from tools.draws import draws_page, draws_record, draws_table
from tools.markdown import lines, numbers, table, versions

DOCS = Path(__file__).parents[1] / "docs"
# Stored where there is no paper: metrics of clients, then of groups.
MEASURED = (
    "central",
    "average",
    "worst10",
    "variance_true",
    "eod_abs",
    "spd_abs",
    "eod_range",
    "worst_tpr",
    "worst_accuracy",
)
CENTRAL_ROWS = "clients on their validation rows, groups on the central test set"
COURSE_WORDS = {"all": "all", "voted": "of the last round"}
STUDY_METRICS = (*STUDY_COLUMNS.values(), *SCORES)
STUDY_TABLES = (
    {"accuracy": "accuracy", "eod_abs": "|EOD|", "fas_abs": "FAS"},
    {
        "spd_abs": "|SPD|",
        "aod_abs": "|AOD|",
        "acc_diff": "accuracy difference",
        "precision": "precision",
    },
)
PROTOCOL_WORDS = {"paper": "paper", "study": "study's", "honest": "honest"}
DIGITS = 5
TAKEN = ("device", "date", "versions", "seconds")
Stored = dict[str, Any]

PROTOCOLS = (
    "Two protocols choose the learning rate from the same trained models. The study's takes the"
    " least |EOD| on the test set, as the\nthesis does, and is optimistic. The honest one looks at"
    " validation rows only: of the rates within a point of the best accuracy\nthere, the one with"
    " the least |EOD|."
)
CLEARLY = (
    "Clearly: the 95 % interval over seeds of the paired change leaves out 0. Three numbers with"
    " strokes count intervals below 0,\nundecided and above 0."
)
METHODS = (
    "Fractions, mean ± half of the 95 % interval over seeds; the paper gives means. FAS is made of"
    " absolute values, the paper's of\nits columns. Where the accuracy difference is positive, the"
    " model is right more often about the unprivileged."
)


def main() -> None:
    folder, labels = Path(sys.argv[1]), sys.argv[2:]
    text = (folder / "plan.json").read_text()
    if "cells" in json.loads(text):
        study, record = read_study(folder)
        write(
            study.plan.name,
            study_record(study, record, read_packaged(study.plan.name)),
            indent=None,
        )
        return
    plan = Plan.from_json(text)
    comparison = execute(plan, Store(folder, plan), models=False)
    record = read_record(folder)
    # where and with which versions it was trained, which need not be here
    if record and record.device:
        figures = comparison_record(
            plan, comparison._replace(versions=record.versions), record.device, record.date
        )
    else:
        device = "a CPU" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
        figures = comparison_record(plan, comparison, device, date.today().isoformat())
    write(plan.name, figures, indent=1)
    if "draws" in figures:
        count, typical = plan.data["draws"], figures["draws"]["typical"]
        own = [run for run in comparison.runs if run.seed % count == typical]
        comparison = comparison._replace(runs=own)
    if labels:
        (DOCS / "pictures").mkdir(exist_ok=True)
        save_chart(
            distribution(comparison, labels), DOCS / "pictures" / f"{file_name(plan.name)}.svg"
        )


def file_name(experiment: str) -> str:
    """Return paper and data, or the data alone where there is no paper."""
    return experiment.removeprefix("beyond/").replace("/", "-")


def write(experiment: str, figures: Stored, indent: int | None) -> None:
    """Write the figures of an experiment to docs/results."""
    (DOCS / "results").mkdir(exist_ok=True)
    separators = (",", ":") if indent is None else None
    text = json.dumps(figures, indent=indent, separators=separators, ensure_ascii=False)
    (DOCS / "results" / f"{file_name(experiment)}.json").write_text(text + "\n")


# Comparisons: figures to store


def comparison_record(plan: Plan, comparison: Comparison, device: str, day: str) -> Stored:
    """Return the figures of a comparison, beside the paper's, with the settings that repeat it."""
    experiment = read_packaged(plan.name)
    draws = plan.data.get("draws", 1)
    paper = side_by_side(comparison, experiment.paper) if experiment.paper and draws == 1 else []
    figures: Stored = {
        "experiment": plan.name,
        "title": experiment.title,
        "notes": experiment.notes.strip(),
        "command": command(plan.name, plan, experiment.plan(plan.name)),
        "date": day,
        "device": device,
        "versions": comparison.versions,
        "rounds": plan.rounds,
        "seeds": len(plan.seeds),
        "lines": [
            {
                "table": line.table,
                "split": line.split,
                "label": line.label,
                "metric": line.metric,
                "paper": line.paper,
                "paper_deviation": line.paper_deviation,
                "ours": line.ours.mean,
                "deviation": line.ours.deviation,
            }
            for line in paper
        ],
    }
    if experiment.paper and draws > 1:
        figures["draws"] = draws_record(comparison, experiment.paper, draws)
    elif not experiment.paper and any(run.trace.choice.size for run in comparison.runs):
        figures["course"] = list(course(comparison))
    elif not experiment.paper:
        figures["measured"] = list(measured(comparison))
    return figures


def command(name: str, plan: Plan, usual: Plan) -> str:
    """Return the command that repeats an experiment, with the settings that differ from the usual
    ones.
    """
    changed = {"rounds": (plan.rounds, usual.rounds), "seeds": (len(plan.seeds), len(usual.seeds))}
    return f"evenly reproduce {name}" + "".join(
        f" --{option} {ours}" for option, (ours, its) in changed.items() if ours != its
    )


def measured(comparison: Comparison) -> Iterator[Stored]:
    """Yield the mean of each metric of each method and its paired change from the first method,
    with 95 % intervals, on the rows that the report uses: test rows, or, where no client has any,
    the central test set and the clients' validation rows.
    """
    values = final_values(comparison, client_split(comparison))
    for run in comparison.runs:
        groups = group_metrics(comparison.federation, run.trace, group_split(comparison))
        values[run.label][run.seed] |= {name: float(series[-1]) for name, series in groups.items()}
    first, *_ = comparison.labels
    known = next(iter(values[first].values()))
    for label in comparison.labels:
        for metric in (name for name in MEASURED if name in known):
            value, change = (
                over_seeds(values, label, metric),
                difference(values, label, first, metric),
            )
            yield {
                "label": label, "metric": metric, "mean": value.mean,
                "half_width": value.half_width, "change": change.mean,
                "change_half_width": change.half_width,
            }  # fmt: skip


def course(comparison: Comparison) -> Iterator[Stored]:
    """Yield, at every evaluation after the first round, the share of clients that choose the model
    of their own group, in percent.

    `all` counts all clients. `voted` counts the clients of the last round, whose votes are in the
    models. Models have the names of the groups that elected them, so that nothing must be matched.
    Before the first round all models are equal.
    """
    group = np.asarray(comparison.federation.client_group)
    for label in comparison.labels:
        traces = [run.trace for run in comparison.of(label)]
        for i, done in enumerate(traces[0].rounds):
            if done == 0:
                continue
            right = [trace.choice[i] == group for trace in traces]
            voted = [
                hits[trace.cohort[done - 1]] for hits, trace in zip(right, traces, strict=True)
            ]
            yield {"label": label, "round": int(done), "all": _share(right), "voted": _share(voted)}


def _share(right: list[np.ndarray]) -> list[float]:
    """Return mean and standard deviation over seeds."""
    share = spread(np.array([100 * hits.mean() for hits in right]))
    return [share.mean, share.deviation]


# Comparisons: pages


def page(stored: Stored) -> str:
    """Return the generated part of the page of an experiment."""
    if "study" in stored:
        return study_page(stored)
    taken = f"Taken {stored['date']} on {stored['device']} with {versions(stored['versions'])}"
    head = (
        f"{_paragraphs(stored['notes'])}\n\n    {stored['command']}\n\n"
        f"{taken}: {stored['rounds']:,} rounds, {stored['seeds']} seeds"
    )
    if "draws" in stored:
        splits = stored["draws"]["splits"]
        return f"{head}, {splits} for each draw. {draws_page(stored)}"
    if "measured" in stored:
        central = any(one["metric"] == "central" for one in stored["measured"])
        rows = CENTRAL_ROWS if central else "test rows"
        return (
            f"{head}, {rows}, mean ± half of the 95 % interval over seeds. Changes are from the"
            " first method, seed by seed on the same rows and batches; bold where the 95 %"
            f" interval leaves out 0.\n\n{measured_table(stored)}"
        )
    if "course" in stored:
        words = (
            "Clients that choose their group after so many rounds, in percent, mean ± half of the"
            " 95 % interval over seeds."
        )
        return f"{head}. {words}\n\n{course_table(stored)}"
    return f"{head}. {SPREADS}\n\n{paper_table(stored)}"


def _paragraphs(notes: str) -> str:
    """Return notes with each paragraph in one line, which is wrapped where it is shown."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in notes.split("\n\n"))


def headline() -> str:
    """Return the README's table: test accuracy in the main experiment."""
    stored = json.loads((DOCS / "results" / "qffl-synthetic.json").read_text())
    metrics = ("average", "worst10", "variance")
    return draws_table(stored["draws"], metrics, ("test",), fold=True)


def paper_table(stored: Stored, metrics: tuple[str, ...] = (), splits: tuple[str, ...] = ()) -> str:
    """Return the paper's figures above ours, method by method, optionally of some metrics and
    splits only.
    """
    chosen = [
        _paper_line(one, stored["seeds"])
        for one in stored["lines"]
        if (not metrics or one["metric"] in metrics) and (not splits or one["split"] in splits)
    ]
    names, rows = paper_rows(chosen)
    text = []
    for row in rows:
        cells = [paper_figures(line) for line in row.lines]
        for i, source in enumerate(WHO):
            text.append(
                [
                    *((f"`{row.label}`", row.split) if i == 0 else ("", "")),
                    source,
                    *(cell[i] for cell in cells),
                ]
            )
    head = f"| method | split | | {' | '.join(metric_title(name) for name in names)} |"
    return f"{head}\n{lines([numbers(3, 3 + len(names)), *text])}"


def _paper_line(line: Stored, seeds: int) -> PaperLine:
    ours = Spread(line["ours"], line["deviation"], half_width(line["deviation"], seeds), seeds)
    return PaperLine(
        line["table"],
        line["split"],
        line["label"],
        line["metric"],
        line["paper"],
        line["paper_deviation"],
        ours,
    )


def measured_table(stored: Stored) -> str:
    """Return each method's values and, below them, their paired changes from the first method; bold
    where they are clear over seeds.
    """
    methods = by_label(stored["measured"])
    first, *_ = methods
    rows = []
    for label, values in methods.items():
        rows.append(
            [
                f"`{label}`",
                *(_shown(one["metric"], one["mean"], one["half_width"]) for one in values),
            ]
        )
        if label != first:
            rows.append(["change", *(_change(one, stored["seeds"]) for one in values)])
    titles = [COLUMNS[one["metric"]].title for one in methods[first]]
    return table(["method", *titles], rows, numbers(1, 1 + len(titles)))


def by_label(stored: list[Stored]) -> dict[str, list[Stored]]:
    """Return entries by method, methods in the order of their first entries."""
    methods: dict[str, list[Stored]] = {}
    for one in stored:
        methods.setdefault(one["label"], []).append(one)
    return methods


def _shown(metric: str, mean: float, half_width: float) -> str:
    return format_spread(Spread(mean, float("nan"), half_width, 2), COLUMNS[metric]).replace(
        "-", "−"
    )


def _change(one: Stored, seeds: int) -> str:
    mean, half = one["change"], one["change_half_width"]
    shown = _shown(one["metric"], mean, half)
    shown = f"+{shown}" if mean > 0 and float(shown.split()[0]) else shown
    change = Spread(mean, half / half_width(1.0, seeds), half, seeds)
    return f"**{shown}**" if is_clear(change) else shown


def course_table(stored: Stored) -> str:
    """Return shares of clients that choose their group: methods below each other, rounds beside
    each other.
    """
    methods = by_label(stored["course"])
    rounds = [str(one["round"]) for one in next(iter(methods.values()))]
    rows = [
        [
            f"`{label}`" if i == 0 else "",
            words,
            *(_mean_and_half(one[key], stored["seeds"]) for one in values),
        ]
        for label, values in methods.items()
        for i, (key, words) in enumerate(COURSE_WORDS.items())
    ]
    return table(["method", "clients", *rounds], rows, numbers(2, 2 + len(rounds)))


def _mean_and_half(share: list[float], seeds: int) -> str:
    mean, half = share[0], half_width(share[1], seeds)
    return f"{mean:.1f}" + (f" ± {half:.1f}" if half == half else "")


# Studies: figures to store


def read_study(folder: Path) -> tuple[Study, Stored]:
    """Return the study in a folder, and where and when it was trained."""
    plan = StudyPlan.from_json((folder / "plan.json").read_text())
    Store(folder, plan)
    if not (folder / "run.json").exists():
        raise ValueError(
            f"There is no run.json in {str(folder)!r}, so the device and the time of the training"
            " are missing. Run the study again."
        )
    return execute_study(plan, folder), json.loads((folder / "run.json").read_text())


def study_record(study: Study, record: Stored, experiment: Experiment) -> Stored:
    """Return means and deviations over seeds, the findings, and the settings that repeat
    a study.
    """
    plan, name = next(iter(study.plan.cells.values())), study.plan.name
    usual = experiment.study_plan(name)
    if list(usual.cells) != list(study.plan.cells):
        raise ValueError(
            f"{name} has the partitions {list(usual.cells)}, but the folder has"
            f" {list(study.plan.cells)}. Store whole studies, not quick ones."
        )
    return {
        "experiment": name,
        "title": experiment.title,
        "notes": experiment.notes.strip(),
        "command": command(name, plan, next(iter(usual.cells.values()))),
        **{key: record[key] for key in TAKEN},
        "rounds": plan.rounds,
        "seeds": len(plan.seeds),
        "findings": [finding._asdict() for finding in findings([study])],
        "study": {
            "metrics": STUDY_METRICS,
            "partitions": [_partition(view) for view in study_views([study])],
        },
    }


def _partition(view: StudyView) -> Stored:
    methods = {}
    for method in view.outcomes["honest"]:
        methods[str(method)] = {who: _ours(view.outcomes[who][method]) for who in view.outcomes}
        if method in view.paper:
            methods[str(method)]["paper"] = {
                "mean": [_fraction(view.paper[method][m], m) for m in STUDY_METRICS]
            }
    return {"partition": str(view.place), "table": view.place.table, "methods": methods}


def _ours(outcome: Outcome) -> Stored:
    spreads = {metric: spread(outcome.values[metric]) for metric in STUDY_METRICS}
    return {
        **outcome.chosen,
        "mean": [_fraction(spreads[m].mean, m) for m in STUDY_METRICS],
        "deviation": [_fraction(spreads[m].deviation, m) for m in STUDY_METRICS],
    }


def _fraction(value: float, metric: str) -> float | None:
    return round(value / (100 if metric in FRACTIONS else 1), DIGITS) if isfinite(value) else None


# Studies: pages


def study_page(stored: Stored) -> str:
    """Return the generated part of a study's page."""
    taken = (
        f"Taken {stored['date']} on {stored['device']} in {stored['seconds']:,.0f} s with"
        f" {versions(stored['versions'])}"
    )
    settings = f"{taken}: {stored['rounds']:,} rounds, {stored['seeds']} seeds."
    parts = [
        _paragraphs(stored["notes"]),
        f"    {stored['command']}",
        settings,
        PROTOCOLS,
        "## Findings",
        CLEARLY,
    ]
    for one in stored["findings"]:
        rows = table(one["columns"], one["rows"], numbers(1, len(one["columns"])))
        parts += [f"### {one['question']}", one["answer"], f"The thesis: {one['thesis']}", rows]
    parts += ["## Every method", METHODS]
    for one in stored["study"]["partitions"]:
        parts.append(
            f"### {one['partition']}" + (f" (Table {one['table']})" if one["table"] else "")
        )
        parts += [
            _methods(one, stored["study"]["metrics"], titles, stored["seeds"])
            for titles in STUDY_TABLES
        ]
    return "\n\n".join(parts)


def _methods(partition: Stored, metrics: list[str], titles: dict[str, str], seeds: int) -> str:
    methods = partition["methods"]
    protocols = [
        name
        for name in PROTOCOL_WORDS
        if name != "paper" or any("paper" in entry for entry in methods.values())
    ]
    # learning rates, in the first table only
    rates = ("study", "honest") if titles is STUDY_TABLES[0] else ()
    columns = [(metric, protocol) for metric in titles for protocol in protocols]
    head = [
        "method",
        *(f"rate, {PROTOCOL_WORDS[protocol]}" for protocol in rates),
        *(f"{titles[metric]}, {PROTOCOL_WORDS[protocol]}" for metric, protocol in columns),
    ]
    rows = []
    for name, entry in methods.items():
        cells = [
            _cell(entry.get(protocol), metrics.index(metric), seeds) for metric, protocol in columns
        ]
        rows.append([name, *(_rate(entry[protocol]) for protocol in rates), *cells])
    return table(head, rows, numbers(1, len(head)))


def _rate(entry: Stored) -> str:
    return ", ".join(
        f"{value:g}" for key, value in entry.items() if key not in ("mean", "deviation")
    )


def _cell(entry: Stored | None, at: int, seeds: int) -> str:
    if entry is None or entry["mean"][at] is None:
        return "" if entry is None else "n/a"
    deviation = entry.get("deviation", [None] * (at + 1))[at]
    return f"{entry['mean'][at]:.3f}" + (
        f" ± {half_width(deviation, seeds):.3f}" if deviation is not None and seeds > 1 else ""
    )


if __name__ == "__main__":
    main()
