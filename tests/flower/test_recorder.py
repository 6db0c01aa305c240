"""A deployment leaves a folder that is read like a simulation's, whenever it is looked at."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from evenly.algorithms import algorithm
from evenly.cli import app
from evenly.data.splits import SPLITS
from evenly.experiment.comparison import Comparison, final_by_seed
from evenly.experiment.deployment import Exclusion, Flag, RoundFlag, read_exclusions, read_rounds
from evenly.experiment.reopen import open_results, open_study
from evenly.experiment.result_rows import tidy_rows
from evenly.flower.caps import Caps
from evenly.flower.recorder import comparable_evaluations, deployment_of
from evenly.flower.replies import ClientEvaluation
from evenly.metrics import accuracy
from evenly.report.charts.focus import choose_focus
from evenly.report.charts.weighing import weight_history
from evenly.report.page import render
from evenly.report.trust_sections import left_out_section
from evenly.report.values import client_split, final_values
from evenly.types import Seeds
from evenly.watch.state import WatchState
from tests.flower.deployments import CLIENTS, NAMES, one_round, recorder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("deployed") / "run"
    written = recorder(place)
    for t in range(1, 5):
        one_round(written, t)
    written.end()
    return place


def section_of(comparison: Comparison, least: int = 0) -> str:
    values = final_values(comparison, client_split(comparison))
    return left_out_section(comparison, choose_focus(comparison, values, least))


def test_the_trace_is_that_of_a_simulation(folder):
    trace = open_results(folder).runs[0].trace
    assert trace.rounds.tolist() == [1, 2, 3, 4]
    assert trace.tables.shape == (4, len(SPLITS), CLIENTS, 2, 2, 2)
    assert trace.cohort.shape == trace.weights.shape == (4, CLIENTS)
    assert trace.weights[1].tolist() == pytest.approx([0.2, 0.2, 0.2, 0.0, 0.2])
    assert (trace.upload, trace.download) == (88, 96)
    found = accuracy(trace.tables[:, SPLITS.index("test")])
    np.testing.assert_allclose(found[:, 0], [0.6, 0.7, 0.8, 0.9])


def test_of_a_client_that_stopped_answering_its_last_answer_is_shown(folder):
    found = accuracy(open_results(folder).runs[0].trace.tables[:, SPLITS.index("test")])
    np.testing.assert_allclose(found[:, 3], found[0, 3])


def test_training_rows_are_known_without_an_evaluation_on_them(folder):
    comparison = open_results(folder)
    assert comparison.federation.train.counts.tolist() == [100, 101, 102, 103, 104]
    assert comparison.federation.names == NAMES
    assert comparison.federation.groups == ("women", "men")


def test_memory_and_folder_agree(folder):
    kept = recorder(None)
    for t in range(1, 5):
        one_round(kept, t)
    for name, array in open_results(folder).runs[0].trace._asdict().items():
        np.testing.assert_array_equal(array, getattr(kept.trace(), name), err_msg=name)


def test_accuracies_alone_are_enough(tmp_path):
    plain = recorder(tmp_path / "run", groups=False)
    for t in (1, 2):
        one_round(plain, t, groups=False)
    comparison = open_results(tmp_path / "run")
    found = accuracy(comparison.runs[0].trace.tables[-1, SPLITS.index("test")])
    np.testing.assert_allclose(found, [0.7, 0.8, 0.9, 0.9, 1.0])
    assert comparison.federation.groups == ("all",)
    assert final_by_seed(comparison, "q-fedavg(q=1)", "test")["average"] == {0: pytest.approx(86.0)}
    assert "Who was left out" in render(comparison)


def test_the_report_says_who_was_left_out_and_who_was_flagged(folder):
    page = (folder / "report.html").read_text()
    assert '<section id="left-out"' in page
    assert (
        "3 of 20 requested updates did not arrive or did not count, and 3 further replies. This"
        " affects 1 of 5 clients." in page
    )
    assert "training 2–4; evaluation 2–4" in page
    assert "did not answer in time" in page
    assert "its loss" in page
    assert "This does not prove a lie" in page


def test_rows_beyond_a_cap_are_whole_numbers_and_those_of_the_census_are_said_to_be(folder):
    comparison = open_results(folder)
    assert comparison.incidents is not None
    claims = tuple(RoundFlag(t, Flag(1, "examples", 45_000.0, 675.0)) for t in (0, 1, 2))
    section = section_of(
        comparison._replace(incidents=comparison.incidents._replace(flagged=claims))
    )
    assert "census, 1–2" in section
    assert "45,000" in section


def test_clients_are_ordered_by_their_training_rows_without_an_evaluation_on_them(folder):
    history = weight_history(open_results(folder), "q-fedavg(q=1)")
    assert history is not None
    assert history.bands == list(NAMES[::-1])


def test_small_clients_are_left_out_without_their_name(folder):
    """Nobody has 50 test rows, so nobody is named, and no sentence quotes a number."""
    section = section_of(open_results(folder), least=50)
    assert "a client that is not named" in section
    assert "hospital" not in section
    assert "did not answer in time" not in section
    assert "no answer" in section


def test_a_deployment_in_which_all_went_well_says_so(tmp_path):
    kept = recorder(tmp_path / "run")
    one_round(kept, 1)
    comparison = open_results(tmp_path / "run")
    assert comparison.incidents is not None
    well = comparison._replace(incidents=comparison.incidents._replace(flagged=()))
    assert "Nobody: all 5 requested updates arrived and counted." in section_of(well)


@pytest.mark.parametrize("command", [["report"], ["export"], ["export", "--format", "latex"]])
def test_commands_read_it(folder, command, tmp_path):
    out = ["--out", str(tmp_path / "page.html")] if command == ["report"] else []
    result = CliRunner().invoke(app, [command[0], str(folder), *command[1:], *out])
    assert result.exit_code == 0, result.output


def test_it_is_the_same_as_itself_and_not_a_study(folder):
    assert CliRunner().invoke(app, ["diff", str(folder), str(folder)]).exit_code == 0
    with pytest.raises(ValueError, match="holds one comparison, not a study"):
        open_study(folder)


def test_resume_says_to_start_the_server_again(folder):
    result = CliRunner().invoke(app, ["resume", str(folder)])
    assert result.exit_code == 2
    assert "Start its server again" in result.stderr


def test_watch_follows_it(folder, tmp_path):
    told = WatchState(folder).look()
    assert told["status"] == "finished"
    assert told["methods"][0]["round"] == 4
    running = recorder(tmp_path / "run")
    assert WatchState(tmp_path / "run").look()["sentence"] == "The first round is under way."
    one_round(running, 1)
    told = WatchState(tmp_path / "run").look()
    assert told["status"] == "running"
    assert (told["progress"]["done"], told["progress"]["total"]) == (1, 4)
    running.end("failed", "too few clients")
    told = WatchState(tmp_path / "run").look()
    assert told["status"] == "failed"
    assert "continue with starting the server again with this folder" in told["sentence"]


def test_every_file_is_whole_after_every_round(tmp_path):
    kept = recorder(tmp_path / "run")
    for t in (1, 2):
        one_round(kept, t)
        assert [done.number for done in read_rounds(tmp_path / "run")] == list(range(1, t + 1))
        assert len(open_results(tmp_path / "run").runs[0].trace.rounds) == t
    assert not list((tmp_path / "run").rglob(".*.npz.*"))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["versions"]["flwr"]


def test_a_server_that_goes_on_forgets_what_it_will_do_again(tmp_path):
    first = recorder(tmp_path / "run")
    for t in (1, 2, 3):
        one_round(first, t)
    second = recorder(tmp_path / "run", done=2)
    assert [done.number for done in read_rounds(tmp_path / "run")] == [1, 2]
    for t in (3, 4):
        one_round(second, t)
    whole = recorder(None)
    for t in range(1, 5):
        one_round(whole, t)
    np.testing.assert_array_equal(second.trace().tables, whole.trace().tables)
    left, flagged = read_exclusions(tmp_path / "run")
    assert left == whole.left_out
    assert flagged == whole.flagged


def test_a_server_that_starts_over_forgets_every_round(tmp_path):
    first = recorder(tmp_path / "run")
    for t in (1, 2):
        one_round(first, t)
    first.record_evaluation(0, [], [])  # before the first round
    first.write()
    assert [done.number for done in read_rounds(tmp_path / "run")] == [0, 1, 2]
    recorder(tmp_path / "run")
    assert read_rounds(tmp_path / "run") == []


def test_before_the_first_evaluation_there_is_nothing_to_report(tmp_path):
    recorder(tmp_path / "run").write()
    with pytest.raises(ValueError, match="holds no evaluation yet"):
        open_results(tmp_path / "run")


def test_a_smaller_cohort_counts_nobody_twice(tmp_path):
    kept = recorder(None)
    one_round(kept, 1)
    kept.record_round(2, [4], [1.0])
    trace = kept.trace()
    assert trace.cohort[1].tolist() == [4] * CLIENTS
    assert trace.weights[1].tolist() == [1, 0, 0, 0, 0]


def test_of_several_models_each_client_counts_in_its_own():
    kept = recorder(None)
    kept.record_round(1, [0, 1, 2], [[1.0, 0.0], [0.0, 0.5], [0.0, 0.5]])
    assert kept.trace().weights.tolist() == [[1.0, 0.5, 0.5]]


def test_tables_of_another_shape_are_not_counted_with_the_others():
    def said(client: int, shape: tuple[int, ...] | None) -> ClientEvaluation:
        table = None if shape is None else np.ones(shape, int)
        return ClientEvaluation(
            client,
            {
                "test": {
                    "examples": 8,
                    "loss": 0.1,
                    "table": table,
                    "correct": 4 if table is None else None,
                }
            },
            {},
        )

    kept, strange = comparable_evaluations(
        [said(0, (2, 2, 2)), said(1, (2, 2, 2)), said(2, (1, 3, 3)), said(3, None)],
        5,
        {2: 102, 3: 103},
    )
    assert [reply.client for reply in kept] == [0, 1]
    assert [(one.node, one.client, one.round, one.phase) for one in strange] == [
        (102, 2, 5, "evaluate"),
        (103, 3, 5, "evaluate"),
    ]
    assert "sent a table of shape [1, 3, 3], where the others send [2, 2, 2]" in strange[0].reason
    assert comparable_evaluations([said(0, None), said(1, (1, 2, 2))], 1, {})[1] == []


def test_a_table_of_one_label_beside_an_accuracy_is_read(tmp_path):
    kept = recorder(tmp_path / "run", groups=False)
    kept.record_round(1, [0, 1], [0.5, 0.5], examples={0: 8, 1: 8})
    only = {"examples": 8, "loss": 0.1, "table": np.full((1, 1, 1), 8), "correct": None}
    kept.record_evaluation(
        1,
        [
            ClientEvaluation(0, {"test": only}, {}),
            ClientEvaluation(1, {"test": {**only, "table": None, "correct": 4}}, {}),
        ],
    )
    kept.write()
    comparison = open_results(tmp_path / "run")
    np.testing.assert_allclose(
        accuracy(comparison.runs[0].trace.tables[-1, SPLITS.index("test")])[:2], [1.0, 0.5]
    )
    assert "Who was left out" in render(comparison)


def test_one_table_does_not_decide_for_those_who_send_an_accuracy():
    accuracy = {"examples": 8, "loss": 0.1, "table": None, "correct": 4}
    table = np.zeros((3, 50, 50), int)
    table[1, [0, 7, 7], [0, 7, 8]] = 2, 3, 4
    replies = [
        ClientEvaluation(0, {"test": accuracy}, {}),
        ClientEvaluation(1, {"test": accuracy}, {}),
        ClientEvaluation(2, {"test": {**accuracy, "table": table}}, {}),
    ]
    kept, strange = comparable_evaluations(replies, 1, {})
    assert strange == []
    assert [reply.splits["test"]["correct"] for reply in kept] == [4, 4, 5]
    assert all(reply.splits["test"]["table"] is None for reply in kept)


def test_what_was_wrong_before_the_first_round_is_kept(tmp_path):
    kept = recorder(tmp_path / "run")
    kept.record_census([Exclusion(999, -1, 0, "did not answer the census", "no answer", "census")])
    one_round(kept, 1)
    section = section_of(open_results(tmp_path / "run"))
    assert "node 999" in section
    assert "before the first round" in section


def test_what_clients_say_cannot_change_the_page(tmp_path):
    kept = recorder(tmp_path / "run")
    one_round(kept, 1)
    kept.record_left_out([Exclusion(101, 1, 2, "crashed: <script>alert(1)</script>", "an error")])
    kept.write()
    section = section_of(open_results(tmp_path / "run"))
    assert "<script>" not in section
    assert "&lt;script&gt;" in section


def test_updates_that_are_not_finite_are_counted_as_in_a_simulation():
    kept = recorder(None)
    one_round(kept, 1)
    kept.record_round(
        2,
        [0, 1],
        [1.0, 0.0],
        left_out=[Exclusion(101, 1, 2, "sent NaN or infinity in array 'w'", "unusable arrays")],
    )
    assert kept.trace().excluded.tolist() == [0, 1, 0, 0, 0]


def test_a_damaged_round_is_named(tmp_path):
    kept = recorder(tmp_path / "run")
    one_round(kept, 1)
    path = tmp_path / "run" / "history" / "000001.npz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"000001\.npz' is damaged"):
        open_results(tmp_path / "run")


def test_rows_are_tidy(folder):
    rows = list(tidy_rows(open_results(folder)))
    assert {row["label"] for row in rows} == {"q-fedavg(q=1)"}
    assert any(
        row["level"] == "client" and row["name"] == "hospital 3" and row["metric"] == "accuracy"
        for row in rows
    )


def test_a_round_keeps_what_clients_said_and_the_time_of_both_halves(tmp_path):
    kept = recorder(tmp_path / "run", groups=False)
    kept.record_round(1, [2, 0, 1], [0.5, 0.5, 0.0], examples={2: 7, 0: 9}, seconds=2.0)
    kept.record_evaluation(
        1,
        [
            ClientEvaluation(
                0, {"test": {"examples": 4, "loss": 0.1, "table": None, "correct": 2}}, {}
            )
        ],
        seconds=0.5,
    )
    kept.write()
    (done,) = read_rounds(tmp_path / "run")
    assert done.examples.tolist() == [7, 9, 0]
    assert done.seconds == 2.5
    assert json.loads((tmp_path / "run" / "run.json").read_text())["seconds"] == 2.5
    kept.record_evaluation(
        2,
        [
            ClientEvaluation(
                0, {"test": {"examples": 4, "loss": 0.1, "table": None, "correct": 3}}, {}
            )
        ],
    )
    kept.write()
    assert [len(one.cohort) for one in read_rounds(tmp_path / "run")] == [3, 0]
    incidents = kept.comparison().incidents
    assert incidents is not None
    assert incidents.asked == 3
    assert json.loads((tmp_path / "run" / "run.json").read_text())["seconds"] == 2.5


def test_a_server_that_begins_again_forgets_who_was_left_out_before(tmp_path):
    wrong = Exclusion(999, -1, 0, "did not answer the census", "no answer", "census")
    recorder(tmp_path / "run").record_census([wrong])
    first = recorder(tmp_path / "run")
    first.record_census([wrong])
    first.write()
    again = recorder(tmp_path / "run")
    again.record_census([wrong])
    assert again.left_out == [wrong]
    assert recorder(tmp_path / "run", done=1).left_out == [wrong]


@pytest.mark.parametrize("how, evaluated", [("failed", True), ("finished", False)])
def test_no_report_is_written_of_a_run_that_failed_or_was_not_evaluated(how, evaluated, tmp_path):
    kept = recorder(tmp_path / "run")
    if evaluated:
        one_round(kept, 1)
    else:
        kept.record_round(1, [0], [1.0])
    kept.end(how)
    assert not (tmp_path / "run" / "report.html").exists()


def test_as_many_tables_as_accuracies_stay_tables():
    table = {"examples": 8, "loss": 0.1, "table": np.full((1, 2, 2), 2), "correct": None}
    replies = [
        ClientEvaluation(0, {"test": table}, {}),
        ClientEvaluation(1, {"test": {**table, "table": None, "correct": 4}}, {}),
    ]
    kept, strange = comparable_evaluations(replies, 1, {})
    assert kept == replies
    assert strange == []


def test_a_deployment_names_its_sampling_and_its_caps():
    made = algorithm("fedavg+weighted(clients=3)")
    found = deployment_of(
        made, Seeds(), [], notation="fedavg+weighted(clients=3)+reweigh", caps=Caps(loss="3x")
    )
    assert (found.sampling, found.caps) == ("weighted(clients=3)", {"loss": "3x"})
    plain = deployment_of(made, Seeds(), [], notation="fedavg+reweigh")
    assert (plain.sampling, plain.caps, deployment_of(made, Seeds(), []).sampling) == ("", {}, "")
