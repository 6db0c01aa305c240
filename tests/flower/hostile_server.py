"""A server that wants rows: attempts to take data out of a ready client, each with a check of
whether the server knows afterwards what it wanted to know.
"""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, Metadata, RecordDict
from flwr.clientapp import ClientApp

from evenly.flower import wire
from evenly.flower.clients.egress import EgressEntry, read_egress
from evenly.flower.clients.jax import app
from evenly.flower.clients.rows import ClientData, ClientRows, rows
from evenly.models import Softmax
from evenly.types import Task

FEATURES = 3
TASK = Softmax(features=FEATURES, classes=2)
AGREED = "q-fedavg(q=1)"
NUMBERS = itertools.count()
Answered = dict[str, Any]  # metrics and arrays of a reply


def people(cells: list[list[int]], seed: int) -> ClientRows:
    """Rows with so many of each group and label; the first feature tells the label."""
    draw = np.random.default_rng(seed)
    group, y = (
        np.array(part)
        for part in zip(
            *((g, label) for g in (0, 1) for label in (0, 1) for _ in range(cells[g][label])),
            strict=True,
        )
    )
    x = draw.normal(size=(len(y), FEATURES)).astype(np.float32)
    x[:, 0] = np.abs(x[:, 0]) * (2 * y - 1)
    return rows(x, y, group)


def hospital(train: list[list[int]], test: list[list[int]] | None = None) -> ClientData:
    return ClientData(
        people(train, 1),
        people([[6, 6], [6, 6]], 2),
        people(test or [[12, 12], [12, 12]], 3),
        ("no", "yes"),
        ("men", "women"),
        (1,),
        name="north",
    )


ReadyClient = Callable[[Callable[[Context], ClientData]], ClientApp]  # from its data


def jax_client(task: Task) -> ReadyClient:
    return lambda source: app(source, task)


LARGE = hospital([[20, 20], [20, 6]])
SMALL = hospital([[20, 20], [20, 1]], [[12, 12], [12, 1]])  # one woman whose label is yes
RARE = hospital([[30, 1], [30, 0]])  # one person whose label is yes
MANY = hospital([[20, 20], [20, 20]], [[40, 40], [40, 40]])
FEW_WOMEN = hospital([[30, 10], [2, 1]])
TINY = hospital([[1, 1], [1, 0]])


class Site:
    """A client, with or without a policy, and the server's way to ask it."""

    source: Any  # the data, or a function from the context to them

    def __init__(
        self, source: Any, folder: Path | None, method: str, also: tuple[str, ...] = (), *,
        client: "ReadyClient | None" = None, more: str = "",
    ) -> None:  # fmt: skip
        self.source, self.run, self.log = source, 1, None
        self.config: dict[str, Any] = {}
        self.state = RecordDict()
        self._client = (client or jax_client(TASK))(lambda context: self._data(context))
        if folder is not None:
            text = f"methods = {json.dumps([method, *also])}\n{more}"
            (folder / "policy.toml").write_text(text)
            self.config, self.log = (
                {"policy": str(folder / "policy.toml")},
                folder / "egress.jsonl",
            )
        self.method, self.said = method, ""

    def _data(self, context: Context) -> ClientData:
        return self.source if isinstance(self.source, ClientData) else self.source(context)

    def ask(
        self, kind: str, model: dict[str, Any] | None = None, number: int = 1, *,
        records: dict[str, Any] | None = None, seed: int = 0, **config: Any,
    ) -> Answered:  # fmt: skip
        """The numbers and arrays of a reply; nothing if the client refuses."""
        told = {wire.ROUND: number, wire.METHOD: self.method, wire.CLIENT: 0}
        told |= {wire.BATCH_SEED: 0, wire.MODEL_SEED: 0}
        told |= {key.replace("_", "-"): value for key, value in config.items()}
        told = {key: value for key, value in told.items() if value is not None}
        content = RecordDict({"config": ConfigRecord(told)})
        if model is not None:
            content["arrays"] = record(model)
        for name, other in (records or {}).items():
            content[name] = record(other)
        context = Context(self.run, 7, self.config, self.state, {"seed": seed})
        try:
            reply = self._client(message(kind, content), context)
        except Exception as error:  # as Flower's runtime does
            self.said = str(error)
            return {}
        if reply.has_error():
            self.said = str(reply.error.reason)
            return {}
        numbers = {k: v for own in reply.content.metric_records.values() for k, v in own.items()}
        arrays = {
            name: array.numpy()
            for own in reply.content.array_records.values()
            for name, array in own.items()
        }
        return {**numbers, **({"arrays": arrays} if arrays else {})}

    def entries(self) -> list[EgressEntry]:
        return read_egress(self.log) if self.log is not None and self.log.exists() else []


