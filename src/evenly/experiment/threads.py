"""Jobs on this machine: seeds side by side, each seed's programs one after another."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax

from evenly.experiment.jobs import run, setting_of
from evenly.experiment.ledger import Ledger
from evenly.experiment.plan import Plan
from evenly.experiment.programs import Program
from evenly.simulate import Meeting, advance, worth_meeting, worth_streaming


class Places(NamedTuple):
    """Seats of a meeting that are kept for the seeds of one plan."""

    meeting: Meeting
    first: int

    def of(self, seed: int, plan: Plan) -> int:
        return self.first + plan.seeds.index(seed)


def on_threads(plan: Plan, programs: Sequence[Program], ledger: Ledger, places: Places | None = None) -> None:
    """Threads, not processes: the compiled programs run outside Python's lock and are shared. With `places` other plans'
    programs advance in the same meeting."""
    seeds = list(dict.fromkeys(program.seed for program in programs))
    most = max((len(program.members) for program in programs), default=0)
    apart = worth_streaming(ledger.first.federation, most)  # seeds whose tables differ in size could not share a program
    if places is None and len(seeds) > 1 and not apart and worth_meeting(ledger.first.task, most):
        places = Places(Meeting(len(plan.seeds)), 0)
    if places:  # seeds that were finished earlier do not come
        places.meeting.leave(places.of(seed, plan) for seed in plan.seeds if seed not in seeds)

    def one_seed(seed: int) -> None:
        seat = places.meeting.seat(places.of(seed, plan)) if places else nullcontext(advance)
        with _own_device(plan, seed), seat as go:  # before anything that may fail: the others wait for whoever has a seat
            setting = ledger.first if seed == plan.seeds[0] else setting_of(plan, seed)
            own = [one for one in programs if one.seed == seed]
            for program in own:
                with ledger.following(program) as observe:
                    result = run(
                        plan, program, setting, progress=ledger.begin(), observe=observe, checkpoint=ledger.checkpoint(program),
                        devices=0 if len(plan.seeds) == 1 else 1, models=ledger.models, advance=go,
                        leave=partial(places.meeting.leave, [places.of(seed, plan)]) if places and program is own[-1] else None,
                    )  # fmt: skip
                ledger.keep(program, result)

    side_by_side = len(seeds) if places else max(1, min(len(seeds), os.cpu_count() or 1))
    with ThreadPoolExecutor(max_workers=side_by_side) as pool:
        futures = [pool.submit(one_seed, seed) for seed in seeds]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            ledger.stop()  # the other threads end at their next block instead of training on
            pool.shutdown(cancel_futures=True)
            raise


def _own_device(plan: Plan, seed: int) -> AbstractContextManager[Any]:
    """Seeds take turns on the devices. A seed does not use several while others run: programs that wait for each other's devices
    would wait for ever."""
    devices = jax.devices()
    if len(plan.seeds) == 1 or len(devices) == 1:
        return nullcontext()
    return jax.default_device(devices[plan.seeds.index(seed) % len(devices)])
