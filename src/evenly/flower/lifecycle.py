"""A deployment from its opening to its end: who is there, what is kept after every round, and how a killed server goes on."""

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid

from evenly.experiment.deployment import Deployment, DeploymentFacts, Exclusion, Flag, ServerOptions, write_facts
from evenly.experiment.folder import folder_lock, sweep
from evenly.experiment.plan import NewerError
from evenly.flower import aggregation, messages, roster, two_phase, wire
from evenly.flower.aggregation import RoundResult
from evenly.flower.checks import replies_to
from evenly.flower.messages import (
    DeploymentState,
    EvaluationReplies,
    RoundRequest,
    TrainingReplies,
    metrics_bytes,
    quote_reasons,
    read_replies,
    require_enough,
    served_record,
)
from evenly.flower.recorder import Recorder, Traffic, deployment_of
from evenly.flower.replies import check_censuses
from evenly.flower.roster import (
    DeploymentSetting,
    Options,
    Roll,
    grows,
    notation_of,
    reads_census,
    roll_of,
    unknown_clients,
    wait_for_nodes,
)
from evenly.outside import check_kinds
from evenly.parts.sampling import Fraction, Uniform
from evenly.records import replace, require
from evenly.saving import Archive, DamagedError, leaves_of, read_archive, write_archive
from evenly.types import Algorithm, ReportingRule, Several, Tree
from evenly.writing import write_whole

# Before the first round: who is there, what they are like where the method asks, and whose model is whose.

LOG = logging.getLogger("flwr")


class NewDeployment(NamedTuple):
    """A deployment that is about to begin."""

    setting: DeploymentSetting
    state: DeploymentState
    left_out: list[Exclusion]
    flagged: list[Flag]


def open_deployment(
    algorithm: Algorithm, options: Options, arrays: ArrayRecord, config: ConfigRecord, grid: Grid, timeout: float
) -> NewDeployment:
    """Wait for enough clients, ask them what the method begins with, and settle the first models."""
    nodes = wait_for_nodes(grid, options.min_available_nodes)
    # Clients that keep a model of their own begin with the first one, also if they are drawn late; those that are not asked for a
    # census begin with the first that they are sent.
    shown = {options.arrayrecord_key: arrays} if jax.tree.leaves(algorithm.work.remember(np.zeros(()))) else {}
    asks = options.introduce or reads_census(algorithm)
    roll, left_out = _take_census(algorithm, options, nodes, config, shown, grid, timeout) if asks else (unknown_clients(sorted(nodes)), [])
    algorithm = roster.fit_to_clients(with_sampling(algorithm, options, roll), roll)
    census, flagged = roll.census, []
    if options.caps is not None:
        census, flagged = options.caps.census(census)
        options.caps.require_feasible(algorithm.select.slots(census))
    rule = algorithm.rule
    apart = rule.groups if isinstance(rule, Several) and rule.apart else 0
    form, (model, carried) = wire.read_initial(arrays, ranks=aggregation.ranks(algorithm), apart=apart)
    choice = roster.first_choices(algorithm, roll, options.seeds)
    state = aggregation.first_state(algorithm, model, census, choice=choice, begun=roster.models_differ(algorithm, model))
    return NewDeployment(DeploymentSetting(algorithm, options, roll, form, census), DeploymentState(state, carried), left_out, flagged)


def with_sampling(algorithm: Algorithm, options: Options, roll: Roll) -> Algorithm:
    """With `fraction_train`, as many clients as Flower would draw."""
    if options.fraction_train is None:
        return algorithm
    share = Fraction(share=options.fraction_train).slots(roll.census)
    return replace(algorithm, select=Uniform(clients=max(share, options.min_train_nodes)))


def with_fraction(algorithm: Algorithm, options: Options) -> Algorithm:
    """With `fraction_train` as the share that it is: the same sampling, however many clients there are."""
    return algorithm if options.fraction_train is None else replace(algorithm, select=Fraction(share=options.fraction_train))


