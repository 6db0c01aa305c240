"""An observer sees every evaluation once, as it will stand in the trace, and changes nothing."""

from pathlib import Path

import numpy as np
import pytest

from evenly.data.splits import SPLITS
from evenly.models import MLP
from evenly.simulate import schedule, simulate
from evenly.simulate.traces import EvaluationFeed, _only_members
from evenly.types import NO_CHOICE, Trace
from tests.simulations import Simulated, algorithms, same_bits

SEEN = ("rounds", "tables", "losses", "central", "choice")
ROUNDS = 11


class Pieces:
    """An observer that keeps what it is told."""

    def __init__(self, stop_at: int = ROUNDS + 1) -> None:
        self.told: list[list[Trace]] = []
        self.stop_at = stop_at

    def __call__(self, seen: list[Trace]) -> None:
        self.told.append(seen)
        if seen[0].rounds[-1] >= self.stop_at:
            raise KeyboardInterrupt

    def are(self, traces: list[Trace]) -> None:
        """Fail unless the pieces, put together, are these traces' evaluations."""
        for i, trace in enumerate(traces):
            for name in SEEN:
                pieces = [getattr(seen[i], name) for seen in self.told]
                whole = np.concatenate(pieces) if getattr(trace, name).size else pieces[0]
                np.testing.assert_array_equal(whole, getattr(trace, name), err_msg=name)


@pytest.mark.parametrize(
    "text", ["q-fedavg(q=[5, 1])", "term(alpha=1),fedavg,q-fedavg(q=1),fedavg+reweigh"]
)
def test_pieces_make_up_the_traces_in_the_order_given(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, text: str
):
    expected = simulated.all(text, ROUNDS, evaluate_every=2)
    monkeypatch.setattr(schedule, "LARGEST_BLOCK_ROWS", 700)
    pieces = Pieces()
    found = simulate(
        simulated.task,
        simulated.federation,
        algorithms(text),
        ROUNDS,
        evaluate_every=2,
        observe=pieces,
    )
    assert len(pieces.told) > 1
    pieces.are(expected)
    for a, b in zip(found, expected, strict=True):
        same_bits(a, b)


@pytest.mark.parametrize("settings", ["final_pass=true", "final_pass=true, people=true"])
def test_what_a_final_pass_leads_to_is_told_too(simulated: Simulated, settings: str):
    federation, pieces = simulated.federation, Pieces()
    task = MLP(
        features=federation.x.shape[1], classes=len(federation.labels), hidden=(6,), bias=False
    )
    traces = simulate(
        task, federation, algorithms(f"e2fl({settings})+full"), 3, evaluate_every=1, observe=pieces
    )
    pieces.are(traces)
    told = [seen[0].rounds.tolist() for seen in pieces.told]
    assert [t for piece in told for t in piece] == [0, 1, 2, 3, 4]
    assert told[-1] == [4]


def test_a_run_that_goes_on_tells_what_was_before_it_stopped(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(schedule, "LARGEST_BLOCK_ROWS", 700)
    path = tmp_path / "checkpoint.npz"

    def go(pieces: Pieces) -> list[Trace]:
        chosen = algorithms("q-fedavg(q=1)")
        return simulate(
            simulated.task,
            simulated.federation,
            chosen,
            ROUNDS,
            evaluate_every=2,
            observe=pieces,
            checkpoint=path,
        )

    with pytest.raises(KeyboardInterrupt):
        go(Pieces(stop_at=4))
    assert path.exists(), "what was trained before the observer stopped it is kept"
    pieces = Pieces()
    pieces.are(go(pieces))


def test_only_what_is_new_is_told_and_rounds_are_left_empty(simulated: Simulated):
    """One evaluation of two runs, whose tables and losses are their numbers; the caller's order is
    the other way round.
    """
    federation, told = simulated.federation, Pieces()
    panel = np.array([5, 0])
    feed = EvaluationFeed(told, federation, panel, [1, 0])
    # owners: three splits of two clients, and the central rows
    losses = np.stack([np.arange(7.0), np.arange(7.0) * 2], axis=1)[None]
    tables = np.tile(np.arange(7)[None, :, None, None, None, None], (1, 1, 2, 3, 3, 2)) * np.array(
        [1, 10]
    )
    pieces = [[np.array([3])], [tables], [losses], [np.zeros((1, 0, 2), int)]]
    feed.send(pieces)
    feed.send(pieces)
    assert len(told.told) == 1, "nothing new, nothing told"
    second, first = told.told[0]
    counts = [federation.split(split).counts[panel] for split in SPLITS]
    expected = np.array(
        [k / n if n else np.nan for k, n in enumerate(np.concatenate(counts))]
    ).reshape(3, 2)
    np.testing.assert_allclose(first.losses[0], expected, rtol=1e-6)
    np.testing.assert_allclose(second.losses[0], 2 * expected, rtol=1e-6)
    assert first.tables[0, :, :, 0, 0, 0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert (second.central == 60).all()
    assert (first.cohort.shape, first.weights.shape, first.excluded.tolist()) == (
        (0, 0),
        (0, 0),
        [0] * 6,
    )
    assert (first.upload, first.download, first.model) == (0, 0, None)
    assert first.choice is NO_CHOICE
    feed.send([[*own, *own] for own in pieces])
    assert [trace.rounds.tolist() for trace in told.told[1]] == [[3], [3]]


def test_a_trace_has_as_many_places_as_the_round_with_the_most_members():
    members = np.array([[False, True, True, False], [True, False, False, False]])
    clients, losses = _only_members(members, np.array([[4, 5, 6, 7], [8, 9, 1, 2]]), members * 0.5)
    assert clients.tolist() == [[5, 6], [8, 9]]
    assert losses.tolist() == [[0.5, 0.5], [0.5, 0.0]]
