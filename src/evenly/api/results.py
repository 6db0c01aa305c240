"""Results of comparisons and studies in Python: tables, charts, reports and trained models."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenly.api.tables import group_table, paired_table, paper_table, privacy_table
from evenly.api.trained import models_in_folder, models_in_memory, one_of
from evenly.data.federation import Federation
from evenly.data.splits import CENTRAL, SPLITS
from evenly.experiment.comparison import Comparison, final_by_seed, metric_history
from evenly.experiment.folder import RunRecord
from evenly.experiment.paper import PaperLine
from evenly.experiment.plan import Plan
from evenly.experiment.result_rows import tidy_rows
from evenly.metrics import EVERY_METRIC, spread
from evenly.notation import same, unknown
from evenly.records import require
from evenly.report.charts.focus import best_of
from evenly.report.group_values import group_split
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
from evenly.saved_models import Model
from evenly.types import Task, Trace

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
        federation: The data of the first seed. Of data that were passed from Python, a folder has
            counts only, and all features are NaN.
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
        record: RunRecord | None = None,
    ) -> None:
        self._comparison, self._plan, self._paper = comparison, plan, list(paper)
        self._record = record
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
        settings: bool = False,
        tidy: bool = False,
    ) -> "pd.DataFrame":
        """One row for each method: means over the seeds, and 95 % intervals.

        Args:
            metrics: Names of metrics, such as ``["average", "worst10"]``. By default the main ones.
            split: "train", "valid", "test" or "central", the test set that belongs to no client. By
                default the rows on which clients are compared: test rows if there are any.
            intervals: Whether each metric also has the columns NAME_low and NAME_high. They are
                missing values if there is only one seed.
            settings: Whether the settings in which methods differ, such as q of a sweep, are
                columns, too.
            tidy: Return the rows of results.csv instead: one row for each run, round, split and
                metric. Other arguments are then ignored.

        Returns:
            A pandas DataFrame. Without `tidy` its index is the method.

        Raises:
            ValueError: If a metric or a split does not exist.

        Example:
            >>> import evenly
            >>> results = evenly.compare("synthetic(clients=5)", "q-fedavg(q=[0, 1])", rounds=2)
            >>> results.table("average").index.tolist()
            ['q-fedavg(q=0)', 'q-fedavg(q=1)']
            >>> results.table("average", settings=True)["q"].tolist()
            [0, 1]
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
        columns: dict[str, list[Any]] = self._settings() if settings else {}
        for name in names:
            own = [figures[label][name] for label in self.methods]
            columns[name] = [one.mean for one in own]
            if intervals:
                columns[f"{name}_low"] = [one.mean - one.half_width for one in own]
                columns[f"{name}_high"] = [one.mean + one.half_width for one in own]
        return pd.DataFrame(columns, index=pd.Index(self.methods, name="method"))

    def _settings(self) -> dict[str, list[Any]]:
        """The settings in which methods differ, one value for each method; None where a method has
        no such setting.
        """
        each = [self._comparison.of(label)[0].settings for label in self.methods]
        found = {name: [one.get(name) for one in each] for one in each for name in one}
        return {name: own for name, own in found.items() if any(one != own[0] for one in own)}

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
        where = (split and self._split(split)) or group_split(self._comparison)
        return group_table(self._comparison, where)

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

    def privacy(self) -> "pd.DataFrame":
        """What methods with differential privacy promise, for one run: one method with one seed.

        Returns:
            A pandas DataFrame whose index is the method, with the columns unit (what is protected:
            "client" or "row"), epsilon, delta, noise_multiplier, neighbours (the federations or
            rows that the promise is about), and promise, the same in words. An epsilon is missing
            if nothing can be claimed; the words then say why. Methods without `+dp` have no row.

        Example:
            >>> import evenly
            >>> method = "fedavg+full+dp(epsilon=8)"
            >>> results = evenly.compare("synthetic(clients=60)", method, rounds=2, seeds=1)
            >>> results.privacy()["promise"].item()
            'epsilon 8 at delta 1e-05'
        """
        return privacy_table(self._comparison)

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
                "history", or the loss, by default the average; the rate of "groups", by default the
                accuracy.
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
            names: How methods are called in the table, by label; others keep their label. A name
                with a `$` or a backslash is taken as LaTeX.

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

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write results that are in memory into a folder, as `evenly.compare` does with `out`:
        traces, models, rows and the report. `evenly.load_results` reads them.

        Args:
            folder: The folder.
            force: Whether to replace results of other settings in the folder.

        Returns:
            The folder.

        Raises:
            ValueError: If these results are in a folder already, are only some methods of a
                comparison, or have a method that combines several models; or if the folder holds
                other results.

        Example:
            >>> import evenly, tempfile
            >>> results = evenly.compare("synthetic(clients=5)", "fedavg", rounds=2, seeds=1)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     again = evenly.load_results(results.save(f"{folder}/first"))
            >>> again.table("average").equals(results.table("average"))
            True
        """
        from evenly.api.execution import store_results

        require(self.folder is None, f"These results are already in {str(self.folder)!r}.")
        assert self._plan is not None
        record = self._record or RunRecord()
        store_results(self._comparison, self._plan, record, Path(folder), force=force)
        return Path(folder)

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

        For a method with personal models, such as Ditto, it is the shared one; the figures are
        those of the personal models, which a new client does not have.

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
        if self.folder is None:
            models = models_in_memory(self._plan, label, runs[chosen])
        else:
            models = models_in_folder(self.folder, self._plan, label, chosen, task)
        return one_of(models, label, number)

    def __repr__(self) -> str:
        return summary_text(self._comparison)

    def _repr_html_(self) -> str:
        return summary_html(self._comparison)
