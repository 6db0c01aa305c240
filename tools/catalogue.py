"""Parts of pages that follow from the code: methods, parts of methods, metrics, and what each
method needs of Flower's clients.
"""

import difflib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from evenly.algorithms import METHODS, Method, settings_of, variants
from evenly.flower import wire
from evenly.flower.roster import algorithm_of
from evenly.flower.two_phase import require_possible
from evenly.metrics import EQUITY_METRICS, GROUP_METRICS, METRICS, RUN_METRICS, Metric
from evenly.notation import parse
from evenly.parts.optimisers import OPTIMISERS
from evenly.parts.sampling import SAMPLINGS, Full
from evenly.parts.work import PREPARES, TrainingAlone
from evenly.privacy import PRIVACIES
from evenly.privacy.row_account import reads_census
from evenly.types import Algorithm, RowRule, Select
from tools import formulas
from tools.markdown import listed, table, wrapped

ONE_METRIC = Path(__file__).parents[1] / "examples" / "flower_one_metric"
FAMILIES = {
    "Baselines": ("fedavg", "fedsgd", "fedprox", "local"),
    "Fair to clients": (
        "q-fedavg", "q-fedsgd", "multi-q", "afl", "term", "propfair", "p-fedavg", "fedmgda",
        "ditto",
    ),
    "Fair to groups of people": ("fairfed", "fedcvg", "fedcvg-ratio", "fedfb"),
    "Groups of clients": ("ifca", "frl", "e2fl"),
}  # fmt: skip
REVEALED = {
    "examples": "its number of training rows",
    "loss": "its training loss of the model it received",
    "table": "counts of its training rows by group, label and prediction",
    "valid_table": "counts of its validation rows by group, label and prediction",
    "cell_loss": "its summed training losses by group and label, of the model it received",
    "unprivileged": "its number of training rows of unprivileged people",
    "choice": "the number of the model it chose",
    "square_norm": "the squared norm of its update (which the server can compute from the update)",
}
# the command for a method that needs these uses data with groups
OF_GROUPS = {"table", "valid_table", "cell_loss", "unprivileged"}
# cases in which every metric is undefined, or none
EMPTY = {"never", "there are no clients", "there are no rows", "no client has rows"}
LONG, BREAK = 70, " \\\n      "  # letters of a command after which it goes on in a second line
# the server draws the one and computes the other from updates
UNSENT = {"chance", "gram"}


def method_part(method: Method) -> str:
    """Return the generated part of a method's page: settings, revealed information and a
    command.
    """
    rows = [
        [f"`{s.name}`", shown(s.default), s.doc, "yes" if s.swept else "no"]
        for s in method.settings.values()
    ]
    return "\n\n".join([
        "## Settings",
        wrapped(
            f"Write the method as `{method.name}`, or with settings in brackets, such as"
            f" `{method.name}({_example_setting(method)})`. See"
            " [how to write methods and sweeps](index.md#notation). Values of a setting with *yes*"
            " in the last column train together in one compiled program."
        ),
        table(["setting", "default", "meaning", "swept together"], rows),
        "## What clients reveal",
        revealed(method),
        "## Try it",
        f"    {command(method)}",
    ])  # fmt: skip


def _example_setting(method: Method) -> str:
    """Return one setting of a method with its default, as it is written in the notation."""
    usual = (s for s in method.settings.values() if not isinstance(s.default, list | bool))
    first = next(s for s in usual if s.default)
    return f"{first.name}={shown(first.default)}"


def story(method: Method) -> str:
    """Return the docstring of the module that defines the method."""
    homes = [m for name, m in sorted(sys.modules.items()) if name.startswith("evenly.algorithms.")]
    return next(
        inspect.getdoc(home) or "" for home in homes if getattr(home, "METHOD", None) is method
    )


def revealed(method: Method) -> str:
    """Return what clients reveal besides their update: with the method's sampling, and with full
    participation if that differs.
    """
    usual, full = needs(method, None), needs(method, Full())
    what = "its ranks" if method.network else "its update"
    if method.work is TrainingAlone:
        what = "an update of zeros"
    text = f"In each round it takes part in, a client sends {words(usual, what)}."
    if "choice" in usual and "inference" in method.settings:
        text += " It sends the number only if `inference` lets clients choose."
    if once := method.select.needs - usual:
        sent = listed(REVEALED[name] for name in sorted(once))
        text += f" For sampling by size, the default, it also sends {sent} once."
    if "gram" in usual:
        text += (
            " The server must see every update on its own, because coefficients depend on inner"
            " products of updates."
        )
    if usual == full:
        return wrapped(text)
    return wrapped(f"{text} With full participation, it sends {words(full, what)}.")


