"""The sections on trust: who was left out and why, what clients reveal, and what is hidden."""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from evenly.algorithms import METHODS
from evenly.experiment.comparison import Comparison, DeploymentSetup, Incidents, Run
from evenly.experiment.deployment import UNKNOWN, Exclusion, RoundFlag, ServerOptions
from evenly.metrics import EVERY_METRIC
from evenly.report.charts.focus import Focus
from evenly.report.disclosure import (
    MANY,
    Hidden,
    hidden_clients,
    hidden_groups,
    hidden_words,
    withheld_client_metrics,
)
from evenly.report.group_values import Grouping, group_split, groupings
from evenly.report.html import Column, Html, bullets, element, grid, nonbreaking, paragraph, section
from evenly.report.values import SPLIT_WORDS, size_text
from evenly.validation import listed_names

# The section on who did not count in a deployment and why, and on who claimed more than the caps
# allow.

MOST = 50  # rows of a table
MOST_REASONS = 3
PHASES = {
    "train": "training",
    "measure": "measuring",
    "evaluate": "evaluation",
    "census": "before the first round",
    "joining": "joining",
}
WHAT = {
    "loss": "its loss",
    "examples": "its rows",
    "coefficient": "its share of the weight",
    "norm": "the length of its update",
}
NO_PROOF = (
    "A flag means that a value that a client claimed, or its share of the weight, was outside the"
    " caps and was set to the cap. This does not prove a lie: a client that the model serves badly"
    " has a large loss, too."
)
NEVER = (
    "The model does not learn from clients that are left out. If a client is left out often, the"
    " model can become unfair to it."
)

T = TypeVar("T")


def left_out_section(comparison: Comparison, focus: Focus) -> Html:
    """The section on replies that did not count in a deployment; empty for a simulation.

    Hidden clients are not named, and reasons are shortened if anything is hidden, since they may
    quote counts.
    """
    told = comparison.incidents
    if told is None:
        return Html("")
    parts = [paragraph(_summary(comparison, told))]
    if told.left_out:
        parts += [_left_out_table(comparison, focus, told.left_out), paragraph(NEVER, "soft")]
    if told.flagged:
        parts += [
            element("h3", None, "Flagged"),
            paragraph(NO_PROOF),
            _flag_table(comparison, focus, told.flagged),
        ]
    return section("left-out", "Who was left out", *parts)


def absence(comparison: Comparison, hidden: Collection[int] = ()) -> list[str]:
    """Sentences about who is missing in the figures of a deployment, for the terminal and the top
    of the report: clients without the last evaluation, and nodes that never became clients.
    """
    told = comparison.incidents
    if told is None:
        return []
    silent, strangers = _silent(comparison, told), _strangers(told)
    found = []
    if silent:
        named = [comparison.federation.names[k] for k in silent if k not in hidden]
        names = f": {listed_names(named)}" if named else ""
        found.append(
            f"{len(silent):,} of {comparison.federation.clients:,} clients did not answer the last"
            f" evaluation{names}. The figures are without them, or hold an earlier answer."
        )
    if strangers:
        who = "1 node is" if len(strangers) == 1 else f"{len(strangers):,} nodes are"
        found.append(
            f"{who} not in this federation at all, because the census of the first round was"
            " refused or could not be used."
        )
    return [*found[:-1], f"{found[-1]} “Who was left out” in the report says why."] if found else []


def _silent(comparison: Comparison, told: Incidents) -> list[int]:
    """Clients whose last evaluation did not arrive or did not count."""
    last = int(comparison.runs[0].trace.rounds[-1])
    return sorted(
        {
            one.client
            for one in told.left_out
            if one.phase == "evaluate" and one.round == last and one.client != UNKNOWN
        }
    )


def _strangers(told: Incidents) -> set[int]:
    """Nodes that never said which client they are."""
    return {one.node for one in told.left_out if one.client == UNKNOWN}


def _summary(comparison: Comparison, told: Incidents) -> str:
    trained = [one for one in told.left_out if one.phase in ("train", "measure")]
    clients = len({one.client for one in told.left_out} - {UNKNOWN})
    nodes = len(_strangers(told))
    if not told.left_out:
        return f"Nobody: all {told.asked:,} requested updates arrived and counted."
    words = f"{len(trained):,} of {told.asked:,} requested updates did not arrive or did not count"
    others = len(told.left_out) - len(trained)
    words += f", and {others:,} further {'reply' if others == 1 else 'replies'}" if others else ""
    words += f". This affects {clients:,} of {comparison.federation.clients:,} clients"
    more = f" and {nodes:,} {'node' if nodes == 1 else 'nodes'} that never became one"
    words += f"{more if nodes else ''}."
    silent = len(_silent(comparison, told))
    older = (
        f" In the last evaluation, {silent:,} did not answer; the page shows their last answer, if"
        " there is one."
    )
    return words + (older if silent else "")


