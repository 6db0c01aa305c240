"""Policies of sites: what a file may say, and what a bad one does."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from sklearn.linear_model import LogisticRegression, SGDClassifier
from torch import nn

from evenly.data.federation import Federation
from evenly.flower import wire
from evenly.flower.app import client_of_table, schema_of
from evenly.flower.clients.client import read_config
from evenly.flower.clients.egress import EgressEntry, EgressError, EgressLog, read_egress, sentences
from evenly.flower.clients.guard import effective_rows, site_policy
from evenly.flower.clients.jax import JaxEngine
from evenly.flower.clients.policy import Policy, PolicyError, policy_text, read_policy
from evenly.flower.clients.sklearn import SklearnEngine
from evenly.flower.clients.sklearn import app as sklearn_app
from evenly.flower.clients.torch import TorchEngine
from evenly.flower.clients.torch_training import cross_entropy
from evenly.models import MLP, Augmented, Custom, LinearSVM, Logistic, Softmax
from tests.flower.hostile_server import (
    AGREED,
    FEATURES,
    LARGE,
    SMALL,
    TINY,
    Site,
    hospital,
    jax_client,
    linear,
)
from tests.models.stateful import Normalised

BAD = {
    'methods = ["fedavg"]\nleast_cel = 5': r"no key 'least_cel'. Did you mean 'least_cell'",
    "least_cell = 5": "methods is missing",
    "methods = []": "methods must name at least one",
    'methods = ["fedavgg"]': "methods: There is no method 'fedavgg'",
    'methods = ["fedavg"': "allows nothing",
    'methods = ["fedavg"]\nleast_cell = 0': "least_cell must be at least 1",
    'methods = ["fedavg"]\nleast_cell = true': "least_cell must be a whole number",
    'methods = ["fedavg"]\nleast_cell = 4.5': "least_cell must be a whole number",
    'methods = "fedavg"': "methods must be a list",
    'methods = ["fedavg"]\nsplits = ["tset"]': "entry of splits 'tset'",
    'methods = ["fairfed"]\nsignals = ["loss"]': "needs the signals table",
    'methods = ["fedavg(batch_size=1)"]': "batches of 1 rows, and least_batch is 5",
    'methods = ["fedavg"]\nepsilon = 8.0': "fedavg sends exact numbers",
    'methods = ["fedavg"]\nnoise = 0.0': "noise must be above 0",
    'methods = ["fedavg+dp(unit=row, epsilon=8)"]': "leaves the noise to the server",
    'methods = ["fedavg+dp(unit=row, noise_multiplier=1)"]\nnoise = 2.0': "adds noise of 1",
}


def write(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("text, words", BAD.items())
def test_a_bad_policy_is_refused_with_one_sentence(tmp_path: Path, text: str, words: str):
    with pytest.raises(PolicyError, match=words) as caught:
        read_policy(write(tmp_path, text))
    assert "allows nothing" in str(caught.value)
    assert "\n" not in str(caught.value).rstrip()


def test_a_policy_that_everybody_can_write_or_nobody_can_find_allows_nothing(tmp_path: Path):
    path = write(tmp_path, 'methods = ["fedavg"]')
    assert read_policy(path).least_cell == 5
    path.chmod(0o666)
    with pytest.raises(PolicyError, match="every user of this machine can change it"):
        read_policy(path)
    with pytest.raises(PolicyError, match="allows nothing"):
        read_policy(tmp_path / "elsewhere.toml")


def test_the_written_policy_holds_the_defaults(tmp_path: Path):
    """What `evenly flower new` writes says the defaults, so that a line that is taken out changes
    nothing.
    """
    written = read_policy(write(tmp_path, policy_text(("q-fedavg(q=1)",))))
    assert written == Policy(methods=("q-fedavg(q=1)",), log=str(tmp_path / "egress.jsonl"))


def test_a_method_is_the_same_with_another_sampling_and_another_with_other_settings():
    own = Policy(methods=("q-fedavg(q=1)", "fairfed+reweigh"))
    assert own.allows("q-fedavg(q=1.0)+uniform(clients=3)")
    assert own.allows("fairfed(metric=eod)+reweigh+full")
    for other in ("q-fedavg(q=2)", "q-fedavg(q=1, epochs=2)", "fairfed", "fedsgd"):
        assert not own.allows(other)


def labelled_linear() -> nn.Module:
    class Labelled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input.relu())

    return Labelled(FEATURES, 2)


ONE_LOGIT = {
    "softmax": JaxEngine(Softmax(features=FEATURES, classes=2)),
    "logistic": JaxEngine(Logistic(features=FEATURES)),
    "sgd": SklearnEngine(lambda: SGDClassifier(loss="log_loss")),
    "solver": SklearnEngine(lambda: LogisticRegression(warm_start=True)),
    "one output": TorchEngine(lambda: nn.Linear(FEATURES, 1), cross_entropy, None),
    "two outputs": TorchEngine(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 2)), cross_entropy, None
    ),
}
STATEFUL: Any = Normalised(features=FEATURES, classes=2)
OTHERS = {
    "three classes": JaxEngine(Softmax(features=FEATURES, classes=3)),
    "hinge": JaxEngine(LinearSVM(features=FEATURES)),
    "hidden layer": JaxEngine(MLP(features=FEATURES, classes=2)),
    "own functions": JaxEngine(
        Custom(initialise=lambda key: linear(), apply=lambda model, x: x @ model["w"])
    ),
    "augmented": JaxEngine(
        Augmented(task=Softmax(features=FEATURES, classes=2), augment=lambda key, x: x)
    ),
    "statistics of batches": JaxEngine(STATEFUL),
    "another loss": SklearnEngine(lambda: SGDClassifier(loss="modified_huber")),
    "three outputs": TorchEngine(lambda: nn.Linear(FEATURES, 3), cross_entropy, None),
    "two layers": TorchEngine(
        lambda: nn.Sequential(nn.Linear(FEATURES, 2), nn.Linear(2, 2)), cross_entropy, None
    ),
    "batch norm": TorchEngine(
        lambda: nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 2)),
        cross_entropy,
        None,
    ),
    "own forward": TorchEngine(labelled_linear, cross_entropy, None),
    "own loss": TorchEngine(
        lambda: nn.Linear(FEATURES, 2), lambda output, y: -output[:, 0] * y, None
    ),
}
RANKED = "frl+uniform(clients=3)"  # ranks edges of a frozen network


def test_only_linear_models_of_two_classes_have_one_logit():
    plain, ranked = (read_config({wire.METHOD: method}) for method in ("fedavg", RANKED))
    assert [name for name, one in ONE_LOGIT.items() if not one.has_one_logit(plain)] == []
    assert [name for name, one in OTHERS.items() if one.has_one_logit(plain)] == []
    assert not ONE_LOGIT["two outputs"].has_one_logit(ranked)


def test_a_third_label_is_one_too_many_for_one_logit(tmp_path: Path):
    three = LARGE._replace(labels=("no", "yes", "unknown"))
    site = Site(three, tmp_path, AGREED)
    assert site.ask("train", linear()) == {}
    assert "linear models with two classes" in site.said


@pytest.mark.parametrize("kind", ["train", wire.MEASURE, "evaluate", wire.AUDIT])
def test_every_request_about_another_model_is_refused_until_the_operator_allows_it(
    kind: str, tmp_path: Path
):
    model = {"b": np.zeros(3, np.float32), "w": np.zeros((FEATURES, 3), np.float32)}
    model["w"][0, 1] = 3
    own = LARGE._replace(labels=("no", "yes", "unknown"))
    client = jax_client(Softmax(features=FEATURES, classes=3))
    for allowed in (False, True):
        folder = tmp_path / str(allowed)
        folder.mkdir()
        more = f"any_model = {str(allowed).lower()}"
        site = Site(own, folder, AGREED, client=client, more=more)
        assert bool(site.ask(kind, model)) == allowed, site.said
        assert bool(site.ask("query.census")), "it holds no model"


def test_effective_rows_lie_between_one_and_all():
    assert effective_rows(np.array([2.0, 2, 2, 2])) == 4
    assert effective_rows(np.array([1.0, 1e-9, 0])) == pytest.approx(1)
    assert effective_rows(np.array([np.inf, 1])) == effective_rows(np.zeros(3)) == 0


def entry(number: int) -> EgressEntry:
    return EgressEntry("2026-11-18T09:00:00+00:00", "7", "train", number, "left", "", "fedavg",
                 numbers={"num-examples": 80, "loss": 0.5}, arrays={"w": [4, 2]})  # fmt: skip


def test_the_log_grows_only_and_tells_when_it_was_changed(tmp_path: Path):
    path = tmp_path / "deep" / "egress.jsonl"
    for number in (1, 2, 3):
        with EgressLog(path).locked() as log:
            assert len(log.entries) == number - 1
            log.append(entry(number))
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_egress(path) == [entry(1), entry(2), entry(3)]
    assert "mean loss: 0.5" in "\n".join(sentences(entry(1)))
    groups = ["sex=f, age=old", "sex=m, age=old"]  # names hold commas
    named = sentences(entry(1)._replace(about={"groups": groups}))
    assert named[-1] == "  groups: sex=f, age=old; sex=m, age=old"
    lines = path.read_text().splitlines(keepends=True)
    for changed in (
        lines[:1] + lines[2:],
        [lines[0].replace("0.5", "0.6"), *lines[1:]],
        [*lines, "{}\n"],
    ):
        path.write_text("".join(changed))
        with pytest.raises(EgressError, match="changed or is damaged"):
            read_egress(path)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, write = tmp_path / "egress.jsonl", os.write

    def full(descriptor: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", no_space)
        return write(descriptor, data[:20])

    def no_space(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with EgressLog(path).locked() as log:
        log.append(entry(1))
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            log.append(entry(2))
    monkeypatch.undo()
    with EgressLog(path).locked() as log:
        log.append(entry(2))
    assert read_egress(path) == [entry(1), entry(2)]
    path.write_bytes(path.read_bytes() + b"\xff\n")
    with pytest.raises(EgressError, match="line 3: the log was changed or is damaged"):
        read_egress(path)


def message(kind: str = "train") -> Message:
    from flwr.app import Metadata

    envelope = Metadata(
        run_id=1, message_id="1", src_node_id=1, dst_node_id=2, reply_to_message_id="",
        group_id="", created_at=0.0, ttl=60.0, message_type=kind,
    )  # fmt: skip
    return Message(content=RecordDict(), metadata=envelope)  # pyright: ignore[reportCallIssue]


def context(**config: str) -> Context:
    return Context(1, 2, dict(config), RecordDict(), {})


def hand_written() -> tuple[ClientApp, list[str]]:
    app, asked = ClientApp(mods=[site_policy]), list[str]()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        asked.append("train")
        context.state["half"] = RecordDict().config_records  # pyright: ignore[reportArgumentType]
        raise ValueError("patient 4711 has no label")

    return app, asked


def test_a_client_without_a_readable_policy_answers_nothing(tmp_path: Path):
    app, asked = hand_written()
    for own in (context(), context(policy=str(tmp_path / "none.toml"))):
        reply = app(message(), own)
        assert reply.error.code == wire.REFUSED
        assert "no policy that can be read" in str(reply.error.reason)
    assert asked == []


def test_a_site_whose_labels_differ_says_so_to_its_own_operator_only(tmp_path: Path):
    """The error names a value of the site's table, so that the server hears only that it failed."""
    table = pd.DataFrame(
        {
            "ward": ["n", "s"] * 20,
            "age": [7 * k % 11 for k in range(40)],
            "back": ["no", "yes"] * 20,
        }
    )
    agreed = schema_of(
        Federation.from_frame(table, client="ward", label="back"),
        client="ward", label="back", sensitive=(),
    )  # fmt: skip
    strange = table.assign(back=["no", "deceased"] * 20)
    site = Site(lambda _: client_of_table(agreed, strange, "s"), tmp_path, AGREED)
    assert site.ask("query.census") == {}
    assert site.said == f"{wire.REFUSES}it could not answer, and its own log says why."
    (failed,) = site.entries()
    assert failed.decision == "failed"
    assert "deceased" in failed.words
    assert failed.numbers == {}


