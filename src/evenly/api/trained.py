"""The trained models of results, which are in memory or in a folder."""

from pathlib import Path

from evenly.algorithms import Variant
from evenly.experiment.comparison import Run
from evenly.experiment.execute import setting_of
from evenly.experiment.folder import slug
from evenly.experiment.plan import Plan
from evenly.models import TASKS
from evenly.records import require
from evenly.saved_models import Model, load, models_of
from evenly.types import Seeds, Task

MOST_MODELS = 1_000  # of one method and seed


def models_in_memory(plan: Plan | None, label: str, run: Run) -> list[Model]:
    """The models of a run that no folder stores."""
    require(
        plan is not None and len(_variant(plan, label).members) == 1,
        f"{label} combines several models, which are stored only with out=FOLDER.",
    )
    assert plan is not None
    setting = setting_of(plan, run.seed)
    task = _variant(plan, label).members[0].task(setting.task, Seeds.all(run.seed))
    return models_of(run.trace, task, setting.federation)


def models_in_folder(
    folder: Path, plan: Plan | None, label: str, seed: int, task: Task | None
) -> list[Model]:
    """The models of a run in a folder. A model of one's own needs its task."""
    task = task or _own_task(plan, label, seed)
    members = [label] if plan is None else [m.label for m in _variant(plan, label).members]
    models = []
    for member in members:
        names = [f"{member}#{seed}"]
        if not _file(folder, names[0]).exists():
            names = [f"{member}#{seed}#{i}" for i in range(MOST_MODELS)]
        for name in names:
            if not _file(folder, name).exists():
                break
            models.append(load(_file(folder, name), task=task))
    require(bool(models), f"The folder {str(folder)!r} holds no model of {label} with seed {seed}.")
    return models


def one_of(models: list[Model], label: str, number: int | None) -> Model:
    """The model of this number, which may be left out if there is only one."""
    if number is None and len(models) == 1:
        return models[0]
    last = len(models) - 1
    require(
        number is not None,
        f"{label} has {len(models)} models. Choose one with number=0 to number={last}.",
    )
    assert number is not None
    require(0 <= number <= last, f"number must be from 0 to {last}, got {number}.")
    return models[number]


def _variant(plan: Plan, label: str) -> Variant:
    return next(variant for variant in plan.variants() if variant.label == label)


def _own_task(plan: Plan | None, label: str, seed: int) -> Task | None:
    """The task of a model of one's own, whose code no folder stores, in the session that trained
    it.
    """
    own = None if plan is None else plan.objects.model
    if plan is None or own is None or type(own) in TASKS.values():
        return None
    return _variant(plan, label).members[0].task(own, Seeds.all(seed))


def _file(folder: Path, name: str) -> Path:
    return folder / "models" / f"{slug(name)}.npz"