def _left_out_table(comparison: Comparison, focus: Focus, left_out: Sequence[Exclusion]) -> Html:
    by_client = _grouped(
        left_out, lambda one: (one.client, one.node if one.client == UNKNOWN else UNKNOWN)
    )
    ordered = sorted(by_client, key=lambda own: -len(own))
    rows = [
        [_name(comparison, focus, own[0]), f"{len(own):,}", _when(own), _why(own, focus)]
        for own in ordered[:MOST]
    ]
    caption = "Clients whose replies did not count: how often, in which rounds and why."
    caption += f" The {MOST} most frequent of {len(ordered):,}." if len(ordered) > MOST else ""
    return grid(
        caption,
        [
            Column("Client"),
            Column("Times"),
            Column("Rounds", words=True),
            Column("Why", words=True),
        ],
        rows,
    )


def _name(comparison: Comparison, focus: Focus, one: Exclusion) -> str:
    return f"node {one.node}" if one.client == UNKNOWN else _called(comparison, focus, one.client)


def _called(comparison: Comparison, focus: Focus, client: int) -> str:
    return (
        "a client that is not named"
        if client in focus.hidden
        else comparison.federation.names[client]
    )


def _when(own: Sequence[Exclusion]) -> str:
    phases = _grouped(own, lambda one: one.phase)
    if len(phases) == 1 and own[0].phase == "train":
        return spans(one.round for one in own)
    told = [
        (PHASES.get(same[0].phase, same[0].phase), spans(one.round for one in same))
        for same in phases
    ]
    return "; ".join(phase if rounds == "0" else f"{phase} {rounds}" for phase, rounds in told)


def _why(own: Sequence[Exclusion], focus: Focus) -> str:
    """Each kind of reason and its frequency, with the last message of each kind."""
    kinds = sorted(_grouped(own, lambda one: one.kind), key=lambda same: -len(same))
    several = len(kinds) > 1
    words = []
    for same in kinds[:MOST_REASONS]:
        often = f" ({len(same):,} times)" if several and len(same) > 1 else ""
        words.append(f"{same[0].kind}{often}" if focus.least > 1 else f"{same[-1].reason}{often}")
    return "; ".join(words) + ("; and more" if len(kinds) > MOST_REASONS else "")


def _flag_table(comparison: Comparison, focus: Focus, flagged: Sequence[RoundFlag]) -> Html:
    by_client = _grouped(flagged, lambda one: (one.flag.client, one.flag.what))
    ordered = sorted(by_client, key=lambda own: -len(own))
    rows = []
    for own in ordered[:MOST]:
        flag = own[-1].flag
        everybody = flag.client == UNKNOWN
        name = "all remaining clients" if everybody else _called(comparison, focus, flag.client)
        quiet = focus.least > 1 and flag.what == "examples"
        said = "not shown" if quiet else _amount(flag.what, flag.said)
        counted = "not shown" if quiet else _amount(flag.what, flag.counted)
        what = (
            f"the cap of {said} cannot hold for this few"
            if everybody
            else WHAT.get(flag.what, flag.what)
        )
        rows.append(
            [name, what, _rounds(one.round for one in own), "" if everybody else said, counted]
        )
    caption = "Clients whose values the caps changed, with the values of the last time."
    caption += f" The {MOST} most frequent of {len(ordered):,}." if len(ordered) > MOST else ""
    columns = [
        Column("Client"),
        Column("What", words=True),
        Column("Rounds", words=True),
        Column("Claimed"),
        Column("Counted as"),
    ]
    return grid(caption, columns, rows)


def _rounds(numbers: Iterable[int]) -> str:
    """Rounds as text; round 0 is the census."""
    found = sorted(set(numbers))
    later = [spans(found[1:])] if len(found) > 1 else []
    return ", ".join(["census", *later]) if found[0] == 0 else spans(found)


def _amount(what: str, value: float) -> str:
    if what == "examples":
        return f"{value:,.0f}"
    return nonbreaking(f"{100 * value:.1f} %") if what == "coefficient" else f"{value:,.4g}"


