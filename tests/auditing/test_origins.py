"""Where a gap comes from: within clients and between them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import evenly
from evenly.auditing.within import gap_origin, gap_parts

# Worked numbers: selected and people of the group and of all others at three clients.
HITS = np.array([[8, 10], [30, 90], [5, 2]])
ROWS = np.array([[40, 40], [60, 150], [50, 10]])


def test_the_worked_numbers():
    parts = gap_parts(HITS, ROWS)
    assert parts.within == pytest.approx([-0.0116666667, -0.0575, -0.0191666667])
    assert parts.between == pytest.approx([-0.0115, -0.053375, -0.070125])
    assert parts.within.sum() == pytest.approx(-0.0883333333)
    assert parts.between.sum() == pytest.approx(-0.135)
    assert parts.within.sum() + parts.between.sum() == pytest.approx(-0.2233333333)
    local = HITS[:, 0] / ROWS[:, 0] - HITS[:, 1] / ROWS[:, 1]
    assert local == pytest.approx([-0.05, -0.1, -0.1])


def gap_of(hits: np.ndarray, rows: np.ndarray) -> float:
    rate = hits.sum(0) / rows.sum(0)
    return float(rate[0] - rate[1])


@st.composite
def tables(draw) -> tuple[np.ndarray, np.ndarray]:
    clients = draw(st.integers(1, 6))
    rows = draw(arrays.arrays(np.int64, (clients, 2), elements=st.integers(0, 50)))
    rows[0] += rows.sum(0) == 0  # both groups have somebody
    share = draw(arrays.arrays(np.float64, (clients, 2), elements=st.floats(0, 1)))
    return np.floor(rows * share).astype(np.int64), rows


@given(tables())
def test_both_parts_sum_to_the_gap_and_change_sign_with_the_groups(table):
    hits, rows = table
    parts = gap_parts(hits, rows)
    assert parts.within.sum() + parts.between.sum() == pytest.approx(gap_of(hits, rows), abs=1e-12)
    swapped = gap_parts(hits[:, ::-1], rows[:, ::-1])
    assert swapped.within == pytest.approx(-parts.within, abs=1e-12)
    assert swapped.between == pytest.approx(-parts.between, abs=1e-12)


@given(tables())
def test_an_oracle_with_loops(table):
    hits, rows = table
    within = between = 0.0
    for k in range(len(rows)):
        pi = [rows[k, g] / rows[:, g].sum() for g in (0, 1)]
        rate = [hits[k, g] / rows[k, g] if rows[k, g] else None for g in (0, 1)]
        if None not in rate:
            within += (pi[0] + pi[1]) / 2 * (rate[0] - rate[1])
            between += (rate[0] + rate[1]) / 2 * (pi[0] - pi[1])
        else:
            between += pi[0] * (rate[0] or 0) - pi[1] * (rate[1] or 0)
    parts = gap_parts(hits, rows)
    assert (parts.within.sum(), parts.between.sum()) == pytest.approx((within, between), abs=1e-12)


def test_alike_clients_have_no_part_between_and_fair_clients_none_within():
    alike = gap_parts(np.array([[3, 9], [10, 4]]), np.array([[20, 20], [40, 40]]))
    assert alike.between == pytest.approx([0, 0], abs=1e-15)
    fair = gap_parts(np.array([[5, 10], [30, 6]]), np.array([[10, 20], [50, 10]]))
    assert fair.within == pytest.approx([0, 0], abs=1e-15)


def test_a_client_with_one_group_counts_between():
    hits, rows = np.array([[8, 10], [5, 0]]), np.array([[40, 40], [50, 0]])
    parts = gap_parts(hits, rows)
    assert parts.one_sided.tolist() == [False, True]
    assert parts.within[1] == 0
    assert parts.within.sum() + parts.between.sum() == pytest.approx(gap_of(hits, rows))
    with pytest.raises(ValueError, match="Both groups must have people"):
        gap_parts(hits[1:], rows[1:])


def pairs_of(hits: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Tables [clients, 2, labels, outcomes] with these selected people, half of them labelled."""
    made = np.zeros((len(rows), 2, 2, 2), np.int64)
    made[..., 1, 1], made[..., 0, 1] = hits // 2, hits - hits // 2
    made[..., 1, 0], made[..., 0, 0] = (rows - hits) // 2, rows - hits - (rows - hits) // 2
    return made


def test_clients_that_are_not_shown_count_as_one():
    pairs = pairs_of(HITS, ROWS)
    whole = gap_origin(pairs, "spd", np.array([True, True, True]))
    assert whole is not None
    assert whole.joined == 0
    assert not whole.within.has_interval
    joined = gap_origin(pairs, "spd", np.array([True, False, False]))
    assert joined is not None
    assert (joined.joined, joined.clients) == (2, (0,))
    assert joined.gap == pytest.approx(whole.gap, abs=1e-12)
    two = gap_parts(np.stack([HITS[0], HITS[1:].sum(0)]), np.stack([ROWS[0], ROWS[1:].sum(0)]))
    assert joined.within.value == pytest.approx(two.within.sum())
    assert gap_origin(pairs, "spd", np.zeros(3, bool)) is None  # one part says nothing


def test_ten_clients_have_intervals_that_agree_with_resampling_lists_of_clients():
    draw = np.random.default_rng(3)
    rows = draw.integers(30, 200, (12, 2))
    hits = draw.binomial(rows, draw.uniform(0.2, 0.7, (12, 1)))
    found = gap_origin(pairs_of(hits, rows), "spd", np.ones(12, bool))
    assert found is not None
    assert found.within.has_interval
    assert found.between.has_interval
    slow = []
    for _ in range(2000):
        own = draw.integers(12, size=12)
        parts = gap_parts(hits[own], rows[own])
        slow.append((parts.within.sum(), parts.between.sum()))
    low, high = np.percentile(slow, [2.5, 97.5], axis=0)
    assert (found.within.low, found.between.low) == pytest.approx(low, abs=0.02)
    assert (found.within.high, found.between.high) == pytest.approx(high, abs=0.02)


def frame() -> pd.DataFrame:
    """Women are mostly at the clinic that selects few; each clinic selects both alike."""
    sizes = {("low", "f"): 160, ("low", "m"): 40, ("high", "f"): 40, ("high", "m"): 160}
    rows = []
    for (site, sex), size in sizes.items():
        selected = size // (5 if site == "low" else 2)
        for i in range(size):
            rows.append((site, sex, i % 2, int(i % size < selected)))
    return pd.DataFrame(rows, columns=["site", "sex", "y", "p"])


def test_an_audit_says_where_a_gap_comes_from():
    found = evenly.audit(
        frame(), client="site", label="y", prediction="p", sensitive="sex", unprivileged="f"
    )
    origin = found.groups[0].origins["spd"]
    assert origin.within.value == pytest.approx(0, abs=1e-12)
    assert origin.between.value == pytest.approx(-0.18)
    assert set(found.groups[0].origins) == {"spd", "eod", "acc_diff"}
    text = "Over all people this gap is −18.0 points: 0.0 come from within clients, and −18.0"
    assert any(text in sentence for sentence in found.sentences)
    figures = {(f.level, f.name, f.metric): f.value for f in found.figures}
    assert figures["column", "sex", "spd_between_clients"] == pytest.approx(-0.18)
    assert figures["client", "low", "spd_between_clients:sex"] == pytest.approx(-0.09)
    assert "Where the gap comes from" in found._page()
