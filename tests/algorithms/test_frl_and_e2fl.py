"""FRL and E2FL: whole runs against NumPy, limits, who votes, and who is served what."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.algorithms import algorithm
from evenly.data.federation import Federation
from evenly.data.splits import SPLITS, Ragged
from evenly.models import Custom, LeNet, Softmax
from evenly.parts.client_groups import drawn_groups
from evenly.parts.ranking import Supernetwork, inverse, tally
from evenly.parts.ranking_work import GroupServer, GroupVotes
from evenly.records import replace
from evenly.simulate import simulate
from evenly.types import Seeds, Trace
from tests.federations import with_broken_clients
from tests.oracles import rank_run, ranking
from tests.oracles.run import visits
from tests.simulations import same_bits

ROUNDS = 6
LINEAR = Custom(initialise=lambda key: jnp.zeros((5, 3)), apply=lambda w, x: x @ w)
UNIFORM = "+uniform(clients=3)"
COMMON = {"batch_size": 5, "learning_rate": 0.3}


def made(text: str) -> Any:
    return algorithm(text, **COMMON)


def ran(federation: Federation, text: str, rounds: int = ROUNDS, **options: Any) -> Trace:
    (trace,) = simulate(LINEAR, federation, [made(text)], rounds, **options)
    return trace


def frozen(seeds: Seeds, text: str = "frl") -> Supernetwork:
    task = made(text).task(LINEAR, seeds)
    assert isinstance(task, Supernetwork)
    return task


def network(task: Supernetwork, **schedule: Any) -> rank_run.Network:
    scores = np.sort(np.asarray(task.scores_at(jnp.arange(15.0).reshape(5, 3))).ravel())
    return rank_run.Network(
        task.weights, scores, rate=0.3, momentum=0.9, decay=1e-4, k=0.5, **schedule
    )


def first_ranking(task: Supernetwork, seeds: Seeds) -> np.ndarray:
    return np.asarray(inverse(task.init(jax.random.key(seeds.model))))


def rankings(trace: Trace) -> list[np.ndarray]:
    (leaf,) = jax.tree.leaves(trace.model)
    return [np.asarray(inverse(jnp.asarray(own))) for own in np.asarray(leaf).reshape(-1, 15)]


@pytest.mark.parametrize("seed, dropout", [(0, 0.0), (1, 0.0), (2, 0.5)])
def test_frl_is_the_oracles(tiny: Federation, seed: int, dropout: float):
    seeds = Seeds.all(seed)
    task = frozen(seeds)
    rounds = visits(tiny, made("frl" + UNIFORM), ROUNDS, seeds, dropout)
    expected = rank_run.frl(network(task), first_ranking(task, seeds), rounds)
    trace = ran(tiny, "frl" + UNIFORM, seeds=seeds, dropout=dropout)
    assert rankings(trace)[0].tolist() == expected.tolist()
    assert expected.tolist() != first_ranking(task, seeds).tolist()
    np.testing.assert_array_equal(
        trace.weights, [[float(v.returned) for v in seats] for seats in rounds]
    )


@pytest.mark.parametrize(
    "settings, schedule",
    [
        ("round_decay=0.7", {"round_decay": 0.7}),
        ("cosine=true", {"cosine_epochs": 3}),
        ("round_decay=0.7, cosine=true", {"round_decay": 0.7, "cosine_epochs": 3}),
    ],
)
@pytest.mark.parametrize("lanes", [1, 3, pytest.param(2, marks=pytest.mark.further)])
def test_the_rate_falls_from_round_to_round_and_from_epoch_to_epoch(
    tiny: Federation, settings: str, schedule: dict[str, Any], lanes: int
):
    seeds, text = Seeds.all(4), f"frl(epochs=3, {settings})" + UNIFORM
    task = frozen(seeds, text)
    rounds = visits(tiny, made(text), ROUNDS, seeds, 0.0)
    expected = rank_run.frl(network(task, **schedule), first_ranking(task, seeds), rounds)
    constant = rank_run.frl(network(task), first_ranking(task, seeds), rounds)
    assert expected.tolist() != constant.tolist(), "the schedule matters here"
    trace = ran(tiny, text, seeds=seeds, lanes=lanes)
    assert rankings(trace)[0].tolist() == expected.tolist()


@pytest.mark.parametrize("absent_vote", [False, True])
@pytest.mark.parametrize("seed, dropout", [(0, 0.0), (3, 0.5)])
def test_e2fl_with_known_groups_is_the_oracles(
    tiny: Federation, seed: int, dropout: float, absent_vote: bool
):
    seeds, text = Seeds.all(seed), f"e2fl(absent_vote={str(absent_vote).lower()})" + UNIFORM
    task = frozen(seeds)
    rounds = visits(tiny, made(text), ROUNDS, seeds, dropout)
    known = np.asarray(tiny.client_group)
    net = network(task)
    overall, own = rank_run.e2fl(
        net,
        first_ranking(task, seeds),
        rounds,
        3,
        lambda t, who, groups: known[who],
        absent_vote=absent_vote,
    )
    trace = ran(tiny, text, seeds=seeds, dropout=dropout)
    assert [one.tolist() for one in rankings(trace)] == [one.tolist() for one in own]
    assert len({tuple(one) for one in own}) == 3, "the groups differ"
    served = ran(tiny, text.replace("(", "(global_model=true, ", 1), seeds=seeds, dropout=dropout)
    assert [one.tolist() for one in rankings(served)] == [overall.tolist()] * 3
    for place, name in enumerate(SPLITS):
        for k in range(tiny.clients):
            rows = tiny.split(name).of(k)
            x, y = tiny.x[rows].astype(np.float64), tiny.y[rows]
            right = np.trace(trace.tables[-1, place, k].sum(0))
            assert right == net.right(own[known[k]], x, y), (
                "each client is served the model of its group"
            )
    x, y = tiny.x[tiny.central].astype(np.float64), tiny.y[tiny.central]
    assert np.trace(trace.central[-1].sum(0)) == net.right(overall, x, y), (
        "the central test set sees the model of all"
    )


def test_the_final_pass_is_one_more_round_with_everybody(tiny: Federation):
    seeds, known = Seeds.all(0), np.asarray(tiny.client_group)
    task = frozen(seeds)
    rounds = visits(tiny, made("e2fl" + UNIFORM), ROUNDS, seeds, 0.0)
    everyone = visits(tiny, made("e2fl+full"), ROUNDS + 1, seeds, 0.0)[-1]
    _, own = rank_run.e2fl(
        network(task),
        first_ranking(task, seeds),
        [*rounds, everyone],
        3,
        lambda t, who, groups: known[who],
    )
    trace = ran(tiny, "e2fl(final_pass=true)" + UNIFORM, seeds=seeds)
    assert [one.tolist() for one in rankings(trace)] == [one.tolist() for one in own]
    plain = ran(tiny, "e2fl" + UNIFORM, seeds=seeds)
    np.testing.assert_array_equal(trace.cohort, plain.cohort)
    np.testing.assert_array_equal(trace.tables[:-1], plain.tables)
    assert trace.rounds.tolist() == [*plain.rounds, ROUNDS + 1]
    assert (trace.tables[-1] != plain.tables[-1]).any()


def test_lowest_loss_is_the_oracles_and_the_first_groups_are_drawn(tiny: Federation):
    seeds = Seeds.all(0)
    task, text = frozen(seeds), "e2fl(inference=lowest-loss, groups=2)" + UNIFORM
    net, drawn = network(task), drawn_groups(tiny.clients, 2, seeds.cohort)

    def chosen(t: int, who: int, groups: list[np.ndarray]) -> int:
        rows = tiny.train.of(who)
        losses = [net.loss(own, tiny.x[rows].astype(np.float64), tiny.y[rows]) for own in groups]
        return int(drawn[who]) if t == 0 else int(np.argmin(losses))

    rounds = visits(tiny, made(text), ROUNDS, seeds, 0.0)
    _, own = rank_run.e2fl(net, first_ranking(task, seeds), rounds, 2, chosen)
    trace = ran(tiny, text, seeds=seeds)
    assert [one.tolist() for one in rankings(trace)] == [one.tolist() for one in own]
    assert trace.choice[-1].tolist() == [chosen(1, k, own) for k in range(tiny.clients)]
    assert set(trace.choice[-1]) == {0, 1}


@pytest.mark.parametrize("inference", ["rank-clustering", "one-shot", "binary"])
def test_other_inference_serves_everybody_some_group(tiny: Federation, inference: str):
    trace = ran(tiny, f"e2fl(inference={inference}, groups=2)" + UNIFORM)
    assert trace.choice.shape == (2, tiny.clients)
    assert set(trace.choice.ravel()) <= {0, 1}
    assert (trace.choice[0] == trace.choice[-1]).all() or inference != "rank-clustering", (
        "clustered once, before training"
    )


def test_clients_with_the_same_rows_are_clustered_together(tiny: Federation):
    """In one batch of all rows, the order in which each client shuffles them makes no
    difference.
    """
    kept = [tiny.train.of(k) for k in (2, 3, 5)]
    doubled = replace(tiny, train=Ragged.from_lists([kept[k % 3] for k in range(6)]))
    for layer in (0, 1):
        trace = ran(
            doubled,
            f"e2fl(inference=rank-clustering, groups=3, layer={layer}, batch_size=64)+full",
            rounds=1,
        )
        first, again = trace.choice[-1][:3], trace.choice[-1][3:]
        assert first.tolist() == again.tolist()
        assert len(set(first)) == 3


@pytest.mark.parametrize(
    "inference",
    [
        "lowest-loss",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("one-shot", "binary")),
    ],
)
def test_with_known_votes_the_groups_learn_what_they_learn_and_clients_choose_what_they_are_served(
    tiny: Federation, inference: str
):
    grouped = replace(tiny, client_group=np.arange(tiny.clients) % 2)
    known = ran(grouped, "e2fl" + UNIFORM)
    found = ran(grouped, f"e2fl(inference={inference}, known_votes=true)" + UNIFORM)
    assert [one.tolist() for one in rankings(found)] == [one.tolist() for one in rankings(known)]
    assert known.choice[-1].tolist() == np.asarray(grouped.client_group).tolist()
    # nothing learned: all models are equal, and the first is taken
    assert found.choice[0].tolist() == [0] * tiny.clients
    chosen = ran(grouped, f"e2fl(inference={inference}, groups=2)" + UNIFORM)
    assert found.upload == known.upload == chosen.upload
    assert found.download == known.download < chosen.download


def test_first_votes_that_are_trained_side_by_side_are_clustered_alike(
    tiny: Federation, monkeypatch: pytest.MonkeyPatch
):
    text = "e2fl(inference=rank-clustering, groups=2)" + UNIFORM
    one_by_one = ran(tiny, text, rounds=1)
    monkeypatch.setattr("evenly.simulate.choosing._voters_at_once", lambda: 16)
    assert ran(tiny, text, rounds=1).choice.tolist() == one_by_one.choice.tolist()


def test_one_group_is_frl(tiny: Federation):
    alone, all_in_one = (
        ran(tiny, "frl" + UNIFORM),
        ran(tiny, "e2fl(groups=1, inference=lowest-loss)" + UNIFORM),
    )
    assert rankings(alone)[0].tolist() == rankings(all_in_one)[0].tolist()
    np.testing.assert_array_equal(alone.tables, all_in_one.tables)
    np.testing.assert_array_equal(alone.weights, all_in_one.weights)


def test_one_client_per_group_is_frl(tiny: Federation):
    own_groups = replace(tiny, client_group=np.arange(6, dtype=np.int32))
    served = ran(own_groups, "e2fl(global_model=true)" + UNIFORM)
    assert rankings(served)[0].tolist() == rankings(ran(tiny, "frl" + UNIFORM))[0].tolist()


def test_renaming_groups_renames_the_models(tiny: Federation):
    names = np.array([2, 0, 1])
    renamed = replace(tiny, client_group=names[np.asarray(tiny.client_group)].astype(np.int32))
    one, other = ran(tiny, "e2fl" + UNIFORM), ran(renamed, "e2fl" + UNIFORM)
    for q in range(3):
        assert rankings(one)[q].tolist() == rankings(other)[names[q]].tolist()
    np.testing.assert_array_equal(one.tables, other.tables)


@pytest.mark.parametrize(
    "text",
    ["frl", "e2fl(inference=lowest-loss, groups=2)", pytest.param("e2fl", marks=pytest.mark.slow)],
)
def test_lanes_vote_like_clients_one_after_another(tiny: Federation, text: str):
    same_bits(ran(tiny, text + UNIFORM), ran(tiny, text + UNIFORM, lanes=3))


@pytest.mark.parametrize("text", ["frl", "e2fl"])
def test_a_broken_client_has_no_vote_and_nobody_speaks_for_it(tiny: Federation, text: str):
    seeds, known = Seeds.all(0), np.asarray(tiny.client_group)
    broken = with_broken_clients(tiny, (3,), np.nan)
    task = frozen(seeds)
    rounds = [
        [v._replace(returned=v.returned and v.who != 3) for v in seats]
        for seats in visits(tiny, made(text + "+full"), 3, seeds, 0)
    ]
    trace = ran(broken, text + "+full", rounds=3)
    if text == "frl":
        assert (
            rankings(trace)[0].tolist()
            == rank_run.frl(network(task), first_ranking(task, seeds), rounds).tolist()
        )
    else:
        _, own = rank_run.e2fl(
            network(task), first_ranking(task, seeds), rounds, 3, lambda t, who, groups: known[who]
        )
        assert [one.tolist() for one in rankings(trace)] == [one.tolist() for one in own]
    assert trace.excluded.tolist() == [0, 0, 0, 3, 0, 0]
    assert (trace.weights[:, 3] == 0).all()


def test_several_runs_side_by_side_are_each_itself(tiny: Federation):
    rates = (0.3, 0.05)
    together = simulate(
        LINEAR,
        tiny,
        [algorithm(f"e2fl(learning_rate={r})" + UNIFORM, batch_size=5) for r in rates],
        4,
    )
    for rate, one in zip(rates, together, strict=True):
        (alone,) = simulate(
            LINEAR, tiny, [algorithm(f"e2fl(learning_rate={rate})" + UNIFORM, batch_size=5)], 4
        )
        np.testing.assert_array_equal(alone.tables, one.tables)
        assert [a.tolist() for a in rankings(alone)] == [a.tolist() for a in rankings(one)]


A = [[4, 0, 2, 3, 5, 1], [0, 2, 4, 5, 3, 1], [0, 2, 5, 4, 3, 1]]
B = [[0, 2, 1, 3, 4, 5], [0, 2, 3, 4, 1, 5]]
C = [[5, 3, 1, 0, 2, 4]]


def test_the_example_of_the_specification():
    """Six clients in three groups, Figure 2 of the paper where it gives values: the groups' orders
    and that of all.
    """
    server = GroupServer(groups=4)
    places = [
        jnp.stack([inverse(jnp.array(one)).astype(jnp.float32) for one in group])
        for group in (A, B, C)
    ]
    ballots = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(tally(p) for p in places), tally(places[0] * 0)
    )
    last = server.init(inverse(jnp.array([2, 3, 0, 5, 1, 4])).astype(jnp.float32))
    overall, groups = server.update(
        GroupVotes(ballots, jnp.array([True, True, True, False])), last, last[0]
    )
    expected = [[0, 2, 4, 5, 3, 1], [0, 2, 3, 1, 4, 5], [5, 3, 1, 0, 2, 4], [2, 3, 0, 5, 1, 4]]
    assert [inverse(own).tolist() for own in groups] == expected
    assert inverse(overall).tolist() == [0, 2, 3, 5, 1, 4]
    assert ranking.vote(np.array([*A, *B, *C])).tolist() == [
        0,
        2,
        3,
        4,
        5,
        1,
    ], "FRL's flat vote, with a tie between edges 3 and 4"


@pytest.mark.parametrize(
    "text, words",
    [
        (
            "frl(k=1.0)",
            (
                r"frl: k must be a share of the edges between 0 and 1, got 1\.0\. E2FL keeps half:"
                r" 0\.5\."
            ),
        ),
        ("e2fl(k=0.0)", r"e2fl: k must be a share of the edges between 0 and 1, got 0\.0\. .*"),
        ("frl(scores=signed)", r"frl: scores must be one of raw, abs, frl-compat, got 'signed'\."),
        (
            "e2fl(known_votes=true)",
            (
                r"e2fl: known_votes needs an inference of clients: one of lowest-loss, .*, got"
                r" 'known'\."
            ),
        ),
        (
            "e2fl(inference=guess)",
            r"e2fl: inference must be one of known, rank-clustering, .*, got 'guess'\.",
        ),
        ("e2fl(groups=-1)", r"e2fl: groups must be a whole number of at least 0, got -1\."),
        ("e2fl(restarts=0)", r"e2fl: restarts must be a whole number of at least 1, got 0\."),
        (
            "frl+server-adam",
            r"frl: the method has a server step of its own; leave the server's optimiser out\.",
        ),
        (
            "e2fl+local-adam",
            r"e2fl: clients rank edges and have no local optimiser, got 'local-adam'\.",
        ),
    ],
)
def test_settings_that_cannot_be(text: str, words: str):
    with pytest.raises(ValueError, match=f"^{words}( Meaning: .*)?$"):
        algorithm(text)


def refused(federation: Federation, text: str, task: Any = LINEAR) -> str:
    with pytest.raises(ValueError) as caught:
        simulate(task, federation, [algorithm(text)], 1)
    return str(caught.value)


def test_data_and_models_that_do_not_fit(tiny: Federation):
    nobody = replace(tiny, client_group=None)
    assert refused(nobody, "e2fl").startswith(
        "e2fl: the data do not say which group each client belongs to (client_group). Give it, or"
    )
    assert (
        refused(nobody, "e2fl(inference=one-shot)")
        == "e2fl(inference=one-shot): set the number of groups, such as groups=2; the data do"
        " not define it."
    )
    assert refused(tiny, "e2fl(inference=one-shot, groups=7)").endswith(
        "7 groups need at least as many clients, but there are 6."
    )
    assert (
        "e2fl(groups=2): Groups are numbered from 0 to 1, but client 4 is in group 2."
        in refused(tiny, "e2fl(groups=2)")
    )
    assert "has shape [3], but only weights [..., inputs, units] can be frozen" in refused(
        tiny, "frl", Softmax(features=5, classes=3)
    )
    images = replace(tiny, x=np.zeros((len(tiny.y), 8, 8, 1), np.float32))
    assert "Use a model without them, such as LeNet(bias=False)" in refused(
        images, "frl", LeNet(shape=(8, 8, 1), classes=3)
    )
    assert "layer must be 0 (all) or from 1 to 1, got 2" in refused(
        tiny, "e2fl(inference=rank-clustering, groups=2, layer=2)"
    )


def mixed(federation: Federation) -> Federation:
    """The same rows, but every client has people of both groups to train on."""
    group = np.zeros_like(federation.group)
    for k in range(federation.clients):
        for name in SPLITS:
            group[federation.split(name).of(k)[1::2]] = 1
    return replace(federation, group=group)


def apart(federation: Federation) -> Federation:
    """Every client's people of a group as a client of their own, written out by hand."""
    pairs = [
        (k, g)
        for k in range(federation.clients)
        for g in range(2)
        if (federation.group[federation.train.of(k)] == g).any()
    ]
    assert len(pairs) == 12, "every client has people of both groups"
    parts = {
        name: Ragged.from_lists(
            [
                rows[federation.group[rows] == g]
                for k, g in pairs
                for rows in (federation.split(name).of(k),)
            ]
        )
        for name in SPLITS
    }
    names = tuple(f"{k} {g}" for k, g in pairs)
    return replace(
        federation, **parts, names=names, client_group=np.array([g for _, g in pairs], np.int32)
    )


