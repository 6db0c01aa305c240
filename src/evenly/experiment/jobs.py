"""A job is one program of a plan, and `run` is how it is done: by a thread here or by a worker of a cluster, in the same way.

A plan and a program are plain data. Everything else (data, model, methods) is made from them where the job runs, so a job
gives the same bits wherever the hardware is the same.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from evenly.algorithms.e2fl import E2FL
from evenly.data.federation import Federation
from evenly.datasets.load import load
from evenly.experiment.panel import panel_of
from evenly.experiment.plan import ALL_MODELS, Plan
from evenly.experiment.programs import Program, members_of
from evenly.notation import parse_one, unknown
from evenly.outside import check_kinds, kinds_of
from evenly.records import replace
from evenly.saving import Model, models_of
from evenly.simulate import Advance, advance, simulate
from evenly.simulate.run import Progress
from evenly.simulate.start import refuse_without_validation, suited
from evenly.simulate.traces import Observe, by_group
from evenly.types import Algorithm, Seeds, Task, Trace


class Setting(NamedTuple):
    """What the programs of one seed share."""

    federation: Federation
    task: Task


class Result(NamedTuple):
    """What a job leaves: a trace for each run, and the trained models by the names under which they are kept."""

    traces: list[Trace]
    models: dict[str, Model]


def setting_of(plan: Plan, seed: int) -> Setting:
    federation = load(plan.data, seed)
    return Setting(federation, choose_model(plan.model, federation))


def refuse_unfit(plan: Plan, setting: Setting) -> None:
    """Raise if a method cannot work on these data, such as one that compares groups where there is only one."""
    census = setting.federation.census()
    for member in {(type(member.rule), member.rule.needs): member for member in members_of(plan)}.values():  # settings were checked before
        refuse_without_validation(member, setting.federation)
        as_trained(member, setting.federation).rule.init(census)


def as_trained(member: Algorithm, federation: Federation) -> Algorithm:
    """As it will be trained: where groups of people vote, they are clients of their own."""
    if isinstance(member.rule, E2FL) and member.rule.people:
        federation, _ = by_group(federation, [member])
    return suited(member, federation)


def run(
    plan: Plan,
    program: Program,
    setting: Setting,
    *,
    progress: Progress | None = None,
    observe: Observe | None = None,
    checkpoint: Path | None = None,
    devices: int = 0,
    models: bool = True,
    advance: Advance = advance,
    leave: Callable[[], None] | None = None,
) -> Result:
    """Train a program's runs. Without `models` those stay behind: large ones are most of a result's size."""
    members = members_of(plan)
    own = [members[i] for i in program.members]
    traces = simulate(
        setting.task,
        setting.federation,
        own,
        plan.rounds,
        seeds=Seeds.all(program.seed),
        evaluate_every=plan.evaluations,
        dropout=plan.dropout,
        progress=progress,
        observe=observe,
        checkpoint=checkpoint,
        devices=devices,
        # Where people are told apart, each of them becomes a client of its own: a panel cannot stand for those.
        panel=None if any(getattr(one.rule, "people", False) for one in own) else panel_of(setting.federation),
        advance=advance,
        leave=leave,
    )
    if not models:
        return Result([_without_model(trace) for trace in traces], {})
    named = {}
    for i, trace in zip(program.members, traces, strict=True):
        own = models_of(trace, members[i].task(setting.task, Seeds.all(program.seed)), setting.federation)
        for number, model in enumerate(own):
            named[f"{members[i].label}#{program.seed}" + (f"#{number}" if len(own) > 1 else "")] = model
    return Result(traces, named)


def choose_model(name: str, federation: Federation) -> Task:
    """The named model, settings in brackets, or the plainest that fits: logistic for two classes, softmax for more."""
    part = parse_one(name or ("logistic" if len(federation.labels) == 2 else "softmax"), "model")
    task = ALL_MODELS[part.name](federation)
    known = [field.name for field in dataclasses.fields(task)]  # pyright: ignore[reportArgumentType]
    for setting in part.settings:
        if setting not in known:
            raise ValueError(f"{part.name}: {unknown('setting', setting, known)}")
    try:
        check_kinds(part.settings, kinds_of(type(task)))
    except ValueError as error:
        raise ValueError(f"{part.name}: {error}") from None
    return replace(task, **{k: tuple(v) if isinstance(v, list) else v for k, v in part.settings.items()})


def _without_model(trace: Trace) -> Trace:
    return trace._replace(model=jax.tree.map(lambda _: np.zeros(0, np.float32), trace.model))
