"""The sections that let a reader judge and repeat the results: data, settings, the command, and the
paper's figures.
"""

from collections.abc import Callable, Collection

import numpy as np

from evenly.data.columns import column_facts
from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.experiment.comparison import Comparison
from evenly.experiment.deployment import ServerOptions
from evenly.experiment.paper import PaperLine, paper_rows
from evenly.metrics import EVERY_METRIC, examples
from evenly.report.html import Column, Html, command_html, definitions, element, grid, section
from evenly.report.values import SPLIT_WORDS, client_split, format_spread, format_value, listed
from evenly.types import Trace

# What the server of a deployment was told, for those who audit it; each with the name that it is
# given by.


def server_options(comparison: Comparison) -> list[tuple[str, str]]:
    """Options of a deployment's server as terms and values; empty for a simulation. Old folders
    record only the caps.
    """
    deployed = comparison.deployed
    if deployed is None:
        return []
    caps = ", ".join(f"{name} = {bound}" for name, bound in sorted(deployed.caps.items())) or "none"
    return [("Caps on what a client may claim (caps)", caps)] + [
        (term, _over_rounds(deployed.options, told))
        for term, told in TERMS.items()
        if deployed.options
    ]


def phases(options: ServerOptions) -> str:
    """Whether rounds have two phases, in words."""
    if not options.two_phase:
        return "no"
    return (
        "yes, with a given function that makes the sum"
        if options.given_sum
        else "yes, updates in the clear"
    )


def _share(options: ServerOptions) -> str:
    return (
        "not set: decided by the sampling"
        if options.fraction_train is None
        else f"{options.fraction_train:g}"
    )


TERMS: dict[str, Callable[[ServerOptions], str]] = {
    "Share of clients that train in a round (fraction_train)": _share,
    "Replies that a round needs, or the run stops (min_train_nodes)": lambda options: (
        f"{options.min_train_nodes:,}"
    ),
    "Nodes needed to begin (min_available_nodes)": lambda options: (
        f"{options.min_available_nodes:,}"
    ),
    "Share of connected clients that evaluate (fraction_evaluate)": lambda options: (
        f"{options.fraction_evaluate:g}"
    ),
    "Clients that evaluate at least (min_evaluate_nodes)": lambda options: (
        f"{options.min_evaluate_nodes:,}"
    ),
    "Rounds in two phases (two_phase)": phases,
}


def _over_rounds(options: tuple[ServerOptions, ...], told: Callable[[ServerOptions], str]) -> str:
    """A value, and its later values if a restarted server changed it."""
    text = last = told(options[0])
    if options[0].since > 1:  # an older evenly began
        text = f"not kept; from round {options[0].since:,} on {text}"
    for one in options[1:]:
        if (now := told(one)) != last:
            text, last = f"{text}; from round {one.since:,} on {now}", now
    return text


# The sections that let a reader judge and repeat the results: the data, the settings, the command.

MOST_NAMES = 12
MOST_EXCLUDED = 20
MOST_SETTINGS = 200
MOST_DIVERGED = 3
# times the untrained model's loss: what ends above it has diverged, not only failed to learn
RISEN = 1.05


def data_section(comparison: Comparison, least: int = 0) -> Html:
    """The section on the data. Sizes of fewer than `least` rows are not shown."""
    federation = comparison.everyone
    rows = {name: federation.split(name).counts for name in SPLITS}
    total = sum(int(counts.sum()) for counts in rows.values())
    # clients of a deployment report rows of some splits only
    told = [name for name in SPLITS if comparison.deployed is None or rows[name].any()]
    parts = ", ".join(f"{int(rows[name].sum()):,} {SPLIT_WORDS[name]}" for name in told)
    silent = [SPLIT_WORDS[name] for name in SPLITS if name not in told]
    parts += f"; {' and '.join(silent)} rows are not reported" if silent else ""
    pairs = [
        ("Data", federation.name),
        (
            ("Clients by", comparison.partition)
            if comparison.deployed is None
            else ("Where the rows are", "with the clients: this is a deployment")
        ),
        ("Clients", f"{federation.clients:,}"),
        *(
            [("Evaluated clients", _panel(comparison.federation.clients))]
            if comparison.registered
            else []
        ),
        ("Rows", f"{total:,} ({parts})"),
        ("Training rows of a client", _sizes(rows["train"], least)),
        ("Test rows of a client", _sizes(rows["test"], least)),
        ("Classes", _names(federation.labels)),
        ("Groups", _names(federation.groups) if len(federation.groups) > 1 else "none given"),
    ]
    empty = int((rows["test"] == 0).sum())
    if empty:
        left_out = (
            "left out of every test figure"
            if client_split(comparison) == "test"
            else "compared on their validation rows"
        )
        name = "without" if comparison.incidents is None else "that told no"
        pairs.append((f"Clients {name} test rows", f"{empty:,}, {left_out}"))
    if len(federation.central):
        pairs.append(("Central test set", f"{len(federation.central):,} rows"))
    return section("data", "Data", definitions([*pairs, *_columns(federation, least)]))