def _grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    found: dict[Hashable, list[T]] = {}
    for one in items:
        found.setdefault(key(one), []).append(one)
    return list(found.values())


def spans(rounds: Iterable[int]) -> str:
    """Round numbers as ranges.

    >>> spans([5, 1, 2, 3, 9, 8])
    '1–3, 5, 8–9'
    """
    ordered = sorted(set(rounds))
    runs = [
        [n for _, n in own]
        for _, own in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])
    ]
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


# What each method makes its clients reveal besides their update.

WORDS = {
    "examples": "how many training rows it has",
    "loss": "its loss: how badly the model it received fits its training rows",
    "table": "counts of its training rows by group, label and prediction",
    "valid_table": "counts of its validation rows by group, label and prediction",
    "cell_loss": "its losses, summed by group and label",
    "unprivileged": "how many of its training rows belong to unprivileged people",
    "choice": "which of the models suits it best",
    "gram": "its whole update: the server cannot work from a sum alone",
    "square_norm": "how long its update is (one number; without masking the server sees it anyway)",
}


class SentData(NamedTuple):
    """What a client sends and receives in a round under one method."""

    label: str
    title: str  # the method's name in words, "" if it is not registered
    needs: tuple[str, ...] | None  # in the order of WORDS; None if not known
    upload: float  # bytes
    download: float

    @property
    def words(self) -> list[str]:
        return [WORDS.get(name, name) for name in self.needs or ()]


def sent_data(comparison: Comparison, label: str) -> SentData:
    """What clients send under one method."""
    run = comparison.of(label)[0]
    title = METHODS[run.algorithm].title if run.algorithm in METHODS else ""
    return SentData(label, title, needs_of(run), float(run.trace.upload), float(run.trace.download))


def needs_of(run: Run) -> tuple[str, ...] | None:
    """The values that a run's rule and sampling need from clients, in the order of WORDS; None if
    unknown.
    """
    return None if run.needs is None else tuple(name for name in WORDS if name in run.needs)


MOST_TOGETHER = 2  # names in one entry


def privacy_section(comparison: Comparison) -> Html:
    """The section on the values that clients send under each method."""
    intro = (
        "Besides its update, a client that takes part in a round sends the server the values that"
        " its weight depends on. Where the sampling of clients depends on their data, it also sends"
        " those values, once: a few bytes, which are not counted here."
    )
    columns = [
        Column("Method"),
        Column("It reveals", words=True),
        Column("It sends"),
        Column("It receives"),
    ]
    rows = [_reveals(own, name) for name, own in _alike(comparison).items()]
    more = deployed_words(comparison)
    also = (
        [paragraph("In this deployment, the server also receives:"), bullets(more)] if more else []
    )
    return section(
        "privacy",
        "What clients reveal",
        paragraph(intro),
        grid("Per client and round.", columns, rows),
        *also,
    )


def _alike(comparison: Comparison) -> dict[str, SentData]:
    """What clients send, by method. Variants of a method that send the same share an entry."""
    found: dict[tuple[object, ...], list[SentData]] = {}
    for label in comparison.labels:
        own = sent_data(comparison, label)
        found.setdefault(
            (comparison.of(label)[0].algorithm, own.needs, own.upload, own.download), []
        ).append(own)
    return {_together([own.label for own in alike]): alike[0] for alike in found.values()}


def _together(labels: list[str]) -> str:
    return (
        ", ".join(labels)
        if len(labels) <= MOST_TOGETHER
        else f"{labels[0]} and {len(labels) - 1} more settings of it"
    )


def _reveals(found: SentData, name: str) -> list[str]:
    words = "nothing more" if found.needs == () else "not known: the method is not in the registry"
    if found.needs:
        words = element("ul", None, *(element("li", None, text) for text in found.words))
    sizes = (size_text(size).replace(" ", "\u00a0") for size in (found.upload, found.download))
    return [name, words, *sizes]


# What clients of a deployment tell the server besides what the method needs: a census, evaluations,
# and updates one by one.

CENSUS = (
    "Census: once, before the first round, the number of training rows of each group and label and,"
    " if the client sends them, its name, its number, the group that the whole client belongs to,"
    " and the names of its labels and groups."
)
NO_CENSUS = "Census: none was requested."
ONE_PHASE = "Updates: the server receives the update of each client separately."
IN_THE_CLEAR = (
    "Updates: rounds have two phases, but there is no function for a masked sum. The server still"
    " receives the update of each client separately, multiplied by a coefficient that it knows."
)
GIVEN_SUM = (
    "Updates: rounds have two phases, and a function of the deployment computes the sum of what"
    " clients send. Whether it hides single updates depends on this function and on the clients'"
    " masks, which evenly does not check."
)
NOT_KEPT = (
    "Updates: for some rounds it was not recorded whether there was a function for a masked sum."
    " Without one, updates arrive separately."
)


