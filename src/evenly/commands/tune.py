"""`evenly tune`: choose a hyper-parameter on validation rows."""

from typing import Annotated

import typer

from evenly.commands.options import (
    BatchSize,
    Client,
    Data,
    Favourable,
    Force,
    Json,
    Label,
    LearningRate,
    Out,
    Rounds,
    Seeds,
    Sensitive,
    Unprivileged,
    seeds_of,
    source,
)
from evenly.commands.running import run_plan
from evenly.commands.showing import finish
from evenly.mistakes import sentences


def tune(
    data: Data = "synthetic",
    grid: Annotated[str, typer.Option(help="Values of q to try; 0 is always among them.")] = "0.001,0.01,0.1,1,2,5,10,15",
    within: Annotated[float, typer.Option(help="How many points of average accuracy fairness may cost.")] = 1.0,
    rounds: Rounds = 2000,
    seeds: Seeds = 3,
    learning_rate: LearningRate = 0.1,
    batch_size: BatchSize = 10,
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    favourable: Favourable = None,
    unprivileged: Unprivileged = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose q on validation rows as q-FFL does: the least variance whose average stays within a margin of q = 0."""
    with sentences():
        from evenly.experiment.choose import choose_fairest
        from evenly.experiment.plan import Plan
        from evenly.terminal import choice_table, results_table

        values = ", ".join(dict.fromkeys(["0", *(v.strip() for v in grid.split(",") if v.strip())]))
        plan = Plan(
            name="tune",
            data=source(data, client=client, label=label, sensitive=sensitive, favourable=favourable, unprivileged=unprivileged),
            methods=(f"q-fedavg(q=[{values}])",),
            rounds=rounds,
            seeds=seeds_of(seeds),
            training={"learning_rate": learning_rate, "batch_size": batch_size},
        )
        comparison, folder, rows = run_plan(plan, out, force)
        choice = choose_fairest(comparison, "q-fedavg(q=0)", within=within)
        kept = comparison._replace(runs=[r for r in comparison.runs if r.label in (choice.baseline, choice.chosen)])
        finish(folder, rows, as_json, choice_table(choice), results_table(kept), extra={"chosen": choice.chosen})
