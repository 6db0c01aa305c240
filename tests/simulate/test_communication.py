"""Bytes of a round: the published figures, from the networks themselves."""

import jax
import pytest

from evenly.metrics.runs import MIB
from evenly.models import MLP, LeNet
from evenly.simulate.traces import (
    Cost,
    float_bytes,
    layer_sizes,
    mask_bytes,
    ranking_bytes,
    round_cost,
)

NETS = {
    "rotate": LeNet(bias=False),
    "femnist": LeNet(bias=False, classes=62),
    "adult": MLP(features=101, classes=2, hidden=(1024, 1024), bias=False),
}
SIZES = {
    name: layer_sizes(jax.eval_shape(net.init, jax.random.key(0))) for name, net in NETS.items()
}


@pytest.mark.parametrize(
    "net, parameters, whole, bits, ranking, mask, ten_masks, ten_models",
    [
        ("rotate", 1625632, 6.2013, 34011424, 4.0545, 0.1938, 5.9924, 62.0129),
        ("femnist", 1632288, 6.2267, 34100512, 4.0651, 0.1946, 6.0109, 62.2668),
        ("adult", 1154048, 4.4023, 22752256, 2.7123, 0.1376, 4.0880, 44.0234),
    ],
)
def test_the_table(
    net: str,
    parameters: int,
    whole: float,
    bits: int,
    ranking: float,
    mask: float,
    ten_masks: float,
    ten_models: float,
):
    sizes = SIZES[net]
    assert sum(sizes) == parameters
    assert ranking_bytes(sizes) * 8 == bits
    assert float_bytes(sizes) / MIB == pytest.approx(whole, abs=5e-5)
    assert mask_bytes(sizes) / MIB == pytest.approx(mask, abs=5e-5)
    for kind, up, down in (
        ("model", whole, whole),
        ("ranking", ranking, ranking),
        ("ranking and masks", ranking, ten_masks),
        ("clusters", whole, ten_models),
        ("independent", ten_models, ten_models),
    ):
        cost = round_cost(kind, sizes, models=10)
        assert (cost.up / MIB, cost.down / MIB) == (
            pytest.approx(up, abs=6e-5),
            pytest.approx(down, abs=6e-5),
        )


def test_the_figures_that_e2fl_prints():
    rotate, femnist = SIZES["rotate"], SIZES["femnist"]
    assert [
        round(round_cost("model", rotate).up / MIB, 2),
        round(round_cost("clusters", rotate, models=10).down / MIB, 1),
    ] == [6.20, 62.0]
    assert [round(c / MIB, 2) for c in round_cost("ranking and masks", rotate, models=10)] == [
        4.05,
        5.99,
    ]
    assert round(round_cost("model", femnist).up / MIB, 2) == 6.23
    assert round(round_cost("ranking and masks", femnist, models=10).down / MIB, 2) == 6.01
    # Its text has two groups there, for which its figure does not hold.
    assert round_cost("ranking and masks", femnist, models=2).down / MIB == pytest.approx(
        4.4543, abs=5e-5
    )


def test_small_things():
    assert ranking_bytes([1]) == 0, "one edge needs no ranking"
    assert ranking_bytes([2, 3, 4, 5]) * 8 == 2 + 6 + 8 + 15
    assert round_cost("none", [7]) == Cost(0, 0)
    plain, told = round_cost("model", [7]), round_cost("model", [7], scalars=3)
    assert told == (plain.up + 12, plain.down)


def test_bad_input_is_refused():
    with pytest.raises(
        ValueError, match=r"no kind of communication 'rankings'\. Did you mean 'ranking'\?"
    ):
        round_cost("rankings", [3])
    with pytest.raises(
        ValueError,
        match=r"Layers and models must be at least 1 and scalars at least 0, got \[0\], 1 and 0",
    ):
        round_cost("model", [0])


@pytest.mark.parametrize(
    ("sizes", "more", "good"),
    [
        ([1], {}, True),
        ([], {}, True),
        ([3, 1], {"models": 1}, True),
        ([3], {"scalars": 0}, True),
        ([3], {"models": 2, "scalars": 1}, True),
        ([0], {}, False),
        ([3, 0], {}, False),
        ([-1], {}, False),
        ([3], {"models": 0}, False),
        ([3], {"scalars": -1}, False),
        ([3], {"models": -1, "scalars": 1}, False),
    ],
)
def test_layers_and_models_are_at_least_1_and_scalars_at_least_0(
    sizes: list, more: dict, good: bool
):
    if good:
        assert round_cost("model", sizes, **more).up == 4 * sum(sizes) + 4 * more.get("scalars", 0)
    else:
        with pytest.raises(
            ValueError, match="Layers and models must be at least 1 and scalars at least 0"
        ):
            round_cost("model", sizes, **more)


def test_every_kind_by_hand():
    """Layers of 8 and 2: 40 bytes as floats, 8 * 3 + 2 * 1 = 26 bits as a ranking, 10 bits as a
    mask.
    """
    expected = {
        "model": (40, 40), "clusters": (40, 120), "independent": (120, 120),
        "ranking": (3.25, 3.25), "ranking and masks": (3.25, 3.25 + 3 * 1.25), "none": (0, 0),
    }  # fmt: skip
    for kind, (up, down) in expected.items():
        assert round_cost(kind, [8, 2], models=3) == (up, down)
        assert round_cost(kind, [8, 2], models=3, scalars=2) == (up + 8, down)
    assert round_cost("clusters", [8, 2]) == (40, 40), "one model unless told"
    assert layer_sizes(
        {"a": jax.ShapeDtypeStruct((4, 2), "float32"), "b": jax.ShapeDtypeStruct((), "float32")}
    ) == (8, 1)
