"""What finished blocks have left, on the host, and the traces that it becomes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from evenly import trees
from evenly.data.federation import Federation
from evenly.data.splits import SPLITS
from evenly.simulate.company import Company
from evenly.simulate.cost import cost_of
from evenly.simulate.layout import Shape, State
from evenly.simulate.observing import evaluated
from evenly.simulate.plan import Block
from evenly.simulate.program import Record
from evenly.types import ReportingRule, Trace


class Collected(NamedTuple):
    """Pieces, to be laid end to end."""

    cohort: list[np.ndarray]
    chosen: list[np.ndarray]  # [rounds, K, selects]; no selects where there is one sampling only
    weights: list[np.ndarray]
    rounds: list[np.ndarray]
    tables: list[np.ndarray]
    losses: list[np.ndarray]
    choice: list[np.ndarray]  # [evaluations, clients, runs]; no clients where there is one model for all

    @property
    def evaluations(self) -> tuple[list[np.ndarray], ...]:
        return self.rounds, self.tables, self.losses, self.choice

    def whole(self) -> tuple[np.ndarray, ...]:
        return tuple(np.concatenate(pieces) for pieces in self)

    def add_rounds(self, block: Block, record: Record, rounds: int) -> None:
        """Bring what a block left of its rounds to the host; this waits for the device."""
        # Copies: a short block's few rounds would otherwise keep the whole of its padded arrays in memory.
        self.cohort.append(block.cohort[:rounds].copy())
        self.chosen.append(np.zeros((rounds, 0, 0), bool) if block.chosen is None else block.chosen[:rounds].copy())
        self.weights.append(np.asarray(record.weights)[:rounds].copy())

    def add_evaluations(self, block: Block, record: Record, start: int, owners: np.ndarray | slice, panel: np.ndarray | slice) -> None:
        """And of the evaluations that were made in it: of these owners of rows, and these clients."""
        marked = np.flatnonzero(block.evaluate)
        if len(marked):
            none = np.zeros((len(marked), 0, record.losses.shape[-1]), np.int32)
            choice = none if record.choice is None else np.asarray(record.choice)[marked][:, panel]
            tables, losses = np.asarray(record.tables)[marked][:, owners], np.asarray(record.losses)[marked][:, owners]
            self.add_evaluation(start + block.stops[marked], tables, losses, choice)

    def add_evaluation(self, rounds: np.ndarray, tables: np.ndarray, losses: np.ndarray, choice: np.ndarray) -> None:
        self.rounds.append(rounds)
        self.tables.append(tables)
        self.losses.append(losses)
        self.choice.append(choice)


def owners_of(panel: np.ndarray, clients: int) -> np.ndarray:
    """The numbers of a panel's training, validation and test rows among all owners, and of the central test set."""
    return np.concatenate([*(split * clients + panel for split in range(len(SPLITS))), [len(SPLITS) * clients]])


def traces(
    whole: tuple[np.ndarray, ...], state: State, federation: Federation, panel: np.ndarray | None, company: Company, shape: Shape,
    sizes: Sequence[int],
) -> list[Trace]:  # fmt: skip
    """Everything that was collected, run by run, in the order in which the runs were given. `sizes` are the model's layers'."""
    cohort, chosen, weights, *seen = whole
    # Once: a device answers about one run as slowly as about all.
    cohort_of = None if company.parts.cohort is None else np.asarray(company.parts.cohort)
    made = []
    for run, algorithm in enumerate(company.algorithms):
        own, counted = cohort, weights[..., run]
        if cohort_of is not None:  # of everybody who trained, those whom this run's sampling chose
            mine = chosen[..., cohort_of[run]]
            slots = np.argsort(~mine, axis=1, kind="stable")[:, : int(mine[0].sum())]
            own, counted = np.take_along_axis(cohort, slots, 1), np.take_along_axis(counted, slots, 1)
        cost = cost_of(algorithm, sizes, shape)
        fields: dict[str, Any] = evaluated(federation, panel, seen, run)
        made.append(
            Trace(
                **fields,
                cohort=own,
                weights=counted,
                excluded=np.asarray(state.excluded)[:, run],
                upload=cost.up,
                download=cost.down,
                model=jax.tree.map(np.array, trees.take(state.model, run, shape.axis)),  # its own, not a view of all
                reports=_reports(company, state, run),
            )
        )
    return [made[at] for at in company.place]


def _reports(company: Company, state: State, run: int) -> dict[str, float]:
    rule = company.algorithms[run].rule
    if not isinstance(rule, ReportingRule):
        return {}
    band = int(np.searchsorted(company.bands, run, side="right")) - 1
    own = trees.take(state.rule[band], run - company.bands[band])
    return {name: float(value) for name, value in rule.report(own).items()}