def _columns(federation: Federation, least: int) -> list[tuple[str, str]]:
    """What became of the columns of the user's own table."""
    if federation.encoder is None:
        return []
    x = federation.x[:0] if least else federation.x  # rows of rare values may be few
    sensitive = [attribute.name for attribute in federation.attributes]
    facts = column_facts(federation.encoder, x, sensitive)
    return [(f"Columns: {fact.about}", fact.text) for fact in facts if not fact.warning]


def _panel(clients: int) -> str:
    return (
        f"{clients:,}, drawn at random. All figures on clients refer to them; the worst-served"
        " client of all may not be among them"
    )


def _sizes(counts: np.ndarray, least: int) -> str:
    if not len(counts):
        return "none"
    low, high, middle = (
        _told(float(size), least) for size in (counts.min(), counts.max(), np.median(counts))
    )
    return f"{low} to {high}, median {middle}"


def _told(size: float, least: int) -> str:
    return f"fewer than {least}" if 0 < size < least else f"{size:,.0f}"


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return f"{len(names):,}: {listed(names[:MOST_NAMES])}{more}"


def settings_section(comparison: Comparison) -> Html:
    """The section on settings, with the command to repeat the experiment."""
    pairs = [
        ("Model", comparison.model),
        ("Rounds", f"{comparison.rounds:,}"),
        *(
            [("Sampling, unless a method says otherwise", comparison.sampling)]
            if comparison.sampling
            else []
        ),
        *([("Sizes of clients", comparison.sizes)] if comparison.sizes else []),
        *server_options(comparison),
        ("Seeds", ", ".join(map(str, comparison.seeds))),
        ("Time", _time(comparison.seconds)),
        (
            "Versions",
            ", ".join(f"{name} {version}" for name, version in comparison.versions.items()),
        ),
    ]
    parts = [
        definitions(pairs),
        *command_html("The command", comparison.command),
        *_methods(comparison),
    ]
    return section("settings", "Settings", *parts)


def _methods(comparison: Comparison) -> list[Html]:
    chosen = {run.label: run.settings for run in comparison.runs if run.settings}
    if not chosen:
        return []
    rows = [
        (label, ", ".join(f"{k} = {v}" for k, v in sorted(given.items())))
        for label, given in list(chosen.items())[:MOST_SETTINGS]
    ]
    caption = "Settings of each method; all others have their defaults."
    if len(chosen) > MOST_SETTINGS:
        caption += f" The first {MOST_SETTINGS} of {len(chosen)}."
    return [grid(caption, [Column("Method"), Column("Settings", words=True)], rows, methods=True)]


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def excluded_section(comparison: Comparison, hidden: Collection[int] = (), least: int = 1) -> Html:
    """The section on updates that were excluded because they were not finite; empty if there were
    none.

    Clients are not named if they are hidden, or if they were not evaluated and have fewer than
    `least` training rows.
    """
    found = {
        label: np.sum([run.trace.excluded for run in comparison.of(label)], axis=0)
        for label in comparison.labels
    }
    hidden, panel = _registered(comparison, hidden), comparison.runs[0].trace.panel
    if panel is not None:
        hidden |= set(np.flatnonzero(comparison.everyone.train.counts < least).tolist()) - set(
            panel.tolist()
        )
    entries = [
        (label, k, int(times[k])) for label, times in found.items() for k in np.flatnonzero(times)
    ]
    if not entries:
        return Html("")
    entries.sort(key=lambda entry: -entry[2])
    names = {
        k: "a client that is not named" if k in hidden else comparison.everyone.names[k]
        for _, k, _ in entries
    }
    rows = [(label, names[k], f"{times:,}") for label, k, times in entries[:MOST_EXCLUDED]]
    words = (
        f"{sum(times for _, _, times in entries):,} updates or losses were not finite numbers and"
        " did not count, over all seeds. This usually means that training diverged. Use a smaller"
        " learning rate."
    )
    caption = "Clients whose updates were excluded, and how often." + (
        f" The {MOST_EXCLUDED} most frequent." if len(entries) > MOST_EXCLUDED else ""
    )
    table = grid(caption, [Column("Method"), Column("Client", words=True), Column("Times")], rows)
    return section("excluded", "Excluded updates", element("p", None, words), table)


