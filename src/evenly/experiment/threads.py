"""Jobs on this machine: seeds side by side, each seed's programs one after another."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax

from evenly.experiment.jobs import run, setting_of
from evenly.experiment.ledger import Ledger
from evenly.experiment.plan import Plan
from evenly.experiment.programs import Program
from evenly.simulate import Meeting, advance, worth_meeting


def on_threads(plan: Plan, programs: Sequence[Program], ledger: Ledger) -> None:
    """Threads, not processes: the compiled programs run outside Python's lock and are shared."""
    seeds = list(dict.fromkeys(program.seed for program in programs))
    most = max((len(program.members) for program in programs), default=0)
    meeting = Meeting(len(seeds)) if len(seeds) > 1 and worth_meeting(ledger.first.task, most) else None

    def one_seed(seed: int) -> None:
        seat = meeting.seat(seeds.index(seed)) if meeting else nullcontext(advance)
        with _own_device(plan, seed), seat as go:  # before anything that may fail: the others wait for whoever has a seat
            setting = ledger.first if seed == plan.seeds[0] else setting_of(plan, seed)
            for program in (one for one in programs if one.seed == seed):
                with ledger.following(program) as observe:
                    result = run(
                        plan, program, setting, progress=ledger.begin(), observe=observe, checkpoint=ledger.checkpoint(program),
                        devices=0 if len(plan.seeds) == 1 else 1, models=ledger.models, advance=go,
                    )  # fmt: skip
                ledger.keep(program, result)

    side_by_side = len(seeds) if meeting else max(1, min(len(seeds), os.cpu_count() or 1))
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
