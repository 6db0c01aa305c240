"""What evenly has, by name: `describe` explains a method, part, model, data set, metric or
experiment, and `cite` gives the publications of methods.

`evenly describe` and `evenly cite` print what these functions return.
"""

import dataclasses
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenly import __version__
from evenly.algorithms import METHODS, Method, settings_of
from evenly.algorithms.method import Setting
from evenly.datasets import DATASETS, DatasetCard
from evenly.experiment.config import packaged_experiments, read_packaged
from evenly.metrics import EVERY_METRIC, Metric
from evenly.metrics.metric import RESTS_ON
from evenly.models import TASKS
from evenly.models.named_models import ALL_MODELS
from evenly.notation import parse, unknown
from evenly.parts.optimisers import OPTIMISERS, Optimiser, optimiser_parts
from evenly.parts.sampling import SAMPLINGS, Full
from evenly.parts.work import PREPARES
from evenly.privacy import PRIVACIES
from evenly.registry import description
from evenly.report.trust_sections import WORDS
from evenly.types import Algorithm, Select

# The facts of CITATION.cff, which is not part of an installation.
RELEASED = 2026
TOOL = f"""@software{{evenly,
  author  = {{{{The evenly authors}}}},
  title   = {{{{evenly}}: fair federated learning}},
  version = {{{__version__}}},
  year    = {{{RELEASED}}},
  license = {{Apache-2.0}}
}}"""
ENTRY = re.compile(r"^@\w+\{\s*([^\s,]+),.*?^\}", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass(frozen=True, repr=False)
class Description:
    """The description of one name. Its `repr` is the text that `evenly describe` prints.

    Args:
        name: The name.
        kind: What it names: "method", "part", "optimiser", "model", "data set", "metric" or
            "experiment"; "list" for all names.
        paragraphs: Texts and tables, in order.
    """

    name: str
    kind: str
    paragraphs: tuple[RenderableType, ...]

    def __rich__(self) -> Group:
        return Group(*self.paragraphs)

    def __repr__(self) -> str:
        console = Console(file=io.StringIO(), force_jupyter=False)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


def describe(name: str | None = None) -> Description:
    """Describe a method, part, optimiser, model, data set, metric or experiment.

    Args:
        name: Its name in the notation, in commands or in results. Without it, all names are listed,
            as `evenly list` does.

    Returns:
        The description. Printing it, or leaving it as the last line of a notebook's cell, shows
        formula, settings and what clients reveal, as `evenly describe` does.

    Raises:
        TypeError: If `name` is not text.
        ValueError: If there is nothing of this name. The nearest name is suggested.

    Example:
        >>> import evenly
        >>> evenly.describe("max")
        best client
        <BLANKLINE>
          max aₖ
        <BLANKLINE>
        0 to 100 %; higher is better.
        Accuracy of the best-served client.
        Computed from the best-served client.
    """
    if name is None:
        return Description("all names", "list", tuple(_everything()))
    for kind, (names, paragraphs) in _kinds().items():
        if _text(name) in names:
            return Description(name, kind, tuple(paragraphs(name)))
    known = [one for names, _ in _kinds().values() for one in names]
    raise unknown("method, part, model, data set, metric or experiment", name, known)


def cite(*names: str) -> str:
    """Return BibTeX entries for evenly itself and for the publications of methods.

    Args:
        *names: Names of methods, or notations such as "q-fedavg(q=1)": all methods of a comparison
            are ``evenly.cite(*results.methods)``. Without names, only evenly itself is cited.

    Returns:
        BibTeX. A publication of several of the methods occurs once. A method of your own that has
        no entry (`Method.bibtex`) is named in a comment.

    Raises:
        TypeError: If a name is not text.
        ValueError: If there is no method of this name. The nearest name is suggested.

    Example:
        >>> import evenly
        >>> print(evenly.cite("frl").partition("\\n\\n")[2])
        @misc{mozaffari2021frl,
          author        = {Mozaffari, Hamid and Shejwalkar, Virat and Houmansadr, Amir},
          title         = {{FRL}: Federated Rank Learning},
          year          = {2021},
          archivePrefix = {arXiv},
          eprint        = {2110.04350}
        }
    """
    entries = {"evenly": TOOL}
    for notation in names:
        name = parse(_text(notation))[0].name
        if name not in METHODS:
            raise unknown("method", name, METHODS)
        method = METHODS[name]
        own = {one[1]: one[0] for one in ENTRY.finditer(method.bibtex)}
        missing = {name: f"% {method.title} has no BibTeX entry. Its reference: {method.reference}"}
        entries |= own or missing
    return "\n\n".join(entries.values())


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"A name is written as text, such as 'fedavg', got {type(name).__name__}.")
    return name


