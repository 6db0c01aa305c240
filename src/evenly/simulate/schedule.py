"""Draws cohorts and batches ahead of time, on the host, and cuts rounds into the blocks that the device is handed."""

import heapq
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from evenly import randomness
from evenly.data.federation import Federation
from evenly.data.splits import Ragged
from evenly.randomness import Draws
from evenly.simulate import layout
from evenly.types import Seeds, Select, Work

# What the host decides ahead: who takes part, who drops out, and which rows make up each batch.
#
# Drawn with counter-based randomness (seed, purpose, round, client), so that blocks of rounds can be drawn one at a time, in any order,
# and a real client elsewhere can draw the same batches.

SMALL = 128  # rows of a client


class Tables(NamedTuple):
    """Rows, one after another; the last is padding."""

    x: np.ndarray
    y: np.ndarray
    group: np.ndarray
    weight: np.ndarray | None


class Held(NamedTuple):
    """Clients whose rows are given to the device with a block, where not all rows are there all the time."""

    clients: np.ndarray  # int32 [clients] who, in the order of their first visits: so they are read
    train: Ragged  # where their training rows lie in the tables
    tables: Tables
    valid: np.ndarray | None = None  # [clients + 1] where their validation rows begin, after all training rows; None: nobody looks at them

    @property
    def padding(self) -> int:
        return len(self.tables.y) - 1

    def place(self, cohort: np.ndarray) -> np.ndarray:
        order = np.argsort(self.clients)
        return order[np.searchsorted(self.clients, cohort, sorter=order)].astype(np.int32)


Hold = Callable[[np.ndarray], Held]  # what a block with this cohort needs


class Lanes(NamedTuple):
    """The same visits dealt to lanes that train side by side: longest first, each to the lane with the least to do."""

    first_step: np.ndarray  # int32 [rounds + 1] where each round's steps start
    rows: np.ndarray  # int32 [steps, lanes, batch]; an idle lane has only padding
    slot: np.ndarray  # int32 [steps, lanes] whose batch it is; K where idle
    starts: np.ndarray  # bool [steps, lanes] a visit's first step
    ends: np.ndarray  # bool [steps, lanes] a visit's last step


class Cohorts(NamedTuple):
    """Who takes part in a stretch of rounds."""

    cohort: np.ndarray  # int32 [rounds, K]
    returned: np.ndarray  # bool [rounds, K]
    chosen: np.ndarray | None  # bool [rounds, K, selects]; None: there is one sampling only


class Block(NamedTuple):
    """A stretch of rounds, padded to fixed shapes so that every block runs the same program."""

    cohort: np.ndarray  # int32 [rounds, K]
    place: np.ndarray  # int32 [rounds, K] where each client's rows and memory lie on the device: its number, if all do
    returned: np.ndarray  # bool [rounds, K]
    chosen: np.ndarray | None  # bool [rounds, K, selects] whom each sampling chose, where runs differ in it
    chance: np.ndarray  # float32 [rounds, 2] uniform numbers, for rules that draw
    first_step: np.ndarray  # int32 [rounds * K + 1] where each visit's batches start
    rows: np.ndarray  # int32 [steps, batch]; padding points one past the data
    stops: np.ndarray  # int32 [stops] rounds (within the block) at which a stretch ends
    evaluate: np.ndarray  # bool [stops] whether the model is evaluated there
    lanes: Lanes | None = None  # where clients train side by side; `rows` is then empty
    turns: np.ndarray | None = None  # int32 [rounds, devices, K] whom each of several devices visits, in order; then K
    held: Held | None = None  # the rows that the block needs, for the host to move; None: all rows are on the device


