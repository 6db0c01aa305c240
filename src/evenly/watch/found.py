"""What the records of a live file say together: how far each run is, and each method's values so far."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from evenly.data.splits import CENTRAL
from evenly.metrics import EVERY_METRIC
from evenly.report.values import SPLIT_WORDS, format_value

OF_CLIENTS = {"average": "average accuracy (%)", "worst10": "worst 10 % (%)", "variance": "variance (%²)", "loss": "loss"}
RECENT = 0.25  # share of the time so far from which the pace is taken


class Values(NamedTuple):
    """One metric of one method after some rounds, over the seeds that came so far."""

    mean: float
    low: float
    high: float
    seeds: int


class Found:
    """One execution of one plan, as far as it is."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self.head, told = records[0], records[1:]
        self.runs = [(label, seed) for label, seed in self.head["runs"]]
        self.labels = list(dict.fromkeys(label for label, _ in self.runs))
        self.points: dict[str, dict[int, dict[int, dict[str, float]]]] = {label: {} for label in self.labels}  # label -> round -> seed
        self._begun, self._failed, self._progress = set(), set(), []
        self.end, self.error, self.last = "", "", self.head["time"]
        for record in told:
            self._take(record)
            self.last = max(self.last, record.get("time", 0.0))

    def _take(self, record: dict[str, Any]) -> None:
        if "round" in record and record["label"] in self.points:
            values = {f"{split}:{m}": v for split, each in record["values"].items() for m, v in each.items() if _is_known(split, m)}
            self.points[record["label"]].setdefault(record["round"], {})[record["seed"]] = values
        elif "done" in record:
            self._progress.append((record["time"], record["done"], record["total"]))
        elif "started" in record or "failed" in record:
            self._begun |= {tuple(run) for run in record.get("started", ())}
            self._failed |= {tuple(run) for run in record.get("failed", ())}
            self.error = record.get("error", self.error)
        elif "end" in record:
            self.end, self.error = record["end"], record.get("error", self.error)

    @property
    def done(self) -> tuple[int, int]:
        """Rounds of training, and how many there are over all programs; nothing known: 0 and 0."""
        return self._progress[-1][1:] if self._progress else (0, 0)

    def left(self) -> float | None:
        """Seconds of training left at the pace of late, where there is one."""
        if self.end or len(self._progress) < 2:
            return None
        time, done, total = self._progress[-1]
        since = time - RECENT * (time - self.head["time"])
        before = next((p for p in reversed(self._progress) if p[0] <= since), self._progress[0])
        return (total - done) * (time - before[0]) / (done - before[1]) if done > before[1] else None

    def state(self, label: str, seed: int, *, over: bool) -> str:
        """finished, failed, running or waiting; stopped where it was running when everything was `over`."""
        if seed in self.points[label].get(self.head["rounds"], {}):
            return "finished"
        if (label, seed) in self._failed:
            return "failed"
        seen = (label, seed) in self._begun or any(seed in seeds for seeds in self.points[label].values())
        return ("stopped" if over else "running") if seen else "waiting"

    def metrics(self) -> dict[str, str]:
        """What there is to draw: `split:metric` and its title."""
        seen = dict.fromkeys(m for rounds in self.points.values() for seeds in rounds.values() for values in seeds.values() for m in values)
        return {name: title_of(*name.split(":")) for name in _ordered(list(seen))}

    def values(self, label: str, metric: str) -> Iterator[tuple[int, Values]]:
        """A metric after each number of rounds, over the seeds that have come so far."""
        for done, seeds in sorted(self.points[label].items()):
            known = [values[metric] for values in seeds.values() if metric in values]
            if known:
                yield done, Values(sum(known) / len(known), min(known), max(known), len(known))


def _is_known(split: str, metric: str) -> bool:
    """Whether there is a title for a metric: one of a later version, or of a plugin of whoever trains, cannot be shown."""
    return (metric in OF_CLIENTS or metric in EVERY_METRIC) and (split == CENTRAL or split in SPLIT_WORDS)


def title_of(split: str, metric: str) -> str:
    """What a metric is called on the page."""
    name = OF_CLIENTS.get(metric) or EVERY_METRIC[metric].title
    where = "central test set" if split == CENTRAL else f"{SPLIT_WORDS[split]} rows"
    return f"{name}, {where}"


def shown(value: float, metric: str) -> str:
    """A value as tables print it."""
    name = metric.partition(":")[2]
    return f"{value:.3f}" if name == "loss" else format_value(value, EVERY_METRIC[name])


def _ordered(metrics: list[str]) -> list[str]:
    """Clients' metrics first, then the groups'; those of the central test set stay together."""
    order = [*OF_CLIENTS, *EVERY_METRIC]
    return sorted(metrics, key=lambda name: (name.startswith(CENTRAL), order.index(name.partition(":")[2])))