def _everything() -> list[RenderableType]:
    """All names, those of methods with the information that their clients reveal."""
    names = {
        "sampling": SAMPLINGS,
        "before the first round": PREPARES,
        "privacy": PRIVACIES,
        "server and local optimisers": optimiser_parts(),
        "models": ALL_MODELS,
        "data sets": [*DATASETS, "any .csv or .parquet file"],
        "metrics": EVERY_METRIC,
        "experiments": packaged_experiments(),
    }
    lines = [Text.assemble((title, "bold"), f": {', '.join(of)}") for title, of in names.items()]
    more = Text("Details: evenly describe NAME. Publications: evenly cite METHOD.")
    return [methods_table(), *lines, more]


def methods_table() -> Table:
    """All methods, with the information that their clients reveal."""
    table = Table(title="methods", title_justify="left")
    for column in ("name", "title", "clients reveal, besides the update", "reference"):
        table.add_column(column, overflow="fold")
    for method in METHODS.values():
        table.add_row(method.name, method.title, reveals(method), method.reference)
    return table


Kind = tuple[Sequence[str] | Mapping[str, Any], Callable[[str], list[RenderableType]]]


def _kinds() -> dict[str, Kind]:
    """The names of each kind, and the function that describes one of them."""
    models = {**TASKS, "lenet-no-bias": TASKS["lenet"]}
    return {
        "method": (METHODS, lambda name: _method(METHODS[name])),
        "part": (SAMPLINGS | PREPARES | PRIVACIES, _part),
        "optimiser": (optimiser_parts(), _optimiser),
        "model": (models, lambda name: [_sentences(description(models[name]))]),
        "data set": (DATASETS, lambda name: _dataset(DATASETS[name])),
        "metric": (EVERY_METRIC, lambda name: _metric(EVERY_METRIC[name])),
        "experiment": (packaged_experiments(), _experiment),
    }


def _method(method: Method) -> list[RenderableType]:
    usual, full = reveals(method), reveals(method, Full())
    lines = [f"Clients reveal, besides their update: {usual}."]
    if full != usual:
        lines.append(f"With --sampling full, they reveal: {full}.")
    lines += meanings(f"{usual}, {full}")
    lines += [f"Try it: {trial(method)}", f"Cite it: evenly cite {method.name}"]
    heading = Text.assemble(
        (method.title, "bold"), f" ({method.reference})\n\n  {method.formula}\n"
    )
    return [heading, settings_table(method), *map(Text, lines)]


def _part(name: str) -> list[RenderableType]:
    part = (SAMPLINGS | PREPARES | PRIVACIES)[name]
    settings = [(setting, str(setting.default)) for setting in settings_of(part, "select")]
    shown: list[RenderableType] = [_sentences(description(part))]
    shown += [_settings(f"settings of {name}", settings)]
    if name in SAMPLINGS:
        revealed = ", ".join(f"{need} (once)" for need in sorted(SAMPLINGS[name]().needs))
        shown.append(Text(f"For the sampling, clients reveal: {revealed or 'nothing'}."))
    return shown


def _optimiser(name: str) -> list[RenderableType]:
    where, _, kind = name.partition("-")
    entry = OPTIMISERS[kind]
    settings = "".join(f", {one} = {default:g}" for one, default in entry.settings.items())
    place = "The server applies" if where == "server" else "Clients apply"
    return [
        Text(f"{place} {entry.doc}."),
        Text(f"Settings: learning_rate = {Optimiser().learning_rate:g}{settings}."),
        Text(f"Try it: evenly compare --algorithms 'fedavg,fedavg+{name}'"),
    ]