def record(model: dict[str, Any]) -> ArrayRecord:
    return ArrayRecord(
        {n: own if isinstance(own, Array) else Array(np.asarray(own)) for n, own in model.items()}
    )


def message(kind: str, content: RecordDict) -> Message:
    envelope = Metadata(
        run_id=1, message_id=str(next(NUMBERS)), src_node_id=1, dst_node_id=7,
        reply_to_message_id="", group_id="", created_at=0.0, ttl=60.0, message_type=kind,
    )  # fmt: skip
    return Message(content=content, metadata=envelope)  # pyright: ignore[reportCallIssue]


def linear(w: Any = 0.0, b: Any = (0.0, 0.0)) -> dict[str, np.ndarray]:
    """A linear model; `w` are the weights of the second label."""
    weights = np.zeros((FEATURES, 2), np.float32)
    weights[:, 1] = w
    return {"b": np.array(b, np.float32), "w": weights}


def mean_features(received: dict[str, np.ndarray], answered: Answered, label: int = 1) -> Any:
    """Change of a label's weights divided by the change of its bias."""
    if "arrays" not in answered:
        return np.full(FEATURES, np.nan)
    change = {name: answered["arrays"][name] - received[name] for name in received}
    return change["w"][:, label] / change["b"][label]


def few(values: Any) -> bool:
    return bool(np.isin(np.asarray(values), (1, 2, 3, 4)).any())


# The attempts. Each returns whether the server has what it wanted.


def weights_that_single_out(site: Site, others: float = 0.0) -> bool:
    """Row weights of 0 for all but one group and label: the exact mean of its features."""
    weights = np.full((2, 2), others)
    weights[1, 1] = 1.0
    told: dict[str, Any] = {}
    wire.put(told, wire.ROW_WEIGHTS, weights)
    got = site.ask("train", linear(), **told)
    own = site.source.train
    cell = own.x[(own.group == 1) & (own.y == 1)]
    return bool(np.allclose(mean_features(linear(), got), cell.mean(0), atol=1e-3))


def weights_that_nearly_single_out(site: Site) -> bool:
    return weights_that_single_out(site, 1e-9)


def another_method(site: Site) -> bool:
    """A full gradient, and a bias by which only one label moves the model: its mean."""
    model = linear(b=(200.0, 0.0))
    got = site.ask("train", model, evenly_method="fedsgd")
    own = site.source.train
    return bool(np.allclose(mean_features(model, got), own.x[own.y == 1].mean(0), atol=1e-3))


def batches_of_one_row(site: Site) -> bool:
    got = site.ask("train", linear(), evenly_method="q-fedavg(q=1, batch_size=1, max_steps=1)")
    found = mean_features(linear(), got)
    return bool(np.isclose(site.source.train.x, found, atol=1e-4).all(1).any())


def steps_of_other_seeds(site: Site) -> bool:
    """Sums over many small sets of rows, which together are equations for every row."""
    means = [
        mean_features(linear(), site.ask("train", linear(), seed + 1, batch_seed=seed))
        for seed in range(2)
    ]
    return bool(np.isfinite(means).all() and not np.allclose(means[0], means[1]))


def census_of_small_cells(site: Site) -> bool:
    return few(site.ask(wire.CENSUS).get("cells", []))


