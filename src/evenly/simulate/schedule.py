"""The schedule of a run: cohorts and batches, drawn ahead of time on the host, and the blocks of
rounds that a program runs.
"""

import heapq
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from evenly import randomness
from evenly.data.federation import Federation
from evenly.data.splits import Ragged
from evenly.parts.sampling import CohortDraws
from evenly.parts.work import batch_room, local_steps, row_rate
from evenly.randomness import Draws, key_data
from evenly.simulate import layout
from evenly.types import Seeds, Select, Work

# The plan of a run: cohorts, dropouts, and the rows of each batch.
#
# Draws use counter-based randomness (seed, purpose, round, client). Blocks can therefore be planned
# one at a time and in any order, and a client of a deployment can draw the same batches.

SMALL = 128  # rows of a client


class Tables(NamedTuple):
    """Columns of rows; the last row is padding."""

    x: np.ndarray
    y: np.ndarray
    group: np.ndarray
    weight: np.ndarray | None


class BlockData(NamedTuple):
    """The clients and rows of one block, where data are streamed."""

    # int32 [clients] in the order of their first visits, in which they are read
    clients: np.ndarray
    train: Ragged  # positions of their training rows in the tables
    tables: Tables
    # [clients + 1] where their validation rows begin, after all training rows; None: no rule needs
    # them
    valid: np.ndarray | None = None

    @property
    def padding(self) -> int:
        """Number of the row of padding."""
        return len(self.tables.y) - 1

    def position(self, cohort: np.ndarray) -> np.ndarray:
        """The positions of clients among those of the block."""
        order = np.argsort(self.clients)
        return order[np.searchsorted(self.clients, cohort, sorter=order)].astype(np.int32)


LoadBlock = Callable[[np.ndarray], BlockData]  # gathers the rows of a block with this cohort


class Lanes(NamedTuple):
    """The visits of a block, dealt to lanes that train side by side: longest first, each to the
    lane with the fewest steps.
    """

    first_step: np.ndarray  # int32 [rounds + 1] first step of each round
    rows: np.ndarray  # int32 [steps, lanes, batch]; only padding where a lane is idle
    slot: np.ndarray  # int32 [steps, lanes] slot that trains; K where idle
    starts: np.ndarray  # bool [steps, lanes] a visit's first step
    ends: np.ndarray  # bool [steps, lanes] a visit's last step


class Cohorts(NamedTuple):
    """The clients that take part in some rounds."""

    cohort: np.ndarray  # int32 [rounds, K]
    returned: np.ndarray  # bool [rounds, K]
    # bool [rounds, K, selects] which samplings drew the client; None: there is one, and it fills
    # all slots
    samplings: np.ndarray | None


class Block(NamedTuple):
    """Some rounds, padded to fixed shapes so that every block runs the same program."""

    cohort: np.ndarray  # int32 [rounds, K]
    # int32 [rounds, K] position of each client's rows and memory on the device: its number, if all
    # are there
    position: np.ndarray
    returned: np.ndarray  # bool [rounds, K]
    # bool [rounds, K, selects] which samplings drew the client, where runs differ in it
    samplings: np.ndarray | None
    chance: np.ndarray  # float32 [rounds, 2] uniform numbers, for rules that draw
    first_step: np.ndarray  # int32 [rounds * K + 1] first batch of each visit
    rows: np.ndarray  # int32 [steps, batch]; padding points one past the data
    stops: np.ndarray  # int32 [stops] rounds (within the block) at which a segment ends
    evaluate: np.ndarray  # bool [stops] whether the model is evaluated there
    start: np.ndarray  # int32 [] number of the first round
    seed: np.ndarray  # uint32 [2] key of the random numbers of local steps
    lanes: Lanes | None = None  # where clients train side by side; `rows` is then empty
    # int32 [rounds, devices, K] slots that each of several devices visits, in order; then K
    turns: np.ndarray | None = None
    # the rows of the block, which the host moves; None: all rows are on the device
    source: BlockData | None = None


