"""Pages of kept studies: findings, and every method beside the paper's figures, from docs/results/*.json.

`python docs/keep.py FOLDER` keeps the study that `evenly reproduce` left in a folder; nothing is trained again.
"""

import json
from math import isfinite
from pathlib import Path
from typing import Any

from evenly.experiment.config import Experiment, read_packaged
from evenly.experiment.folder import Store
from evenly.experiment.study import Outcome, Study, StudyPlan, execute_study
from evenly.metrics import half_width, spread
from evenly.papers.findings import findings
from evenly.papers.thesis import COLUMNS, FRACTIONS, SCORES, StudyView, views

Kept = dict[str, Any]
METRICS = (*COLUMNS.values(), *SCORES)
SHOWN = (
    {"accuracy": "accuracy", "eod_abs": "|EOD|", "fas_abs": "FAS"},
    {"spd_abs": "|SPD|", "aod_abs": "|AOD|", "acc_diff": "accuracy difference", "precision": "precision"},
)
WHO = {"paper": "paper", "study": "study's", "honest": "honest"}
DIGITS = 5
TAKEN = ("device", "date", "versions", "seconds")


def read(folder: Path) -> tuple[Study, Kept]:
    """The study in a folder, and where and when it was trained."""
    plan = StudyPlan.from_json((folder / "plan.json").read_text())
    Store(folder, plan)
    if not (folder / "run.json").exists():
        raise ValueError(
            f"There is no run.json in {str(folder)!r}, so it is not known how long and where the study was trained. Run it again."
        )
    return execute_study(plan, folder), json.loads((folder / "run.json").read_text())


def kept(study: Study, record: Kept, experiment: Experiment) -> Kept:
    """What is worth keeping: means and deviations over seeds, the findings, and what is needed to repeat it."""
    plan, name = next(iter(study.plan.cells.values())), study.plan.name
    whole = experiment.study_plan(name)
    usual = next(iter(whole.cells.values()))
    if list(whole.cells) != list(study.plan.cells):
        raise ValueError(
            f"{name} has the partitions {list(whole.cells)}, but the folder has {list(study.plan.cells)}. "
            "Keep whole studies, not quick ones."
        )
    changed = {"rounds": (plan.rounds, usual.rounds), "seeds": (len(plan.seeds), len(usual.seeds))}
    return {
        "experiment": name,
        "title": experiment.title,
        "notes": experiment.notes.strip(),
        "command": " ".join([f"evenly reproduce {name}", *(f"--{key} {ours}" for key, (ours, its) in changed.items() if ours != its)]),
        **{key: record[key] for key in TAKEN},
        "rounds": plan.rounds,
        "seeds": len(plan.seeds),
        "findings": [found._asdict() for found in findings([study])],
        "study": {"metrics": METRICS, "partitions": [_partition(view) for view in views([study])]},
    }


def _partition(view: StudyView) -> Kept:
    methods = {}
    for method in view.outcomes["honest"]:
        methods[str(method)] = {who: _ours(view.outcomes[who][method]) for who in view.outcomes}
        if method in view.paper:
            methods[str(method)]["paper"] = {"mean": [_fraction(view.paper[method][m], m) for m in METRICS]}
    return {"partition": str(view.place), "table": view.place.table, "methods": methods}


def _ours(outcome: Outcome) -> Kept:
    found = {metric: spread(outcome.values[metric]) for metric in METRICS}
    return {
        **outcome.chosen,
        "mean": [_fraction(found[m].mean, m) for m in METRICS],
        "deviation": [_fraction(found[m].deviation, m) for m in METRICS],
    }


def _fraction(value: float, metric: str) -> float | None:
    return round(value / (100 if metric in FRACTIONS else 1), DIGITS) if isfinite(value) else None


def page(found: Kept) -> str:
    """The generated part of a study's page."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    taken = f"Taken {found['date']} on {found['device']} in {found['seconds']:,.0f} s with {versions}"
    made = f"{taken}: {found['rounds']:,} rounds, {found['seeds']} seeds."
    parts = [found["notes"], f"    {found['command']}", made, PROTOCOLS, "## Findings", CLEARLY]
    for one in found["findings"]:
        parts += [f"### {one['question']}", one["answer"], f"The thesis: {one['thesis']}", table(one["columns"], one["rows"])]
    parts += ["## Every method", METHODS]
    for own in found["study"]["partitions"]:
        parts.append(f"### {own['partition']}" + (f" (Table {own['table']})" if own["table"] else ""))
        parts += [_methods(own, found["study"]["metrics"], shown, found["seeds"]) for shown in SHOWN]
    return "\n\n".join(parts)


PROTOCOLS = (
    "Two protocols choose the learning rate from the same trained models. The study's takes the least |EOD| on the test set, as the\n"
    "thesis does, and is optimistic. The honest one looks at validation rows only: of the rates within a point of the best accuracy\n"
    "there, the one with the least |EOD|."
)
CLEARLY = (
    "Clearly: the 95 % interval over seeds of the paired change leaves out 0. Three numbers with strokes count intervals below 0,\n"
    "undecided and above 0."
)
METHODS = (
    "Fractions, mean ± half of the 95 % interval over seeds; the paper gives means. FAS is made of absolute values, the paper's of\n"
    "its columns. Where the accuracy difference is positive, the model is right more often about the unprivileged."
)


def _methods(own: Kept, metrics: list[str], shown: dict[str, str], seeds: int) -> str:
    whose = [who for who in WHO if who != "paper" or any("paper" in entry for entry in own["methods"].values())]
    chosen = ("study", "honest") if shown is SHOWN[0] else ()  # whose learning rates are told: once is enough
    head = ["method", *(f"rate, {WHO[who]}" for who in chosen), *(f"{title}, {WHO[who]}" for title in shown.values() for who in whose)]
    rows = []
    for name, entry in own["methods"].items():
        cells = [_cell(entry.get(who), metrics.index(metric), seeds) for metric in shown for who in whose]
        rows.append([name, *(_rate(entry[who]) for who in chosen), *cells])
    return table(head, rows)


def _rate(entry: Kept) -> str:
    return ", ".join(f"{value:g}" for key, value in entry.items() if key not in ("mean", "deviation"))


def _cell(entry: Kept | None, at: int, seeds: int) -> str:
    if entry is None or entry["mean"][at] is None:
        return "" if entry is None else "n/a"
    deviation = entry.get("deviation", [None] * (at + 1))[at]
    return f"{entry['mean'][at]:.3f}" + (f" ± {half_width(deviation, seeds):.3f}" if deviation is not None and seeds > 1 else "")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose first column is words and whose others are numbers; bars inside cells are escaped."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def keep(folder: Path, results: Path) -> Path:
    """Write the figures of the study in a folder."""
    study, record = read(folder)
    path = results / f"{study.plan.name.replace('/', '-')}.json"
    results.mkdir(exist_ok=True)
    path.write_text(json.dumps(kept(study, record, read_packaged(study.plan.name)), separators=(",", ":"), ensure_ascii=False) + "\n")
    return path