def test_table_of_small_cells(site: Site) -> bool:
    return few(site.ask("evaluate", linear((3, 0, 0))).get("table", []))


def training_table_of_small_cells(site: Site) -> bool:
    return few(site.ask("train", linear(1.0)).get("table", []))


def an_offer_beside_the_model(site: Site) -> bool:
    """Models to choose from, of any number, beside the one of a method without a choice."""
    return "arrays" in site.ask("train", linear(), records={"offered": linear()})


def few_unprivileged_people(site: Site) -> bool:
    return few(site.ask("train", linear()).get("unprivileged-examples", []))


def training_rows_evaluated(site: Site) -> bool:
    return "train-table" in site.ask("evaluate", linear((3, 0, 0)))


def validation_rows_evaluated(site: Site) -> bool:
    return "valid-loss" in site.ask("evaluate", linear((3, 0, 0)))


def one_prediction_turned(site: Site) -> bool:
    """Two thresholds with one person between them: who that is."""
    found = np.sort(site.source.test.x[:, 1])
    k = len(found) // 2
    ends = (found[k - 1] + found[k]) / 2, (found[k] + found[k + 1]) / 2
    tables = [
        np.array(site.ask("evaluate", linear((0, 1, 0), (float(end), 0.0)), k).get("table", 0))
        for k, end in enumerate(ends)
    ]
    return int(np.abs(tables[0] - tables[1]).sum()) == 2


def table_without_one_row(site: Site) -> bool:
    """The table before and after one person's row is taken out."""
    before = np.array(site.ask("evaluate", linear((3, 0, 0))).get("table", 0))
    own = site.source.test
    site.source = site.source._replace(test=ClientRows(*(part[1:] for part in own)))
    after = np.array(site.ask("evaluate", linear((3, 0, 0)), 2).get("table", 0))
    return int(np.abs(before - after).sum()) == 1


def another_split(site: Site) -> bool:
    """Another seed in the run's config turns training rows into test rows."""
    whole = LARGE

    def split(context: Context) -> ClientData:
        turned = whole._replace(train=whole.test, test=whole.train)
        return turned if context.run_config["seed"] else whole

    site.source = split
    first = site.ask("evaluate", linear((3, 0, 0)), seed=0)
    site.run = 2
    second = site.ask("evaluate", linear((3, 0, 0)), seed=1)
    return bool(first) and second.get("num-examples") == whole.train.size


def model_that_one_row_moves(site: Site) -> bool:
    """A bias by which all labels but one are certain: the only row of that label."""
    model = linear(b=(200.0, 0.0))
    own = site.source.train
    return bool(
        np.allclose(mean_features(model, site.ask("train", model)), own.x[own.y == 1][0], atol=1e-3)
    )


def loss_of_one_row(site: Site) -> bool:
    """A model under which one row makes up the whole loss: its feature."""
    model, own = linear((50.0, 0, 0), (500.0, 0.0)), site.source.train
    got = site.ask(wire.MEASURE, model)
    target = own.x[own.y == 1][0]
    return "loss" in got and np.isclose(500 - got["loss"] * own.size, 50 * target[0], rtol=1e-3)


def the_same_round_twice(site: Site) -> bool:
    first = site.ask("train", linear(), 3)
    second = site.ask("train", linear(1.0), 3)
    return "arrays" in first and "arrays" in second


def an_earlier_round(site: Site) -> bool:
    return bool(site.ask(wire.MEASURE, linear(), 9)) and bool(
        site.ask(wire.MEASURE, linear(1.0), 2)
    )


def rounds_without_end(site: Site) -> bool:
    """A loss for each of 101 models, under two numbers of runs."""
    count = 0
    for number in range(1, 102):
        site.run = 1 + number // 60
        count += "loss" in site.ask(wire.MEASURE, linear(number / 50), number)
    return count == 101


