"""Experiment files: TOML, validated key by key and turned into a plan.

pydantic is used only here and in `paper`, so that executing a plan does not need it.
"""

import dataclasses
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from evenly.algorithms import METHODS
from evenly.datasets.load import table_source
from evenly.experiment.paper import STRICT, Paper
from evenly.experiment.plan import Plan, check_seeds
from evenly.experiment.study import StudyPlan, add_sweep
from evenly.notation import unknown
from evenly.plugins import load_files
from evenly.validation import MOST_NESTED, check_nesting, fits, shortened


class Quick(BaseModel):
    """Settings of `--quick`: a version that runs on two cores within two minutes."""

    model_config = STRICT
    rounds: int = Field(gt=0)
    seeds: int = Field(gt=0)
    model: str = ""
    evaluate_every: int = Field(ge=0, default=0)
    data: dict[str, Any] = {}
    cells: list[int] = []  # of a study: which partitions; none: all


class StudyTable(BaseModel):
    """The table `[study]`.

    `cells` lists settings of the data, one for each partition. `choose` lists the values of
    settings that all methods get. A protocol chooses one of them afterwards.
    """

    model_config = STRICT
    cells: list[dict[str, Any]] = Field(min_length=1)
    choose: dict[str, list[float]] = Field(min_length=1)


class Experiment(BaseModel):
    """The contents of an experiment file."""

    model_config = STRICT
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
    # Python files that register methods, metrics or data sets; a path starts where the experiment
    # file is
    plugins: list[str] = []
    paper: Paper | None = None
    quick: Quick | None = None
    study: StudyTable | None = None

    def study_plan(
        self, name: str, *, quick: bool = False, seeds: int | None = None, rounds: int | None = None
    ) -> StudyPlan:
        """The plan of a study, with one plan for each partition."""
        assert self.study is not None
        whole = self.plan(name, quick=quick, seeds=seeds, rounds=rounds)
        whole = dataclasses.replace(whole, methods=add_sweep(self.methods, self.study.choose))
        wanted = (
            self.quick.cells
            if quick and self.quick and self.quick.cells
            else range(len(self.study.cells))
        )
        cells = [self.study.cells[i] for i in wanted]
        names = [", ".join(map(str, cell.values())) for cell in cells]
        twice = next((one for one in names if names.count(one) > 1), None)
        if twice is not None:
            raise ValueError(f"study.cells must be different, but {twice!r} occurs twice.")
        own = {
            at: dataclasses.replace(whole, data=whole.data | cell)
            for at, cell in zip(names, cells, strict=True)
        }
        return StudyPlan(name=name, chosen=tuple(self.study.choose), cells=own)

    def plan(
        self, name: str, *, quick: bool = False, seeds: int | None = None, rounds: int | None = None
    ) -> Plan:
        """The plan of this experiment or of its quick version, optionally with another number of
        seeds or rounds.
        """
        short = self.quick if quick else None
        if quick and short is None:
            raise ValueError(f"{name} has no quick variant.")
        check_seeds(seeds or (self.seeds if isinstance(self.seeds, int) else len(self.seeds)))
        check_seeds(short.seeds if short else 0)
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
            plugins=load_files(self.plugins),
        )


class TableOptions(BaseModel):
    """The user's table in `[data]`. `path` is relative to the experiment file."""

    model_config = STRICT
    path: str
    client: str
    label: str
    sensitive: list[str] = []
    favourable: str | None = None
    unprivileged: list[str] = []  # values of the sensitive column, or COLUMN=VALUE
    features: list[str] = []  # none: every column without another meaning that is not dropped
    drop: list[str] = []
    split: str | None = None  # column with train, valid, test or central
    client_group: str | None = None  # column that names the group of each client


def read(path: Path) -> Experiment:
    """Read a user's experiment file.

    Raises:
        ValueError: At the first mistake, with the file and the key. For an unknown key, the most
            similar valid key is named.
    """
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"There is no experiment file {str(path)!r}.") from None
    except IsADirectoryError:
        raise ValueError(
            f"An experiment file is needed, but {str(path)!r} is a folder. `evenly resume`"
            " continues one."
        ) from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{path.name} must be UTF-8 text, but some bytes are not. Save it as UTF-8."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name} is not valid TOML: {error}.") from None
    except RecursionError:
        raise ValueError(
            f"{path.name}: lists and tables may be nested at most {MOST_NESTED} levels deep."
        ) from None
    return experiment_of(fields, path.name, path.parent)


