"""The results of a study in Python."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenly.api.results import Results
from evenly.experiment.folder import slug
from evenly.experiment.study import Study
from evenly.notation import unknown
from evenly.papers.study_findings import Finding, findings
from evenly.papers.thesis import study_rows, tidy_study

if TYPE_CHECKING:
    import pandas as pd


class StudyResults:
    """The results of a study: one comparison for each partition of the data.

    `len(results)` is the number of partitions, and `results[NAME]` are the `Results` of one.

    Attributes:
        folder: The folder of the results.
        partitions: Names of the partitions.

    Example:
        >>> import evenly, tempfile
        >>> experiment = {
        ...     "title": "Two sizes",
        ...     "methods": ["fedavg"],
        ...     "data": {"name": "synthetic"},
        ...     "rounds": 2,
        ...     "seeds": 1,
        ...     "study": {
        ...         "cells": [{"clients": 4}, {"clients": 6}],
        ...         "choose": {"learning_rate": [0.01, 0.1]},
        ...     },
        ... }
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     results = evenly.run(experiment, out=folder, progress=False)
        >>> results.partitions, results["6"].federation.clients
        (['4', '6'], 6)
    """

    def __init__(self, study: Study, folder: Path, *, title: str = "", notes: str = "") -> None:
        self.study, self.folder = study, folder
        self._title, self._notes = title or study.plan.name, notes

    @property
    def partitions(self) -> list[str]:
        return list(self.study.cells)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of results.csv."""
        return list(tidy_study(self.study))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The questions of the study, with our answers and the paper's."""
        return tuple(findings([self.study]))

    def __len__(self) -> int:
        return len(self.study.cells)

    def __iter__(self) -> Iterator[str]:
        return iter(self.study.cells)

    def __getitem__(self, partition: str) -> Results:
        if partition not in self.study.cells:
            raise unknown("partition", partition, list(self.study.cells))
        folder = self.folder / "cells" / slug(partition)
        return Results(
            self.study.cells[partition], plan=self.study.plan.cells[partition], folder=folder
        )

    def table(self, *, tidy: bool = False) -> "pd.DataFrame":
        """One row for each method and partition, with the columns of the study; with `tidy` the
        rows of results.csv.
        """
        import pandas as pd

        return pd.DataFrame(self.rows if tidy else list(study_rows(self.study)))

    def report(self, path: str | Path = "report.html") -> Path:
        """Write the report of the study as one HTML file."""
        from evenly.papers.study_page import write_study_report

        return write_study_report([self.study], Path(path), self._title, self._notes)

    def __repr__(self) -> str:
        return f"StudyResults of {self.study.plan.name}: {len(self)} partitions"