def _metric(metric: Metric) -> list[RenderableType]:
    heading = Text.assemble((metric.title, "bold"), f"\n\n  {metric.formula}\n")
    return [
        heading,
        Text(f"{metric.range}; {metric.direction}."),
        *([_sentences(metric.doc)] if metric.doc else []),
        Text(f"Computed from {RESTS_ON[metric.rests_on]}."),
    ]


def _dataset(card: DatasetCard) -> list[RenderableType]:
    more = Text(f"Clients and groups: evenly data describe {card.name}")
    return [*dataset_facts(card), more]


def dataset_facts(card: DatasetCard) -> list[Text]:
    """Origin, licence, publication, cautions and files of a data set, one line each."""
    facts = {
        "papers": ", ".join(card.papers),
        "from": card.provenance,
        "licence": card.licence,
        "cite": card.citation,
    }
    return [
        Text.assemble((card.name, "bold"), f": {card.title}"),
        *(Text(f"  {topic}: {text or 'not given'}") for topic, text in facts.items()),
        *(Text(f"  note: {note}") for note in card.notes),
        Text(f"  files: {card.state}"),
    ]


def _experiment(name: str) -> list[RenderableType]:
    experiment = read_packaged(name)
    seeds = experiment.seeds if isinstance(experiment.seeds, int) else len(experiment.seeds)
    partitions = f"{len(experiment.study.cells)} partitions, " if experiment.study else ""
    return [
        Text.assemble((name, "bold"), f": {experiment.title}"),
        *([_sentences(experiment.notes)] if experiment.notes else []),
        Text(f"  data: {experiment.data['name']}"),
        *(Text(f"  method: {method}") for method in experiment.methods),
        Text(f"  length: {partitions}{experiment.rounds:,} rounds, {seeds} seeds"),
        Text(f"Run it: evenly reproduce {name}"),
    ]


def _sentences(text: str) -> Text:
    """A docstring whose lines are as long as the terminal is wide."""
    return Text(re.sub(r"(?<=\S)\n(?=[^\s-])", " ", text.strip()))


def reveals(method: Method, select: Select | None = None) -> str:
    """The information that clients reveal besides their update, with the method's own sampling or
    with another one. What only the sampling needs is sent once.
    """
    algorithm = method.build_first(select)
    each = _needs(algorithm)
    once = [f"{need} (once)" for need in sorted(algorithm.select.needs - each)]
    return ", ".join([*sorted(each), *once]) or "nothing"


def meanings(revealed: str) -> list[str]:
    """What the names in a list of revealed information mean, in the words of the report."""
    return [
        f"  {name} – {words}"
        for name, words in WORDS.items()
        if re.search(rf"\b{name}\b", revealed)
    ]


def trial(method: Method) -> str:
    """A command that compares the method with FedAvg, on data with groups if the method needs
    them.
    """
    groups = {"table", "valid_table", "cell_loss", "unprivileged"} & _needs(method.build_first())
    edges = "--model 'mlp(bias=false)' " if method.network else ""
    methods = f"'fedavg,{method.example}'" if method.example else f"fedavg,{method.name}"
    methods = method.name if method.name == "fedavg" else methods  # a method cannot occur twice
    return (
        f"evenly compare {'--data synthetic-census ' if groups else ''}{edges}--algorithms"
        f" {methods}"
    )


def _needs(algorithm: Algorithm) -> frozenset[str]:
    return algorithm.rule.needs - {"chance"}  # drawn by the server, so clients do not reveal it


def settings_table(method: Method) -> Table:
    """The settings of a method."""
    return _settings(
        "settings",
        [
            (s, "auto" if s.default in (None, "") else str(s.default))
            for s in method.settings.values()
        ],
    )


def _settings(title: str, settings: Sequence[tuple[Setting, str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("name", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for setting, default in settings:
        table.add_row(setting.name, default, setting.doc)
    return table
