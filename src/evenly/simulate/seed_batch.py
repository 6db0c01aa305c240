"""Seed batches: simulations of several seeds whose blocks one program advances side by side.

Each simulation runs in a thread of its own. On a GPU the steps of a small model take the time of
starting them, not of computing. Seeds and partitions cannot share batches as the runs of one seed
do, but they can share the start: many take hardly longer than the longest.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenly.simulate.layout import SEEDS, Advance, Inputs, RoundRecord, Shape, State
from evenly.simulate.program import graph_options, run_segments
from evenly.simulate.schedule import Block


class AdvanceCall(NamedTuple):
    """The arguments of one call of `advance`."""

    inputs: Inputs
    block: Block
    state: State

    def form(self, shape: Shape) -> Any:
        """A key that is equal for calls that one program can advance side by side."""
        leaves, structure = jax.tree.flatten(self)
        return shape, structure, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)

    def idle(self) -> "AdvanceCall":
        """The same call without any round."""
        return self._replace(block=self.block._replace(stops=np.full_like(self.block.stops, -1)))


class SeedBatch:
    """Several simulations that advance together. Each waits until all others have a block to
    advance or have left.

    A member that has left stays in its programs as an idle member: these keep their width and need
    not be compiled again.
    """

    def __init__(self, members: int) -> None:
        self._active = set(range(members))
        self._calls: dict[int, tuple[Any, AdvanceCall]] = {}  # pending, with their form
        self._results: dict[int, tuple[State, RoundRecord] | Exception] = {}
        # by form
        self._last: dict[int, dict[Any, AdvanceCall]] = {member: {} for member in range(members)}
        self._condition = threading.Condition()

    @contextmanager
    def join(self, member: int) -> Iterator[Advance]:
        """Take part as member `member`. Yields a function to call in place of `advance`; leaves at
        the end, also after an error.
        """
        try:
            yield lambda shape, *arguments: self._advance(member, shape, AdvanceCall(*arguments))
        finally:
            self.leave([member])

    def leave(self, members: Iterable[int]) -> None:
        """Do not wait for these members any more."""
        with self._condition:
            self._active.difference_update(members)
            self._run_pending()

    def _advance(self, member: int, shape: Shape, call: AdvanceCall) -> tuple[State, RoundRecord]:
        form = call.form(shape)
        with self._condition:
            self._calls[member] = form, call
            self._run_pending()
            self._condition.wait_for(lambda: member in self._results)
            result = self._results.pop(member)
        if isinstance(result, Exception):
            raise result
        return result

    def _run_pending(self) -> None:
        """Once all active members wait, advance them: those of one form together, in the order of
        their numbers.
        """
        if not self._calls or set(self._calls) != self._active:
            return
        forms: dict[Any, dict[int, AdvanceCall]] = {}
        for member, (form, call) in self._calls.items():
            forms.setdefault(form, {})[member] = call
        for form, calls in forms.items():
            idle = {
                member: own[form].idle()
                for member, own in self._last.items()
                if member not in calls and form in own
            }
            everyone = dict(sorted({**idle, **calls}.items()))
            try:
                results = dict(
                    zip(everyone, advance_batch(form[0], list(everyone.values())), strict=True)
                )
            except Exception as error:  # it concerns all members
                results = dict.fromkeys(everyone, error)
            for member, call in calls.items():
                self._results[member], self._last[member] = results[member], {form: call}
        self._calls.clear()
        self._condition.notify_all()


def advance_batch(shape: Shape, calls: list[AdvanceCall]) -> list[tuple[State, RoundRecord]]:
    """`advance` for several calls at once, in their order. No memory is donated, because states are
    small.
    """
    return _compiled()(shape, calls)


@cache
def _compiled() -> Any:
    def side_by_side(shape: Shape, calls: list[AdvanceCall]) -> list[tuple[State, RoundRecord]]:
        def one(call: AdvanceCall) -> tuple[State, RoundRecord]:
            return run_segments(
                shape._replace(seeds=len(calls)), call.block, (call.inputs, call.state)
            )

        results = jax.vmap(one, axis_name=SEEDS)(
            jax.tree.map(lambda *leaves: jnp.stack(leaves), *calls)
        )
        return [jax.tree.map(lambda leaf, i=i: leaf[i], results) for i in range(len(calls))]

    return jax.jit(side_by_side, static_argnames=("shape",), compiler_options=graph_options())
