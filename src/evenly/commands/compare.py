"""`evenly compare`: several methods on the same data."""

from typing import Annotated

import typer

from evenly.commands.options import (
    BatchSize,
    Client,
    Data,
    Drop,
    Favourable,
    Features,
    Force,
    Json,
    Label,
    LearningRate,
    LogTo,
    Out,
    Plugins,
    Rounds,
    Seeds,
    Sensitive,
    Unprivileged,
    loggers,
    plugin_records,
    seeds_of,
    source,
)
from evenly.commands.running import How, run_plan
from evenly.commands.showing import finish
from evenly.mistakes import sentences


def compare(
    data: Data = "synthetic",
    algorithms: Annotated[
        str, typer.Option(help="Methods, separated by commas; a list in brackets is a sweep.")
    ] = "fedavg,q-fedavg(q=[1, 5])",
    rounds: Rounds = 2000,
    seeds: Seeds = 3,
    model: Annotated[str, typer.Option(help="softmax, logistic, svm or mlp; by default the plainest that fits.")] = "",
    learning_rate: LearningRate = 0.1,
    batch_size: BatchSize = 10,
    epochs: Annotated[int, typer.Option(help="Passes over a client's rows in a round.")] = 1,
    sampling: Annotated[str, typer.Option(help="Who takes part, where a method does not say.")] = "weighted(clients=10)",
    dropout: Annotated[float, typer.Option(help="Probability that a chosen client does not return.")] = 0.0,
    evaluate_every: Annotated[int, typer.Option(help="Rounds between evaluations; 0: about fifty in all.")] = 0,
    client: Client = None,
    label: Label = None,
    sensitive: Sensitive = None,
    favourable: Favourable = None,
    unprivileged: Unprivileged = None,
    features: Features = None,
    drop: Drop = None,
    plugin: Plugins = None,
    log: LogTo = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train several methods on the same data and write one report. All of them see the same clients and batches."""
    with sentences():
        from evenly.experiment.plan import Plan

        plan = Plan(
            name="compare",
            data=source(
                data,
                client=client,
                label=label,
                sensitive=sensitive,
                favourable=favourable,
                unprivileged=unprivileged,
                features=features,
                drop=drop,
            ),
            methods=(algorithms,),
            rounds=rounds,
            seeds=seeds_of(seeds),
            model=model,
            sampling=sampling,
            training={"learning_rate": learning_rate, "batch_size": batch_size, "epochs": epochs},
            evaluate_every=evaluate_every,
            dropout=dropout,
            plugins=plugin_records(plugin),
        )
        comparison, folder, rows = run_plan(plan, out, force, how=How(logs=loggers(log)))
        from evenly.terminal import opening_of, results_table, warnings_of

        finish(folder, rows, as_json, results_table(comparison), *opening_of(comparison), *warnings_of(comparison))
