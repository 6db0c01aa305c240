"""Every partition covers its rows exactly once, depends on its seeds alone, and says so when it
cannot do what was asked.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.data import Rows, choose_clients, dirichlet, equal, natural, official
from evenly.data.federation import Federation
from evenly.data.partition import cuts, draw_once
from evenly.data.splits import SPLITS
from evenly.metrics.representation import describe, describe_groups, good_clients_of, left_over
from evenly.records import replace


def some_rows(sizes: list[int], name: str = "toy") -> Rows:
    """Rows with so many of each label, labels mixed; x says which row it is."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return Rows(
        np.arange(len(y), dtype=np.uint8 if len(y) < 256 else np.int64)[:, None, None],
        y,
        tuple(map(str, range(len(sizes)))),
        name,
    )


def all_rows(federation: Federation) -> np.ndarray:
    return np.concatenate([*(federation.split(name).rows for name in SPLITS), federation.central])


def same(a: Federation, b: Federation) -> bool:
    return all(
        np.array_equal(a.split(name).rows, b.split(name).rows)
        and np.array_equal(a.split(name).offsets, b.split(name).offsets)
        for name in SPLITS
    )


def client_sets(federation: Federation) -> list[set[int]]:
    return [
        set(np.concatenate([federation.split(name).of(k) for name in SPLITS]).tolist())
        for k in range(federation.clients)
    ]


label_sizes = st.lists(st.integers(40, 80), min_size=2, max_size=4)
shares = st.sampled_from([(0.8, 0.1), (0.5, 0.0), (0.6, 0.0), (0.34, 0.33), (1.0, 0.0)])


@given(
    sizes=label_sizes,
    clients=st.integers(1, 4),
    beta=st.sampled_from([0.3, 1.0, 100.0]),
    cut=shares,
    seed=st.integers(0, 2**32),
)
def test_dirichlet_deals_every_row_once(sizes, clients, beta, cut, seed):
    federation = dirichlet(some_rows(sizes), clients=clients, beta=beta, shares=cut, seed=seed)
    assert sorted(all_rows(federation)) == list(range(sum(sizes)))
    assert federation.clients == clients


