"""ACS Income with a bias in every state: rates as calculated, who is concerned, and determinism."""

import numpy as np
import pytest

from evenly.datasets import acs_bias, acs_income
from evenly.datasets.acs_bias import KINDS, WOMEN, disadvantage
from evenly.datasets.acs_income import COLUMNS
from tests.datasets.real_data import need

SEX, INCOME = COLUMNS.index("SEX"), COLUMNS.index("PINCP")
STATES = "ME,MT,NH,VT"


def people(count: int = 4000) -> np.ndarray:
    draw = np.random.default_rng(0)
    table = np.ones((len(COLUMNS), count), np.float32)
    table[0] = np.arange(count)
    table[SEX] = draw.integers(1, 3, count)
    table[INCOME] = draw.random(count) < 0.4
    return table


@pytest.mark.parametrize(("drop", "flip"), [(0.5, 0.0), (0.0, 0.5), (0.3, 0.2), (0.0, 0.0)])
def test_the_rate_is_the_calculated_one_and_others_are_untouched(drop, flip):
    before = people()
    after = disadvantage(before, WOMEN, drop=drop, flip=flip, draw=np.random.default_rng(1))
    women = before[SEX] == 2
    rate = before[INCOME, women].mean()
    expected = rate * (1 - drop) * (1 - flip) / (1 - rate * drop)
    assert after[INCOME, after[SEX] == 2].mean() == pytest.approx(expected, abs=1e-3)
    np.testing.assert_array_equal(after[:, after[SEX] == 1], before[:, ~women])
    # badly paid women stay, with all of their columns, in order
    poor = before[:, women & (before[INCOME] == 0)]
    assert np.isin(poor[0], after[0]).all()
    assert (np.diff(after[0]) > 0).all()
    assert before[INCOME].sum() > 1000  # the rows that were passed are not changed


def rates(federation, attribute: str) -> np.ndarray:
    """Rates of good pay, [clients, values of the attribute], over all rows of a client."""
    [chosen] = [a for a in federation.attributes if a.name == attribute]
    of_row = np.array(chosen.of_group)[federation.group]
    parts = [federation.train, federation.valid, federation.test]
    return np.array(
        [
            [
                federation.y[rows][of_row[rows] == value].mean()
                for value in range(len(chosen.values))
            ]
            for rows in (
                np.concatenate([part.of(k) for part in parts]) for k in range(federation.clients)
            )
        ]
    )


@pytest.mark.data
def test_under_attribute_bias_states_disagree_about_the_attribute():
    need("acs-bias")
    plain = acs_income(states=STATES, sensitive="sex,race")
    biased = acs_bias(states=STATES, drop=0.6)
    assert sorted(biased.client_group.tolist()) == [0, 0, 1, 1]
    assert [name[:2] for name in biased.names] == list(plain.names)
    assert biased.names == tuple(
        f"{name} ({KINDS['attribute'][side].who})"
        for name, side in zip(plain.names, biased.client_group, strict=True)
    )
    for k, side in enumerate(biased.client_group):
        attribute, other = ("sex", "race") if side == 0 else ("race", "sex")
        lost = rates(plain, attribute)[k] - rates(biased, attribute)[k]
        unprivileged, privileged = 0, 1
        assert lost[unprivileged] > 0.07
        assert abs(lost[privileged]) < abs(lost[unprivileged]) / 3
        assert (np.abs(rates(plain, other)[k] - rates(biased, other)[k]) < lost[0]).all()


@pytest.mark.data
def test_under_value_bias_states_disagree_about_the_value():
    need("acs-bias")
    federation = acs_bias("value-sex", states=STATES, drop=0.8)
    gaps = np.diff(rates(federation, "sex"), axis=1)[:, 0]  # men minus women
    assert (gaps[federation.client_group == 0] > 0.2).all()
    assert (gaps[federation.client_group == 1] < 0).all()
    races = acs_bias("value", states="GA,MD", drop=0.8)
    assert races.groups == ("White", "Black", "Asian", "other")
    assert races.unprivileged == (1, 2)
    of_races = rates(races, "race")
    for k, side in enumerate(races.client_group):
        disadvantaged, other = (1, 2) if side == 0 else (2, 1)
        assert of_races[k, disadvantaged] < 0.25 < of_races[1 - k, disadvantaged]
        assert of_races[k, other] > 0.25


@pytest.mark.data
def test_a_state_keeps_its_people_and_seeds_choose():
    need("acs-bias")
    few, same = (acs_bias(states="VT,WY", rows_per_state=400) for _ in range(2))
    np.testing.assert_array_equal(few.x, same.x)
    assert len(few.y) < 800
    other = acs_bias(states="VT,WY", rows_per_state=400, seed=5)
    assert len(other.y) != len(few.y) or not np.array_equal(other.y, few.y)
    untouched = acs_bias(states="VT", drop=0.0)
    np.testing.assert_array_equal(untouched.y, acs_income(states="VT").y)
    np.testing.assert_array_equal(untouched.x, acs_income(states="VT").x)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"kind": "group"}, "There is no kind of bias 'group'. Known: attribute, value"),
        ({"drop": 1.0}, "drop must be at least 0 and below 1, got 1.0"),
        ({"flip": -0.1}, "flip must be at least 0 and below 1, got -0.1"),
        ({"rows_per_state": -1}, "rows_per_state must be at least 0"),
        ({"states": "CA"}, "There is no state 'CA'"),
    ],
)
def test_wrong_settings_are_named(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        acs_bias(**settings)
