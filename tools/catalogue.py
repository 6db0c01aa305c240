"""Parts of pages that follow from the code: methods, parts of methods, metrics, and what each
method needs of Flower's clients.
"""

import difflib
import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np

from evenly.algorithms import METHODS, Method, settings_of, variants
from evenly.flower import wire
from evenly.flower.roster import algorithm_of, reads_census
from evenly.flower.two_phase import require_possible
from evenly.metrics import EQUITY_METRICS, GROUP_METRICS, METRICS, RUN_METRICS, Metric
from evenly.notation import parse
from evenly.parts.optimisers import OPTIMISERS
from evenly.parts.sampling import SAMPLINGS, Full
from evenly.parts.work import PREPARES
from evenly.types import Algorithm, RowRule, Select
from tools.markdown import table

ONE_METRIC = Path(__file__).parents[1] / "examples" / "flower_one_metric"
SYMBOLS = {
    "w⁺": "the server's model after the round",
    "wₖ": "client k's model after local training",
    "vₖ": "client k's update, wₖ − w",
    "aₖ": "client k's weight (coefficient)",
    "nₖ": "training rows of client k",
    "Fₖ": "loss of client k on its training rows, of the model it received, before training",
    "∇Fₖ": "the gradient of that loss",
    "q": "how much the loss counts",
    "L": "inverse of the step size",
    "η": "learning rate",
    "μ": "strength of the pull towards the received model",
    "λ": "the clients' weights, on the simplex",
    "λ⁰": "their centre: nₖ/n or 1/K",
    "Π": "projection onto the simplex",
    "γ": "step size of λ",
    "α": "tilt",
    "M": "baseline utility",
    "ℓ": "mean loss of a batch",
    "pᵢ": "weight of the i-th client in the order of losses",
    "w₍ᵢ₎": "model of the i-th client in that order",
    "gₖ": "client k's change, w − wₖ",
    "ε": "how far λ may be from its centre",
}
CARRIED = {"vₖ": "the weight that client k carries from round to round"}
ORDERS = {
    "R⁺": (
        "the order of edges, from the lowest to the highest, from which clients start in the next"
        " round"
    ),
    "Rₖ": "client k's order of edges; its argsort are the places of the edges",
}
METHOD_SYMBOLS = {
    "ditto": {"vₖ": "client k's personal model", "λ": "strength of its pull towards w (`pull`)"},
    "fairfed": {
        **CARRIED,
        "Δₖ": "how far client k's fairness gap is from everyone's",
        "β": "how fast weights move",
    },
    "fedcvg": {
        "uₖ": "training rows of unprivileged people at client k",
        "α": "how much one more of them counts",
    },
    "fedcvg-ratio": {
        **CARRIED,
        "zₖ": "client k's weight of this round alone",
        "rₖ": (
            "share of unprivileged people among client k's training rows; r: among those of the"
            " round"
        ),
        "±": "+ if r is below one half, else −; clip keeps the factor between 1/2 and 2",
        "α": "how much that share counts",
        "m": "`memory`",
    },
    "local": {
        "wₖ": "client k's own model",
        "Fₖ": "loss of client k on a batch of its training rows",
        "∇Fₖ": "the gradient of that loss",
    },
    "ifca": {
        "w_q": "model q of several",
        "qₖ": "the model that client k chooses",
        "Fₖ": "loss of client k on its training rows",
    },
    "frl": ORDERS,
    "e2fl": {**ORDERS, "R_q": "the order of group q", "q": "a group of clients"},
    "fedfb": {
        "o₀": (
            "how much rows of unprivileged people without the favourable label count in a client's"
            " loss; those with it count 2 − o₀"
        ),
        "o₁": "the same of all other people",
        "m₀": "rows of unprivileged people, of n; m₁ of all others",
        "f": "by how much the losses of the two sides differ in the label that they favour",
        "t": "number of the round",
        "cₖ": "sum of the row weights of client k",
        "α": "step size of the row weights",
    },
}
REVEALED = {
    "examples": "its number of training rows",
    "loss": "its training loss of the model it received",
    "table": "counts of its training rows by group, label and outcome",
    "valid_table": "counts of its validation rows by group, label and outcome",
    "cell_loss": "its summed losses by group and label, of the model it received",
    "unprivileged": "its number of training rows of unprivileged people",
    "choice": "the cluster or group it chose",
    "square_norm": "the squared norm of its update (the server can read it off the update)",
    "gram": (
        "its update on its own, not only in a sum (weights come from inner products of updates)"
    ),
}
# the command for a method that needs these uses data with groups
OF_GROUPS = {"table", "valid_table", "cell_loss", "unprivileged"}
DRAWN = {"chance"}  # by the server, so clients do not reveal it


