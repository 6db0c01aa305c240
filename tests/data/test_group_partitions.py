"""Partitions that control who is represented where: exact counts of the study, exact cover, seeds,
and errors that name the limit.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.data import (
    Rows,
    cov_diff_size,
    cov_same_size,
    dirichlet,
    dirichlet_attribute,
    dirichlet_label_attribute,
    equal,
    ratio_dirichlet,
)
from evenly.data.federation import Federation
from evenly.data.partition import (
    check_clients,
    deal_counts,
    draw_counts,
    draw_once,
    draw_shares,
    numbered,
)
from evenly.data.partition_coverage import (
    Quota,
    SideCounts,
    _shrunk,
    count_clients,
    draw_sizes,
    draw_unprivileged,
    fit_shares,
    quota,
    whole,
)
from evenly.randomness import Draws
from tests.data.test_partitions import all_rows, client_sets, same, some_rows

ADULT = SideCounts(16192, 32650)  # counted in the files
COMPAS = SideCounts(4997, 1175)
COVERAGES = {"adult": (ADULT, (4497, 2570, 1999)), "compas": (COMPAS, (1067, 610, 474))}
DRAWN = (dirichlet_attribute, dirichlet_label_attribute, ratio_dirichlet)
COVERED = (cov_same_size, cov_diff_size)


def by_name(partition: Callable[..., Federation]) -> str:
    return partition.__name__


def people(unprivileged: int, privileged: int) -> Rows:
    """Rows of two groups in mixed order; 0 is unprivileged, and a third of each group has
    label 1.
    """
    group = np.random.default_rng(0).permutation(np.repeat([0, 1], [unprivileged, privileged]))
    y = (np.arange(len(group)) % 3 == 0).astype(int)
    return Rows(
        np.arange(len(group))[:, None], y, ("no", "yes"), "people", group=group, groups=("u", "p")
    )


def unprivileged_rows(federation) -> np.ndarray:
    return np.array(
        [sum(federation.group[row] == 0 for row in mine) for mine in client_sets(federation)]
    )


@pytest.mark.parametrize("partition", DRAWN, ids=by_name)
@given(seed=st.integers(0, 2**32), split_seed=st.integers(0, 99), central=st.integers(0, 40))
def test_drawn_partitions_deal_every_row_once_and_depend_on_their_seeds_alone(
    partition, seed, split_seed, central
):
    rows = people(90, 210)
    settings = {
        "clients": 4,
        "alpha": 1.0,
        "min_samples": 5,
        "central": np.arange(central),
        "seed": seed,
    }
    federation = partition(rows, **settings, split_seed=split_seed)
    assert sorted(all_rows(federation)) == list(range(300))
    assert federation.central.tolist() == list(range(central))
    assert min(map(len, client_sets(federation))) >= 5
    assert same(federation, partition(rows, **settings, split_seed=split_seed))
    assert client_sets(federation) == client_sets(
        partition(rows, **settings, split_seed=split_seed + 1)
    )


@pytest.mark.parametrize(
    ("partition", "settings", "notation"),
    [
        (dirichlet, {"clients": 4, "beta": 0.3}, "dirichlet(clients=4, beta=0.3)"),
        (equal, {"clients": 3}, "equal(clients=3)"),
        (dirichlet_attribute, {}, "dirichlet-attribute(clients=5, alpha=0.5)"),
        (
            dirichlet_label_attribute,
            {"alpha": 2.0},
            "dirichlet-label-attribute(clients=5, alpha=2)",
        ),
        (ratio_dirichlet, {}, "ratio-dirichlet(clients=5, alpha=0.5, concentration=5)"),
        (cov_same_size, {"coverage": 300}, "cov-same-size(clients=5, coverage=300)"),
        (cov_diff_size, {"coverage": 300}, "cov-diff-size(clients=5, coverage=300)"),
    ],
)
def test_a_federation_says_how_its_rows_came_to_clients(partition, settings, notation):
    assert partition(people(900, 1500), **settings).partition == notation


@pytest.mark.parametrize("partition", [*DRAWN, *COVERED], ids=by_name)
def test_a_share_of_every_clients_rows_validates_and_another_seed_deals_otherwise(partition):
    rows = people(900, 1500)
    settings = {"coverage": 300} if partition in COVERED else {}
    first = partition(rows, **settings, shares=(0.75, 0.25))
    for k, mine in enumerate(client_sets(first)):
        assert len(first.train.of(k)) == int(0.75 * len(mine))
        assert len(first.train.of(k)) + len(first.valid.of(k)) == len(mine)
    other = partition(rows, **settings, shares=(0.75, 0.25), split_seed=1)
    assert set(first.valid.of(0).tolist()) != set(other.valid.of(0).tolist())
    assert client_sets(first) != client_sets(partition(rows, **settings, seed=1))


def test_rows_keep_their_attributes_groups_and_label():
    rows = people(50, 50)._replace(unprivileged=(1,), favourable=0)
    federation = dirichlet_attribute(rows, clients=2, min_samples=1, alpha=5)
    assert (federation.unprivileged, federation.favourable, federation.groups) == (
        (1,),
        0,
        ("u", "p"),
    )
    assert cov_same_size(rows, coverage=20).unprivileged == (1,)


@pytest.mark.parametrize(
    ("alpha", "least", "most"),
    [
        (0.1, 0.006, 0.978),
        (0.2, 0.015, 0.948),
        (0.5, 0.046, 0.857),
        (10, 0.229, 0.459),
        (5000, 0.326, 0.337),
    ],
)
def test_the_range_of_shares_on_adult_is_the_expected_one(alpha, least, most):
    # ALGORITHMS 4.2: mean over draws of the smallest and the largest share of women among 5 clients
    # of at least 100 rows, on 80 % of Adult. 300 draws: the standard error of either mean is below
    # 0.013.
    totals = np.round(0.8 * np.array(ADULT)).astype(int)
    found = []
    for seed in range(300):
        counts = draw_shares(
            "dirichlet-attribute",
            totals,
            clients=5,
            alpha=alpha,
            min_samples=100,
            tries=1000,
            seed=seed,
        )
        share = counts[0] / counts.sum(0)
        found.append((share.min(), share.max()))
    assert np.mean(found, axis=0) == pytest.approx((least, most), abs=0.03)


def test_within_a_group_labels_are_alike_unless_labels_are_dealt_too():
    rows = people(9000, 9000)

    def spread(federation) -> float:
        cells = federation.census().cells[:, 1]  # the privileged
        return float(np.ptp(cells[:, 1] / cells.sum(1)))

    settings = {"clients": 3, "alpha": 2.0, "min_samples": 1000}
    assert spread(dirichlet_attribute(rows, **settings)) < 0.05
    assert spread(dirichlet_label_attribute(rows, **settings)) > 0.1


@pytest.mark.parametrize("partition", DRAWN, ids=by_name)
def test_too_small_clients_fail_after_so_many_tries_and_name_the_best_draw(partition):
    with pytest.raises(
        ValueError,
        match=(
            r"none of 7 draws gave every client at least 24 rows \(100 rows, 4 clients, alpha=0.1\)"
        ),
    ) as error:
        partition(people(50, 50), clients=4, alpha=0.1, min_samples=24, tries=7)
    assert "in the best draw the smallest client had" in str(error.value).replace("\n", " ")


@pytest.mark.parametrize("partition", DRAWN, ids=by_name)
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clients": 0}, "clients must be between 1 and the number of rows, 20, got 0"),
        ({"alpha": 0.0}, "alpha must be a number above 0, got 0.0"),
        ({"alpha": float("nan")}, "alpha must be a number above 0"),
        ({"tries": 0}, "tries must be at least 1, got 0"),
        ({"shares": (0.9, 0.2)}, "train . valid at most 1"),
    ],
)
def test_drawn_partitions_refuse_settings_that_make_no_sense(partition, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        partition(people(10, 10), **{"clients": 2, "min_samples": 1, "alpha": 5.0, **settings})


def test_the_number_of_clients_by_both_rules():
    # Table 5.6 of the study: 7, 13, 16 and 5, 8, 11; its text: 6, 12, 16 and 8, 16, 20.
    for sides, coverages, table, text in (
        (*COVERAGES["adult"], [7, 13, 16], [6, 12, 16]),
        (*COVERAGES["compas"], [5, 8, 11], [8, 16, 20]),
    ):
        assert [count_clients(sides, coverage, "table") for coverage in coverages] == table
        assert [count_clients(sides, coverage, "text") for coverage in coverages] == text
    with pytest.raises(ValueError, match=r"no count rule 'tabel'\. Did you mean 'table'"):
        count_clients(ADULT, 4497, "tabel")


def test_quotas_of_the_study():
    # ALGORITHMS 4.3: good clients, unprivileged rows of good and bad ones, size; on all rows.
    adult = [
        quota(ADULT, clients, coverage) for clients, coverage in ((7, 4497), (13, 2570), (16, 1999))
    ]
    assert [(q.good, q.good_rows, q.bad_rows, q.size) for q in adult] == [
        (3, 4797, 450, 6977),
        (6, 2398, 257, 3756),
        (8, 1824, 200, 3052),
    ]
    compas = ((5, 1067), (8, 610), (11, 474))
    assert [quota(COMPAS, clients, coverage).good for clients, coverage in compas] == [4, 7, 9]
    training = SideCounts(3998, 940)  # 80 % of each side, the coverage left as it is
    found = [quota(training, clients, coverage) for clients, coverage in compas]
    assert [(q.good, q.good_rows) for q in found] == [(4, 972), (7, 562), (9, 433)]


def test_on_a_training_split_the_coverage_is_scaled_unless_told_not_to():
    rows, central = people(1619, 3265), np.arange(977)  # a tenth of Adult
    federation = cov_same_size(rows, coverage=449.7, central=central)
    assert federation.clients == 7
    good = unprivileged_rows(federation) >= 0.9 * 449.7 * 0.8
    assert good.sum() == 3
    with pytest.raises(ValueError, match="cannot be made of") as error:
        cov_same_size(rows, coverage=449.7, central=central, scale=False)
    limit = int(str(error.value).split("The limit is coverage=")[1].split(".")[0])
    cov_same_size(rows, coverage=limit, clients=7, central=central, scale=False)
    with pytest.raises(ValueError, match="cannot be made of"):
        cov_same_size(rows, coverage=limit + 1, clients=7, central=central, scale=False)


def test_a_limit_is_named_in_the_users_terms():
    rows, central = people(1619, 3265), np.arange(977)
    with pytest.raises(ValueError, match="coverage=900: 7 clients") as error:
        cov_same_size(rows, coverage=900, clients=7, central=central)
    limit = int(str(error.value).split("The limit is coverage=")[1].split(".")[0])
    cov_same_size(rows, coverage=limit, clients=7, central=central)
    with pytest.raises(ValueError, match="No coverage works: use fewer clients"):
        cov_same_size(people(5, 500), coverage=5, clients=50)


@given(
    unprivileged=st.integers(60, 200),
    privileged=st.integers(60, 300),
    coverage=st.integers(5, 60),
    seed=st.integers(0, 99),
)
def test_coverage_partitions_keep_their_promises(unprivileged, privileged, coverage, seed):
    rows, sides = people(unprivileged, privileged), SideCounts(unprivileged, privileged)
    try:
        expected = quota(sides, count_clients(sides, coverage, "table"), coverage)
    except ValueError:
        with pytest.raises(ValueError, match="cannot be made of"):
            cov_same_size(rows, coverage=coverage, seed=seed)
        return
    alike = cov_same_size(rows, coverage=coverage, seed=seed)
    dealt = all_rows(alike)
    assert len(set(dealt.tolist())) == len(dealt) == expected.size * expected.clients
    assert {len(mine) for mine in client_sets(alike)} == {expected.size}
    assert (unprivileged_rows(alike)[: expected.good] >= 0.9 * coverage).all()
    assert (unprivileged_rows(alike)[expected.good :] <= max(1, 0.1 * coverage + 0.5)).all()
    bad = expected.clients - expected.good
    if expected.good * math.ceil(0.9 * coverage) + bad * math.ceil(0.08 * coverage) > unprivileged:
        with pytest.raises(ValueError, match="Use a smaller coverage"):
            cov_diff_size(rows, coverage=coverage, seed=seed)
        return
    apart = cov_diff_size(rows, coverage=coverage, seed=seed)
    dealt = all_rows(apart)
    assert len(set(dealt.tolist())) == len(dealt)
    counts = unprivileged_rows(apart)
    assert apart.clients == expected.clients
    assert (counts[: expected.good] >= 0.9 * coverage).all()
    assert (counts[: expected.good] <= 1.2 * coverage + 1).all()
    assert (counts[expected.good :] <= 0.12 * coverage + 1).all()
    assert len(dealt) - counts.sum() == privileged  # only unprivileged rows are left over


def test_clients_of_different_size_on_all_of_adult_and_compas_have_the_studys_extremes():
    # Table 5.6 reports a minimum of 0.08 to 0.09 and a maximum of 1.16 to 1.21 times the coverage.
    for sides, coverages in COVERAGES.values():
        for coverage in coverages:
            federation = cov_diff_size(people(*sides), coverage=coverage, seed=3)
            counts = unprivileged_rows(federation) / coverage
            assert 0.079 <= counts.min() <= 0.121
            assert 0.9 <= counts.max() <= 1.201
            assert counts.sum() * coverage <= sides.unprivileged + 0.5
            assert len({len(mine) for mine in client_sets(federation)}) > 1


@pytest.mark.parametrize("partition", COVERED, ids=by_name)
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"coverage": 0}, "coverage must be a number of rows above 0, got 0"),
        ({"tolerance": 1.0}, "tolerance must be at least 0 and below 1, got 1.0"),
        ({"good_share": 0.0}, "good_share must be above 0 and at most 1, got 0.0"),
        ({"count_rule": "pages"}, "no count rule 'pages'.*Known: table, text"),
        ({"clients": 1000}, "clients must be between 1 and the number of rows, 100, got 1000"),
    ],
)
def test_coverage_partitions_refuse_settings_that_make_no_sense(partition, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        partition(people(50, 50), **{"coverage": 20, **settings})


@pytest.mark.parametrize("partition", [*COVERED, ratio_dirichlet], ids=by_name)
def test_without_two_sides_there_is_nothing_to_cover(partition):
    rows = people(50, 50)._replace(unprivileged=(0, 1))
    with pytest.raises(ValueError, match="needs unprivileged and privileged rows, but people has"):
        partition(rows, **({"coverage": 20} if partition in COVERED else {"clients": 2}))


def test_ratio_dirichlet_controls_sizes_and_shares_on_their_own():
    rows = people(3000, 7000)

    def sizes_and_shares(**settings):
        federation = ratio_dirichlet(rows, clients=5, min_samples=50, seed=2, **settings)
        sizes = np.array([len(mine) for mine in client_sets(federation)])
        return sizes, unprivileged_rows(federation) / sizes

    sizes, shares = sizes_and_shares(alpha=1e7, concentration=1e7)
    assert np.ptp(sizes) <= 10
    assert abs(shares - 0.3).max() < 0.002
    sizes, shares = sizes_and_shares(alpha=1.0, concentration=1e7)
    assert np.ptp(sizes) > 1000
    assert abs(shares - 0.3).max() < 0.002 + 1 / sizes.min()
    sizes, shares = sizes_and_shares(alpha=1e7, concentration=3.0)
    assert np.ptp(sizes) <= 10
    assert np.ptp(shares) > 0.2


def test_shares_spread_as_the_beta_distribution_says():
    # Variance r (1 - r) / (c + 1) = 0.21 / 11 at r = 0.3, c = 10; with 400 clients of equal size
    # the common shift is small.
    drawn = Draws(0, "test").at(0).beta(3, 7, 400)
    wanted = fit_shares(np.full(400, 1000), drawn, 120_000)
    assert wanted.sum() == 120_000
    assert (wanted / 1000).var() == pytest.approx(0.21 / 11, rel=0.2)
    odds = np.log(wanted / (1000 - wanted)) - np.log(drawn / (1 - drawn))
    # one shift for all, but for rounding
    assert np.ptp(odds[(wanted > 50) & (wanted < 950)]) < 0.05


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.data())
def test_fitted_shares_add_up_and_fit(sizes, data):
    sizes = np.array(sizes)
    total = data.draw(st.integers(1, int(sizes.sum())))
    drawn = np.array(data.draw(st.lists(st.floats(0, 1), min_size=len(sizes), max_size=len(sizes))))
    wanted = fit_shares(sizes, drawn, total)
    assert wanted.sum() == total
    assert ((wanted >= 0) & (wanted <= sizes)).all()


def test_whole_numbers_keep_the_sum():
    assert whole(np.array([1.5, 2.25, 0.25]), np.array([9, 9, 9])).tolist() == [2, 2, 0]
    assert draw_sizes(100, 3, 1.0, least=1, tries=50, draws=Draws(0, "sizes")).sum() == 100


NUMBERS_ABOVE_0 = (1, 1e6), (0, -1, math.inf, math.nan)
BOUNDS = [
    (equal, "clients", (1, 20), (-1, 0, 21)),
    (dirichlet, "clients", (1, 2), (-1, 0, 21)),
    (dirichlet, "beta", *NUMBERS_ABOVE_0),
    (dirichlet, "tries", (1, 2), (0, -1)),
    (
        dirichlet,
        "shares",
        ((1, 0), (0.7, 0.3), (0.5, 0.0), (1.0, 1e-9)),  # 1e-9 may be rounding
        ((0, 0.5), (1.1, -0.1), (0.5, -0.1), (0.8, 0.21), (1, 1)),
    ),
    *((drawn, "clients", (1, 2), (-1, 0, 21)) for drawn in DRAWN),
    *((drawn, "alpha", *NUMBERS_ABOVE_0) for drawn in DRAWN),
    *((drawn, "tries", (1, 2), (0, -1)) for drawn in DRAWN),
    (ratio_dirichlet, "concentration", *NUMBERS_ABOVE_0),
    *((covered, "coverage", (1, 5), (0, -1, math.inf, math.nan)) for covered in COVERED),
    *((covered, "tolerance", (0, 0.0, 0.1, 0.5), (-0.1, 1, 1.5, math.nan)) for covered in COVERED),
    *((covered, "good_share", (0.01, 0.5, 1), (0, -0.5, 1.01, 2)) for covered in COVERED),
    *((covered, "clients", (0, 1, 2), (-1, 21)) for covered in COVERED),
]


@pytest.mark.parametrize(
    ("partition", "setting", "accepted", "refused"),
    BOUNDS,
    ids=lambda v: getattr(v, "__name__", str(v))[:25],
)
def test_settings_are_accepted_up_to_their_bounds_and_refused_beyond(
    partition, setting, accepted, refused
):
    usual = {"clients": 2, "shares": (1.0, 0.0)}
    if partition in COVERED:
        usual |= {"coverage": 5}
    elif partition is not equal:
        usual |= {"min_samples": 1, ("beta" if partition is dirichlet else "alpha"): 1e6}
    for value in accepted:
        assert partition(people(10, 10), **{**usual, setting: value}).clients >= 1
    for value in refused:
        with pytest.raises(ValueError, match=f"{setting} must be"):
            partition(people(10, 10), **{**usual, setting: value})


@pytest.mark.parametrize("partition", [dirichlet, equal, *DRAWN, *COVERED], ids=by_name)
def test_unless_told_otherwise_seeds_are_0_and_nothing_is_central(partition):
    rows, settings = people(900, 1500), {"coverage": 300} if partition in COVERED else {}
    found = partition(rows, **settings)
    assert same(found, partition(rows, **settings, seed=0, split_seed=0))
    assert len(found.central) == 0


@pytest.mark.parametrize(
    ("sides", "clients", "coverage", "settings", "expected"),
    [
        # Without tolerance bad clients have nobody; size = (privileged + all unprivileged dealt) //
        # clients.
        ((10, 10), 2, 5, {"tolerance": 0}, Quota(2, 1, 5, 5, 0, 7)),
        ((10, 10), 2, 5, {"tolerance": 0, "good_share": 1}, Quota(2, 2, 5, 5, 0, 10)),
        ((10, 10), 2, 5, {"tolerance": 0, "good_share": 0.01}, Quota(2, 1, 5, 5, 0, 7)),
        ((10, 10), 2, 5, {"tolerance": 0.5}, Quota(2, 1, 5, 7, 2, 9)),
        ((10, 10), 2, 10, {"tolerance": 0, "dealt_share": 0.5}, Quota(2, 1, 5, 5, 0, 7)),
        # 9 rows are just enough for a coverage of 10 less a tenth, and 4 privileged ones to fill
        # two clients up to 4.
        ((9, 11), 1, 10, {}, Quota(1, 1, 10, 9, 1, 20)),
        ((7, 4), 2, 4, {"tolerance": 0}, Quota(2, 1, 4, 4, 0, 4)),
        # 3 privileged rows are not; but with 8 unprivileged ones both clients can be good.
        ((8, 3), 2, 4, {"tolerance": 0}, Quota(2, 2, 4, 4, 0, 5)),
        # Bad clients take their rows first: 12 - 2 * 1 are left for one good client, which may have
        # 11.
        ((12, 30), 3, 10, {}, Quota(3, 1, 10, 10, 1, 14)),
    ],
)
def test_quotas_by_hand(sides, clients, coverage, settings, expected):
    assert quota(SideCounts(*sides), clients, coverage, **settings) == expected


def test_a_quota_that_cannot_be_met_names_the_limit():
    with pytest.raises(
        ValueError,
        match=(
            r"coverage=4: 2 clients.* 1 or more .* at least 4 .* others with 0, .* The limit is"
            r" coverage=3\."
        ),
    ):
        quota(SideCounts(7, 3), 2, 4, tolerance=0)
    with pytest.raises(
        ValueError, match=r"8 unprivileged and 11 privileged rows\. The limit is coverage=8\."
    ):
        # 9 are needed; a coverage of 8 asks for 7.2, and 9 would ask for 8.1
        quota(SideCounts(8, 11), 1, 10)
    with pytest.raises(ValueError, match=r"The limit is coverage=1\."):
        quota(SideCounts(1, 5), 1, 2, tolerance=0)
    # where half of the rows are dealt, 8 means 4, and the limit is again said in whole coverages
    with pytest.raises(ValueError, match=r"coverage=8: .* at least 4 .* The limit is coverage=6\."):
        quota(SideCounts(7, 3), 2, 8, tolerance=0, dealt_share=0.5)
    with pytest.raises(ValueError, match="No coverage works"):
        quota(SideCounts(1, 5), 2, 2, tolerance=0, good_share=1)


def test_there_is_at_least_one_client_and_the_share_of_good_ones_divides():
    assert (
        count_clients(SideCounts(2, 3), 10, "table")
        == count_clients(SideCounts(2, 3), 10, "text")
        == 1
    )
    assert count_clients(SideCounts(40, 16), 10, "table") == 4  # the larger side, whichever it is
    assert [count_clients(SideCounts(29, 3), 10, "text", share) for share in (1, 0.5, 0.25)] == [
        2,
        4,
        8,
    ]


@pytest.mark.parametrize(
    ("rows", "available", "expected"),
    [
        ([10, 12], 22, [10, 12]),  # they fit
        ([10, 12], 21, [9, 11]),  # of 2 and 4 above the least 8, five sixths stay, rounded down
        ([10, 12], 16, [8, 8]),
        ([10, 12], 10, [8, 8]),  # never below the least
        ([8, 8], 10, [8, 8]),
        ([9, 8], 16, [8, 8]),
    ],
)
def test_what_exceeds_the_least_shrinks(rows, available, expected):
    assert _shrunk(np.array(rows, float), 8.0, available).tolist() == expected


def test_unprivileged_rows_are_drawn_in_their_ranges_and_shrink_to_what_there_is():
    asked, draw = Quota(5, 2, 100.0, 0, 0, 0), np.random.default_rng(4)
    good, bad = (
        np.floor(100 * draw.uniform(0.9, 1.2, 2)),
        np.floor(100 * draw.uniform(0.08, 0.12, 3)),
    )

    def found(available: int) -> list[int]:
        return draw_unprivileged(asked, available, 0.1, np.random.default_rng(4)).tolist()

    assert found(10_000) == found(int(good.sum() + bad.sum())) == [*good, *bad]
    assert good.sum() > 180
    assert bad.sum() > 24
    assert found(180 + int(bad.sum())) == [90, 90, *bad]  # good ones shrink first
    assert found(2 * 90 + 3 * 8) == [90, 90, 8, 8, 8]
    with pytest.raises(ValueError, match="need 204, but there are 203"):
        found(203)


def test_one_good_client_needs_no_bad_one():
    found = draw_unprivileged(Quota(1, 1, 10.0, 0, 0, 0), 10, 0.0, np.random.default_rng(0))
    assert found.tolist() == [10]


TOTALS = np.array([40, 60])


def drawings(kind: str, alpha: float, tries: int) -> list[np.ndarray]:
    """Rows of each client in each attempt."""
    draws = [Draws(7, kind).at(attempt) for attempt in range(tries)]
    if kind == "ratio-dirichlet":
        return [whole(draw.dirichlet(np.full(3, alpha)) * 100, np.full(3, 100)) for draw in draws]
    return [draw_once(TOTALS, 3, alpha, draw).sum(0) for draw in draws]


def sizes_drawn(kind: str, alpha: float, least: int, tries: int) -> list[int]:
    if kind == "ratio-dirichlet":
        return draw_sizes(100, 3, alpha, least=least, tries=tries, draws=Draws(7, kind)).tolist()
    if kind == "dirichlet":
        cut = {"shares": (1.0, 0.0), "min_samples": least}
        return (
            draw_counts(TOTALS, clients=3, beta=alpha, tries=tries, seed=7, **cut).sum(0).tolist()
        )
    return (
        draw_shares(kind, TOTALS, clients=3, alpha=alpha, min_samples=least, tries=tries, seed=7)
        .sum(0)
        .tolist()
    )


@pytest.mark.parametrize("kind", ["dirichlet", "dirichlet-attribute", "ratio-dirichlet"])
def test_the_first_draw_that_is_large_enough_is_taken_and_the_best_one_is_named(kind):
    """A client with exactly as many rows as asked for is large enough."""
    every = drawings(kind, 1.0, 9)
    smallest = [int(sizes.min()) for sizes in every]
    for least in sorted({n for n in smallest if n > 0}):
        first = next(i for i, n in enumerate(smallest) if n >= least)
        assert sizes_drawn(kind, 1.0, least, first + 1) == every[first].tolist()
        if first:
            best = max(smallest[:first])
            with pytest.raises(
                ValueError, match=f"none of {first} draws .* smallest client had {best}\\."
            ):
                sizes_drawn(kind, 1.0, least, first)


def test_of_two_rows_one_of_three_clients_gets_none():
    few, settings = np.array([1, 1]), {"clients": 3, "min_samples": 1, "tries": 2, "seed": 0}
    with pytest.raises(ValueError, match=r"smallest client had 0\."):
        draw_counts(few, beta=1.0, shares=(1.0, 0.0), **settings)
    with pytest.raises(ValueError, match=r"smallest client had 0\."):
        draw_shares("x", few, alpha=1.0, **settings)
    with pytest.raises(ValueError, match=r"smallest client had 0\."):
        draw_sizes(2, 3, 1.0, least=1, tries=2, draws=Draws(0, "x"))


@pytest.mark.parametrize(
    "partition", [dirichlet_attribute, dirichlet_label_attribute, ratio_dirichlet], ids=by_name
)
def test_nobody_is_left_without_rows_even_if_none_are_asked_for(partition):
    for least in (-1, 0, 1):
        settings = {"clients": 3, "alpha": 0.2, "min_samples": least, "shares": (1.0, 0.0)}
        assert all(
            len(mine) >= 1
            for seed in range(4)
            for mine in client_sets(partition(people(20, 20), seed=seed, **settings))
        )


def test_two_rows_are_enough_for_two_clients():
    assert sorted(
        map(len, client_sets(dirichlet(some_rows([1, 1]), clients=2, beta=1.0, shares=(1.0, 0.0))))
    ) == [1, 1]


@pytest.mark.parametrize(
    ("sizes", "drawn", "total", "expected"),
    [
        ([100, 300], [0.5, 0.5], 100, [25, 75]),  # alike before, alike after
        ([100, 100], [0.2, 0.8], 100, [20, 80]),  # they add up as drawn
        ([100, 100], [0.5, 0.8], 100, [33, 67]),  # odds 1 and 4 are halved: a third and two thirds
        ([100, 100], [0.2, 0.5], 100, [33, 67]),  # odds 1/4 and 1 are doubled
        ([10, 10], [0.0, 1.0], 10, [0, 10]),
        ([10, 10], [0.0, 1.0], 11, [1, 10]),
        ([10, 10], [0.0, 1.0], 9, [0, 9]),
        ([10, 10], [0.5, 0.5], 20, [10, 10]),
    ],
)
def test_shares_are_moved_by_one_amount_of_log_odds(sizes, drawn, total, expected):
    assert fit_shares(np.array(sizes), np.array(drawn), total).tolist() == expected


def test_whole_numbers_go_up_where_the_fraction_is_largest_and_there_is_room():
    assert whole(np.array([1.5, 1.5, 1.0]), np.array([1, 9, 9]), 5).tolist() == [1, 2, 2]
    assert whole(np.array([0.2, 0.7, 0.6]), np.array([5, 5, 5]), 2).tolist() == [0, 1, 1]
    assert whole(np.array([2.0, 3.0]), np.array([5, 5])).tolist() == [2, 3]
    assert whole(np.array([2.5, 3.5]), np.array([2, 3]), 5).tolist() == [2, 3]


def test_rows_of_a_stratum_beyond_its_counts_belong_to_nobody():
    strata, dealt = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 1, 2, 3, 4])
    owner = deal_counts(strata, dealt, np.array([[1, 1], [0, 2]]), seed=0)
    assert sorted(owner[[0, 2, 4]].tolist()) == [-1, 0, 1]
    assert owner[[1, 3]].tolist() == [1, 1]
    assert owner[5] == -1, "it was not to be dealt"


def test_names_sort_as_they_count():
    assert numbered(1) == ("client 0",)
    assert numbered(10)[-1] == "client 9"
    assert (numbered(11)[0], numbered(11)[-1], len(numbered(11))) == ("client 00", "client 10", 11)
    assert numbered(100)[7] == "client 07"


def test_as_many_clients_as_rows_are_the_most():
    for clients in (1, 5):
        check_clients("x", clients, 5)
    for clients in (0, 6):
        with pytest.raises(
            ValueError,
            match=f"x: clients must be between 1 and the number of rows, 5, got {clients}",
        ):
            check_clients("x", clients, 5)