def needs(method: Method, select: Select | None) -> frozenset[str]:
    return variants(parse(method.name), None, select)[0].members[0].rule.needs


def words(names: frozenset[str], what: str) -> str:
    """Return what is revealed as the end of a sentence, beginning with the vector: `what`."""
    parts = [REVEALED.get(name, name) for name in sorted(names - UNSENT)]
    return listed([what, *parts]) if parts else f"{what} and nothing else"


def command(method: Method) -> str:
    wanted = method.name if method.name == "fedavg" else f"fedavg,{method.example or method.name}"
    edges = '--model "mlp(bias=false)" ' if method.network else ""
    people = "--data synthetic-census " if needs(method, None) & OF_GROUPS else ""
    line = f'evenly compare {people}{edges}--algorithms "{wanted}"'
    return f"{line}{BREAK if len(line) > LONG else ' '}--rounds 200 --seeds 2"


def methods_part() -> str:
    """Return tables of all methods and of the parts that can be added to them."""
    samplings = [
        [f"`{name}`", first_sentence(kind), settings(kind)] for name, kind in SAMPLINGS.items()
    ]
    prepares = [
        [f"`{name}`", first_sentence(kind), settings(kind)] for name, kind in PREPARES.items()
    ]
    privacies = [
        [f"`{name}`", first_sentence(kind), settings(kind)] for name, kind in PRIVACIES.items()
    ]
    sides = {True: "server", False: "server, local"}
    optimisers = [
        [f"`{n}`", sides[one.server_only], one.doc, options(one.settings)]
        for n, one in OPTIMISERS.items()
    ]
    return "\n\n".join(
        [
            *families(),
            "## Sampling: `+name`",
            SAMPLING,
            table(["name", "clients of a round", "settings (default)"], samplings),
            "## Row weights, computed before the first round: `+name`",
            table(["name", "what it does", "settings (default)"], prepares),
            "## Differential privacy: `+name`",
            table(["name", "what it does", "settings (default)"], privacies),
            "## Optimisers: `+server-name` or `+local-name`",
            OPTIMISING,
            table(["name", "for", "what it is", "settings (default)"], optimisers),
        ]
    )


SAMPLING = """\
The sampling decides which clients take part in a round. Each method has a default: most sample ten
clients by size (`weighted`).

Some samplings need information about clients before the first round. With `weighted`, every client
reveals its number of training rows. With `parity`, every sampled client reveals its number of
training rows and how many of them belong to unprivileged people. Clients send these numbers once.
Reports do not count them as bytes of a round."""
OPTIMISING = """\
A server optimiser applies the change that the method computed. A local optimiser replaces SGD in
local training; its state is reset in every round."""


def families() -> Iterator[str]:
    """Yield a heading and a table for each family of methods. Methods without a family are last."""
    named = {name for names in FAMILIES.values() for name in names}
    others = {"Other methods": tuple(name for name in METHODS if name not in named)}
    for title, names in {**FAMILIES, **others}.items():
        if names:
            yield f"## {title}"
            head = ["method", "notation", "what it does", "formula", "reference"]
            yield table(head, [_method_row(METHODS[name]) for name in names])


def _method_row(method: Method) -> list[str]:
    first = " ".join(story(method).split("\n\n")[0].split())
    summary = first.partition(": ")[2] or first
    return [
        f"[{method.title}]({method.name}.md)",
        f"`{method.name}`",
        summary[:1].upper() + summary[1:],
        formulas.METHODS.get(method.name, method.formula),
        _linked(method.reference, formulas.PAPERS.get(method.name)),
    ]


def _linked(text: str, address: str | None) -> str:
    return f"[{text}]({address})" if address else text


def settings(kind: type) -> str:
    return "; ".join(
        f"`{s.name}` ({shown(s.default)}): {s.doc}" for s in settings_of(kind, "select")
    )


def options(defaults: dict[str, float]) -> str:
    return ", ".join(
        [
            "`learning_rate` (0.1)",
            *(f"`{name}` ({shown(value)})" for name, value in defaults.items()),
        ]
    )


def metrics_part() -> str:
    """Return tables of all metrics, each followed by descriptions."""
    parts = {
        "Client metrics": METRICS,
        "Group metrics": GROUP_METRICS,
        "Metrics of groups of clients": EQUITY_METRICS,
        "Run metrics": RUN_METRICS,
    }
    return "\n\n".join(
        text for name, metrics in parts.items() for text in (f"## {name}", described(metrics))
    )