def experiment_of(fields: dict[str, Any], where: str, folder: Path = Path()) -> Experiment:
    """The experiment with these fields. Paths start in `folder`; errors begin with `where`.

    Raises:
        ValueError: At the first mistake, with the key.
    """
    experiment = _validate(fields, where, folder)
    data = experiment.data
    if ("name" in data) == ("path" in data):
        given = shortened(list(data))
        raise ValueError(
            f"{where}: [data] must have either the name of a data set or the path of a table,"
            f" got {given}."
        )
    if not fits(data.get("name", ""), str):
        given = shortened(data["name"])
        raise ValueError(
            f"{where}, key 'data.name': it must be the name of a data set, such as 'synthetic',"
            f" got {given}."
        )
    if "path" not in data:
        return experiment
    return experiment.model_copy(update={"data": _table(data, where, folder)})


def _table(data: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    try:
        table = TableOptions.model_validate(data)
    except ValidationError as error:
        raise _mistake(error, where, TableOptions, "data") from None
    return table_source(str(folder / table.path), **table.model_dump(exclude={"path"}))


def packaged_experiments() -> list[str]:
    """Names of the experiments in the package, such as qffl/synthetic."""
    root = resources.files("evenly") / "papers" / "experiments"
    return sorted(
        f"{paper.name}/{file.name[:-5]}"
        for paper in root.iterdir()
        if paper.is_dir()
        for file in paper.iterdir()
        if file.name.endswith(".toml")
    )


def paper_experiments(paper: str) -> list[str]:
    """Names of a paper's experiments, or an empty list if there is no such paper."""
    return [name for name in packaged_experiments() if name.startswith(f"{paper}/")]


def read_packaged(name: str) -> Experiment:
    """Read an experiment of the package by its name."""
    if name not in packaged_experiments():
        raise unknown("experiment", name, packaged_experiments())
    text = (resources.files("evenly") / "papers" / "experiments" / f"{name}.toml").read_text()
    return _validate(tomllib.loads(text), f"{name}.toml")


def _validate(fields: dict[str, Any], where: str, folder: Path = Path()) -> Experiment:
    try:
        check_nesting(fields)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    try:
        experiment = Experiment.model_validate(fields)
    except ValidationError as error:
        raise _mistake(error, where, Experiment) from None
    experiment = experiment.model_copy(
        update={"plugins": [str(folder / plugin) for plugin in experiment.plugins]}
    )
    load_files(experiment.plugins)  # their methods have settings, too
    settings = {name for method in METHODS.values() for name in method.settings}
    for name in experiment.training:
        if name not in settings:
            raise ValueError(
                f"{where}:"
                f" {unknown('key', f'training.{name}', [f'training.{one}' for one in settings])}"
            )
    return experiment


def _mistake(error: ValidationError, where: str, model: type[BaseModel], *table: str) -> ValueError:
    """The first mistake as one sentence. An unknown key is reported before a missing one, because
    it usually is a misspelling of it.
    """
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    location = [*table, *(step for step in first["loc"] if step not in UNION)]
    key = ".".join(map(str, location))
    if first["type"] == "extra_forbidden":
        legal = TABLES.get(str(location[0]), model) if len(location) > 1 else model
        known = [".".join([*map(str, location[:-1]), name]) for name in legal.model_fields]
        return ValueError(f"{where}: {unknown('key', key, known)}")
    if first["type"] == "missing":
        absent = [
            ".".join(map(str, [*table, *e["loc"]]))
            for e in error.errors()
            if e["type"] == "missing"
        ]
        return ValueError(
            f"{where} lacks the required {'key' if len(absent) == 1 else 'keys'}"
            f" {' and '.join(map(repr, absent))}."
        )
    wanted = (
        "Input should be a number of seeds or a list of seeds"
        if key == "seeds" and len(error.errors()) > 1
        else first["msg"]
    )
    return ValueError(f"{where}, key {key!r}: {wanted}, got {shortened(first['input'])}.")


TABLES = {"paper": Paper, "quick": Quick, "study": StudyTable, "data": TableOptions}
UNION = ("int", "list[int]")  # how pydantic calls the two kinds of `seeds`
