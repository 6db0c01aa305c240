"""Keep a reproduction's figures in the repository: `python docs/keep.py RESULTS_FOLDER [LABEL ...]`.

The folder is what `evenly reproduce NAME --out RESULTS_FOLDER` left; nothing is trained again. Its figures go to
docs/results/NAME.json and, of the methods named, a picture to docs/pictures/NAME.svg; `python docs/generate.py` then writes
the pages.
"""

import json
import sys
from datetime import date
from pathlib import Path

import jax

from evenly.experiment.config import read_packaged
from evenly.experiment.execute import execute
from evenly.experiment.plan import Plan
from evenly.experiment.reproduce import side_by_side
from evenly.experiment.results import Comparison
from evenly.experiment.store import Store
from evenly.report.charts import distribution, save_chart

DOCS = Path(__file__).resolve().parent


def main() -> None:
    folder = Path(sys.argv[1])
    plan = Plan.from_json((folder / "plan.json").read_text())
    comparison = execute(plan, Store(folder, plan))
    keep(plan, comparison, "a CPU" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind)
    if sys.argv[2:]:
        (DOCS / "pictures").mkdir(exist_ok=True)
        save_chart(distribution(comparison, sys.argv[2:]), DOCS / "pictures" / f"{plan.name.replace('/', '-')}.svg")


def keep(plan: Plan, comparison: Comparison, device: str) -> None:
    """Write the figures of a comparison, beside the paper's, with what is needed to repeat it."""
    experiment = read_packaged(plan.name)
    lines = side_by_side(comparison, experiment.paper) if experiment.paper else []
    kept = {
        "experiment": plan.name,
        "title": experiment.title,
        "notes": experiment.notes.strip(),
        "command": f"evenly reproduce {plan.name}" + ("" if plan.rounds == experiment.rounds else f" --rounds {plan.rounds}"),
        "date": date.today().isoformat(),
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
    (DOCS / "results").mkdir(exist_ok=True)
    path = DOCS / "results" / f"{plan.name.replace('/', '-')}.json"
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
