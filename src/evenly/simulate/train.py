"""`evenly.train`: train algorithms of any kind on a federation, grouped into programs."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenly.algorithms import Method, Variant, variants
from evenly.data.federation import Federation
from evenly.models import check_task
from evenly.privacy.request import refuse_both
from evenly.simulate.layout import companions
from evenly.simulate.run import Progress, simulate
from evenly.simulate.traces import Observe
from evenly.types import Algorithm, Seeds, Task, Trace

MethodLike = str | Algorithm | Variant
Combine = Callable[[Sequence[Trace]], Trace]


def train(
    task: Task,
    federation: Federation,
    algorithms: MethodLike | Iterable[MethodLike],
    rounds: int,
    *,
    seeds: Seeds | int | None = None,
    evaluate_every: int = 0,
    dropout: float = 0.0,
    progress: Progress | None = None,
    observe: Observe | None = None,
    checkpoint: Path | None = None,
    lanes: int = 0,
    devices: int = 0,
    stream: bool | None = None,
    panel: np.ndarray | None = None,
    memories: bool = False,
) -> list[Trace]:
    """Train one or more algorithms on a federation and return one trace for each, in the order
    given.

    All algorithms see the same clients and the same batches, so differences between their traces
    are due to the algorithms. Algorithms that differ only in numbers are compiled into one program
    and advance together; other programs follow one after another.

    Args:
        task: Model and loss, for example ``evenly.models.Softmax(features=60, classes=10)``.
        federation: Clients and their data. See :class:`evenly.Federation`.
        algorithms: An algorithm, its notation such as ``"q-fedavg(q=1)"``, or several of them. A
            sweep such as ``"q-fedavg(q=[0, 1])"`` stands for several algorithms.
        rounds: Number of communication rounds.
        seeds: Seeds for initial model, client sampling and batches, or one number for all of them.
            Zero by default.
        evaluate_every: Evaluate every this many rounds. With 0, evaluate only before the first and
            after the last round.
        dropout: Probability that a client of the cohort does not return.
        progress: Called with the rounds done and the rounds of all programs.
        observe: Called with each new evaluation; only where all algorithms share one program.
        checkpoint: File to save progress to. A call with the same arguments resumes from it. With
            several programs, each has a file of its own beside it.
        lanes: Clients that train side by side on a device. 0 chooses.
        devices: Number of JAX devices to spread clients over. 0 chooses.
        stream: Whether data stay in host memory and only the rows in use are moved to the device.
            None chooses.
        panel: Numbers of the evaluated clients, where not all are evaluated.
        memories: Whether traces also hold what each client remembers after the last round: numbers
            of the rule, such as AFL's weights, and personal models.

    Returns:
        One trace for each algorithm. A method that combines several models, such as ``multi-q``,
        has one trace.

    Raises:
        TypeError: If an argument has a wrong type, such as a table in place of a federation.
        ValueError: If the task does not fit the federation, for example because of a wrong number
            of features.

    Example:
        >>> import evenly
        >>> federation = evenly.synthetic(clients=5)
        >>> task = evenly.models.Softmax(features=60, classes=len(federation.labels))
        >>> traces = evenly.train(task, federation, ["fedavg", "q-fedavg(q=1)"], rounds=2)
        >>> len(traces)
        2
    """
    _check_federation(federation)
    check_task(task, federation)
    if isinstance(rounds, bool) or not isinstance(rounds, int | np.integer):
        raise TypeError(f"rounds must be a whole number, got {rounds!r}.")
    entries = _parse_algorithms(algorithms)
    members = [member for own, _ in entries for member in own]
    groups = companions(members, task) if members else [[]]
    if observe and len(groups) > 1:
        raise ValueError(
            f"observe needs algorithms that share one program, but these need {len(groups)}. Train"
            " them one at a time."
        )
    by_member: dict[int, Trace] = {}
    for number, group in enumerate(groups):
        traces = simulate(
            task, federation, [members[i] for i in group], int(rounds),
            seeds=Seeds.all(seeds) if isinstance(seeds, int) else seeds,
            evaluate_every=evaluate_every, dropout=dropout,
            progress=progress and _part(progress, number, len(groups)), observe=observe,
            checkpoint=checkpoint and _file(Path(checkpoint), number, len(groups)), lanes=lanes,
            devices=devices, stream=stream, panel=panel, memories=memories,
        )  # fmt: skip
        by_member |= dict(zip(group, traces, strict=True))
    ordered = iter(by_member[i] for i in range(len(members)))
    return [_one([next(ordered) for _ in own], combine) for own, combine in entries]


def _check_federation(federation: Any) -> None:
    if isinstance(federation, Federation):
        return
    hint = (
        "See evenly.Federation.from_frame for tables, from_arrays for arrays, and evenly.datasets"
        " for data sets."
    )
    if hasattr(federation, "columns"):
        names = [str(name) for name in list(federation.columns)[:3]]
        client, label = (names[0], names[-1]) if names else ("...", "...")
        hint = (
            f"Make one of the table: evenly.Federation.from_frame(table, client={client!r},"
            f" label={label!r}), with the columns that name the client and the label of each row."
        )
    elif isinstance(federation, str):
        hint = f"Load the data set, such as evenly.datasets.DATASETS[{federation!r}].load(). {hint}"
    raise TypeError(
        f"The second argument must be a Federation, got {type(federation).__name__}. {hint}"
    )


def _parse_algorithms(algorithms: Any) -> list[tuple[tuple[Algorithm, ...], Combine | None]]:
    """The algorithms to train for each trace, and the function that combines several traces into
    one.
    """
    several = (
        [algorithms] if isinstance(algorithms, str | Algorithm | Variant | Method) else algorithms
    )
    if not isinstance(several, Iterable):
        raise TypeError(
            "algorithms must be an algorithm, its notation or a list of them, got"
            f" {type(algorithms).__name__}."
        )
    entries = [entry for one in several for entry in _entries(one)]
    for members, _ in entries:
        refuse_both(members[0])
    return entries


def _entries(one: Any) -> list[tuple[tuple[Algorithm, ...], Combine | None]]:
    if isinstance(one, Algorithm):
        return [((one,), None)]
    if isinstance(one, Variant):
        return [(one.members, one.method.combine)]
    if isinstance(one, str):
        return [(variant.members, variant.method.combine) for variant in variants(one)]
    example = one.name if isinstance(one, Method) else "q-fedavg(q=1)"
    raise TypeError(
        f"An algorithm is needed, or its notation such as {example!r}, got {type(one).__name__}."
    )


def _one(traces: list[Trace], combine: Combine | None) -> Trace:
    return combine(traces) if combine else traces[0]


def _part(progress: Progress, number: int, programs: int) -> Progress:
    """Progress of one of several programs as part of all of them."""
    return lambda done, of: progress(number * of + done, programs * of)


def _file(path: Path, number: int, programs: int) -> Path:
    return path if programs == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