PRIVATE = "fedfb+dp(unit=row, noise_multiplier=1, signal_noise=3, epsilon=50)"


@pytest.mark.parametrize("rare", [4, 5])
@pytest.mark.parametrize("attempt", ["losses", "row weights"])
def test_whether_noised_training_is_refused_does_not_depend_on_one_row(
    attempt: str, rare: int, tmp_path: Path
) -> None:
    """Clip and noise bound what the rows reveal; a refusal would reveal one of them exactly."""
    site = Site(hospital([[40, 0], [0, rare]]), tmp_path, PRIVATE)
    (tmp_path / "policy.toml").write_text(f"methods = ['{PRIVATE}']\nepsilon = 50.0")
    site.config["ledger"] = str(tmp_path / "ledger.json")
    model = linear()
    told: dict[str, Any] = {}
    if attempt == "losses":  # nothing but the rare rows would move this model
        model["b"] = np.array([40.0, 0.0], np.float32)
        wire.put(told, wire.ROW_WEIGHTS, np.ones((2, 2)))
    else:
        wire.put(told, wire.ROW_WEIGHTS, np.array([[1e-6, 1.0], [1.0, 1.0]]))
    assert "arrays" in site.ask("train", model, 1, **told), site.entries()[-1].words


def test_too_few_rows_to_train_on_are_refused_with_noise_as_well(tmp_path: Path) -> None:
    """Their number is public."""
    site = Site(TINY, tmp_path, PRIVATE)
    (tmp_path / "policy.toml").write_text(f"methods = ['{PRIVATE}']\nepsilon = 50.0")
    site.config["ledger"] = str(tmp_path / "ledger.json")
    assert site.ask("train", linear(), 1) == {}
    assert "There are 3 training rows" in site.entries()[-1].words


