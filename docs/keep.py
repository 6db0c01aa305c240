"""Keep a reproduction's figures in the repository: `python docs/keep.py RESULTS_FOLDER [LABEL ...]`.

The folder is what `evenly reproduce NAME --out RESULTS_FOLDER` left; nothing is trained again. Its figures, beside the paper's
or, without a paper, with their changes from the first method or the course of what clients chose, go to docs/results/NAME.json and,
of the methods named, a picture to docs/pictures/NAME.svg; `python docs/generate.py` then writes the pages.
"""

import json
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import jax
import kept_inference
import kept_studies

from evenly.experiment.config import Experiment, read_packaged
from evenly.experiment.execute import execute
from evenly.experiment.folder import Store, read_record
from evenly.experiment.paper import side_by_side
from evenly.experiment.plan import Plan
from evenly.experiment.results import Comparison, group_metrics
from evenly.report.charts import distribution, save_chart
from evenly.report.values import difference, final_values, over_seeds

DOCS = Path(__file__).resolve().parent
# Kept where there is no paper: clients, then groups.
MEASURED = ("average", "worst10", "variance_true", "eod_abs", "spd_abs", "eod_range", "worst_tpr", "worst_accuracy")


def main() -> None:
    folder = Path(sys.argv[1])
    text = (folder / "plan.json").read_text()
    if "cells" in json.loads(text):
        kept_studies.keep(folder, DOCS / "results")
        return
    plan = Plan.from_json(text)
    comparison = execute(plan, Store(folder, plan), models=False)
    known = read_record(folder)
    if known and known.device:  # where and with what it was trained, which need not be here
        keep(plan, comparison._replace(versions=known.versions), known.device, known.date)
    else:
        keep(plan, comparison, "a CPU" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind, date.today().isoformat())
    if sys.argv[2:]:
        (DOCS / "pictures").mkdir(exist_ok=True)
        save_chart(distribution(comparison, sys.argv[2:]), DOCS / "pictures" / f"{file_name(plan)}.svg")


def file_name(plan: Plan) -> str:
    """Paper and data; the data alone where there is no paper."""
    return plan.name.removeprefix("beyond/").replace("/", "-")


def keep(plan: Plan, comparison: Comparison, device: str, day: str) -> None:
    """Write the figures of a comparison, beside the paper's, with what is needed to repeat it."""
    experiment = read_packaged(plan.name)
    lines = side_by_side(comparison, experiment.paper) if experiment.paper else []
    kept = {
        "experiment": plan.name,
        "title": experiment.title,
        "notes": experiment.notes.strip(),
        "command": command(plan, experiment),
        "date": day,
        "device": device,
        "versions": comparison.versions,
        "rounds": plan.rounds,
        "seeds": len(plan.seeds),
        "lines": [
            {
                "table": line.table, "split": line.split, "label": line.label, "metric": line.metric, "paper": line.paper,
                "paper_deviation": line.paper_deviation, "ours": line.ours.mean, "deviation": line.ours.deviation,
            }
            for line in lines
        ],
    }  # fmt: skip
    if not experiment.paper and any(run.trace.choice.size for run in comparison.runs):
        kept["course"] = list(kept_inference.course(comparison))
    elif not experiment.paper:
        kept["measured"] = list(measured(comparison))
    (DOCS / "results").mkdir(exist_ok=True)
    path = DOCS / "results" / f"{file_name(plan)}.json"
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def command(plan: Plan, experiment: Experiment) -> str:
    """What repeats it, with what was changed."""
    usual = experiment.plan(plan.name)
    changed = {"rounds": (plan.rounds, usual.rounds), "seeds": (len(plan.seeds), len(usual.seeds))}
    return f"evenly reproduce {plan.name}" + "".join(f" --{name} {used}" for name, (used, asked) in changed.items() if used != asked)


def measured(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """On test rows: each method's mean over seeds and its change from the first method, seed by seed, with 95 % intervals."""
    values = final_values(comparison)
    for run in comparison.runs:
        groups = group_metrics(comparison.federation, run.trace, "test")
        values[run.label][run.seed] |= {name: float(found[-1]) for name, found in groups.items()}
    first, *_ = comparison.labels
    for label in comparison.labels:
        for metric in MEASURED:
            value, change = over_seeds(values, label, metric), difference(values, label, first, metric)
            yield {
                "label": label, "metric": metric, "mean": value.mean, "half_width": value.half_width,
                "change": change.mean, "change_half_width": change.half_width,
            }  # fmt: skip


if __name__ == "__main__":
    main()