def test_groups_of_people_vote_as_if_they_were_clients(tiny: Federation):
    tiny = mixed(tiny)
    together, by_hand = (
        ran(tiny, "e2fl(people=true)+full"),
        ran(apart(tiny), "e2fl(global_model=true)+full"),
    )
    assert rankings(together)[0].tolist() == rankings(by_hand)[0].tolist()
    np.testing.assert_array_equal(together.central, by_hand.central)
    assert together.tables.shape[2] == tiny.clients
    np.testing.assert_array_equal(
        together.tables, by_hand.tables[:, :, ::2] + by_hand.tables[:, :, 1::2]
    )
    assert together.cohort[0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert together.upload == 2 * by_hand.upload
    rows = tiny.train.counts
    weighted = (by_hand.losses[-1, 0] * apart(tiny).train.counts).reshape(6, 2).sum(1) / rows
    np.testing.assert_allclose(together.losses[-1, 0], weighted, rtol=1e-5)


def test_people_without_training_rows_of_their_group_are_still_evaluated(tiny: Federation):
    tiny = mixed(tiny)
    lists = [tiny.train.of(k) for k in range(6)]
    lists[3] = lists[3][tiny.group[lists[3]] == 1]
    trace = ran(replace(tiny, train=Ragged.from_lists(lists)), "e2fl(people=true)+full", rounds=1)
    np.testing.assert_array_equal(trace.tables[-1, 2].sum((1, 2, 3)), tiny.test.counts)
    assert trace.cohort.shape == (1, 11)


def test_what_groups_of_people_need(tiny: Federation):
    assert (
        refused(tiny, "e2fl(people=true)")
        == "e2fl(people=true): with people = true every client takes part in every round; add"
        " +full."
    )
    alone = replace(tiny, groups=("all",), group=np.zeros_like(tiny.group))
    assert "the data have no groups of people" in refused(alone, "e2fl(people=true)+full")
    with pytest.raises(
        ValueError,
        match=(
            r"^e2fl: with people = true the groups are known, so inference must be 'known', got"
            r" 'binary'\.$"
        ),
    ):
        algorithm("e2fl(people=true, inference=binary)")
