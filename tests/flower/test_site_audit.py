"""A federated audit equals that of all rows together, and refuses what cannot be added up."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, Error, Message

import evenly
from evenly.auditing.result import Audit
from evenly.data.federation import Federation
from evenly.flower import audit, first_arrays, strategy, wire
from evenly.flower.clients.jax import app
from evenly.flower.clients.rows import ClientData, Decisions, client_of
from evenly.flower.site_audit import run_audit
from evenly.metrics.score_cells import CellCounts, cells_of_counts, counts_of_cells, score_cells
from evenly.models import Softmax
from evenly.saved_models import Model
from tests.flower.grids import OneProcess

CLIENTS, ROWS = 4, 30_000
SCORES = {"auc", "ece", "bias"}


def table() -> pd.DataFrame:
    draw = np.random.default_rng(5)
    n = ROWS
    frame = pd.DataFrame(
        {
            "site": draw.choice([f"site {k}" for k in range(CLIENTS)], n),
            "sex": draw.choice(["f", "m"], n),
            "old": draw.choice(["no", "yes"], n),
            "a": draw.normal(size=n),
            "b": draw.normal(size=n),
        }
    )
    shift = (frame["sex"] == "f") * 0.8
    frame["y"] = (frame["a"] + frame["b"] - shift + draw.logistic(size=n) > 0).astype(int)
    return frame


FEDERATION = Federation.from_frame(table(), client="site", label="y", sensitive=["sex", "old"])
TASK = Softmax(features=FEDERATION.x.shape[1], classes=2)


def params() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    like = {name: wire.read(a) for name, a in first_arrays("fedavg", TASK).items()}
    return {name: draw.normal(size=own.shape).astype(np.float32) for name, own in like.items()}


def pooled_table(federation: Federation = FEDERATION) -> pd.DataFrame:
    """The test rows of all clients with the predictions and scores of the model."""
    parts = []
    for k in range(federation.clients):
        own = federation.split("test").of(k)
        groups = federation.group[own]
        words = {a.name: [a.values[a.of_group[g]] for g in groups] for a in federation.attributes}
        model = Model(task=TASK, params=params(), labels=("0", "1"), shape=federation.x.shape[1:])
        x = federation.x[own]
        parts.append(
            pd.DataFrame(
                {
                    "site": federation.names[k],
                    **words,
                    "y": federation.y[own],
                    "p": model.predict(x).astype(int),
                    "s": model.probabilities(x)[:, 1].astype(float),
                }
            )
        )
    return pd.concat(parts)


def grid_of(source) -> OneProcess:
    return OneProcess(app(source, TASK), range(10, 10 + CLIENTS))


def figures_of(found: Audit) -> dict:
    return {
        (f.level, "" if f.level in ("model", "clients") else f.name, f.metric): f[3:7]
        for f in found.figures
    }


def test_it_equals_the_pooled_audit_on_counts_and_bounds_the_auc():
    found = audit(grid_of(FEDERATION), wire.to_arrays(params()), min_available_nodes=CLIENTS)
    pooled = evenly.audit(
        pooled_table(), client="site", label="y", prediction="p", score="s",
        sensitive=["sex", "old"], favourable=1,
    )  # fmt: skip
    ours, theirs = figures_of(found), figures_of(pooled)
    counted = {key for key in theirs if key[-1] not in SCORES}
    assert {key for key in ours if key[-1] not in SCORES} == counted
    for key in counted:
        assert ours[key] == pytest.approx(theirs[key], nan_ok=True, rel=0, abs=0), key
    assert found.clients is not None
    assert found.clients.names == FEDERATION.names
    auc, true = found.whole["auc"], pooled.whole["auc"].value
    assert auc.low <= true <= auc.high
    note = next(note for note in found.notes if "exact to ±" in note)
    bound = float(note.split("±")[1].split(";")[0])
    assert abs(auc.value - true) <= bound + 5e-5
    origin = found.groups[0].origins["spd"]
    assert origin.within.value + origin.between.value == pytest.approx(
        found.groups[0].against["spd"][found.groups[0].unprivileged or 0].value, abs=1e-12
    )


def test_sites_can_answer_about_predictions_of_their_own():
    pooled = pooled_table()

    def own(context: Context) -> ClientData:
        client = client_of(FEDERATION, int(context.node_config["partition-id"]))
        mine = pooled[pooled["site"] == client.name]
        decided = Decisions(mine["p"].to_numpy(), mine["s"].to_numpy())
        return client._replace(decisions=decided)

    found = audit(grid_of(own), min_available_nodes=CLIENTS)
    model = audit(grid_of(FEDERATION), wire.to_arrays(params()), min_available_nodes=CLIENTS)
    assert str(figures_of(found)) == str(figures_of(model))
    with pytest.raises(ValueError, match="no predictions of its own"):
        audit(grid_of(FEDERATION), min_available_nodes=CLIENTS)


def test_another_favourable_label_has_no_scores_and_an_unknown_one_is_refused():
    grid, model = grid_of(FEDERATION), wire.to_arrays(params())
    other = audit(grid, model, favourable=0, min_available_nodes=CLIENTS)
    assert other.about.favourable == "0"
    assert "auc" not in other.whole
    with pytest.raises(ValueError, match="There is no label 'maybe'"):
        audit(grid, model, favourable="maybe", min_available_nodes=CLIENTS)


def test_a_site_whose_labels_differ_stops_the_audit_with_one_sentence():
    def own(context: Context) -> ClientData:
        client = client_of(FEDERATION, int(context.node_config["partition-id"]))
        return client._replace(labels=("no", "yes")) if client.number == 2 else client

    grid = grid_of(own)
    with pytest.raises(ValueError, match="All sites must agree on names of labels, but 'site 2'"):
        audit(grid, wire.to_arrays(params()), min_available_nodes=CLIENTS)
    assert {kind for kind, _ in grid.asked} == {wire.CENSUS}  # no site was asked for counts


@pytest.mark.parametrize("missing", ["labels", "favourable"])
def test_an_audit_without_a_favourable_label_is_one_sentence(missing: str):
    ready = app(FEDERATION, TASK)

    def answer(message: Message, context: Context) -> Message:
        reply = ready(message, context)
        if message.metadata.message_type == wire.CENSUS:
            del reply.content.config_records[wire.ABOUT][missing]
        return reply

    grid = OneProcess(answer, range(10, 10 + CLIENTS))
    with pytest.raises(ValueError, match="labels and the favourable one, and no site told them"):
        audit(grid, wire.to_arrays(params()), min_available_nodes=CLIENTS)
    assert {kind for kind, _ in grid.asked} == {wire.CENSUS}  # no site was asked for counts


def test_an_audit_of_people_who_all_have_one_label_is_one_sentence():
    def own(context: Context) -> ClientData:
        client = client_of(FEDERATION, int(context.node_config["partition-id"]))
        return client._replace(test=client.test._replace(y=np.zeros_like(client.test.y)))

    with pytest.raises(ValueError, match=r"at least two labels, but all of 3,001 have '0'\."):
        audit(grid_of(own), wire.to_arrays(params()), min_available_nodes=CLIENTS)


def test_a_site_that_refuses_is_left_out_and_the_page_says_so():
    ready = app(FEDERATION, TASK)

    def answer(message: Message, context: Context) -> Message:
        if message.metadata.message_type == wire.AUDIT and context.node_id == 11:
            return Message(Error(wire.REFUSED, "The policy refuses."), reply_to=message)
        return ready(message, context)

    grid = OneProcess(answer, range(10, 10 + CLIENTS))
    found = audit(grid, wire.to_arrays(params()), min_available_nodes=CLIENTS)
    assert found.clients is not None
    assert len(found.clients.names) == CLIENTS - 1
    words = next(words for words in found.warnings if "1 site is not in this audit" in words)
    assert "of 4 that were asked. 'site 1' " in words
    with pytest.raises(ValueError, match="needs answers of at least 4 sites"):
        audit(grid, wire.to_arrays(params()), min_evaluate_nodes=CLIENTS)


def test_a_site_has_the_name_of_its_registered_key_and_not_the_one_it_claims():
    ready = app(FEDERATION, TASK)

    def answer(message: Message, context: Context) -> Message:
        reply = ready(message, context)
        if message.metadata.message_type == wire.CENSUS and context.node_id == 11:
            reply.content.config_records[wire.ABOUT]["name"] = "site 2"
        return reply

    grid = OneProcess(answer, range(10, 10 + CLIENTS))
    grid.keys, grid.names = {11: b"north", 12: b"site 2"}, {11: "north"}
    found = audit(grid, wire.to_arrays(params()), min_available_nodes=CLIENTS)
    assert found.clients is not None
    assert found.clients.names == ("site 0", "north", "site 2", "site 3")


@pytest.mark.parametrize("wrong", ["fraction", "shape", "scores", "negative"])
def test_counts_that_cannot_be_right_leave_a_site_out(wrong: str):
    ready = app(FEDERATION, TASK)

    def answer(message: Message, context: Context) -> Message:
        reply = ready(message, context)
        if message.metadata.message_type == wire.AUDIT and context.node_id == 11:
            metrics = reply.content.metric_records[wire.METRICS]
            table, first = list(metrics[wire.TABLE]), list(metrics[wire.SCORE_FIRST])
            if wrong == "shape":
                metrics[wire.TABLE + wire.SHAPE] = [len(table)]
            metrics[wire.TABLE] = {
                "fraction": [0.5, *map(float, table[1:])],
                "negative": [-1, *table[1:]],
            }.get(wrong, table)
            metrics[wire.SCORE_FIRST] = [3, *first[1:]] if wrong == "scores" else first
        return reply

    grid = OneProcess(answer, range(10, 10 + CLIENTS))
    found = audit(grid, wire.to_arrays(params()), min_available_nodes=2)
    assert any("'site 1' sent" in words for words in found.warnings)


def test_counts_tell_the_cells():
    draw = np.random.default_rng(0)
    score, label, group = draw.random(200), draw.integers(0, 2, 200), draw.integers(0, 2, 200)
    cells = score_cells(score, label == 1, group, 5)
    counts = counts_of_cells(cells, 2)
    assert cells_of_counts(counts).tolist() == cells.tolist()
    broken = counts.first.copy()
    broken[0, 0, np.flatnonzero(broken[0, 0])[0]] += 1
    with pytest.raises(ValueError, match="different cells"):
        cells_of_counts(CellCounts(broken, counts.last))


RUN = {"method": "fedavg", "seed": 0, "clients": CLIENTS, "least": 2, "timeout": 60.0}


def test_an_app_writes_its_audit_and_never_replaces_the_report_of_a_run(tmp_path: Path):
    run = strategy("fedavg", task=TASK, folder=tmp_path / "run", introduce=True)
    run.start(grid_of(FEDERATION), first_arrays("fedavg", TASK), num_rounds=1)
    report = (tmp_path / "run" / "report.html").read_bytes()
    config = {**RUN, "model": str(tmp_path / "run"), "folder": str(tmp_path / "audit")}
    for _ in range(2):  # an audit may replace an audit
        assert run_audit(grid_of(FEDERATION), config) == tmp_path / "audit"
    assert json.loads((tmp_path / "audit" / "audit.json").read_text())["source"] == "federation"
    with pytest.raises(ValueError, match=r"Not met: accuracy at least 99\.5.*The report is in"):
        run_audit(grid_of(FEDERATION), {**config, "require": "accuracy>=99.5"})
    checks = json.loads((tmp_path / "audit" / "audit.json").read_text())["requirements"]
    assert [check["met"] for check in checks] == [False]
    grid = grid_of(FEDERATION)
    with pytest.raises(ValueError, match=r"holds the file plan\.json that no audit wrote"):
        run_audit(grid, {**config, "folder": str(tmp_path / "run")})
    assert not grid.asked
    assert (tmp_path / "run" / "report.html").read_bytes() == report
    assert not (tmp_path / "run" / "audit.json").exists()