class Planner:
    """Draws the cohorts and batches of one seed.

    Runs may differ in their sampling: then everyone whom some sampling chose trains, once for all runs.
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
        hold: Hold | None = None,
    ) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}.")
        self._census = census = federation.census()
        self.slots = min(sum(s.slots(census) for s in selects), federation.clients) if len(selects) > 1 else selects[0].slots(census)
        self.batch, self.devices = work.batch_size, devices
        self.lanes = 1 if lanes == 1 else lanes * devices  # of all devices
        self._train, self._padding, self._hold = federation.train, len(federation.y), hold
        self._work, self._selects, self._dropout = work, selects, dropout
        self._cohorts = Draws(seeds.cohort, "cohort")
        self._drops = Draws(seeds.cohort, "dropout")
        self._chances = Draws(seeds.cohort, "chance")
        self._shuffles = Draws(seeds.batches, "batches")
        self._select_states = [(0, select.init(census)) for select in selects]  # next round, state
        self._drawn: list[dict[int, np.ndarray]] = [{} for _ in selects]  # cohorts of rounds that are still to come
        steps = work.epochs * -(-federation.train.counts // work.batch_size)
        self.steps = np.minimum(steps, work.max_steps) if work.max_steps else steps  # of each client

    @cached_property
    def most_steps_per_round(self) -> int:
        """An upper bound: the K longest clients, one after another or dealt to lanes."""
        repeated = any(getattr(select, "replace", False) for select in self._selects)  # one client may sit in every slot
        longest = np.full(self.slots, self.steps.max()) if repeated else np.sort(self.steps)[::-1][: self.slots]
        return max(load for load, _ in deal(longest, self.lanes))

    @property
    def usual_steps_per_round(self) -> int:
        """A little more than the steps of an average round; where clients train one after another, that is how rounds are fitted."""
        most = self.most_steps_per_round
        return most if self.lanes > 1 else min(most, int(1.1 * self.slots * self.steps.mean()) + 1)

    def fitting(self, start: int, stop: int, steps: int) -> int:
        """How far of the rounds start..stop one comes with so many steps: one round at least."""
        if steps >= (stop - start) * self.most_steps_per_round:  # always so in lanes, where the usual round is the longest
            return stop
        cohort, chosen = self._chosen(start, stop)
        taking = self.steps[cohort] if chosen is None else np.where(chosen.any(-1), self.steps[cohort], 0)
        return start + max(1, int(np.searchsorted(taking.sum(1).cumsum(), steps, side="right")))

    def cohorts(self, start: int, stop: int) -> Cohorts:
        """Who is chosen in rounds start..stop, and who of them returns."""
        cohort, chosen = self._chosen(start, stop)
        returned = np.ones(cohort.shape, bool) if chosen is None else np.asarray(chosen.any(-1))
        if self._dropout:
            for i, t in enumerate(range(start, stop)):
                returned[i] &= self._drops.at(t).random(len(self.steps))[cohort[i]] >= self._dropout
        return Cohorts(cohort, returned, chosen)

    def _chosen(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The clients of each round and, where there are several samplings, by whom they were chosen."""
        self._drawn = [{t: chosen for t, chosen in of.items() if t >= start} for of in self._drawn]
        drawn = [[self._draw(i, t) for t in range(start, stop)] for i in range(len(self._selects))]
        if len(drawn) == 1:
            return np.array(drawn[0], np.int32).reshape(stop - start, self.slots), None
        return self._union(drawn)

    def _draw(self, i: int, t: int) -> np.ndarray:
        """One sampling's choice of round t. A sampling may look back, so rounds that were skipped (on resuming) are drawn too."""
        if t in self._drawn[i]:
            return self._drawn[i][t]
        at, state = self._select_states[i] if self._select_states[i][0] <= t else (0, self._selects[i].init(self._census))
        for earlier in range(at, t):
            _, state = self._selects[i](state, self._cohorts.at(earlier))
        chosen, state = self._selects[i](state, self._cohorts.at(t))
        self._select_states[i], self._drawn[i][t] = (t + 1, state), chosen
        return chosen

    def _union(self, drawn: list[list[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """Every round's chosen clients, each once, and who chose them; slots that nobody needs are chosen by nobody."""
        rounds = len(drawn[0])
        cohort = np.zeros((rounds, self.slots), np.int32)
        chosen = np.zeros((rounds, self.slots, len(drawn)), bool)
        for i in range(rounds):
            everyone = np.unique(np.concatenate([of[i] for of in drawn]))
            cohort[i, : len(everyone)] = everyone
            chosen[i, : len(everyone)] = np.stack([np.isin(everyone, of[i]) for of in drawn], axis=1)
        return cohort, chosen

    def block(self, start: int, stop: int, *, rounds: int, steps: int, stops: np.ndarray, evaluate: np.ndarray) -> Block:
        """Rounds start..stop, padded to `rounds` and `steps`."""
        cohort, returned, chosen = self.cohorts(start, stop)
        held = self._hold(cohort) if self._hold else None
        place, train, padding = (held.place(cohort), held.train, held.padding) if held else (cohort, self._train, self._padding)
        visits = np.where(returned, self.steps[cohort], 0)
        first = np.zeros(rounds * self.slots + 1, np.int32)
        first[1 : visits.size + 1] = np.cumsum(visits)
        first[visits.size + 1 :] = first[visits.size]
        if self.lanes == 1 and first[-1] > steps:
            raise ValueError(
                f"Rounds from {start} take {first[-1]} steps, but at most {steps} were expected. A sampling that may draw a client "
                "twice in a round must say so: give it an attribute replace = True."
            )
        room = steps if self.lanes == 1 else int(first[-1])
        rows = self._batches(start, cohort, place, visits, first, train, layout.full((room, self.batch), padding, np.int32))
        lanes = None if self.lanes == 1 else self._dealt(visits, first, rows, padding, rounds, steps)
        turns = None if self.devices == 1 else self._turns(visits, rounds)
        pad = ((0, rounds - (stop - start)), (0, 0))
        chance = np.array([self._chances.at(t).random(2) for t in range(start, stop)], np.float32).reshape(-1, 2)
        return Block(
            cohort=np.pad(cohort, pad),
            place=np.pad(place, pad),
            returned=np.pad(returned, pad),
            chosen=None if chosen is None else np.pad(chosen, (*pad, (0, 0))),
            chance=np.pad(chance, pad),
            first_step=first,
            rows=rows if lanes is None else rows[:0],
            stops=stops,
            evaluate=evaluate,
            lanes=lanes,
            turns=turns,
            held=held,
        )

    def _batches(
        self, start: int, cohort: np.ndarray, place: np.ndarray, visits: np.ndarray, first: np.ndarray, train: Ragged, rows: np.ndarray
    ) -> np.ndarray:
        """All visits' batches, written one after another into `rows`: what `randomness.batches` draws for each of them, shuffled in its
        place. Rounds of many small clients take hardly longer than this: where there are enough of them, they are shuffled together."""
        flat, taking = rows.reshape(-1), np.flatnonzero(visits)
        who = place.ravel()[taking]
        mine, sizes = train.offsets[who], train.offsets[who + 1] - train.offsets[who]
        begins, ends = first[taking].astype(np.int64) * self.batch, first[taking + 1].astype(np.int64) * self.batch
        lengths = -(-sizes // self.batch) * self.batch  # of an epoch, with its padding
        _copy_small(train.rows, flat, mine, sizes, begins, ends, lengths)
        lists = (start + taking // self.slots, cohort.ravel()[taking], begins, ends, lengths, mine, sizes)
        together = (sizes <= min(SMALL, randomness.LONGEST)) & (ends - begins == lengths)  # one whole epoch
        if self._work.shuffle and together.sum() >= randomness.ENOUGH and randomness.like_numpy():
            randomness.shuffle_each(self._shuffles, flat, *(numbers[together] for numbers in (begins, sizes, *lists[:2])))
            lists = tuple(numbers[~together] for numbers in lists)
        for t, client, begin, end, length, own, size in zip(*(numbers.tolist() for numbers in lists), strict=True):
            shuffle = self._shuffles.at(t, client).shuffle if self._work.shuffle else None
            for epoch in range(begin, end, length):
                whole = epoch + size <= end  # the last may end early
                written = flat[epoch : epoch + size] if whole else train.rows[own : own + size].copy()
                if whole and size > SMALL:
                    written[:] = train.rows[own : own + size]
                if shuffle:
                    shuffle(written)
                if not whole:
                    flat[epoch:end] = written[: end - epoch]
        return rows

    def _turns(self, visits: np.ndarray, rounds: int) -> np.ndarray:
        """The slots dealt to each device: those of its own lane, or of its own few lanes. [rounds, devices, K]"""
        turns = np.full((rounds, self.devices, self.slots), self.slots, np.int32)
        lanes = max(self.lanes, self.devices)
        for i, own in enumerate(visits):
            for lane, (_, slots) in enumerate(deal(own, lanes)):
                mine = turns[i, lane * self.devices // lanes]
                at = int((mine < self.slots).sum())
                mine[at : at + len(slots)] = slots
        return turns

    def _dealt(self, visits: np.ndarray, begins: np.ndarray, rows: np.ndarray, padding: int, rounds: int, steps: int) -> Lanes:
        """The batches `rows` of all visits, each of which begins at its own, dealt to lanes."""
        first = np.zeros(rounds + 1, np.int32)
        shape = (steps, self.lanes)
        lanes = Lanes(
            first,
            layout.full((*shape, self.batch), padding, np.int32),
            np.full(shape, self.slots, np.int32),
            np.zeros(shape, bool),
            np.zeros(shape, bool),
        )
        for i, loads in enumerate(visits):
            dealt = deal(loads, self.lanes)
            for lane, (_, slots) in enumerate(dealt):
                at = first[i]
                for k in slots:
                    end = at + loads[k]
                    own = begins[i * self.slots + k]
                    lanes.rows[at:end, lane] = rows[own : own + end - at]
                    lanes.slot[at:end, lane] = k
                    lanes.starts[at, lane] = lanes.ends[end - 1, lane] = True
                    at = end
            first[i + 1] = first[i] + max(load for load, _ in dealt)
        first[len(visits) + 1 :] = first[len(visits)]
        return lanes


def _copy_small(
    rows: np.ndarray, into: np.ndarray, mine: np.ndarray, sizes: np.ndarray, begins: np.ndarray, ends: np.ndarray, lengths: np.ndarray
) -> None:
    """Copy the rows of small clients to every epoch of their visits, all at once: one by one, copying takes longer than shuffling."""
    small = np.flatnonzero(sizes <= SMALL)
    epochs = -(-(ends - begins) // lengths)[small]
    visit = np.repeat(small, epochs)
    at = begins[visit] + _places(np.zeros(len(small), np.int64), epochs) * lengths[visit]
    counts = np.minimum(sizes[visit], ends[visit] - at)
    into[_places(at, counts)] = rows[_places(mine[visit], counts)]


def _places(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers start, start + 1 ... of each stretch, stretch after stretch."""
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)


def deal(steps: np.ndarray, lanes: int) -> list[tuple[int, list[int]]]:
    """Deal visits to lanes, longest first, each to the lane with the least to do: (steps, visits) of every lane."""
    visits: list[list[int]] = [[] for _ in range(lanes)]
    loads = [(0, lane) for lane in range(lanes)]  # a heap: of equal lanes, the first comes first
    for k in np.argsort(-steps, kind="stable").tolist():
        if steps[k]:
            load, lane = loads[0]
            visits[lane].append(k)
            heapq.heapreplace(loads, (load + int(steps[k]), lane))
    return [(load, visits[lane]) for load, lane in sorted(loads, key=lambda one: one[1])]


# How a run is cut into blocks of rounds: as many as fit into arrays of a fixed size, so that every block runs the same program.

LARGEST_BLOCK_ROWS = 2**21  # row numbers planned at a time: 8 MiB
LARGEST_BLOCK_CELLS = 2**22  # table cells kept on the device at a time
MOST_ROUNDS = 1024  # in a block
BLOCKS = 4  # of a run with small steps, at least
FEWEST_ROUNDS = 8  # that a block has room for, also where a run has fewer: short runs then share the program of longer ones
BLOCK_SECONDS = 2.0  # of a block, about
GROWTH = 4  # a block has at most so many times the rounds of the last whose time is known


class Ahead(NamedTuple):
    """The next block, planned while the device works on the last."""

    start: int
    stop: int
    block: Block


class Pace:
    """How many rounds the next block should have. Unless they are `steady`, blocks begin with one round, so that the device hardly waits
    for the host, and become longer while they are short: whoever follows the run hears of it after each of them."""

    def __init__(self, rounds: int, steady: bool) -> None:
        self.rounds, self._steady = rounds, steady

    def note(self, rounds: int, seconds: float) -> None:
        """A block of so many rounds took so long."""
        if not self._steady:
            self.rounds = max(1, min(GROWTH * rounds, int(BLOCK_SECONDS * rounds / max(seconds, 1e-6))))


class Blocks:
    """Plans one block after another.

    `cells` are those of one evaluation of all runs, or 0 where evaluations are made between blocks: each then ends one. `most` is a
    limit on a block's rounds.
    """

    def __init__(self, planner: Planner, *, rounds: int, every: int, runs: int, cells: int, most: int = MOST_ROUNDS) -> None:
        self._planner, self._rounds, self._every, self._apart = planner, rounds, every, not cells
        # At least two: the evaluation before the first round, and one that ends the block.
        self._stops = int(np.clip(LARGEST_BLOCK_CELLS // cells, 2, 64)) if cells else 1
        usual = max(planner.usual_steps_per_round, 1)
        # A block is as many rounds as fit into arrays whose sizes do not depend on how rows are dealt to clients: partitions of
        # the same rows then share a compiled program.
        room = max(LARGEST_BLOCK_ROWS // (planner.batch * planner.lanes), 1)
        most = max(1, min(MOST_ROUNDS, max(rounds, FEWEST_ROUNDS), most))
        self._steps = max(rounded_up(min(most * usual, room)), planner.most_steps_per_round)
        self._padded = int(np.clip(LARGEST_BLOCK_CELLS // (planner.slots * runs), 1, most))
        self.rounds = int(np.clip(self._steps // usual, 1, self._padded))

    def next(self, start: int, most: int = MOST_ROUNDS) -> Ahead | None:
        """The rounds from `start`: as many as fit, or `most`, with the evaluations that fall among them; None after the last."""
        if start >= self._rounds:
            return None
        stop = self._planner.fitting(start, min(start + min(self.rounds, most), self._rounds), self._steps)
        if self._apart:
            stop = min(stop, next(t for t in self.evaluations() if t > start))
            return Ahead(start, stop, self._block(start, stop, np.array([stop - start], np.int32), np.zeros(1, bool)))
        marks = [t for t in self.evaluations() if t >= start and (t > start or start == 0)]
        if len(marks) > self._stops:  # the first evaluation that does not fit ends the block
            stop = min(stop, marks[self._stops - 1])
        inside = [t for t in marks if t <= stop][: self._stops]
        ends = inside if inside and inside[-1] == stop else [*inside, stop]
        stops = np.full(self._stops + 1, -1, np.int32)
        stops[: len(ends)] = np.array(ends) - start
        evaluate = np.zeros(self._stops + 1, bool)
        evaluate[: len(inside)] = True
        return Ahead(start, stop, self._block(start, stop, stops, evaluate))

    def evaluations(self) -> list[int]:
        return evaluated_after(self._rounds, self._every)

    def _block(self, start: int, stop: int, stops: np.ndarray, evaluate: np.ndarray) -> Block:
        return self._planner.block(start, stop, rounds=self._padded, steps=self._steps, stops=stops, evaluate=evaluate)


def evaluated_after(rounds: int, every: int) -> list[int]:
    """After how many rounds the model is evaluated: before the first, now and then, and after the last."""
    return [0, *(range(every, rounds, every) if every else ()), rounds]


def rounded_up(n: int) -> int:
    """The next number with at most three significant bits after the first."""
    step = 2 ** max(0, n.bit_length() - 4)
    return -(-n // step) * step


def rounds_at_once(rounds: int, small: bool) -> int:
    """Rounds for which a block has room at most. Small steps take hardly longer than drawing their batches, so such a run has several
    blocks: the next is drawn while one is trained. Blocks of other runs have room for many, and take as many as their Pace says."""
    return max(FEWEST_ROUNDS, -(-rounds // BLOCKS)) if small else MOST_ROUNDS
