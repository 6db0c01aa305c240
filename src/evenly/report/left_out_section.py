"""The section on who did not count in a deployment and why, and on who claimed more than the caps allow."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

from evenly.experiment.deployment import UNKNOWN, Flagged, LeftOut
from evenly.experiment.results import Comparison, Incidents
from evenly.report.choice import Choice
from evenly.report.grid import Column, grid
from evenly.report.markup import Html, element, section, unbroken

MOST = 50  # rows of a table
MOST_REASONS = 3
PHASES = {"train": "training", "measure": "measuring", "evaluate": "evaluation", "census": "before the first round"}
WHAT = {"loss": "its loss", "examples": "its rows", "coefficient": "its share of the weight", "norm": "the length of its update"}
NO_PROOF = (
    "A flag means that what a client claimed, or how much it would have counted, was outside the caps, and was brought back to them. "
    "That is no proof of a lie: a client that the model really serves badly has a large loss, too."
)
NEVER = "Who is left out does not teach the model. Look after those that are left out often: the model can become unfair to them."

T = TypeVar("T")


def left_out_section(comparison: Comparison, choice: Choice) -> Html:
    """Nothing for a simulation. Hidden clients are not named, and where anything is hidden no numbers are quoted."""
    told = comparison.incidents
    if told is None:
        return Html("")
    parts = [element("p", None, unbroken(_summary(comparison, told)))]
    if told.left_out:
        parts += [_left_out_table(comparison, choice, told.left_out), element("p", {"class": "soft"}, NEVER)]
    if told.flagged:
        parts += [element("h3", None, "Flagged"), element("p", None, NO_PROOF), _flag_table(comparison, choice, told.flagged)]
    return section("left-out", "Who was left out", *parts)


def _summary(comparison: Comparison, told: Incidents) -> str:
    trained = [one for one in told.left_out if one.phase in ("train", "measure")]
    clients = len({(one.client, one.node) for one in told.left_out})
    if not told.left_out:
        return f"Nobody: all of the {told.asked:,} updates that were asked for came and counted."
    words = f"{len(trained):,} of the {told.asked:,} updates that were asked for did not come or did not count"
    others = len(told.left_out) - len(trained)
    words += f", and {others:,} further {'reply' if others == 1 else 'replies'}" if others else ""
    words += f". That concerns {clients:,} of {comparison.federation.clients:,} clients."
    last = int(comparison.runs[0].trace.rounds[-1])
    silent = len({one.client for one in told.left_out if one.phase == "evaluate" and one.round == last})
    older = f" In the last evaluation {silent:,} did not answer: what is shown of such a client is its last answer, if any."
    return words + (older if silent else "")


def _left_out_table(comparison: Comparison, choice: Choice, left_out: Sequence[LeftOut]) -> Html:
    by_client = _grouped(left_out, lambda one: (one.client, one.node if one.client == UNKNOWN else UNKNOWN))
    ordered = sorted(by_client, key=lambda own: -len(own))
    rows = [[_name(comparison, choice, own[0]), f"{len(own):,}", _when(own), _why(own, choice)] for own in ordered[:MOST]]
    caption = "Whose replies did not count, how often, in which rounds and why."
    caption += f" The {MOST} most frequent of {len(ordered):,}." if len(ordered) > MOST else ""
    return grid(caption, [Column("Client"), Column("Times"), Column("Rounds", words=True), Column("Why", words=True)], rows)


def _name(comparison: Comparison, choice: Choice, one: LeftOut) -> str:
    return f"node {one.node}" if one.client == UNKNOWN else _called(comparison, choice, one.client)


def _called(comparison: Comparison, choice: Choice, client: int) -> str:
    return "a client that is not named" if client in choice.hidden else comparison.federation.names[client]


def _when(own: Sequence[LeftOut]) -> str:
    phases = _grouped(own, lambda one: one.phase)
    if len(phases) == 1 and own[0].phase == "train":
        return spans(one.round for one in own)
    told = [(PHASES.get(same[0].phase, same[0].phase), spans(one.round for one in same)) for same in phases]
    return "; ".join(phase if rounds == "0" else f"{phase} {rounds}" for phase, rounds in told)


def _why(own: Sequence[LeftOut], choice: Choice) -> str:
    """Every kind of reason with how often, and of the most frequent the last sentence; sentences may quote numbers of people."""
    kinds = sorted(_grouped(own, lambda one: one.kind), key=lambda same: -len(same))
    several = len(kinds) > 1
    words = []
    for same in kinds[:MOST_REASONS]:
        often = f" ({len(same):,} times)" if several and len(same) > 1 else ""
        words.append(f"{same[0].kind}{often}" if choice.least > 1 else f"{same[-1].reason}{often}")
    return "; ".join(words) + ("; and more" if len(kinds) > MOST_REASONS else "")


def _flag_table(comparison: Comparison, choice: Choice, flagged: Sequence[Flagged]) -> Html:
    by_client = _grouped(flagged, lambda one: (one.flag.client, one.flag.what))
    ordered = sorted(by_client, key=lambda own: -len(own))
    rows = []
    for own in ordered[:MOST]:
        flag = own[-1].flag
        everybody = flag.client == UNKNOWN
        name = "all who were left" if everybody else _called(comparison, choice, flag.client)
        quiet = choice.least > 1 and flag.what == "examples"
        said = "not shown" if quiet else _amount(flag.what, flag.said)
        counted = "not shown" if quiet else _amount(flag.what, flag.counted)
        what = f"the cap of {said} cannot hold for so few" if everybody else WHAT.get(flag.what, flag.what)
        rows.append([name, what, _rounds(one.round for one in own), "" if everybody else said, counted])
    caption = "Whom the caps changed; amounts are of the last time."
    caption += f" The {MOST} most frequent of {len(ordered):,}." if len(ordered) > MOST else ""
    columns = [Column("Client"), Column("What", words=True), Column("Rounds", words=True), Column("Claimed"), Column("Counted as")]
    return grid(caption, columns, rows)


def _rounds(numbers: Iterable[int]) -> str:
    """Round 0 is what was said before the first one."""
    found = sorted(set(numbers))
    later = [spans(found[1:])] if len(found) > 1 else []
    return ", ".join(["census", *later]) if found[0] == 0 else spans(found)


def _amount(what: str, value: float) -> str:
    if what == "examples":
        return f"{value:,.0f}"
    return f"{100 * value:.1f} %".replace(" %", "\u00a0%") if what == "coefficient" else f"{value:,.4g}"


def _grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    found: dict[Hashable, list[T]] = {}
    for one in items:
        found.setdefault(key(one), []).append(one)
    return list(found.values())


def spans(rounds: Iterable[int]) -> str:
    """Rounds in words.

    >>> spans([5, 1, 2, 3, 9, 8])
    '1–3, 5, 8–9'
    """
    ordered = sorted(set(rounds))
    runs = [[n for _, n in own] for _, own in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