@pytest.mark.parametrize("more", ["noise = 1.0", "epsilon = 8.0"])
def test_a_census_is_held_against_the_methods(more: str, tmp_path: Path) -> None:
    """Its counts have the noise of the method that it names, and its budget may become the
    ledger's.
    """
    method = "fedavg+dp(unit=row, rate=0.2, noise_multiplier=1, signal_noise=3, epsilon=8)"
    other = method.replace("signal_noise=3, epsilon=8", "signal_noise=0.0001, epsilon=1e12")
    ledger = tmp_path / "ledger.json"
    site = Site(LARGE, tmp_path, method, more=more)
    site.config["ledger"] = str(ledger)
    assert site.ask(wire.CENSUS, evenly_method=other) == {}
    assert "not one that it agreed to" in site.said
    assert not ledger.exists()
    assert site.ask(wire.CENSUS)["num-examples"] == LARGE.train.size, site.said
    assert json.loads(ledger.read_text())["epsilon"] == 8.0


def test_the_server_hears_that_a_budget_is_spent(tmp_path: Path) -> None:
    """Words that do not depend on rows tell its operator what to do."""
    site = Site(LARGE, tmp_path, PRIVATE, more="epsilon = 0.01")
    site.config["ledger"] = str(tmp_path / "ledger.json")
    assert site.ask("train", linear()) == {}
    assert "it could not answer: The privacy budget of this client is spent" in site.said
    assert site.entries()[-1].decision == "failed"


