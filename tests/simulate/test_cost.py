"""What a client sends and receives in a round, worked out by hand for a method of each kind."""

import pytest

from evenly.simulate.layout import Shape
from evenly.simulate.traces import cost_of
from tests.simulations import algorithms

# Layers of 8 and 4 numbers: 48 bytes as floats; as a ranking 8 places of 3 bits and 4 of 2 bits, 4
# bytes; as a mask 12 bits, 1.5 bytes.
SIZES = (8, 4)
# Three groups and five labels: 15 cells, and tables of 75 counts.
SHAPE = Shape(
    runs=1, bounds=(0, 1), axis=0, clients=6, groups=3, labels=5, lanes=1, stride=1, unroll=1,
    equal=0, devices=1, chunk=1, eval_chunk=1, lists=0,
)  # fmt: skip


@pytest.mark.parametrize(
    "text, up, down",
    [
        ("fedavg(weights=equal)+full", 48, 48),
        ("fedavg(weights=size)+full", 48 + 4, 48),  # its size
        ("q-fedavg(q=1)", 48 + 4, 48),  # its loss; the server measures the update itself
        ("term(weights=size)+full", 48 + 2 * 4, 48),  # loss and size
        ("fedmgda(weights=equal)+full", 48, 48),  # the server has the updates
        ("afl(form=stochastic)", 48 + 4, 48),  # the server draws
        ("fairfed(weights=equal)+full", 48 + 75 * 4, 48),  # a table
        ("fairfed(weights=size)+full", 48 + 76 * 4, 48),
        ("fairfed(weights=equal, measured_on=valid)+full", 48 + 75 * 4, 48),
        ("fedcvg-ratio+full", 48 + 2 * 4, 48),  # size, and unprivileged rows of it
        # a table and a loss for each cell; down, how much each cell counts
        ("fedfb+full", 48 + (75 + 15) * 4, 48 + 15 * 4),
        ("local", 0, 0),
        ("ifca(groups=3)", 48 + 4, 3 * 48),
        ("frl", 4, 4),
        ("e2fl(groups=3)", 4 + 4, 4),  # its group
        ("e2fl(groups=3, inference=rank-clustering)", 4 + 4, 4),
        # the groups' masks, to choose from
        ("e2fl(groups=3, inference=lowest-loss)", 4 + 4, 4 + 3 * 1.5),
        ("e2fl(groups=3, inference=lowest-loss, known_votes=true)", 4 + 4, 4),
    ],
)
def test_bytes_are_those_worked_out_by_hand(text: str, up: float, down: float):
    (one,) = algorithms(text)
    assert cost_of(one, SIZES, SHAPE) == (up, down)