def a_request_too_large(site: Site) -> bool:
    """300 MiB beside the model, which the client reads and keeps in memory."""
    beside = {"rest": np.zeros(300 * 2**18, np.float32)}
    return "arrays" in site.ask("train", linear(), records={"rest": beside})


def a_reply_many_times_the_model(site: Site) -> bool:
    told: dict[str, Any] = {}
    wire.put(told, wire.COEFFICIENT, np.ones(500))
    return len(site.ask("train", linear(), **told).get("arrays", [])) == 1000


def models_to_choose_from(site: Site) -> bool:
    """Which of two models fits the training rows better, where the method has no choice."""
    two = {f"{k}/{name}": own for k in (0, 1) for name, own in linear(float(k)).items()}
    return "choice" in site.ask("evaluate", two, evenly_method="ifca(groups=2)")


def an_error_that_quotes_rows(site: Site) -> bool:
    def read(context: Context) -> ClientData:
        raise ValueError("Row 17 of patients.csv has the label 'HIV' of Jane Doe.")

    site.source = read
    site.ask("train", linear())
    return "Jane Doe" in site.said


def training_on_three_rows(site: Site) -> bool:
    return "arrays" in site.ask("train", linear())


def an_entry_of_its_own(site: Site) -> bool:
    """An entry that a client written by hand may read, such as which rows to leave out."""
    return "arrays" in site.ask("train", linear(), leave_out_row=3)


class Attempt(NamedTuple):
    """An attempt, why it is refused, the site it is made at, and the method that it agreed to."""

    attack: Callable[[Site], bool]
    because: str = ""
    data: ClientData = LARGE
    method: str = AGREED
    also: tuple[str, ...] = ()  # further methods that it agreed to
    client: ReadyClient = jax_client(TASK)

    def site(self, folder: Path | None, more: str = "") -> Site:
        """The site, with a policy in this folder, and more lines in it."""
        return Site(self.data, folder, self.method, self.also, client=self.client, more=more)


ATTEMPTS = [
    Attempt(weights_that_single_out, "gives weights to rows", method="fedsgd"),
    Attempt(weights_that_single_out, "row weights", SMALL, "fedfb(batch_size=100)"),
    Attempt(weights_that_nearly_single_out, "row weights", LARGE, "fedfb(batch_size=100)"),
    Attempt(another_method, "not one that it agreed to"),
    Attempt(batches_of_one_row, "not one that it agreed to"),
    Attempt(steps_of_other_seeds, "'batch-seed' changed"),
    Attempt(census_of_small_cells, "'cells' has 1 count", SMALL),
    Attempt(test_table_of_small_cells, "'table' has 1 count", SMALL),
    Attempt(training_table_of_small_cells, "'table' has", LARGE, "fairfed"),
    Attempt(few_unprivileged_people, "'unprivileged-examples' has", FEW_WOMEN, "fedcvg"),
    Attempt(training_rows_evaluated),
    Attempt(validation_rows_evaluated),
    Attempt(one_prediction_turned, "'table' differs by 1 row", MANY),
    Attempt(table_without_one_row, "rows differ from those of"),
    Attempt(another_split, "rows differ from those of"),
    Attempt(model_that_one_row_moves, "Only 1.0 of 61 rows", RARE, "fedavg(batch_size=100)"),
    Attempt(loss_of_one_row, "Only 1.0 of 61 rows", RARE),
    Attempt(the_same_round_twice, "with other contents before"),
    Attempt(an_earlier_round, "with other contents before"),
    Attempt(rounds_without_end, "rounds_a_day is 100"),
    Attempt(a_request_too_large, "larger than 256 MiB"),
    Attempt(a_reply_many_times_the_model, "coefficients are none"),
    Attempt(models_to_choose_from, "not one that it agreed to"),
    Attempt(an_offer_beside_the_model, "offers models to choose from"),
    Attempt(an_error_that_quotes_rows, "Jane Doe"),
    Attempt(training_on_three_rows, "There are 3 training rows", TINY),
    Attempt(an_entry_of_its_own, "entry 'leave-out-row'"),
]