def with_clients(setting: DeploymentSetting, roll: Roll) -> DeploymentSetting:
    """With other clients, of whom nothing is known; a share of them is another number."""
    return setting._replace(algorithm=with_sampling(setting.algorithm, setting.options, roll), roll=roll, census=roll.census)


def _take_census(
    algorithm: Algorithm,
    options: Options,
    nodes: list[int],
    config: ConfigRecord,
    shown: dict[str, ArrayRecord],
    grid: Grid,
    timeout: float,
) -> tuple[Roll, list[Exclusion]]:
    """Ask every client for its census; those whose answer cannot be used are not part of the federation, if enough others are."""
    asked = [messages.message(wire.CENSUS, node, shown, ConfigRecord(dict(config)), options.configrecord_key) for node in nodes]
    rule, most = algorithm.rule, options.max_reply_bytes or metrics_bytes(None)
    groups = rule.groups if isinstance(rule, Several) and rule.inference == "known" else 0
    usable, left_out = check_censuses(replies_to(grid, asked, timeout), nodes, groups=groups, most=most)
    for one in left_out:
        LOG.warning("Node %d %s; it is not one of the clients.", one.node, one.reason)
    least = max(min(options.min_train_nodes, options.min_available_nodes), 1)
    require(
        len(usable) >= least,
        f"{algorithm.label} begins with what clients say of themselves ({wire.CENSUS!r}), and {len(usable)} of {len(nodes)} nodes said "
        f"it so that it can be used; at least {least} must (min_train_nodes). Give the ClientApp a function for it, "
        f"@app.query('census'): see docs/flower-record.md. {quote_reasons(left_out, most=len(left_out))}",
    )
    return roll_of(usable), left_out


def cluster_clients(
    setting: DeploymentSetting, standing: DeploymentState, config: ConfigRecord, grid: Grid, timeout: float
) -> tuple[DeploymentState, list[Exclusion]]:
    """E2FL's rank clustering, where asked for: every client trains once from the first order, with its batches of the first round."""
    rule = setting.algorithm.rule
    if not (isinstance(rule, Several) and rule.inference == "rank-clustering"):
        return standing, []
    everyone = tuple(range(setting.roll.clients))
    asked = RoundRequest(0, np.array(everyone, np.int32), everyone)
    told = messages.to_train(setting, standing, 1, everyone, config, messages.trained_record(setting, standing))
    came = read_replies(setting, asked, replies_to(grid, told, timeout))
    require_enough(setting, asked, came)
    places = {k: wire.split_model(setting.form, r.arrays).model for k, r in came.replies.items() if r.arrays is not None}
    drawn = standing.state.choice
    assert drawn is not None
    choice = roster.cluster_by_ranks(setting.algorithm, places, drawn, setting.options.seeds)
    return standing._replace(state=standing.state._replace(choice=choice)), came.left_out


# The state of a server, kept after every round, so that one that was killed goes on to the same bits.
#
# A file is an npz: a JSON header (format, what the run is, round, nodes) and one array for each leaf of the state. There is no pickle
# in it. Cohorts and batches are drawn from counters, so no state of a random generator has to be kept.

FORMAT = 1
HEADER = {
    "format": int, "fingerprint": str, "round": int, "nodes": list[int], "told": dict[str, Any], "leaves": list[dict[str, Any]],
}  # fmt: skip
NAME = "state.npz"
PYTHON = {"bool": bool, "int": int, "float": float}
WORDS = {
    "seeds": "the seeds",
    "arrays": "the model's arrays",
    "caps": "the caps",
    "method": "the method",
    "sampling": "the sampling",
    "notation": "a setting",
}


class SavedState(NamedTuple):
    """Where an earlier server was."""

    round: int  # rounds done
    state: Tree
    nodes: tuple[int, ...]  # the node of each client
    notes: dict[str, Any]  # whatever else was kept as plain data