class _Visits(NamedTuple):
    """The visits of a block that take steps, one after another."""

    rounds: np.ndarray
    clients: np.ndarray
    begins: np.ndarray  # first entry of each visit in the batches
    ends: np.ndarray
    lengths: np.ndarray  # of an epoch, with its padding
    offsets: np.ndarray  # first training row of the client
    sizes: np.ndarray  # number of training rows

    def only(self, mask: np.ndarray) -> "_Visits":
        return _Visits(*(numbers[mask] for numbers in self))


class Planner:
    """Draws the cohorts and batches of one seed ahead of time, on the host.

    It is deterministic: round ``t`` depends only on the seeds and on ``t``. Runs may differ in
    their sampling. Then every client that some sampling draws trains, once for all runs.
    """

    def __init__(
        self,
        federation: Federation,
        work: Work,
        selects: Sequence[Select],
        *,
        seeds: Seeds,
        dropout: float,
        lanes: int = 1,
        devices: int = 1,
        load_block: LoadBlock | None = None,
    ) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}.")
        census = federation.census()
        self.slots = (
            min(sum(s.slots(census) for s in selects), federation.clients)
            if len(selects) > 1
            else selects[0].slots(census)
        )
        self._rate = row_rate(work)
        self.batch, self.devices = batch_room(work, federation.train.counts), devices
        self.lanes = 1 if lanes == 1 else lanes * devices  # of all devices
        self._train, self._padding, self._load_block = (
            federation.train,
            len(federation.y),
            load_block,
        )
        self._work, self._selects, self._dropout = work, selects, dropout
        self._draws = [CohortDraws(select, census, seeds) for select in selects]
        self._drops = Draws(seeds.cohort, "dropout")
        self._shuffles = Draws(seeds.batches, "poisson" if self._rate else "batches")
        self._seed = key_data(seeds.batches)
        # cohorts of rounds that are still to come
        self._upcoming: list[dict[int, np.ndarray]] = [{} for _ in selects]
        self.steps = local_steps(work, federation.train.counts)

    @cached_property
    def most_steps_per_round(self) -> int:
        """An upper bound: the steps of the K longest clients, one after another or dealt
        to lanes.
        """
        # one client may take every slot
        repeated = any(getattr(select, "replace", False) for select in self._selects)
        longest = (
            np.full(self.slots, self.steps.max())
            if repeated
            else np.sort(self.steps)[::-1][: self.slots]
        )
        return max(load for load, _ in deal(longest, self.lanes))

    @property
    def usual_steps_per_round(self) -> int:
        """A little more than the steps of an average round; in lanes, the upper bound."""
        most = self.most_steps_per_round
        return most if self.lanes > 1 else min(most, int(1.1 * self.slots * self.steps.mean()) + 1)

    def fit_rounds(self, start: int, stop: int, steps: int) -> int:
        """The last of the rounds start..stop that fits into this many steps: at least one round
        fits.
        """
        # always so in lanes, where the usual round is the longest
        if steps >= (stop - start) * self.most_steps_per_round:
            return stop
        cohort, samplings = self._draw_cohorts(start, stop)
        taking = (
            self.steps[cohort]
            if samplings is None
            else np.where(samplings.any(-1), self.steps[cohort], 0)
        )
        return start + max(1, int(np.searchsorted(taking.sum(1).cumsum(), steps, side="right")))

    def cohorts(self, start: int, stop: int) -> Cohorts:
        """The cohorts of rounds start..stop, and which of their clients return."""
        cohort, samplings = self._draw_cohorts(start, stop)
        returned = (
            np.ones(cohort.shape, bool) if samplings is None else np.asarray(samplings.any(-1))
        )
        if self._dropout:
            for i, t in enumerate(range(start, stop)):
                returned[i] &= self._drops.at(t).random(len(self.steps))[cohort[i]] >= self._dropout
        return Cohorts(cohort, returned, samplings)

    def _draw_cohorts(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The cohort of each round and, where there are several samplings, which of them drew each
        client.
        """
        self._upcoming = [
            {t: cohort for t, cohort in of.items() if t >= start} for of in self._upcoming
        ]
        draws = [[self._draw(i, t) for t in range(start, stop)] for i in range(len(self._selects))]
        if len(draws) == 1 and all(len(cohort) == self.slots for cohort in draws[0]):
            return np.array(draws[0], np.int32).reshape(stop - start, self.slots), None
        return self._union(draws)

    def _draw(self, i: int, t: int) -> np.ndarray:
        """The cohort that sampling i draws in round t."""
        if t not in self._upcoming[i]:
            self._upcoming[i][t] = self._draws[i].cohort(t)
        return self._upcoming[i][t]

    def _union(self, draws: list[list[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """Every client that some sampling draws, once in each round, and which samplings drew it;
        none for unused slots.
        """
        rounds = len(draws[0])
        cohort = np.zeros((rounds, self.slots), np.int32)
        samplings = np.zeros((rounds, self.slots, len(draws)), bool)
        for i in range(rounds):
            everyone = np.unique(np.concatenate([of[i] for of in draws]))
            cohort[i, : len(everyone)] = everyone
            samplings[i, : len(everyone)] = np.stack(
                [np.isin(everyone, of[i]) for of in draws], axis=1
            )
        return cohort, samplings

    def block(
        self,
        start: int,
        stop: int,
        *,
        rounds: int,
        steps: int,
        stops: np.ndarray,
        evaluate: np.ndarray,
    ) -> Block:
        """The rounds start..stop, padded to `rounds` and `steps`."""
        cohort, returned, samplings = self.cohorts(start, stop)
        samplings = samplings if len(self._selects) > 1 else None
        source, position, train, padding = None, cohort, self._train, self._padding
        if self._load_block:
            source = self._load_block(cohort)
            position, train, padding = source.position(cohort), source.train, source.padding
        visits = np.where(returned, self.steps[cohort], 0)
        first = self._first_steps(visits, rounds)
        room = steps if self.lanes == 1 else int(first[-1])
        self._check_steps(start, int(first[-1]), room)
        rows = layout.full((room, self.batch), padding, np.int32)
        write = self._write_poisson if self._rate else self._write_batches
        write(rows, train, self._visits(start, cohort, position, first, train))
        deal_lanes = partial(self._deal_lanes, padding=padding, rounds=rounds, steps=steps)
        lanes = None if self.lanes == 1 else deal_lanes(visits, rows)
        pad = ((0, rounds - (stop - start)), (0, 0))
        return Block(
            cohort=np.pad(cohort, pad),
            position=np.pad(position, pad),
            returned=np.pad(returned, pad),
            samplings=None if samplings is None else np.pad(samplings, (*pad, (0, 0))),
            chance=np.pad(self._chances(start, stop), pad),
            first_step=first,
            rows=rows if lanes is None else rows[:0],
            stops=stops,
            evaluate=evaluate,
            start=np.asarray(start, np.int32),
            seed=self._seed,
            lanes=lanes,
            turns=None if self.devices == 1 else self._turns(visits, rounds),
            source=source,
        )

    def _check_steps(self, start: int, steps: int, most: int) -> None:
        if steps > most:
            raise ValueError(
                f"Rounds from {start} take {steps} steps, but at most {most} were expected. A"
                " sampling that may draw a client twice in a round must declare it with an"
                " attribute replace = True."
            )

    def _chances(self, start: int, stop: int) -> np.ndarray:
        return np.array([self._draws[0].chance(t) for t in range(start, stop)]).reshape(-1, 2)

    def _first_steps(self, visits: np.ndarray, rounds: int) -> np.ndarray:
        """The first step of each visit, and the number of all steps after the last."""
        first = np.zeros(rounds * self.slots + 1, np.int32)
        first[1 : visits.size + 1] = np.cumsum(visits)
        first[visits.size + 1 :] = first[visits.size]
        return first

    def _visits(
        self, start: int, cohort: np.ndarray, position: np.ndarray, first: np.ndarray, train: Ragged
    ) -> _Visits:
        """The visits that take steps; visits that take none have no rows to write."""
        taking = np.flatnonzero(np.diff(first[: cohort.size + 1]))
        clients = position.ravel()[taking]
        offsets = train.offsets[clients]
        sizes = train.offsets[clients + 1] - offsets
        begins, ends = (
            first[taking].astype(np.int64) * self.batch,
            first[taking + 1].astype(np.int64) * self.batch,
        )
        lengths = -(-sizes // self.batch) * self.batch
        return _Visits(
            start + taking // self.slots,
            cohort.ravel()[taking],
            begins,
            ends,
            lengths,
            offsets,
            sizes,
        )

    def _write_batches(self, rows: np.ndarray, train: Ragged, visits: _Visits) -> None:
        """Write the batches of all visits into `rows`: those that `randomness.batches` draws for
        each visit.

        Planning takes most of the time in rounds of many small clients. Where there are enough of
        them, they are shuffled together.
        """
        flat = rows.reshape(-1)
        _copy_small(train.rows, flat, visits)
        # one epoch
        together = (visits.sizes <= min(SMALL, randomness.LONGEST)) & (
            visits.ends - visits.begins == visits.lengths
        )
        if self._work.shuffle and together.sum() >= randomness.ENOUGH and randomness.like_numpy():
            small = visits.only(together)
            randomness.shuffle_each(
                self._shuffles,
                flat,
                small.begins,
                small.sizes,
                counter=(small.rounds, small.clients),
            )
            visits = visits.only(~together)
        for t, client, begin, end, length, offset, size in zip(
            *(numbers.tolist() for numbers in visits), strict=True
        ):
            shuffle = self._shuffles.at(t, client).shuffle if self._work.shuffle else None
            for epoch in range(begin, end, length):
                complete = epoch + size <= end  # the last epoch may end early
                written = (
                    flat[epoch : epoch + size]
                    if complete
                    else train.rows[offset : offset + size].copy()
                )
                if complete and size > SMALL:
                    written[:] = train.rows[offset : offset + size]
                if shuffle:
                    shuffle(written)
                if not complete:
                    flat[epoch:end] = written[: end - epoch]

    def _write_poisson(self, rows: np.ndarray, train: Ragged, visits: _Visits) -> None:
        """Write batches whose rows are drawn independently, those of `randomness.fill_poisson`."""
        for t, client, begin, end, _, offset, size in np.stack(visits, 1).tolist():
            own, draws = train.rows[offset : offset + size], self._shuffles.at(t, client)
            batches = rows[begin // self.batch : end // self.batch]
            randomness.fill_poisson(batches, own, self._rate, draws)

    def _turns(self, visits: np.ndarray, rounds: int) -> np.ndarray:
        """The slots dealt to each device: those of its lane, or of its lanes. [rounds,
        devices, K]
        """
        turns = np.full((rounds, self.devices, self.slots), self.slots, np.int32)
        lanes = max(self.lanes, self.devices)
        for i, own in enumerate(visits):
            for lane, (_, slots) in enumerate(deal(own, lanes)):
                mine = turns[i, lane * self.devices // lanes]
                at = int((mine < self.slots).sum())
                mine[at : at + len(slots)] = slots
        return turns

    def _deal_lanes(
        self, visits: np.ndarray, rows: np.ndarray, *, padding: int, rounds: int, steps: int
    ) -> Lanes:
        """The batches `rows` of all visits, which lie one after another, dealt to lanes."""
        first = np.zeros(rounds + 1, np.int32)
        shape = (steps, self.lanes)
        lanes = Lanes(
            first,
            layout.full((*shape, self.batch), padding, np.int32),
            np.full(shape, self.slots, np.int32),
            np.zeros(shape, bool),
            np.zeros(shape, bool),
        )
        begins = self._first_steps(visits, rounds)
        for i, loads in enumerate(visits):
            hands = deal(loads, self.lanes)
            for lane, (_, slots) in enumerate(hands):
                at = first[i]
                for k in slots:
                    end = at + loads[k]
                    own = begins[i * self.slots + k]
                    lanes.rows[at:end, lane] = rows[own : own + end - at]
                    lanes.slot[at:end, lane] = k
                    lanes.starts[at, lane] = lanes.ends[end - 1, lane] = True
                    at = end
            first[i + 1] = first[i] + max(load for load, _ in hands)
        first[len(visits) + 1 :] = first[len(visits)]
        return lanes


def _copy_small(rows: np.ndarray, target: np.ndarray, visits: _Visits) -> None:
    """Copy the rows of small clients to every epoch of their visits, all at once. One by one,
    copying takes longer than shuffling.
    """
    small = np.flatnonzero(visits.sizes <= SMALL)
    epochs = -(-(visits.ends - visits.begins) // visits.lengths)[small]
    visit = np.repeat(small, epochs)
    at = (
        visits.begins[visit]
        + _ranges(np.zeros(len(small), np.int64), epochs) * visits.lengths[visit]
    )
    counts = np.minimum(visits.sizes[visit], visits.ends[visit] - at)
    target[_ranges(at, counts)] = rows[_ranges(visits.offsets[visit], counts)]


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers start, start + 1, ... of each range, one range after another."""
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)