def test_a_seed_that_is_not_named_is_the_default_one(tmp_path: Path) -> None:
    site = Site(LARGE, tmp_path, AGREED)
    assert site.ask("train", linear(), 1, batch_seed=None), site.said
    assert site.ask("train", linear(), 2, batch_seed=5) == {}
    assert "'batch-seed' changed" in site.said
    assert site.ask("train", linear(), 2, batch_seed=0), site.said


def test_the_same_request_gets_the_same_answer_in_scikit_learn(tmp_path: Path) -> None:
    """An estimator that shuffles its rows by chance would tell more each time."""

    def shuffling() -> SGDClassifier:
        return SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01)

    site = Site(LARGE, tmp_path, AGREED, client=lambda source: sklearn_app(shuffling, source))
    model = {"coef_": np.zeros((1, FEATURES)), "intercept_": np.zeros(1)}
    first, again = (site.ask("train", model)["arrays"] for _ in range(2))
    assert all((first[name] == again[name]).all() for name in first)
    other = site.ask("train", model, 2)["arrays"]
    assert not np.allclose(first["coef_"], other["coef_"])


def test_a_census_that_is_refused_keeps_no_model(tmp_path: Path) -> None:
    """Ditto's clients keep the model of the census in their folder."""
    for source, kept in ((SMALL, 0), (LARGE, 1)):
        folder = tmp_path / f"{kept}"
        folder.mkdir()
        site = Site(source, folder, "ditto")
        site.config["memory"] = str(folder / "memory")
        assert bool(site.ask(wire.CENSUS, linear(), evenly_deployment="0123456789abcdef")) == kept
        assert len(list(folder.rglob("round-*.npz"))) == kept


def test_a_refusal_leaves_the_state_of_the_node_as_it_was(tmp_path: Path):
    """Ditto keeps a personal model there; a round that is refused does not move it."""
    site = Site(LARGE, tmp_path, "ditto")
    assert "arrays" in site.ask("train", linear(), 1)
    before = {key: repr(record) for key, record in site.state.items()}
    assert before
    assert site.ask("train", linear(1.0), 1) == {}
    assert {key: repr(record) for key, record in site.state.items()} == before