def claim(folder: Path, deployment: Deployment) -> None:
    """Make a folder this deployment's, or find that it is. A folder of anything else is refused and not touched."""
    path = folder / "plan.json"
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"The folder {str(folder)!r} must be a folder, but it is a file. Choose another one.")
    if not path.exists():
        strange = [path.name for path in folder.iterdir() if not path.name.startswith(".")] if folder.exists() else []
        if strange:
            raise ValueError(f"The folder {str(folder)!r} holds files that are not evenly's, such as {strange[0]!r}. Choose another one.")
        write_whole(path, lambda file: file.write(deployment.to_json().encode()))
        return
    try:
        there = Deployment.from_json(path.read_text())
    except NewerError as error:
        raise ValueError(f"The folder {str(folder)!r} {error}, or choose another one; nothing was touched.") from None
    except ValueError:
        raise ValueError(f"The folder {str(folder)!r} holds other results, not those of a deployment. Choose another one.") from None
    if there.fingerprint() != deployment.fingerprint():
        raise ValueError(
            f"The folder {str(folder)!r} is of another run: {_difference(there, deployment)}. "
            "Choose another folder, or ask for the same as before."
        )


def _difference(there: Deployment, here: Deployment) -> str:
    """What is not the same, in words."""
    differ = [f.name for f in dataclasses.fields(Deployment) if f.name != "name" and getattr(there, f.name) != getattr(here, f.name)]
    told = [name for name in differ if name in WORDS] or differ  # settings and needs follow from the method
    told = [name for name in told if name != "notation"] or told  # which says the method and the sampling again
    first = told[0]
    before, now = getattr(there, first), getattr(here, first)
    if first == "arrays":
        before, now = next(((a, b) for a, b in zip(before, now, strict=False) if a != b), (f"{len(before)} of them", f"{len(now)}"))
    more = f" ({', '.join(WORDS.get(name, name) for name in told[1:])} too)" if len(told) > 1 else ""
    return f"not the same is {WORDS.get(first, first)}, there {before}, here {now}{more}"