def deal(steps: np.ndarray, lanes: int) -> list[tuple[int, list[int]]]:
    """Deal visits to lanes, longest first, each to the lane with the fewest steps: (steps, visits)
    of every lane.
    """
    visits: list[list[int]] = [[] for _ in range(lanes)]
    loads = [(0, lane) for lane in range(lanes)]  # a heap: of equal lanes, the first comes first
    for k in np.argsort(-steps, kind="stable").tolist():
        if steps[k]:
            load, lane = loads[0]
            visits[lane].append(k)
            heapq.heapreplace(loads, (load + int(steps[k]), lane))
    return [(load, visits[lane]) for load, lane in sorted(loads, key=lambda one: one[1])]


# Blocks: as many rounds as fit into arrays of a fixed size, so that every block runs the same
# program.

LARGEST_BLOCK_ROWS = 2**21  # row numbers that are planned at a time: 8 MiB
LARGEST_BLOCK_CELLS = 2**22  # table cells that are on the device at a time
MOST_ROUNDS = 1024  # in a block
BLOCKS = 4  # of a run with small steps, about
# for which a block has room, even if a run has fewer: short runs then share the program of longer
# ones
FEWEST_ROUNDS = 8
BLOCK_SECONDS = 2.0  # that a block should take
GROWTH = 4  # limit on the rounds of a block, relative to the last block whose time is known


