"""A loop in C on one core, compiled on the spot: the same arithmetic without any library. A bound,
not a peer.

It shuffles its own batches, as evenly must; `drawn` makes it take those of the plan instead, to
compare parameters.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from plan import Plan
from protocol import Ran, serve

SOURCE = Path(__file__).with_name("loop.c")
FLAGS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")
WIDE = 16  # as in loop.c


def compiled() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "loop.so"
        subprocess.run(["cc", *FLAGS, str(SOURCE), "-o", str(library), "-lm"], check=True)
        return ctypes.CDLL(str(library))


class Loop:
    def __init__(self, plan: Plan, drawn: bool = False) -> None:
        self.plan, self.library = plan, compiled()
        self.x = np.ascontiguousarray(plan.x, np.float32)
        self.y = plan.y.astype(np.float32) if plan.kind == "logistic" else plan.y
        self.tables = [
            np.ascontiguousarray(a, np.int32)
            for a in (plan.train, plan.offsets, plan.cohort, plan.first_step)
        ]
        self.rows = np.ascontiguousarray(plan.steps, np.int32) if drawn else None

    def run(self, rounds: int) -> Ran:
        plan = self.plan
        d, longest = plan.x.shape[1], int(plan.sizes.max())
        sizes = [ctypes.c_int(n) for n in (rounds, plan.cohort.shape[1], d, plan.batch)]
        arrays = [_at(a) for a in (self.x, self.y, *self.tables)] + [
            None if self.rows is None else _at(self.rows)
        ]
        if plan.fair:
            w = np.zeros((d + 1, WIDE), np.float32)
            w[d, plan.classes :] = -1e30
            self.library.fair(
                *arrays,
                *sizes,
                ctypes.c_float(plan.rate),
                ctypes.c_float(plan.q),
                ctypes.c_int(longest),
                _at(w),
            )
            return Ran([w[:d, : plan.classes].T, w[d, : plan.classes]])
        w = np.zeros(d + 1, np.float32)
        self.library.mean(*arrays, *sizes, ctypes.c_float(plan.rate), ctypes.c_int(longest), _at(w))
        return Ran([w[None, :d], w[d:]])


def _at(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


if __name__ == "__main__":
    serve(Loop, "numpy")