def save(
    folder: Path,
    deployment: Deployment,
    *,
    round: int,
    state: Tree,
    nodes: Sequence[int] = (),
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Keep the state after a round; the file of the round before is replaced only when the new one is whole."""
    leaves = jax.tree.leaves(state)
    entries = {
        "round": round,
        "nodes": list(map(int, nodes)),
        "told": dict(notes or {}),
        "leaves": [_describe_leaf(leaf) for leaf in leaves],
    }
    return write_archive(folder / NAME, leaves_of(state), entries, format=FORMAT, fingerprint=deployment.fingerprint())


def load(folder: Path, deployment: Deployment, like: Tree) -> SavedState | None:
    """The state that was kept, in the form of a fresh one (`like`); None: nothing was."""
    if (read := _read(folder / NAME)) is None:
        return None
    header, arrays = read
    if header["fingerprint"] != deployment.fingerprint():
        raise ValueError(f"{str(folder / NAME)!r} is of another run than the plan beside it. Choose another folder.")
    wanted = [_form(leaf) for leaf in jax.tree.leaves(like)]
    found = [(tuple(array.shape), entry["dtype"]) for array, entry in zip(arrays, header["leaves"], strict=True)]
    if wanted != found:
        raise ValueError(
            f"{str(folder / NAME)!r} must hold a state of this federation, but it is of another: {_first_difference(wanted, found)}. "
            "Does the same number of clients take part as before? Choose another folder to begin anew."
        )
    restored = [_restore_leaf(array, entry) for array, entry in zip(arrays, header["leaves"], strict=True)]
    state = jax.tree.unflatten(jax.tree.structure(like), restored)
    return SavedState(header["round"], state, tuple(header["nodes"]), header["told"])


def rounds_done(folder: Path) -> int:
    """How many rounds the state in a folder has seen; 0: there is none."""
    read = _read(folder / NAME)
    return 0 if read is None else int(read[0]["round"])


def _read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]] | None:
    if not path.exists():
        return None
    try:
        return read_archive(path, _parse_state, newest=FORMAT)
    except DamagedError:
        raise ValueError(f"{str(path)!r} is damaged. Remove it, and the deployment begins anew; the history beside it goes too.") from None


def _parse_state(archive: Archive) -> tuple[dict[str, Any], list[np.ndarray]]:
    header = archive.header
    check_kinds(header, HEADER, complete=True)
    return header, [leaf.view(jnp.dtype(entry["dtype"])) for leaf, entry in zip(archive.leaves(), header["leaves"], strict=True)]


def _describe_leaf(leaf: Any) -> dict[str, Any]:
    """What npz does not keep: whether it was a plain number or an array of JAX, and types that NumPy does not know."""
    kind = type(leaf).__name__ if type(leaf) in PYTHON.values() else "jax" if isinstance(leaf, jax.Array) else "numpy"
    return {"kind": kind, "dtype": str(np.asarray(leaf).dtype), "weak": bool(getattr(leaf, "weak_type", False))}


def _restore_leaf(array: np.ndarray, entry: dict[str, Any]) -> Any:
    if entry["kind"] in PYTHON:
        return PYTHON[entry["kind"]](array.item())
    if entry["kind"] == "numpy":
        return array
    # A plain number gives way to the type of what it is multiplied with; arrays of the same type do not have to.
    return jnp.asarray(array.item()) if entry["weak"] and array.ndim == 0 else jnp.asarray(array)


def _form(leaf: Any) -> tuple[tuple[int, ...], str]:
    array = np.asarray(leaf)
    return tuple(array.shape), str(array.dtype)


def _first_difference(wanted: list[Any], found: list[Any]) -> str:
    if len(wanted) != len(found):
        return f"{len(found)} arrays, where {len(wanted)} are needed"
    want, got = next((w, f) for w, f in zip(wanted, found, strict=True) if w != f)
    return f"an array {got[1]}{list(got[0])}, where {want[1]}{list(want[0])} is needed"


# The record and the state of a deployment, written after every round where there is a folder.


class RunningDeployment:
    """What one deployment keeps; an earlier server's work is found when it begins."""

    def __init__(self, opened: NewDeployment, folder: Path | None, *, rounds: int) -> None:
        setting = opened.setting
        self._folder, self._rounds = folder, rounds
        self.done, self.setting, self.state = 0, setting, opened.state
        self._deployment = _deployment(setting)
        if folder is not None:
            claim(folder, self._deployment)
            self._resume(folder, opened)
        told = options_record(setting.options, self.done + 1)
        self.recorder = Recorder(folder, self._deployment, facts_of(self.setting.roll), rounds=rounds, done=self.done, options=told)
        if not self.done:
            self.recorder.record_census(opened.left_out, opened.flagged)

    def _resume(self, folder: Path, opened: NewDeployment) -> None:
        saved = load(folder, self._deployment, opened.state)
        if saved is None:
            return
        self.done, self.state = saved.round, DeploymentState(*saved.state)
        self.setting = _match_clients(opened.setting, saved.nodes, saved.notes.get("numbers"))
        LOG.info("Going on after round %d, from %s", self.done, folder)

    @property
    def served(self) -> ArrayRecord:
        """What clients are given to use now."""
        return served_record(self.setting, self.state)

    def add_clients(self, roll: Roll) -> None:
        """More clients are there than before."""
        self.setting = with_clients(self.setting, roll)
        self.recorder.about = facts_of(roll)
        if self._folder is not None:
            write_facts(self._folder, self.recorder.about)

    def record_start(self, standing: DeploymentState, left_out: Sequence[Exclusion]) -> None:
        """What was settled before the first round."""
        self.state = standing
        self.recorder.record_census(left_out)

    def record_training(
        self, asked: RoundRequest, came: TrainingReplies, done: RoundResult, standing: DeploymentState, *, seconds: float, download: float
    ) -> None:
        """A round of training is over."""
        self.done, self.state = asked.number, standing
        rule = self.setting.algorithm.rule
        reports = {k: float(v) for k, v in rule.report(standing.state.rule).items()} if isinstance(rule, ReportingRule) else {}
        uploads = [reply.upload for reply in came.replies.values()]
        self.recorder.record_round(
            asked.number,
            asked.cohort,
            done.coefficients,
            left_out=came.left_out,
            flagged=done.flags,
            examples={k: reply.examples for k, reply in came.replies.items()},
            seconds=seconds,
            traffic=Traffic(sum(uploads) / len(uploads), download),
            reports=reports,
        )

    def record_evaluation(self, number: int, found: EvaluationReplies, *, seconds: float) -> None:
        """A round is over: what clients found is noted, and all of it is written."""
        self.recorder.record_evaluation(number, found.replies, found.left_out, seconds=seconds)
        self.recorder.write()
        if self._folder is not None:
            roll = self.setting.roll
            told = {"numbers": list(roll.numbers)}
            save(self._folder, self._deployment, round=self.done, state=self.state, nodes=roll.nodes, notes=told)


@contextmanager
def lock_folder(folder: Path | None) -> Iterator[None]:
    """One server at a time works in a folder; what a killed one left half-written is removed."""
    if folder is None:
        yield
        return
    with folder_lock(folder, "folder"):
        sweep(folder)
        yield


def facts_of(roll: Roll) -> DeploymentFacts:
    """Who the clients are, as the report wants to know it."""
    census = roll.census
    return DeploymentFacts(
        names=roll.names or tuple(f"client {k}" for k in range(roll.clients)),
        nodes=roll.nodes,
        examples=tuple(int(n) for n in census.examples) if roll.has_census else (),
        labels=roll.labels,
        groups=roll.groups,
        unprivileged=census.unprivileged,
        favourable=census.favourable,
        client_group=() if roll.client_group is None else tuple(int(g) for g in roll.client_group),
    )


def options_record(options: Options, since: int) -> ServerOptions:
    """What the report says of the options."""
    return ServerOptions(
        since,
        options.fraction_train,
        options.fraction_evaluate,
        options.min_train_nodes,
        options.min_evaluate_nodes,
        options.min_available_nodes,
        options.two_phase is not None,
        options.two_phase not in (None, two_phase.plain_sum),
    )


def _deployment(setting: DeploymentSetting) -> Deployment:
    algorithm, options = setting.algorithm, setting.options
    arrays = list(zip(*setting.form.layout, strict=True))
    return deployment_of(algorithm, options.seeds, arrays, notation=notation_of(with_fraction(algorithm, options)), caps=options.caps)


def _match_clients(setting: DeploymentSetting, before: Sequence[int], numbers: Sequence[int] | None = None) -> DeploymentSetting:
    """Every client has the number that it had before; raises where nobody knows who is who. `numbers` are their own, of before."""
    roll, label = setting.roll, setting.algorithm.label
    if roll.numbered or set(roll.nodes) == set(before):
        fewer = f"{label}: {len(before)} clients took part before, and {roll.clients} are there. Wait for all: min_available_nodes."
        require(roll.clients >= len(before), fewer)
        own = tuple(numbers or range(len(before)))
        others = f"{label}: clients {own} took part before, and {roll.numbers} are there, whose answers to the census can be used."
        require(
            not roll.numbered or roll.numbers[: len(own)] == own,
            f"{others} Wait for the same clients with min_available_nodes={len(before)}, or choose another folder to begin anew.",
        )
        return setting if roll.has_census else setting._replace(roll=roll._replace(nodes=tuple(before)))
    require(
        not roll.has_census and grows(setting.algorithm.rule),
        f"{label} knows something of each client, and other nodes are connected than before, so that nobody knows who is who. Wait for all "
        f"with min_available_nodes={len(before)}, let clients say their number in the census (introduce=True), or choose another folder "
        "to begin anew.",
    )
    new = [node for node in roll.nodes if node not in before]
    # Who is away keeps its number; where Flower numbered everybody anew, they take the places of before.
    known = (*before, *new) if len(new) < roll.clients else (*new, *before[len(new) :])
    return with_clients(setting, unknown_clients(known))
