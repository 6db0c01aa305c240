"""The record and the state of a deployment, written after every round where there is a folder."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flwr.app import ArrayRecord

from evenly.experiment.deployment import About, LeftOut, write_about
from evenly.experiment.lock import held
from evenly.experiment.options import InForce
from evenly.experiment.store import sweep
from evenly.flower import resuming, two_phase
from evenly.flower.hearing import Asked, Findings, Heard
from evenly.flower.messages import Standing, served_record
from evenly.flower.naming import notation_of
from evenly.flower.nodes import Roll, grows, unknown_clients
from evenly.flower.opening import Opened, as_asked, joined
from evenly.flower.options import Options, Setting
from evenly.flower.recorder import Recorder, Traffic, deployment_of
from evenly.flower.rounds import Done
from evenly.records import require
from evenly.types import ReportingRule

LOG = logging.getLogger("flwr")


class Keeper:
    """What one deployment keeps; an earlier server's work is found when it begins."""

    def __init__(self, opened: Opened, folder: Path | None, *, rounds: int) -> None:
        setting = opened.setting
        self._folder, self._rounds = folder, rounds
        self.done, self.setting, self.standing = 0, setting, opened.standing
        self._deployment = _deployment(setting)
        if folder is not None:
            resuming.claim(folder, self._deployment)
            self._go_on(folder, opened)
        told = in_force(setting.options, self.done + 1)
        self.recorder = Recorder(folder, self._deployment, about(self.setting.roll), rounds=rounds, done=self.done, options=told)
        if not self.done:
            self.recorder.introduced(opened.left_out, opened.flagged)

    def _go_on(self, folder: Path, opened: Opened) -> None:
        saved = resuming.load(folder, self._deployment, opened.standing)
        if saved is None:
            return
        self.done, self.standing = saved.round, Standing(*saved.state)
        self.setting = _same_clients(opened.setting, saved.nodes, saved.told.get("numbers"))
        LOG.info("Going on after round %d, from %s", self.done, folder)

    @property
    def served(self) -> ArrayRecord:
        """What clients are given to use now."""
        return served_record(self.setting, self.standing)

    def joined(self, roll: Roll) -> None:
        """More clients are there than before."""
        self.setting = joined(self.setting, roll)
        self.recorder.about = about(roll)
        if self._folder is not None:
            write_about(self._folder, self.recorder.about)

    def began(self, standing: Standing, left_out: Sequence[LeftOut]) -> None:
        """What was settled before the first round."""
        self.standing = standing
        self.recorder.introduced(left_out)

    def trained(self, asked: Asked, came: Heard, done: Done, standing: Standing, *, seconds: float, download: float) -> None:
        """A round of training is over."""
        self.done, self.standing = asked.number, standing
        rule = self.setting.algorithm.rule
        reports = {k: float(v) for k, v in rule.report(standing.state.rule).items()} if isinstance(rule, ReportingRule) else {}
        uploads = [reply.upload for reply in came.replies.values()]
        self.recorder.round(
            asked.number,
            asked.cohort,
            done.weights,
            left_out=came.left_out,
            flagged=done.flags,
            examples={k: reply.examples for k, reply in came.replies.items()},
            seconds=seconds,
            traffic=Traffic(sum(uploads) / len(uploads), download),
            reports=reports,
        )

    def evaluated(self, number: int, found: Findings, *, seconds: float) -> None:
        """A round is over: what clients found is noted, and all of it is written."""
        self.recorder.evaluation(number, found.replies, found.left_out, seconds=seconds)
        self.recorder.write()
        if self._folder is not None:
            roll = self.setting.roll
            told = {"numbers": list(roll.numbers)}
            resuming.save(self._folder, self._deployment, round=self.done, state=self.standing, nodes=roll.nodes, told=told)


@contextmanager
def alone_in(folder: Path | None) -> Iterator[None]:
    """One server at a time works in a folder; what a killed one left half-written is removed."""
    if folder is None:
        yield
        return
    with held(folder, "folder"):
        sweep(folder)
        yield


def about(roll: Roll) -> About:
    """Who the clients are, as the report wants to know it."""
    census = roll.census
    return About(
        names=roll.names or tuple(f"client {k}" for k in range(roll.clients)),
        nodes=roll.nodes,
        examples=tuple(int(n) for n in census.examples) if roll.introduced else (),
        labels=roll.labels,
        groups=roll.groups,
        unprivileged=census.unprivileged,
        favourable=census.favourable,
        client_group=() if roll.client_group is None else tuple(int(g) for g in roll.client_group),
    )


def in_force(options: Options, since: int) -> InForce:
    """What the report says of the options."""
    return InForce(
        since,
        options.fraction_train,
        options.fraction_evaluate,
        options.min_train_nodes,
        options.min_evaluate_nodes,
        options.min_available_nodes,
        options.two_phase is not None,
        options.two_phase not in (None, two_phase.added),
    )


def _deployment(setting: Setting) -> resuming.Deployment:
    algorithm, options = setting.algorithm, setting.options
    arrays = list(zip(*setting.form.layout, strict=True))
    return deployment_of(algorithm, options.seeds, arrays, notation=notation_of(as_asked(algorithm, options)), caps=options.caps)


def _same_clients(setting: Setting, before: Sequence[int], numbers: Sequence[int] | None = None) -> Setting:
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
        return setting if roll.introduced else setting._replace(roll=roll._replace(nodes=tuple(before)))
    require(
        not roll.introduced and grows(setting.algorithm.rule),
        f"{label} knows something of each client, and other nodes are connected than before, so that nobody knows who is who. Wait for all "
        f"with min_available_nodes={len(before)}, let clients say their number in the census (introduce=True), or choose another folder "
        "to begin anew.",
    )
    new = [node for node in roll.nodes if node not in before]
    # Who is away keeps its number; where Flower numbered everybody anew, they take the places of before.
    known = (*before, *new) if len(new) < roll.clients else (*new, *before[len(new) :])
    return joined(setting, unknown_clients(known))
