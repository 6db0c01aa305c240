"""All experiments of a paper, for `evenly.reproduce` and for the command of that name."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from evenly.experiment.study import Study

T = TypeVar("T")


def paper_folder(paper: str, short: Mapping[str, Any]) -> Path:
    """The folder of a paper's results, unless the user chooses another.

    The settings are part of the name, so that the same call finds its finished experiments again.
    """
    settings = [key if value is True else f"{key}{value}" for key, value in short.items() if value]
    return Path("results") / "-".join([paper, *settings])


def run_each(
    experiments: Mapping[str, Callable[[], T]], warn: Callable[[str], None]
) -> dict[str, T]:
    """Run the experiments and return the results of those that succeeded. The others are passed to
    `warn`, as a sentence.
    """
    results = {}
    for name, run in experiments.items():
        try:
            results[name] = run()
        except (ValueError, OSError) as error:
            warn(f"{name} was not run. {error}")
    return results


def joint_report(studies: Sequence[Study], paper: str, folder: Path) -> Path | None:
    """Report the studies of a paper together, if there are several."""
    if len(studies) < 2:
        return None
    from evenly.papers.study_page import write_study_report  # Altair is slow to import

    return write_study_report(studies, folder / "report.html", f"All studies of {paper} together")