@given(
    sizes=label_sizes,
    clients=st.integers(1, 5),
    cut=shares,
    central=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_equal_deals_every_row_once_and_evenly(sizes, clients, cut, central, seed):
    federation = equal(
        some_rows(sizes), clients=clients, shares=cut, central=np.arange(central), seed=seed
    )
    assert sorted(all_rows(federation)) == list(range(sum(sizes)))
    held = [len(rows) for rows in client_sets(federation)]
    assert max(held) - min(held) <= 1


@given(seed=st.integers(0, 2**32), split_seed=st.integers(0, 2**32))
def test_dirichlet_depends_on_its_seeds_alone(seed, split_seed):
    rows = some_rows([40, 50, 60])
    first = dirichlet(rows, clients=3, seed=seed, split_seed=split_seed)
    np.random.default_rng(1).random(5)
    assert same(first, dirichlet(rows, clients=3, seed=seed, split_seed=split_seed))
    other = dirichlet(rows, clients=3, seed=seed, split_seed=split_seed + 1)
    assert client_sets(first) == client_sets(other)  # the split seed moves rows within clients only


def test_another_seed_deals_otherwise():
    rows = some_rows([40, 50, 60])
    assert client_sets(dirichlet(rows, clients=3, seed=0)) != client_sets(
        dirichlet(rows, clients=3, seed=1)
    )
    assert client_sets(equal(rows, clients=3, seed=0)) != client_sets(
        equal(rows, clients=3, seed=1)
    )
    assert not same(
        dirichlet(rows, clients=3, split_seed=0), dirichlet(rows, clients=3, split_seed=1)
    )


@given(
    total=st.lists(st.integers(0, 500), min_size=1, max_size=6),
    clients=st.integers(1, 8),
    seed=st.integers(0, 2**32),
)
def test_counts_are_rounded_down_shares_and_the_rest_goes_to_one_client(total, clients, seed):
    counts = draw_once(np.array(total), clients, 0.5, np.random.Generator(np.random.Philox(seed)))
    draw = np.random.Generator(np.random.Philox(seed))
    for label, n in enumerate(total):
        floors = np.floor(draw.dirichlet(np.full(clients, 0.5)) * n)
        lucky = draw.integers(clients)
        floors[lucky] += n - floors.sum()
        assert counts[label].tolist() == floors.tolist()
    assert counts.sum(1).tolist() == total


def test_a_class_is_dealt_in_its_order():
    rows = some_rows([60, 70])
    federation = dirichlet(rows, clients=4, beta=5.0, seed=3)
    held = client_sets(federation)
    for label in range(2):
        owners = [
            next(k for k, mine in enumerate(held) if row in mine)
            for row in np.flatnonzero(rows.y == label)
        ]
        assert owners == sorted(owners)


def test_every_class_of_every_client_is_cut_at_its_share():
    rows = some_rows([97, 203, 151])
    federation = dirichlet(rows, clients=4, beta=1.0, shares=(0.5, 0.2), seed=1)
    for k in range(4):
        held = {
            name: np.bincount(rows.y[federation.split(name).of(k)], minlength=3) for name in SPLITS
        }
        n = sum(held.values())
        assert held["train"].tolist() == np.floor(0.5 * n).astype(int).tolist()
        assert (held["train"] + held["valid"]).tolist() == np.floor(0.7 * n).astype(int).tolist()


def test_cuts_do_not_lose_a_row_to_binary_fractions():
    # 0.8 + 0.1 is 0.9000000000000000222 or a hair below 0.9
    train, valid = cuts(np.array([10, 30]), (0.8, 0.1))
    assert train.tolist() == [8, 24]
    assert valid.tolist() == [1, 3]


def test_a_large_beta_is_nearly_equal_and_a_small_one_is_not():
    rows = some_rows([1000] * 5)
    near = np.array([c.share for c in describe(dirichlet(rows, clients=5, beta=1e6))])
    assert abs(near - 0.2).max() < 0.002
    mixed = np.array([c.labels for c in describe(dirichlet(rows, clients=5, beta=1e6))])
    assert abs(mixed - 0.2).max() < 0.005
    apart = np.array([c.labels for c in describe(dirichlet(rows, clients=5, beta=0.05, seed=2))])
    assert apart.max(1).mean() > 0.6


def test_small_clients_are_drawn_again():
    rows = some_rows([300, 300])
    federation = dirichlet(rows, clients=6, beta=0.5, min_samples=40, seed=5)
    assert min(len(mine) for mine in client_sets(federation)) >= 40
    assert sorted(all_rows(federation)) == list(range(600))


def test_an_impossible_minimum_fails_after_so_many_tries_and_says_so():
    with pytest.raises(ValueError) as error:
        dirichlet(some_rows([50, 50]), clients=5, beta=0.1, min_samples=21, tries=7)
    sentence = str(error.value)
    assert (
        "none of 7 draws gave every client at least 21 rows and one training row (100 rows, 5"
        " clients, beta=0.1)" in sentence
    )
    assert "smaller min_samples" in sentence


def test_a_client_without_a_training_row_counts_as_too_small():
    # Two rows of each of three labels for two clients: at a share of a third, every class of a
    # client gives floor(n / 3) = 0.
    with pytest.raises(ValueError, match="one training row"):
        dirichlet(some_rows([2, 2, 2]), clients=2, beta=1.0, shares=(1 / 3, 0.0), tries=5)


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"clients": 0}, "clients must be between 1 and the number of rows, 20, got 0"),
        ({"clients": 21}, "clients must be between 1 and the number of rows, 20, got 21"),
        ({"beta": 0.0}, "beta must be a number above 0"),
        ({"beta": float("nan")}, "beta must be a number above 0"),
        ({"shares": (0.9, 0.2)}, "train . valid at most 1"),
        ({"tries": 0}, "tries must be at least 1"),
    ],
)
def test_dirichlet_refuses_settings_that_make_no_sense(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        dirichlet(some_rows([10, 10]), **{"clients": 2, **settings})


def test_central_rows_belong_to_no_client():
    rows, central = some_rows([30, 30]), np.arange(50, 60)
    for federation in (
        dirichlet(rows, clients=2, beta=5.0, central=central),
        equal(rows, clients=2, central=central),
    ):
        assert federation.central.tolist() == central.tolist()
        assert sorted(all_rows(federation)) == list(range(60))
        assert not set().union(*client_sets(federation)) & set(central.tolist())


def test_rows_keep_their_dtype_and_shape():
    federation = equal(some_rows([20, 20]), clients=2)
    assert federation.x.dtype == np.uint8
    assert federation.x.shape == (40, 1, 1)
    assert federation.y.dtype == np.int32
    assert federation.names == ("client 0", "client 1")


def test_natural_keeps_owners_and_in_order_does_not_shuffle():
    rows, owner = some_rows([25, 25]), np.arange(50) % 3
    federation = natural(rows, owner, names=["a", "b", "c"], split_seed=1)
    assert [
        mine == set(np.flatnonzero(owner == k).tolist())
        for k, mine in enumerate(client_sets(federation))
    ] == [True] * 3
    ordered = natural(rows, owner, names=["a", "b", "c"], shuffle=False)
    for k in range(3):
        laid = np.concatenate([ordered.split(name).of(k) for name in SPLITS])
        assert laid.tolist() == np.flatnonzero(owner == k).tolist()
    assert ordered.train.counts.tolist() == federation.train.counts.tolist()


def test_natural_refuses_owners_of_other_rows():
    with pytest.raises(ValueError, match="one owner per row, got 3 for 4 rows"):
        natural(some_rows([2, 2]), np.zeros(3, int), names=["a"])


def test_official_test_rows_never_change_and_validation_comes_from_training():
    rows, owner = some_rows([50, 50]), np.arange(100) % 2
    tested = np.arange(100) >= 80
    first, second = (
        official(rows, owner, tested, names=["a", "b"], split_seed=seed) for seed in (0, 1)
    )
    assert sorted(first.test.rows) == sorted(second.test.rows) == list(range(80, 100))
    assert first.train.counts.tolist() == [36, 36]
    assert first.valid.counts.tolist() == [4, 4]
    assert not np.array_equal(first.valid.rows, second.valid.rows)
    assert sorted(all_rows(first)) == list(range(100))
    with pytest.raises(ValueError, match="valid must be a share"):
        official(rows, owner, tested, names=["a", "b"], valid=1.0)


def test_a_client_without_training_rows_is_named():
    with pytest.raises(ValueError, match="client 'b' of toy has none"):
        natural(some_rows([2, 2]), np.zeros(4, int), names=["a", "b"])


def test_choosing_clients_by_size():
    sizes = np.array([5, 100, 50, 70, 10])
    assert choose_clients(sizes, min_samples=50).tolist() == [1, 2, 3]
    # one row is enough, and none is not
    assert choose_clients(np.array([0, 1, 2])).tolist() == [1, 2]
    assert choose_clients(np.array([0, 1, 2]), min_samples=0).tolist() == [1, 2]
    assert choose_clients(sizes, min_samples=10, max_samples=70).tolist() == [2, 3, 4]
    drawn = choose_clients(sizes, clients=2, min_samples=10, seed=4)
    assert (
        drawn.tolist()
        == choose_clients(sizes, clients=2, min_samples=10, seed=4).tolist()
        == sorted(drawn)
    )
    assert len({tuple(choose_clients(sizes, clients=2, seed=seed)) for seed in range(20)}) > 1
    with pytest.raises(
        ValueError,
        match="roles: 4 clients with at least 50 samples are required, but only 3 of 5 qualify",
    ):
        choose_clients(sizes, clients=4, min_samples=50, what="roles")


def test_the_card_counts_sizes_and_shares():
    rows = Rows(np.zeros((4, 1, 1)), np.array([0, 1, 1, 1]), ("no", "yes"), "toy")
    cards = describe(natural(rows, np.array([0, 0, 0, 1]), names=["a", "b"], shares=(1.0, 0.0)))
    assert cards[0][:5] == ("a", 3, 0, 0, 0.75)
    assert cards[0].labels == pytest.approx((1 / 3, 2 / 3))
    assert cards[1].labels == (0.0, 1.0)
    # one group, which is then group 0
    assert (cards[0].groups, cards[0].unprivileged) == ((1.0,), 3)


def test_the_cards_count_groups_good_clients_and_what_is_left_over():
    group = np.array([0, 0, 1, 1, 1, 0, 2, 2])
    rows = Rows(
        np.zeros((8, 1)),
        np.array([1, 0, 1, 1, 0, 1, 0, 0]),
        ("no", "yes"),
        "toy",
        group=group,
        groups=("a", "b", "c"),
    )
    rows = rows._replace(unprivileged=(0, 2))
    owner = np.array([0, 0, 0, 1, 1, 1, 1, -1])
    federation = natural(rows, owner, names=["k", "l"], shares=(0.5, 0.0))
    assert left_over(federation) == 1
    # the central test set's rows are used
    assert left_over(replace(federation, central=np.array([7]))) == 0
    assert [c.unprivileged for c in describe(federation)] == [2, 2]
    assert describe(federation)[1].groups == (0.25, 0.5, 0.25)
    found = describe_groups(replace(federation, central=np.array([7])))
    assert [(g.name, g.rows, g.unprivileged) for g in found] == [
        ("a", 3, True),
        ("b", 3, False),
        ("c", 2, True),
    ]
    assert [g.favourable for g in found] == pytest.approx([2 / 3, 2 / 3, 0.0])
    assert [g.share for g in found] == pytest.approx([3 / 8, 3 / 8, 2 / 8])
    assert good_clients_of(federation, 2.2).tolist() == [True, True]  # 2.2 * 0.9 = 1.98
    assert good_clients_of(federation, 2.3).tolist() == [False, False]
    assert good_clients_of(federation, 2.3, tolerance=0.5).tolist() == [True, True]
    with pytest.raises(ValueError, match="tolerance must be from 0 to 1, got 2"):
        good_clients_of(federation, 2, tolerance=2)


def test_a_group_without_rows_has_no_rate():
    rows = Rows(
        np.zeros((2, 1)),
        np.array([0, 1]),
        ("no", "yes"),
        "toy",
        group=np.array([0, 0]),
        groups=("a", "b"),
    )
    assert np.isnan(
        describe_groups(natural(rows, np.zeros(2, int), names=["k"], shares=(1.0, 0.0)))[
            1
        ].favourable
    )


def test_choosing_clients_at_the_limits():
    sizes = np.array([0, 1, 2, 3])
    for least in (-1, 0, 1):
        assert choose_clients(sizes, min_samples=least).tolist() == [1, 2, 3], "nobody without rows"
    assert choose_clients(sizes).tolist() == choose_clients(sizes, clients=3).tolist() == [1, 2, 3]
    assert choose_clients(sizes, max_samples=1).tolist() == [1]
    assert choose_clients(sizes, clients=1, min_samples=3).tolist() == [3]
    assert (
        choose_clients(sizes, clients=2).tolist()
        == choose_clients(sizes, clients=2, seed=0).tolist()
    )
    with pytest.raises(
        ValueError, match="4 clients with at least 1 samples are required, but only 3 of 4"
    ):
        choose_clients(sizes, clients=4)
    with pytest.raises(
        ValueError,
        match="some clients with at least 1 and at most 2 samples are required, but only 0 of 1",
    ):
        choose_clients(np.array([3]), max_samples=2)


def test_of_ten_rows_eight_train_one_validates_and_one_tests_unless_told_otherwise():
    rows, owner = some_rows([10, 10]), np.arange(20) % 2
    for federation in (natural(rows, owner, names=["a", "b"]), equal(rows, clients=2)):
        assert [federation.split(name).counts.tolist() for name in SPLITS] == [
            [8, 8],
            [1, 1],
            [1, 1],
        ]
    assert same(
        natural(rows, owner, names=["a", "b"]), natural(rows, owner, names=["a", "b"], split_seed=0)
    )
    assert not same(
        natural(rows, owner, names=["a", "b"]), natural(rows, owner, names=["a", "b"], split_seed=1)
    )


def test_official_test_rows_lie_with_their_clients_in_order():
    rows, owner = some_rows([6, 6]), np.array([2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 1])
    tested = np.array([True, True] + [False] * 6 + [True, True, True, False])
    for share in (0, 0.0, 1 / 3):
        federation = official(rows, owner, tested, names=["a", "b", "c"], valid=share)
        assert [federation.test.of(k).tolist() for k in range(3)] == [[1, 9], [], [0, 8, 10]]
        assert federation.valid.counts.tolist() == [round(share * 3), 0, round(share * 3)]
        assert same(
            federation,
            official(rows, owner, tested, names=["a", "b", "c"], valid=share, split_seed=0),
        )
    for share in (-0.01, 1, 1.5):
        with pytest.raises(
            ValueError, match="valid must be a share of the training rows, at least 0 and below 1"
        ):
            official(rows, owner, tested, names=["a", "b", "c"], valid=share)


def test_without_groups_everyone_is_of_group_0():
    rows = some_rows([2, 2])
    assert rows.is_unprivileged().tolist() == [True] * 4
    assert rows._replace(unprivileged=(1,)).is_unprivileged().tolist() == [False] * 4
    federation = equal(rows, clients=2, shares=(1.0, 0.0))
    assert (federation.group.tolist(), federation.unprivileged, federation.favourable) == (
        [0] * 4,
        (0,),
        1,
    )