def described(metrics: dict[str, Metric]) -> str:
    rows = [
        [
            f"`{m.name}`",
            m.title,
            formulas.METRICS.get(m.name, m.formula),
            m.range,
            m.direction,
        ]
        for m in metrics.values()
    ]
    head = table(["name", "title", "formula", "range", "direction"], rows)
    return "\n".join([head, "", *(_item(m) for m in metrics.values())])


def _item(metric: Metric) -> str:
    """Return the meaning of a metric and when it is undefined, as an item of a list."""
    without = metric.undefined or undefined(metric)
    end = f" Undefined if {without}." if without not in EMPTY else ""
    return wrapped(f"- `{metric.name}`: {prose(metric)}{end}", "  ")


def undefined(metric: Metric) -> str:
    """Return when a metric has no value, found by calling it."""
    cases = {
        "all accuracies are 0": (np.zeros(3), np.full(3, 4)),
        "no client has two rows": (np.array([0.0, 1.0, 1.0]), np.ones(3, int)),
        "there is only one client": (np.array([0.5]), np.array([4])),
    }
    return (
        "; ".join(
            case for case, arguments in cases.items() if np.isnan(metric.function(*arguments))
        )
        or "there are no clients"
    )


def prose(metric: Metric) -> str:
    """Return the first paragraph of a metric's description on one line."""
    return " ".join(metric.doc.split("\n\n")[0].split())


def first_sentence(thing: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def shown(value: Any) -> str:
    if value is None or value == "":
        return "auto"
    return (
        f"{value:g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


FLOWER_HEAD = [
    "method", "metrics in the reply, besides `num-examples`", "census", "differs from FedAvg in",
    "clients may join later", "two phases",
]  # fmt: skip


def flower_part() -> str:
    """Return a table of what each method needs of Flower's clients."""
    return table(FLOWER_HEAD, [_flower_row(method) for method in METHODS.values()])


def _flower_row(method: Method) -> list[str]:
    text = f"{method.name}(q=1)" if method.combine else method.example or method.name
    algorithm = algorithm_of(text)
    rule, census = algorithm.rule, reads_census(algorithm)
    metrics = [f"`{wire.SIGNALS[need]}`" for need in sorted(rule.needs & wire.SIGNALS.keys())]
    return [
        f"[{method.title}](algorithms/{method.name}.md)",
        ", ".join(metrics) or "none",
        "yes" if census else "no",
        "; ".join(_differences(method, algorithm)),
        "yes, with its census" if census else "yes",
        _two_phases(algorithm),
    ]


def _differences(method: Method, algorithm: Algorithm) -> list[str]:
    """Return how the method departs from sending one model to clients and one model back."""
    rule = algorithm.rule
    chosen = "clients receive several models, choose one and train it"
    assigned = "clients belong to groups and use their group's model"
    cases = {
        "needs one strategy per value of `q`": bool(method.combine),
        "arrays are ranks of edges, as integers": algorithm.network is not None,
        chosen: rule.apart,
        assigned: rule.groups is not None and not rule.apart,
        "the server sends `row-weights`": isinstance(rule, RowRule),
        "the server reads every update": "gram" in rule.needs,
        "clients keep a personal model": (
            getattr(algorithm.work, "remember", lambda model: None)(1.0) is not None
        ),
    }
    return [words for words, applies in cases.items() if applies]


def _two_phases(algorithm: Algorithm) -> str:
    """Return whether the sum of updates is enough, and which metric clients report beside it."""
    try:
        require_possible(algorithm, None)
    except ValueError:
        return "no"
    return f"yes; `{wire.SQUARE_NORM}`" if "square_norm" in algorithm.rule.needs else "yes"


def flower_diff_part() -> str:
    """Return the diff between the two apps in examples/flower_one_metric: FedAvg before, q-FedAvg
    after.
    """
    return f"```diff\n{''.join(_diff(name) for name in ('server_app.py', 'client_app.py'))}```"


def _diff(name: str) -> str:
    before, after = (
        (ONE_METRIC / version / name).read_text().splitlines(keepends=True)
        for version in ("fedavg", "q_fedavg")
    )
    lines = difflib.unified_diff(before, after, f"fedavg/{name}", f"q_fedavg/{name}", n=2)
    # line numbers mean nothing to a reader
    return "".join("@@\n" if line.startswith("@@") else line for line in lines)
