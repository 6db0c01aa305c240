"""A folder of results, opened again: what was planned, how far it is, and the results without training anything."""

from contextlib import AbstractContextManager, chdir, nullcontext
from pathlib import Path

from evenly.experiment import record
from evenly.experiment.deployed import open_deployment
from evenly.experiment.deployment import Deployment
from evenly.experiment.execute import execute
from evenly.experiment.jobs import Setting, setting_of
from evenly.experiment.plan import NewerError, Plan, plain
from evenly.experiment.programs import programs
from evenly.experiment.results import Comparison
from evenly.experiment.store import Store, slug
from evenly.experiment.study import Study, StudyPlan, execute_study
from evenly.plugins import refuse_unloaded


def read_plan(folder: Path) -> Plan | StudyPlan | Deployment:
    """What the results in a folder are of."""
    path = folder / "plan.json"
    if not folder.is_dir():
        raise ValueError(f"There is no folder {str(folder)!r}. Give one that evenly wrote results into.")
    if not path.exists():
        raise ValueError(f"The folder {str(folder)!r} holds no results of evenly: there is no plan.json in it.")
    try:
        text = path.read_text()
        fields = plain(text)
        if "deployment" in fields:
            return Deployment.from_json(text)
        if "shared" not in fields:
            return StudyPlan.from_json(text) if "cells" in fields else Plan.from_json(text)
    except NewerError as error:
        raise ValueError(f"The folder {str(folder)!r} {error}; nothing was touched.") from None
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is damaged, so it is not known what the results beside it are of: {error}") from None
    known = record.read(folder)
    again = f": {known.command}" if known and known.command else ""
    raise ValueError(f"The folder {str(folder)!r} holds a search of settings; the command that began it goes on with it{again}")


def open_results(folder: Path) -> Comparison:
    """The comparison in a finished folder, as tables and the report need it; nothing is trained. Of a deployment, what is there."""
    plan = read_plan(folder)
    if isinstance(plan, Deployment):
        return open_deployment(folder, plan)
    if isinstance(plan, StudyPlan):
        raise ValueError(f"The folder {str(folder)!r} holds a study of {len(plan.cells)} partitions, not one comparison.")
    results = folder.resolve()
    refuse_unloaded(plan.plugins, folder)
    with where_it_began(folder, plan):
        first = setting_of(plan, plan.seeds[0])
        _refuse_unfinished(folder, *progress(plan, results, first))
        return record.told(execute(plan, Store(results, plan), models=False, first=first), results)


def open_study(folder: Path) -> Study:
    """The study in a finished folder; nothing is trained."""
    plan = read_plan(folder)
    if not isinstance(plan, StudyPlan):
        raise ValueError(f"The folder {str(folder)!r} holds one comparison, not a study.")
    results = folder.resolve()
    refuse_unloaded((record for own in plan.cells.values() for record in own.plugins), folder)
    with where_it_began(folder, *plan.cells.values()):
        counts = [progress(own, results / "cells" / slug(name), setting_of(own, own.seeds[0])) for name, own in plan.cells.items()]
        _refuse_unfinished(folder, sum(done for done, _ in counts), sum(total for _, total in counts))
        known = record.read(folder) or record.Record()
        return execute_study(plan, results)._replace(seconds=known.seconds)


def where_it_began(folder: Path, *plans: Plan) -> AbstractContextManager[None]:
    """Inside, relative paths mean what they meant to whoever began the run: only files of the user's own have any."""
    known = record.read(folder)
    return chdir(folder / known.started_in) if known and any(plan.has_files for plan in plans) else nullcontext()


def progress(plan: Plan, folder: Path, first: Setting) -> tuple[int, int]:
    """How many of a plan's programs are finished, and how many there are."""
    kept = [Store.traces_in(folder, program.keys).exists() for program in programs(plan, first.task, folder)]
    return sum(kept), len(kept)


def _refuse_unfinished(folder: Path, done: int, total: int) -> None:
    if done < total:
        raise ValueError(f"{str(folder)!r} is not finished: {done} of {total} programs. Go on with `evenly resume {folder}`.")