class PlannedBlock(NamedTuple):
    """The next block, planned while the device works on the last."""

    start: int
    stop: int
    block: Block


class Pace:
    """The number of rounds of the next block.

    Unless they are `steady`, blocks begin with one round, so that the device starts at once, and
    grow until they take BLOCK_SECONDS. Progress is reported after each block.
    """

    def __init__(self, rounds: int, steady: bool) -> None:
        self.rounds, self._steady = rounds, steady

    def note(self, rounds: int, seconds: float) -> None:
        """Take the time of a block into account."""
        if not self._steady:
            self.rounds = max(
                1, min(GROWTH * rounds, int(BLOCK_SECONDS * rounds / max(seconds, 1e-6)))
            )


class Blocks:
    """Plans one block after another.

    Args:
        planner: Draws cohorts and batches.
        rounds: Number of rounds of the run.
        every: Evaluate every this many rounds; 0: only before the first and after the last.
        runs: Number of runs.
        cells: Table cells of one evaluation of all runs, or 0 where evaluations happen between
            blocks. Each evaluation then ends a block.
        most: Limit on the rounds of a block.
    """

    def __init__(
        self,
        planner: Planner,
        *,
        rounds: int,
        every: int,
        runs: int,
        cells: int,
        most: int = MOST_ROUNDS,
    ) -> None:
        self._planner, self._rounds, self._every, self._apart = planner, rounds, every, not cells
        # At least two: the evaluation before the first round, and one at the end of the block.
        self._stops = int(np.clip(LARGEST_BLOCK_CELLS // cells, 2, 64)) if cells else 1
        usual = max(planner.usual_steps_per_round, 1)
        # Array sizes do not depend on how rows are partitioned, so that partitions of the same rows
        # share a compiled program.
        room = max(LARGEST_BLOCK_ROWS // (planner.batch * planner.lanes), 1)
        most = max(1, min(MOST_ROUNDS, max(rounds, FEWEST_ROUNDS), most))
        # Arrays have room for the next power of two, which runs of similar length share. No more
        # rounds are planned than before: the device waits while the first block is planned.
        shared = whole_power(most)
        self._steps = max(round_up(min(shared * usual, room)), planner.most_steps_per_round)
        self._padded = int(np.clip(LARGEST_BLOCK_CELLS // (planner.slots * runs), 1, shared))
        self.rounds = int(np.clip(self._steps // usual, 1, min(self._padded, most)))

    def next(self, start: int, most: int = MOST_ROUNDS) -> PlannedBlock | None:
        """The rounds from `start` with their evaluations: as many as fit, or `most`; None after the
        last round.
        """
        if start >= self._rounds:
            return None
        stop = self._planner.fit_rounds(
            start, min(start + min(self.rounds, most), self._rounds), self._steps
        )
        if self._apart:
            stop = min(stop, next(t for t in self.evaluations() if t > start))
            return PlannedBlock(
                start,
                stop,
                self._block(start, stop, np.array([stop - start], np.int32), np.zeros(1, bool)),
            )
        marks = [t for t in self.evaluations() if t >= start and (t > start or start == 0)]
        if len(marks) > self._stops:  # the first evaluation that does not fit ends the block
            stop = min(stop, marks[self._stops - 1])
        inside = [t for t in marks if t <= stop][: self._stops]
        ends = inside if inside and inside[-1] == stop else [*inside, stop]
        stops = np.full(self._stops + 1, -1, np.int32)
        stops[: len(ends)] = np.array(ends) - start
        evaluate = np.zeros(self._stops + 1, bool)
        evaluate[: len(inside)] = True
        return PlannedBlock(start, stop, self._block(start, stop, stops, evaluate))

    def evaluations(self) -> list[int]:
        """The numbers of rounds after which the model is evaluated."""
        return evaluation_rounds(self._rounds, self._every)

    def _block(self, start: int, stop: int, stops: np.ndarray, evaluate: np.ndarray) -> Block:
        return self._planner.block(
            start, stop, rounds=self._padded, steps=self._steps, stops=stops, evaluate=evaluate
        )


def evaluation_rounds(rounds: int, every: int) -> list[int]:
    """The numbers of rounds after which the model is evaluated: before the first, at intervals, and
    after the last.
    """
    return [0, *(range(every, rounds, every) if every else ()), rounds]


def round_up(n: int) -> int:
    """The next number with at most three significant bits after the first."""
    step = 2 ** max(0, n.bit_length() - 4)
    return -(-n // step) * step


def whole_power(n: int) -> int:
    """The next power of two. Runs of 40 and of 60 rounds then have blocks of the same size, and
    share a compiled program.
    """
    return 1 << (n - 1).bit_length()


def block_rounds(rounds: int, small: bool) -> int:
    """Limit on the rounds of a block.

    Small steps take hardly longer than drawing their batches. A run of small steps therefore has
    several blocks, and the next is planned while one is trained. The length of other blocks is
    decided by their Pace.
    """
    return max(FEWEST_ROUNDS, -(-rounds // BLOCKS)) if small else MOST_ROUNDS
