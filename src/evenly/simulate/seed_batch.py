"""Seed batches: simulations of several seeds whose blocks one program advances side by side."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly.simulate.layout import SEATS, Advance, Data, RoundRecord, RunParts, Shape, State
from evenly.simulate.program import graphs, stretches
from evenly.simulate.schedule import Block
from evenly.types import Task

# Simulations that advance together: each in a thread of its own, their blocks in one program, side by side.
#
# On a GPU the steps of a small model take the time of starting them, not of computing. Seeds and partitions cannot share batches as the
# runs of one seed do, but they can share the start: many of them take hardly longer than the longest.


class Ask(NamedTuple):
    """The arguments of one `advance`."""

    task: Task
    parts: RunParts
    data: Data
    block: Block
    state: State

    def form(self, shape: Shape) -> Any:
        """Equal for those that one program can advance side by side."""
        leaves, structure = jax.tree.flatten(self)
        return shape, structure, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)

    def idle(self) -> "Ask":
        """The same with no round to do."""
        return self._replace(block=self.block._replace(stops=np.full_like(self.block.stops, -1)))


class Meeting:
    """As many seats as there will be simulations. Whoever sits waits until everybody has a block to advance.

    Who has left goes on as an idle member of the programs it took part in: they keep their widths, and are not compiled again.
    """

    def __init__(self, seats: int) -> None:
        self._present = set(range(seats))
        self._asked: dict[int, tuple[Any, Ask]] = {}  # with their form
        self._found: dict[int, tuple[State, RoundRecord] | Exception] = {}
        self._last: dict[int, dict[Any, Ask]] = {seat: {} for seat in range(seats)}  # by form
        self._changed = threading.Condition()

    @contextmanager
    def seat(self, number: int) -> Iterator[Advance]:
        """Sit down, and get what to call instead of `advance`; leave at the end, also after an error."""
        try:
            yield lambda task, shape, *rest: self._ask(number, shape, Ask(task, *rest))
        finally:
            self.leave([number])

    def leave(self, seats: Iterable[int]) -> None:
        """Nobody sits, or will sit, there any more."""
        with self._changed:
            self._present.difference_update(seats)
            self._settle()

    def _ask(self, seat: int, shape: Shape, ask: Ask) -> tuple[State, RoundRecord]:
        form = ask.form(shape)
        with self._changed:
            self._asked[seat] = form, ask
            self._settle()
            self._changed.wait_for(lambda: seat in self._found)
            found = self._found.pop(seat)
        if isinstance(found, Exception):
            raise found
        return found

    def _settle(self) -> None:
        """Once everybody waits, advance all: those of one form together, in the order of their seats."""
        if not self._asked or set(self._asked) != self._present:
            return
        forms: dict[Any, dict[int, Ask]] = {}
        for seat, (form, ask) in self._asked.items():
            forms.setdefault(form, {})[seat] = ask
        for form, asks in forms.items():
            idle = {seat: own[form].idle() for seat, own in self._last.items() if seat not in asks and form in own}
            everyone = dict(sorted({**idle, **asks}.items()))
            try:
                found = dict(zip(everyone, advance_side_by_side(form[0], list(everyone.values())), strict=True))
            except Exception as error:  # all took part in it
                found = dict.fromkeys(everyone, error)
            for seat, ask in asks.items():
                self._found[seat], self._last[seat] = found[seat], {form: ask}
        self._asked.clear()
        self._changed.notify_all()


def advance_side_by_side(shape: Shape, asked: list[Ask]) -> list[tuple[State, RoundRecord]]:
    """`advance` for several at once, in the order given. Nothing is donated: small states are all that is worth it here."""
    return _compiled()(shape, asked)


@cache
def _compiled() -> Any:
    def side_by_side(shape: Shape, asked: list[Ask]) -> list[tuple[State, RoundRecord]]:
        def one(ask: Ask) -> tuple[State, RoundRecord]:
            return stretches(shape._replace(seats=len(asked)), ask.block, (ask.task, ask.parts, ask.data, ask.state))

        found = jax.vmap(one, axis_name=SEATS)(jax.tree.map(lambda *leaves: jnp.stack(leaves), *asked))
        return [jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(len(asked))]

    return jax.jit(side_by_side, static_argnames=("shape",), compiler_options=graphs())