def method_part(method: Method) -> str:
    """Return the generated part of a method's page: formula, symbols, settings, revealed
    information and a command.
    """
    symbols = {**SYMBOLS, **METHOD_SYMBOLS.get(method.name, {})}
    used = [(s, meaning) for s, meaning in symbols.items() if s in method.formula]
    rows = [
        [f"`{s.name}`", shown(s.default), s.doc, "yes" if s.swept else "no"]
        for s in method.settings.values()
    ]
    return "\n\n".join([
        f"Written `{method.name}`. {method.reference}.",
        f"    {method.formula}",
        table(["symbol", "meaning"], [[s, m] for s, m in used]) if used else "",
        "## How it works",
        story(method),
        "## Settings",
        table(["setting", "default", "meaning", "sweeps share a program"], rows),
        "## What clients reveal",
        revealed(method),
        "## Try it",
        f"    {command(method)}",
    ]).replace("\n\n\n\n", "\n\n")  # fmt: skip


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
    text = f"Besides its update, a client that takes part reveals {words(usual)}."
    if once := method.select.needs - usual:
        text += f" Sampling by size makes every client reveal {words(once)}, once."
    if usual == full:
        return text
    return f"{text} When every client takes part in every round, it reveals {words(full)}."


def needs(method: Method, select: Select | None) -> frozenset[str]:
    return variants(parse(method.name), None, select)[0].members[0].rule.needs


def words(names: frozenset[str]) -> str:
    return " and ".join(REVEALED.get(name, name) for name in sorted(names - DRAWN)) or "nothing"


def command(method: Method) -> str:
    wanted = method.name if method.name == "fedavg" else f"fedavg,{method.example or method.name}"
    edges = '--model "mlp(bias=false)" ' if method.network else ""
    people = "--data synthetic-census " if needs(method, None) & OF_GROUPS else ""
    return f'evenly compare {people}{edges}--algorithms "{wanted}" --rounds 200 --seeds 2'


def methods_part() -> str:
    """Return tables of all methods and of the parts that can be added to them."""
    methods = [
        [f"[{m.title}]({m.name}.md)", f"`{m.name}`", m.formula, m.reference]
        for m in METHODS.values()
    ]
    samplings = [
        [f"`{name}`", first_line(kind), settings(kind)] for name, kind in SAMPLINGS.items()
    ]
    prepares = [[f"`{name}`", first_line(kind), settings(kind)] for name, kind in PREPARES.items()]
    sides = {True: "server", False: "server, local"}
    optimisers = [
        [f"`{n}`", sides[one.server_only], one.doc, options(one.settings)]
        for n, one in OPTIMISERS.items()
    ]
    return "\n\n".join(
        [
            table(["method", "written", "formula", "reference"], methods),
            "## Sampling: `+name`",
            table(["name", "who takes part", "settings"], samplings),
            "Parity sampling makes every client that is chosen reveal how many of its training "
            "rows belong to unprivileged people, and how many it has in all. It says so once: two "
            "numbers, 8 bytes a client, which are not part of the bytes of a round in a report. "
            "Neither is the number of rows that `weighted` needs.",
            "## What clients do once, before the first round: `+name`",
            table(["name", "what it does", "settings"], prepares),
            "## Optimisers: `+server-name` or `+local-name`",
            table(["name", "for", "what it is", "settings"], optimisers),
        ]
    )


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
        "Clients": METRICS,
        "Groups": GROUP_METRICS,
        "Groups of clients": EQUITY_METRICS,
        "Runs": RUN_METRICS,
    }
    return "\n\n".join(
        text for name, metrics in parts.items() for text in (f"## {name}", described(metrics))
    )


def described(metrics: dict[str, Metric]) -> str:
    rows = [
        [f"`{m.name}`", m.title, m.formula, m.range, m.direction, m.undefined or undefined(m)]
        for m in metrics.values()
    ]
    head = table(["name", "title", "formula", "range", "direction", "undefined if"], rows)
    return "\n".join([head, "", *(f"- `{m.name}`: {prose(m)}" for m in metrics.values())])


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
    """Return the description of a metric on one line, without its example."""
    return " ".join(metric.doc.split())


def first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").splitlines()[0]


def shown(value: Any) -> str:
    if value is None or value == "":
        return "see meaning"
    return (
        f"{value:g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


FLOWER_HEAD = [
    "method", "metrics in the reply, besides `num-examples`", "census", "what else is different",
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
    assigned = "clients belong to groups, and use their group's model"
    cases = {
        "one strategy for each member": bool(method.combine),
        "arrays are the places of edges, whole numbers": algorithm.network is not None,
        chosen: rule.apart,
        assigned: rule.groups is not None and not rule.apart,
        "clients are told `row-weights`": isinstance(rule, RowRule),
        "the server looks at every update": "gram" in rule.needs,
        "clients keep a model of their own": (
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
