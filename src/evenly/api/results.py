"""Results of comparisons and studies in Python: tables, charts, reports and trained models."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenly.algorithms import Variant
from evenly.api.tables import paired_table, paper_table
from evenly.data.federation import Federation
from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.comparison import (
    Comparison,
    Run,
    final_by_seed,
    metric_history,
    tidy_rows,
)
from evenly.experiment.execute import setting_of
from evenly.experiment.folder import slug
from evenly.experiment.paper import PaperLine
from evenly.experiment.plan import Plan
from evenly.metrics import EVERY_METRIC, spread
from evenly.models import TASKS
from evenly.notation import same, unknown
from evenly.records import require
from evenly.report.focus import best_of
from evenly.report.group_values import RATES, group_rates, group_split, groupings
from evenly.report.method_table import latex
from evenly.report.summary import main_table, summary_html, summary_text, table_title
from evenly.report.values import (
    client_means,
    client_split,
    final_values,
    influence,
    spread_words,
    wilson,
)
from evenly.saved_models import Model, load, models_of
from evenly.types import Seeds, Task, Trace

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

KINDS = ("clients", "front", "history", "groups", "influence")


class Results:
    """The results of a comparison. `evenly.compare`, `evenly.run` and `evenly.load_results` return
    them.

    `len(results)` is the number of methods, iterating gives their labels, and `results["fedavg"]`
    are the results of one method. Printing shows the main figures; in a notebook they are a table.

    Attributes:
        methods: Labels of the methods, in the order of the comparison.
        seeds: Seeds that each method was trained with.
        federation: The data of the first seed.
        folder: The folder of the results; None if they are in memory only.

    Example:
        >>> import evenly
        >>> results = evenly.compare(
        ...     "synthetic(clients=5)", ["fedavg", "q-fedavg(q=1)"], rounds=5, seeds=2
        ... )
        >>> len(results), results.methods
        (2, ['fedavg', 'q-fedavg(q=1)'])
        >>> list(results.table(["average", "worst10"]).columns)
        ['average', 'average_low', 'average_high', 'worst10', 'worst10_low', 'worst10_high']
    """

    def __init__(
        self,
        comparison: Comparison,
        *,
        plan: Plan | None = None,
        folder: Path | None = None,
        paper: Sequence[PaperLine] = (),
    ) -> None:
        self._comparison, self._plan, self._paper = comparison, plan, list(paper)
        self.folder = folder

    @property
    def comparison(self) -> Comparison:
        """All runs with their traces, as the functions of `evenly.report` take them."""
        return self._comparison

    @property
    def methods(self) -> list[str]:
        return self._comparison.labels

    @property
    def seeds(self) -> list[int]:
        return self._comparison.seeds

    @property
    def federation(self) -> Federation:
        return self._comparison.federation

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each figure, as in results.csv. Figures that the file withholds, because a
        method is private for clients, are among them.
        """
        return list(tidy_rows(self._comparison))

    def __len__(self) -> int:
        return len(self.methods)

    def __iter__(self) -> Iterator[str]:
        return iter(self.methods)

    def __contains__(self, method: object) -> bool:
        return method in self.methods

    def __getitem__(self, method: str | int | Sequence[str]) -> "Results":
        """The results of one method, by its label or its number, or of several labels."""
        labels = (
            [self.methods[method]]
            if isinstance(method, int)
            else [self._label(one) for one in ([method] if isinstance(method, str) else method)]
        )
        runs = [run for label in labels for run in self._comparison.of(label)]
        paper = [line for line in self._paper if line.label in labels]
        return Results(
            self._comparison._replace(runs=runs), plan=self._plan, folder=self.folder, paper=paper
        )

    def _label(self, method: str | None) -> str:
        if method is None:
            require(
                len(self) == 1,
                f"These results have {len(self)} methods. Name one of {', '.join(self.methods)}.",
            )
            return self.methods[0]
        if method in self.methods:
            return method
        alike = [label for label in self.methods if same(method, label)]
        if not alike:
            raise unknown("method", method, self.methods, " in these results")
        return alike[0]

    def _split(self, split: str | None) -> str:
        chosen = split or client_split(self._comparison)
        if chosen not in (*SPLITS, CENTRAL):
            raise unknown("split", chosen, [*SPLITS, CENTRAL])
        return chosen

    # Tables.

    def table(
        self,
        metrics: str | Sequence[str] = (),
        *,
        split: str | None = None,
        intervals: bool = True,
        tidy: bool = False,
    ) -> "pd.DataFrame":
        """One row for each method: means over the seeds, and 95 % intervals.

        Args:
            metrics: Names of metrics, such as ``["average", "worst10"]``. By default the main ones.
            split: "train", "valid", "test" or "central", the test set that belongs to no client. By
                default the rows on which clients are compared: test rows if there are any.
            intervals: Whether each metric also has the columns NAME_low and NAME_high. They are
                missing values if there is only one seed.
            tidy: Return the rows of results.csv instead: one row for each run, round, split and
                metric. Other arguments are then ignored.

        Returns:
            A pandas DataFrame. Without `tidy` its index is the method.

        Raises:
            ValueError: If a metric or a split does not exist.

        Example:
            >>> import evenly
            >>> results = evenly.compare("synthetic(clients=5)", "fedavg", rounds=2, seeds=2)
            >>> results.table("average").index.tolist()
            ['fedavg']
        """
        import pandas as pd

        if tidy:
            return pd.DataFrame(self.rows)
        names = [metrics] if isinstance(metrics, str) else list(metrics)
        figures = {label: self._spreads(label, split) for label in self.methods}
        if not names:
            names = [metric.name for metric in main_table(self._comparison)[0].metrics]
        present = set.intersection(*(set(own) for own in figures.values()))
        for name in names:
            if name not in present:
                raise unknown("metric", name, present)
        columns: dict[str, list[float]] = {}
        for name in names:
            own = [figures[label][name] for label in self.methods]
            columns[name] = [one.mean for one in own]
            if intervals:
                columns[f"{name}_low"] = [one.mean - one.half_width for one in own]
                columns[f"{name}_high"] = [one.mean + one.half_width for one in own]
        return pd.DataFrame(columns, index=pd.Index(self.methods, name="method"))

    def differences(
        self,
        metrics: str | Sequence[str] = "worst10",
        baseline: str | None = None,
        *,
        split: str | None = None,
    ) -> "pd.DataFrame":
        """Each method less the baseline, seed by seed, as in the report's section on chance.

        Args:
            metrics: Name of a metric, or several.
            baseline: Label of the method that is subtracted. By default the first.
            split: The rows on which the metrics are measured, as for `table`.

        Returns:
            A pandas DataFrame whose index is the method, with the columns metric, difference (mean
            over seeds), low and high (its 95 % interval), p (two-sided), p_holm (corrected for all
            rows of this table), effect (the mean in standard deviations) and seeds. With one seed
            only the difference is known.

        Raises:
            ValueError: If a metric, the baseline or the split does not exist.

        Example:
            >>> import evenly
            >>> results = evenly.compare("synthetic(clients=5)", rounds=5, seeds=3, progress=False)
            >>> results.differences("worst10", "fedavg").index.tolist()
            ['q-fedavg(q=1)', 'q-fedavg(q=5)']
        """
        names = [metrics] if isinstance(metrics, str) else list(metrics)
        first = self.methods[0] if baseline is None else self._label(baseline)
        own = {label: self._by_seed(label, split) for label in self.methods}
        return paired_table(own, first, names)

    def _spreads(self, label: str, split: str | None) -> dict[str, Any]:
        """The mean of every metric of a method over its seeds."""
        found = self._by_seed(label, split)
        return {name: spread(np.array(list(own.values()))) for name, own in found.items()}

    def _by_seed(self, label: str, split: str | None) -> dict[str, dict[int, float]]:
        """Every metric of a method in each seed. Group metrics of the default split are those of
        the report, which are measured on the central test set if there is one.
        """
        found = final_by_seed(self._comparison, label, self._split(split))
        if split is None:
            groups = group_split(self._comparison)
            found |= {
                name: values
                for name, values in final_by_seed(self._comparison, label, groups).items()
                if groups != self._split(None)
            }
            values = final_values(self._comparison, client_split(self._comparison))
            if CENTRAL in next(iter(values[label].values())):
                found[CENTRAL] = {seed: own[CENTRAL] for seed, own in values[label].items()}
        return found

    def clients(self, split: str | None = None) -> "pd.DataFrame":
        """One row for each method and client: how it is served, and how much it counted.

        Args:
            split: The rows on which the accuracy is measured, as for `table`.

        Returns:
            A pandas DataFrame with the columns method, client, accuracy (percent, mean over
            seeds), low and high (Wilson's 95 % interval for the rows of one seed), examples,
            train_examples, and weight_share, the client's share of all weight in training.

        Example:
            >>> import evenly
            >>> results = evenly.compare("synthetic(clients=5)", "fedavg", rounds=2, seeds=1)
            >>> len(results.clients())
            5
        """
        import pandas as pd

        chosen, names = self._split(split), list(self.federation.names)
        require(chosen != CENTRAL, "The central test set belongs to no client. Choose a split.")
        parts = []
        for label in self.methods:
            own = client_means(self._comparison, label, chosen)
            low, high = wilson(own.accuracy / 100, own.rows)
            columns = {
                "method": label,
                "client": names,
                "accuracy": own.accuracy,
                "low": 100 * low,
                "high": 100 * high,
                "examples": own.rows,
                "train_examples": own.train,
                "weight_share": influence(self._comparison, label).weight,
            }
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts, ignore_index=True)

    def groups(self, split: str | None = None) -> "pd.DataFrame":
        """One row for each method and group of people: rates in percent.

        With several sensitive columns there are rows for their intersections and for each column.

        Args:
            split: The rows on which the rates are measured, as for `table`; by default the central
                test set if there is one.

        Returns:
            A pandas DataFrame with the columns method, grouping, group, unprivileged, examples, and
            accuracy, selection_rate, tpr and fpr, each with its low and high end: the lowest and
            highest seed or, with one seed, a 95 % interval. It is empty if the data have no groups.
        """
        import pandas as pd

        where = (split and self._split(split)) or group_split(self._comparison)
        rows = []
        for grouping in groupings(self.federation):
            for label in self.methods:
                each = {
                    rate: group_rates(self._comparison, grouping, label, where, rate)
                    for rate in RATES
                }
                for g, name in enumerate(grouping.names):
                    row: dict[str, Any] = {
                        "method": label,
                        "grouping": grouping.title,
                        "group": name,
                        "unprivileged": g in grouping.unprivileged,
                        "examples": each["accuracy"][g].rows,
                    }
                    for rate, own in each.items():
                        row |= {
                            rate: own[g].value,
                            f"{rate}_low": own[g].low,
                            f"{rate}_high": own[g].high,
                        }
                    rows.append(row)
        return pd.DataFrame(rows)

    def history(self, split: str | None = None) -> "pd.DataFrame":
        """One row for each method, seed and evaluation: metrics during training.

        Args:
            split: The rows on which the metrics are measured, as for `table`.

        Returns:
            A pandas DataFrame with the columns method, seed, round, loss, and one column for each
            metric, your own included.
        """
        import pandas as pd

        where, parts = self._split(split), []
        for run in self._comparison.runs:
            metrics = metric_history(self.federation, run.trace, where)
            columns = {"method": run.label, "seed": run.seed, "round": run.trace.rounds}
            parts.append(pd.DataFrame(columns | metrics))
        return pd.concat(parts, ignore_index=True)

    def paper(self) -> "pd.DataFrame":
        """The figures of the paper that the experiment reproduces, beside ours.

        Returns:
            A pandas DataFrame with the columns split, method, metric, paper, paper_deviation, ours,
            ours_low, ours_high and difference. It is empty without a paper.
        """
        return paper_table(self._paper)

    def best(self, metric: str = "worst10", *, split: str | None = None) -> str:
        """The label of the method with the best mean of a metric.

        Args:
            metric: Name of the metric. By default the accuracy of the worst-served 10 % of clients.
            split: The rows on which methods are compared. By default validation rows if there are
                any, because choosing on test rows would favour the choice.

        Returns:
            The label. Ties are broken by the average accuracy, then by order.

        Raises:
            ValueError: If the metric does not exist, or if neither side of it is better.

        Example:
            >>> import evenly
            >>> results = evenly.compare("synthetic(clients=5)", "fedavg", rounds=2, seeds=1)
            >>> results.best()
            'fedavg'
        """
        valid = self.federation.valid.counts.any()
        where = self._split(split) if split else "valid" if valid else self._split(None)
        values = final_values(self._comparison, where)
        for label in self.methods:
            for name, own in final_by_seed(self._comparison, label, where).items():
                for seed, value in own.items():
                    values[label][seed].setdefault(name, value)
        present = set(next(iter(values[self.methods[0]].values()))) & set(EVERY_METRIC)
        if metric not in present:
            raise unknown("metric", metric, present)
        require(
            EVERY_METRIC[metric].better != 0,
            f"Neither a higher nor a lower {metric} is better. Choose another metric.",
        )
        return best_of(values, self.methods, metric)

    # Charts and files.

    def plot(
        self, kind: str = "clients", *, metric: str = "", split: str | None = None
    ) -> "alt.LayerChart":
        """A chart of the report, as an Altair chart.

        Args:
            kind: "clients" (how evenly clients are served), "front" (accuracy against a measure of
                fairness), "history" (a metric by round), "groups" (a rate of each group of people)
                or "influence" (how much each client counted).
            metric: The measure of fairness of "front", by default the variance; the metric of
                "history", by default the average; the rate of "groups", by default the accuracy.
            split: The rows on which clients or groups are measured, as for `table`.

        Returns:
            An Altair chart. A notebook shows it; `chart.save("chart.svg")` writes it, also as
            .png or .html; an .html file needs no network with ``inline=True``.

        Raises:
            ValueError: If the kind or the metric does not exist, or the data have none.

        Example:
            >>> import evenly
            >>> results = evenly.compare("synthetic(clients=5)", "fedavg", rounds=2, seeds=1)
            >>> type(results.plot("history")).__name__
            'LayerChart'
        """
        from evenly.api.plots import draw  # Altair is slow to import

        if kind not in KINDS:
            raise unknown("chart", kind, KINDS)
        return draw(self._comparison, kind, metric, split and self._split(split))

    def latex(
        self, metrics: str | Sequence[str] = (), *, names: Mapping[str, str] | None = None
    ) -> str:
        """The table of methods in LaTeX: means ± half of the 95 % interval, bold where a method is
        clearly best.

        Args:
            metrics: Names of metrics. By default the main ones.
            names: How methods are called in the table, by label; others keep their label.

        Returns:
            The table. Its first lines are comments that say what it shows.
        """
        chosen = [metrics] if isinstance(metrics, str) else list(metrics)
        table, titles = main_table(self._comparison, chosen)
        shown = {self._label(label): name for label, name in (names or {}).items()}
        rows = (row._replace(label=shown.get(row.label, row.label)) for row in table.rows)
        table = table._replace(rows=tuple(rows))
        about = table_title(self._comparison, table, spread_words(table.seeds))
        caption = f"{about}. Bold: best in its column, and every other method is clearly worse"
        return latex(table, titles, caption)

    def report(self, path: str | Path = "report.html", *, min_cell: int = 0) -> Path:
        """Write the report as one HTML file.

        Args:
            path: The file to write.
            min_cell: Hide everything that rests on fewer people than this. 0 hides nothing.

        Returns:
            The path.
        """
        from evenly.report.page import write_report

        return write_report(self._comparison, path, self._paper, least=min_cell)

    # Runs and models.

    def traces(self, method: str | None = None) -> list[Trace]:
        """The traces of a method, one for each seed. The method may be left out if there is only
        one.
        """
        label = self._label(method)
        names = {
            "method": label,
            "clients": self.federation.names,
            "groups": self.federation.groups,
        }
        return [
            # folders store no names with a trace
            run.trace if run.trace.method else run.trace._replace(**names)
            for run in self._comparison.of(label)
        ]

    def model(
        self,
        method: str | None = None,
        *,
        seed: int | None = None,
        number: int | None = None,
        task: Task | None = None,
    ) -> Model:
        """The trained model of a method, which predicts the labels of new rows.

        Args:
            method: Label of the method. It may be left out if there is only one.
            seed: Seed of the run. By default the first.
            number: Which of the models, for a method that trains several.
            task: The model of your own that you passed to `evenly.compare`, if these results come
                from `evenly.load_results`.

        Returns:
            The model: ``results.model("fedavg").predict(rows)``.

        Raises:
            ValueError: If there is no such run, or the method trains several models and no number
                is given.

        Example:
            >>> import evenly
            >>> results = evenly.compare("synthetic(clients=5)", "fedavg", rounds=2, seeds=1)
            >>> results.model().predict(results.federation.x[:3]).shape
            (3,)
        """
        label = self._label(method)
        runs = {run.seed: run for run in self._comparison.of(label)}
        chosen = next(iter(runs)) if seed is None else seed
        require(
            chosen in runs,
            f"There is no run with seed {chosen}. The seeds are {', '.join(map(str, runs))}.",
        )
        models = (
            self._trained(label, runs[chosen])
            if self.folder is None
            else self._stored(label, chosen, task or self._own_task(label, chosen))
        )
        return _one_of(models, label, number)

    def _variant(self, label: str) -> Variant:
        assert self._plan is not None
        return next(variant for variant in self._plan.variants() if variant.label == label)

    def _trained(self, label: str, run: Run) -> list[Model]:
        plan, members = self._plan, self._variant(label).members
        require(
            plan is not None and len(members) == 1,
            f"{label} combines several models, which are stored only with out=FOLDER.",
        )
        assert plan is not None
        setting = setting_of(plan, run.seed)
        task = members[0].task(setting.task, Seeds.all(run.seed))
        return models_of(run.trace, task, setting.federation)

    def _own_task(self, label: str, seed: int) -> Task | None:
        """The task of a model of one's own, whose code no folder stores, in the session that
        trained it.
        """
        own = None if self._plan is None else self._plan.objects.model
        if own is None or type(own) in TASKS.values():
            return None
        return self._variant(label).members[0].task(own, Seeds.all(seed))

    def _stored(self, label: str, seed: int, task: Task | None) -> list[Model]:
        assert self.folder is not None
        members = [label] if self._plan is None else [m.label for m in self._variant(label).members]
        models = []
        for member in members:
            names = [f"{member}#{seed}"]
            if not (self._model_file(names[0])).exists():
                names = [f"{member}#{seed}#{i}" for i in range(len(self.methods) + 1_000)]
            for name in names:
                if not self._model_file(name).exists():
                    break
                models.append(load(self._model_file(name), task=task))
        require(
            bool(models),
            f"The folder {str(self.folder)!r} holds no model of {label} with seed {seed}.",
        )
        return models

    def _model_file(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / "models" / f"{slug(name)}.npz"

    def __repr__(self) -> str:
        return summary_text(self._comparison)

    def _repr_html_(self) -> str:
        return summary_html(self._comparison)


def _one_of(models: list[Model], label: str, number: int | None) -> Model:
    if number is None and len(models) == 1:
        return models[0]
    last = len(models) - 1
    require(
        number is not None,
        f"{label} has {len(models)} models. Choose one with number=0 to number={last}.",
    )
    assert number is not None
    require(0 <= number <= last, f"number must be from 0 to {last}, got {number}.")
    return models[number]