def deployed_words(comparison: Comparison) -> list[str]:
    """What the server of a deployment receives besides; empty for a simulation."""
    deployed = comparison.deployed
    if deployed is None:
        return []
    grouped = len(comparison.federation.groups) > 1
    return [
        CENSUS if deployed.census else NO_CENSUS,
        _evaluations(deployed, grouped=grouped),
        _updates(deployed.options),
    ]


def _evaluations(deployed: DeploymentSetup, *, grouped: bool) -> str:
    counts = f"counts by {'group, ' if grouped else ''}label and prediction"
    if deployed.tables:
        found = counts + (", or from some clients an accuracy only" if deployed.accuracies else "")
    else:
        found = (
            "its accuracy (counts by label and prediction, and by group, where a client sends them"
            " instead)"
        )
    *most, last = [SPLIT_WORDS[split] for split in deployed.evaluated] or ["test"]
    rows = f"{', '.join(most)} and {last}" if most else last
    return (
        f"Evaluations: after each round in which a client evaluates, the number of its {rows} rows,"
        f" its mean loss on them, and {found}."
    )


def _updates(options: tuple[ServerOptions, ...]) -> str:
    """How updates reach the server, in the round that hides least."""
    if not options or options[0].since > 1:
        return NOT_KEPT
    least = min(options, key=lambda one: (one.two_phase, one.given_sum))
    words = GIVEN_SUM if least.given_sum else IN_THE_CLEAR if least.two_phase else ONE_PHASE
    changed = len({(one.two_phase, one.given_sum) for one in options}) > 1
    return words + (
        " This applies to some of the rounds: see two_phase under Settings." if changed else ""
    )


# The section on what is not shown, and why.

WHY = (
    "Values that rest on fewer than {least} people are hidden, so that nobody's outcome can be"
    " inferred from a small number. Where a total would reveal a hidden value, the smallest other"
    " value is hidden as well, and metrics computed from hidden values are withheld. Figures over"
    " clients exclude hidden clients"
)
KEPT = (
    f", unless more than {MANY} are hidden, as here: with that many, single values cannot be"
    " reconstructed."
)


def hidden_section(comparison: Comparison, focus: Focus) -> Html:
    """The section on hidden values; empty if `least` hides nothing."""
    if focus.least < 2:
        return Html("")
    items = [
        hidden_words(
            [hidden_clients(comparison, focus.split, focus.least)],
            focus.least,
            what="client",
            whom="rows",
        )
    ]
    if withheld := withheld_client_metrics(comparison, focus.split, focus.hidden, focus.least):
        items.append(
            "These metrics are not shown, because they would reveal a hidden client:"
            f" {_titles(withheld)}."
        )
    for grouping in groupings(comparison.federation):
        items += _hidden_of(comparison, focus, grouping)
    intro = paragraph(WHY.format(least=focus.least) + (KEPT if len(focus.hidden) > MANY else "."))
    return section(
        "hidden",
        "What is not shown",
        intro,
        bullets(list(filter(None, items)) or ["Nothing had to be hidden."]),
    )


def _hidden_of(comparison: Comparison, focus: Focus, grouping: Grouping) -> list[str]:
    """What is hidden of one grouping: groups, their rates by label, and metrics."""
    found = hidden_groups(comparison, group_split(comparison), focus.least, grouping.attribute)
    groups = Hidden(found.cells[:, 0], found.small[:, 0], {})
    labels = Hidden(found.cells[:, 1:], found.small[:, 1:], {})
    reveal = "these metrics are not shown, because they would reveal hidden figures:"
    texts = [
        hidden_words([groups], focus.least, what="group"),
        hidden_words(
            [labels],
            focus.least,
            what="rate of a group by label",
            several="rates of groups by label",
        ),
        f"{reveal} {_titles(found.withheld)}." if found.withheld else "",
    ]
    return [_of(grouping.title, text) for text in texts]


def _of(title: str, words: str) -> str:
    return f"By {title}: {words}" if words else ""


def _titles(metrics: Collection[str]) -> str:
    """The titles of metrics, in the order of the tables."""
    return ", ".join(EVERY_METRIC[name].title for name in EVERY_METRIC if name in metrics)