def divergence(comparison: Comparison, splits: Collection[str] = SPLITS) -> list[str]:
    """One sentence for each method whose training diverged in some seed, for the terminal and the
    report. Only losses of these splits are looked at.
    """
    found = [
        words for label in comparison.labels if (words := _diverged(comparison, label, splits))
    ]
    more = len(found) - MOST_DIVERGED
    rest = (
        [f"Training of {more:,} more {'method' if more == 1 else 'methods'} diverged as well."]
        if more > 0
        else []
    )
    return [*found[:MOST_DIVERGED], *rest]


def _diverged(comparison: Comparison, label: str, splits: Collection[str]) -> str:
    traces = [run.trace for run in comparison.of(label)]
    # In a deployment a reply may be broken for reasons of its own; whose replies were left out is a
    # section by itself.
    lost = [0 if comparison.incidents else int(trace.excluded.sum()) for trace in traces]
    risen = [_risen_loss(trace) if "train" in splits else "" for trace in traces]
    seeds = sum(bool(n or loss) for n, loss in zip(lost, risen, strict=True))
    if not seeds:
        return ""
    reasons = (
        [f"{sum(lost):,} updates or losses of clients were not finite numbers and did not count"]
        if sum(lost)
        else []
    )
    reasons += [next(filter(None, risen))] if any(risen) else []
    where = f" in {seeds} of {len(traces)} seeds" if len(traces) > 1 else ""
    return (
        f"Training diverged under {label}{where}: {', and '.join(reasons)}. Use a smaller learning"
        " rate."
    )


def _risen_loss(trace: Trace) -> str:
    """What happened if the training loss ended above that of the untrained model or is not finite;
    else empty.
    """
    rows = examples(trace.tables[:, SPLITS.index("train")]).astype(np.float64)
    known = (rows > 0).all(0)
    if trace.rounds[0] != 0 or len(trace.rounds) < 2 or not known.any():
        return ""
    losses = trace.losses[:, SPLITS.index("train")].astype(np.float64)
    first, last = (
        float((losses[t] * rows[t])[known].sum() / rows[t][known].sum()) for t in (0, -1)
    )
    if not np.isfinite(last):
        return "the mean training loss is no longer a finite number"
    return (
        f"the mean training loss rose from {first:.3g} to {last:.3g}"
        if last > RISEN * first
        else ""
    )


def _registered(comparison: Comparison, evaluated: Collection[int]) -> set[int]:
    """The numbers of evaluated clients among all clients."""
    panel = comparison.runs[0].trace.panel
    return {int(k if panel is None else panel[k]) for k in evaluated}


# The paper's figures beside ours.

WHO = ("paper", "ours", "ours − paper")
SPREADS = (
    "Ours: mean ± half of the 95 % interval over seeds. The paper's: mean, with its standard"
    " deviation (sd) where it prints one."
)


def metric_title(metric: str) -> str:
    """A metric's title in a table's head. The accuracy of a single client has the client's name."""
    return EVERY_METRIC[metric].title if metric in EVERY_METRIC else metric.removeprefix("client:")


def paper_figures(line: PaperLine | None) -> tuple[str, str, str]:
    """The paper's figure, the figure of this comparison, and their difference, formatted."""
    if line is None:
        return "", "", ""
    # a client's accuracy is shown like an average
    metric = EVERY_METRIC.get(line.metric, EVERY_METRIC["average"])
    printed = (
        ""
        if line.paper_deviation is None
        else f" (sd {format_value(line.paper_deviation, metric)})"
    )
    ours = format_spread(line.ours, metric)
    return (
        f"{format_value(line.paper, metric)}{printed}",
        ours,
        ("+" if line.difference > 0 else "") + format_value(line.difference, metric),
    )


def paper_section(lines: list[PaperLine]) -> Html:
    """The section with the paper's figures; empty without a paper."""
    if not lines:
        return Html("")
    metrics, rows = paper_rows(lines)
    columns = [
        Column("Method"),
        Column("Rows", words=True),
        Column("Whose", words=True),
        *(Column(metric_title(m)) for m in metrics),
    ]
    body = []
    for row in rows:
        cells = [paper_figures(line) for line in row.lines]
        body += [
            [row.label, row.split, who, *(cell[i] for cell in cells)] for i, who in enumerate(WHO)
        ]
    intro = f"{SPREADS} Accuracies in percent, variances in percent squared."
    return section(
        "paper",
        "Beside the paper",
        element("p", None, intro),
        grid("Every figure the paper gives for these methods.", columns, body),
    )
