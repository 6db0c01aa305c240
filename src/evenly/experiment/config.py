"""Experiment files: TOML, checked key by key, resolved into a Plan.

pydantic is used here and nowhere else, so that executing a plan does not need it.
"""

import dataclasses
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evenly.experiment.plan import Plan
from evenly.experiment.study import StudyPlan, swept
from evenly.notation import unknown


class Paper(BaseModel):
    """Which figures of the paper stand beside ours.

    `rows` maps our labels to the entries of `column` in the reference file; `metrics` maps the paper's names of metrics to
    ours, where they differ (a file with levels, such as user and group, has them before the name: group_variance); `scale`
    multiplies the paper's figures into our units; `setting` keeps only the figures with that entry; `split` is whose rows the
    figures are about, where the file does not say.
    """

    model_config = ConfigDict(extra="forbid")
    reference: str
    dataset: str
    rows: dict[str, str]
    column: str = "objective"
    setting: str = ""
    split: str = "test"
    metrics: dict[str, str] = {}
    scale: dict[str, float] = {}


class Quick(BaseModel):
    """What `--quick` changes: enough to see that it works, on two cores and within two minutes."""

    model_config = ConfigDict(extra="forbid")
    rounds: int = Field(gt=0)
    seeds: int = Field(gt=0)
    model: str = ""
    evaluate_every: int = Field(ge=0, default=0)
    data: dict[str, Any] = {}
    cells: list[int] = []  # of a study: which partitions; none: all


class StudyTable(BaseModel):
    """What makes an experiment a study: `cells` are settings of the data, one for each partition; of each setting in
    `choose`, which all methods get, one value is chosen afterwards."""

    model_config = ConfigDict(extra="forbid")
    cells: list[dict[str, Any]] = Field(min_length=1)
    choose: dict[str, list[float]] = Field(min_length=1)


class Experiment(BaseModel):
    """One experiment file."""

    model_config = ConfigDict(extra="forbid")
    title: str
    methods: list[str] = Field(min_length=1)
    data: dict[str, Any]
    rounds: int = Field(gt=0)
    seeds: int | list[int] = 5  # how many, or which
    model: str = ""
    sampling: str = "weighted(clients=10)"
    training: dict[str, Any] = {}
    evaluate_every: int = Field(ge=0, default=0)
    dropout: float = 0.0
    notes: str = ""
    paper: Paper | None = None
    quick: Quick | None = None
    study: StudyTable | None = None

    def study_plan(self, name: str, *, quick: bool = False, seeds: int | None = None, rounds: int | None = None) -> StudyPlan:
        """The plans of a study, one for each partition."""
        assert self.study is not None
        whole = self.plan(name, quick=quick, seeds=seeds, rounds=rounds)
        whole = dataclasses.replace(whole, methods=swept(self.methods, self.study.choose))
        wanted = self.quick.cells if quick and self.quick and self.quick.cells else range(len(self.study.cells))
        cells = [self.study.cells[i] for i in wanted]
        named = {", ".join(map(str, cell.values())): dataclasses.replace(whole, data=whole.data | cell) for cell in cells}
        return StudyPlan(name=name, chosen=tuple(self.study.choose), cells=named)

    def plan(self, name: str, *, quick: bool = False, seeds: int | None = None, rounds: int | None = None) -> Plan:
        """The plan of this experiment, its quick variant or one with other seeds."""
        short = self.quick if quick else None
        if quick and short is None:
            raise ValueError(f"{name} has no quick variant.")
        given = self.seeds if isinstance(self.seeds, list) else list(range(self.seeds))
        number = seeds or (short.seeds if short else len(given))
        chosen = given[:number] if number <= len(given) else list(range(number))
        return Plan(
            name=name,
            data=self.data | (short.data if short else {}),
            methods=tuple(self.methods),
            rounds=rounds or (short.rounds if short else self.rounds),
            seeds=tuple(chosen),
            model=short.model or self.model if short else self.model,
            sampling=self.sampling,
            training=self.training,
            evaluate_every=short.evaluate_every if short else self.evaluate_every,
            dropout=self.dropout,
        )


def read(path: Path) -> Experiment:
    """An experiment from a file; every mistake is named with file, key and, for an unknown key, the nearest legal one."""
    try:
        return _checked(tomllib.loads(path.read_text()), path.name)
    except FileNotFoundError:
        raise ValueError(f"There is no experiment file {str(path)!r}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name} is not valid TOML: {error}.") from None


def packaged() -> list[str]:
    """Names of the experiments that come with the package, such as qffl/synthetic."""
    root = resources.files("evenly") / "experiments"
    return sorted(
        f"{paper.name}/{file.name[:-5]}"
        for paper in root.iterdir()
        if paper.is_dir()
        for file in paper.iterdir()
        if file.name.endswith(".toml")
    )


def of_paper(paper: str) -> list[str]:
    """Names of a paper's experiments; none if there is no such paper."""
    return [name for name in packaged() if name.startswith(f"{paper}/")]


def read_packaged(name: str) -> Experiment:
    if name not in packaged():
        raise unknown("experiment", name, packaged())
    text = (resources.files("evenly") / "experiments" / f"{name}.toml").read_text()
    return _checked(tomllib.loads(text), f"{name}.toml")


def _checked(fields: dict[str, Any], where: str) -> Experiment:
    try:
        return Experiment.model_validate(fields)
    except ValidationError as error:
        # A misspelt key is also a missing one; the spelling is the better hint.
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise ValueError(f"{where}: {unknown('key', key, _keys(first['loc']))}") from None
        given = "" if first["type"] == "missing" else f", got {first['input']!r}"
        raise ValueError(f"{where}, key {key!r}: {first['msg']}{given}.") from None


def _keys(location: tuple[int | str, ...]) -> list[str]:
    model = {"paper": Paper, "quick": Quick, "study": StudyTable}.get(str(location[0]), Experiment) if len(location) > 1 else Experiment
    return [".".join([*map(str, location[:-1]), name]) for name in model.model_fields]
