"""A server that wants rows, and combines what it is told: attempts whose single requests look like
those of an honest round, and requests that are put together in odd ways.
"""

from typing import Any

import numpy as np
from flwr.app import Array

from evenly.flower import wire
from evenly.flower.clients.review import FEW
from evenly.flower.clients.rows import ClientRows, batches
from tests.flower.hostile_server import (
    FEATURES,
    LARGE,
    MANY,
    RARE,
    SMALL,
    Attempt,
    Site,
    linear,
)

ONE_STEP = "fedavg(batch_size=100)"  # on all rows of these sites


def two_models_of_one_digest(site: Site) -> bool:
    """Two models for one round that a digest cannot tell apart, if it joins names and bytes: what
    follows an array's numbers is not read, and looks like the next array.
    """
    b, one, other = (bytes_of(part) for part in ((0.0, 0.0), linear(1.0)["w"], linear(3.0)["w"]))
    joint = b"arrays/w(3, 2)float32"
    bodies = [(b, one + joint + other), (b + joint + one, other)]
    losses = {
        site.ask(
            wire.MEASURE,
            {
                "b": Array("float32", (2,), wire.NUMPY, bias),
                "w": Array("float32", (FEATURES, 2), wire.NUMPY, weights),
            },
        ).get("loss")
        for bias, weights in bodies
    }
    return len(losses - {None}) == 2


def bytes_of(value: Any) -> bytes:
    return Array(np.asarray(value, np.float32)).data


def choice_that_rests_on_one_row(site: Site) -> bool:
    """Two models, of which the second fits better if one person's feature is above a value."""
    own = site.source.train
    target, equal = own.x[own.y == 1][0, 0], np.log(2) * own.size
    found = []
    for number, middle in enumerate((target + 0.1, target - 0.1), 1):
        crafted = linear((20.0, 0, 0), (equal + 20 * middle, 0.0))
        got = site.ask("evaluate", several(linear(), crafted), number)
        found.append(got.get("choice"))
    return found[0] == 0 and found[1] != 0


def several(*models: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{k}/{name}": own for k, one in enumerate(models) for name, own in one.items()}


def choice_among_many_models(site: Site) -> bool:
    """More models than the method has: which of fifty fits the rows of this site best."""
    models = [linear((k / 10, 0, 0)) for k in range(50)]
    return site.ask("evaluate", several(*models)).get("choice", 0) > 1


def row_weights_without_one_row(site: Site) -> bool:
    """Two updates, with and without the only row of a group and label."""
    sums = []
    for number, last in enumerate((1.0, 0.0), 1):
        weights = np.ones((2, 2))
        weights[1, 1] = last
        told: dict[str, Any] = {}
        wire.put(told, wire.ROW_WEIGHTS, weights)
        got = site.ask("train", linear(), number, coefficient=1.0, **told)
        if "arrays" not in got:
            return False
        sums.append(got["arrays"])
    own = site.source.train
    change = {name: sums[0][name] - sums[1][name] for name in sums[0]}
    target = own.x[(own.group == 1) & (own.y == 1)][0]
    return bool(np.allclose(change["w"][:, 1] / change["b"][1], target, atol=1e-2))


def one_row_of_a_group_and_label(site: Site) -> bool:
    """A model that many rows move, but of one group and label only one, and two sets of row
    weights, with and without this group and label.
    """
    own = site.source.train
    cell = own.x[(own.group == 1) & (own.y == 1)]
    first, second = np.sort(cell[:, 1])[:2]  # far apart
    model, sums = linear((0, 8, 0), (4 * (first + second), 0.0)), []
    for number, last in enumerate((1.0, 0.0), 1):
        told: dict[str, Any] = {}
        wire.put(told, wire.ROW_WEIGHTS, np.array([[1.0, 1.0], [1.0, last]]))
        got = site.ask("train", model, number, coefficient=1.0, **told)
        if "arrays" not in got:
            return False
        sums.append(got["arrays"])
    change = {name: sums[0][name] - sums[1][name] for name in sums[0]}
    target = cell[cell[:, 1] == first][0]
    return bool(np.allclose(change["w"][:, 1] / change["b"][1], target, atol=1e-2))


def sums_by_label(site: Site, start: int = 1, **config: Any) -> np.ndarray | None:
    """Sums of the features of each label, from the updates of two models without weights: the
    share with which each label moves them is known. [labels, features]
    """
    shares, moved = [], []
    for number, bias in enumerate((2.0, 1.0), start):
        got = site.ask("train", linear(b=(bias, 0.0)), number, coefficient=1.0, **config)
        if "arrays" not in got:
            return None
        share = 1 / (1 + np.exp(bias))
        shares.append((share, share - 1))
        moved.append(np.append(got["arrays"]["w"][:, 1], got["arrays"]["b"][1]))
    return np.linalg.solve(np.array(shares), np.array(moved, np.float64))


def two_biases_and_a_rare_label(site: Site) -> bool:
    """The features of the only row of a label, from two models that every row moves."""
    sums = sums_by_label(site)
    own = site.source.train
    return sums is not None and bool(
        np.allclose(sums[1, :-1] / sums[1, -1], own.x[own.y == 1][0], atol=1e-2)
    )


def methods_that_weigh_rows_differently(site: Site) -> bool:
    """The only row of a group and label, from two agreed methods: one weighs cells of rows, the
    other does not.
    """
    own = site.source.train
    plain = sums_by_label(site, 1)
    weighed = sums_by_label(site, 3, evenly_method=f"{site.method}+reweigh")
    if plain is None or weighed is None:
        return False
    # in the second sums, a row counts by the weight of its cell, which follows from the counts
    yes = own.y == 1
    weight = [
        (own.group == g).mean() * yes.mean() / ((own.group == g) & yes).mean() for g in (0, 1)
    ]
    women = (weighed[1] - weight[0] * plain[1]) / (weight[1] - weight[0])
    target = own.x[(own.group == 1) & yes][0]
    return bool(np.allclose(women[:-1] / women[-1], target, atol=0.05))


def sums_over_changing_parts(site: Site) -> bool:
    """A method whose rounds train on a few rows: as many sums as there are rows, of rows that the
    server knows by number.
    """
    own, parts, sums = site.source.train, [], []
    for number in range(1, 91):
        got = site.ask("train", linear(), number, coefficient=1.0)
        if "arrays" not in got:
            return False
        (batch,) = batches(0, number, 0, own.size, max_steps=1)
        parts.append(np.isin(np.arange(own.size), batch))
        sums.append(got["arrays"]["w"][:, 1])
    found = np.linalg.lstsq(np.array(parts, float), np.array(sums, float), rcond=None)[0]
    ratio = found / (own.x * (own.y - 0.5)[:, None])
    return bool(np.allclose(ratio / np.median(ratio), 1, atol=0.01))


def equations_of_many_rounds(site: Site) -> bool:
    """All rows of a label. Under a model that is certain, and wrong, of a label, these rows alone
    move it, each by its features. In the last batch of a round, which is shorter, rows count more:
    every round is an equation about the rows, whose factors follow from the seed. No policy
    refuses this.
    """
    own, model, factors, moved = site.source.train, linear(b=(30.0, 0.0)), [], []
    for number in range(1, 81):
        got = site.ask("train", model, number, coefficient=1.0)
        if "arrays" not in got:
            return False
        factor = np.zeros(own.size)
        for batch in batches(0, number, 0, own.size):
            there = batch[batch >= 0]
            factor[there] = 1 / len(there)
        factors.append(factor)
        moved.append(np.append(got["arrays"]["w"][:, 1], got["arrays"]["b"][1]))
    found = np.linalg.lstsq(np.array(factors), np.array(moved, np.float64), rcond=None)[0]
    of_label = found[:, -1] > found[:, -1].max() / 2
    if (of_label != (own.y == 1)).any():
        return False
    return bool(
        np.allclose(found[of_label, :-1] / found[of_label, -1:], own.x[own.y == 1], atol=1e-3)
    )


def a_model_certain_of_all_rows(site: Site) -> bool:
    """Weights so large that no row has a loss that single precision can tell from 0. The row with
    the least certain answer still moves the model by far the most.
    """
    model = certain_of_all(site.source.train)
    got = site.ask("train", model, coefficient=1.0)
    if "arrays" not in got:
        return False
    moved, x = got["arrays"], site.source.train.x
    with np.errstate(all="ignore"):  # the row moves the weights of the label that it does not have
        found = [moved["w"][:, k] / moved["b"][k] for k in (0, 1)]
    return any(np.isclose(x, one, rtol=1e-2, atol=1e-3).all(1).any() for one in found)


def refusals_without_end(site: Site) -> bool:
    """A refusal tells the server that few rows are between two thresholds: as often as it likes."""
    end, got = np.sort(site.source.test.x[:, 1]), {}
    for number in range(1, 151):
        got = site.ask("evaluate", linear((0, 1, 0), (float(end[1]) + number / 1e6, 0.0)), number)
    return bool(got) or FEW in site.said


def another_client_number(site: Site) -> bool:
    """The batches of another client of the same run."""
    first = site.ask("train", linear())
    second = site.ask("train", linear(), 2, client=1)
    return "arrays" in first and "arrays" in second


def a_file_named_in_the_config(site: Site) -> bool:
    entry: dict[str, Any] = {"table/../../etc/pas\u017fwd": "/etc/passwd"}
    return "arrays" in site.ask("train", linear(), **entry)


def a_method_with_a_huge_option(site: Site) -> bool:
    got = site.ask("train", linear(), evenly_method="q-fedavg(q=1e6, epochs=1)")
    return "arrays" in got


def epochs_without_end(site: Site) -> bool:
    return "arrays" in site.ask("train", linear(), evenly_method="q-fedavg(q=1, epochs=50)")


def a_model_that_is_infinite(site: Site) -> bool:
    """Which rows have a feature that is not 0: infinity times 0 is NaN."""
    with np.errstate(all="ignore"):
        got = site.ask("evaluate", linear((np.inf, 0, 0)))
    return "table" in got


def certain_of_all(own: ClientRows) -> dict[str, np.ndarray]:
    """A model whose least certain answer is wrong with a probability of 1e-10."""
    return linear((23 / np.abs(own.x[:, 0]).min(), 0, 0))


def one_row_between_two_models(site: Site) -> bool:
    """Two models that are certain of every row, right or wrong, and differ in one: the difference
    of their updates is that row.
    """
    own, updates = site.source.train, []
    found = np.sort(own.x[:, 1])
    k = len(found) // 2
    for number, end in enumerate(((found[k - 1] + found[k]) / 2, (found[k] + found[k + 1]) / 2), 1):
        model = linear((0, 1e4, 0), (1e4 * end, 0.0))
        got = site.ask("train", model, number, coefficient=1.0)
        if "arrays" not in got:
            return False
        updates.append(got["arrays"])
    change = {name: updates[0][name] - updates[1][name] for name in updates[0]}
    target = own.x[own.x[:, 1] == found[k]][0]
    with np.errstate(all="ignore"):
        ratio = change["w"][:, 1] / change["b"][1]
    return bool(np.allclose(ratio[[0, 2]], target[[0, 2]], atol=1e-2))


def one_row_between_two_losses(site: Site) -> bool:
    """How many rows are above a value: from two losses, for which rows above it count by how far
    they are above. Counts of two values around one row differ by 1.
    """
    found = np.sort(site.source.train.x[:, 1])
    k, step, scale = len(found) // 2, 1e-3, 1e3
    counts, number = [], 0
    for end in ((found[k - 1] + found[k]) / 2, (found[k] + found[k + 1]) / 2):
        losses = []
        for shift in (-step, step):
            number += 1
            model = linear((0, scale, 0), (scale * (end + shift), 0.0))
            losses.append(site.ask(wire.MEASURE, model, number).get("loss", np.nan))
        # rows whose label is no count above the value, the others below it
        counts.append((losses[0] - losses[1]) * len(found) / (2 * step * scale))
    apart = abs(counts[0] - counts[1])
    return bool(np.isclose(apart, 1, atol=0.2))


def in_a_category(own: ClientRows, column: int, *members: int) -> ClientRows:
    """Rows whose column is 1 for some, and 0 for all others."""
    x = own.x.copy()
    x[:, column] = np.isin(np.arange(own.size), members)
    return own._replace(x=x)


ONE = 8  # number of the row that is alone in its category, or in two categories
SPECIAL = LARGE._replace(
    train=in_a_category(LARGE.train, 2, ONE), test=in_a_category(LARGE.test, 2, ONE)
)
BOTH = LARGE._replace(
    train=in_a_category(
        in_a_category(LARGE.train, 1, *range(0, 64, 4)), 2, ONE, *range(1, 64, 4)
    )
)  # fmt: skip


def updates_of(site: Site, *weights: Any) -> np.ndarray | None:
    """Updates of the second label's weights and bias, from several models. One row each."""
    updates = []
    for number, weight in enumerate(weights, 1):
        got = site.ask("train", linear(weight), number, coefficient=1.0)
        if "arrays" not in got:
            return None
        updates.append(np.append(got["arrays"]["w"][:, 1], got["arrays"]["b"][1]))
    return np.array(updates, np.float64)


def the_only_row_of_a_category(site: Site) -> bool:
    """Two models that differ in the weight of a category: only its rows answer differently."""
    updates = updates_of(site, 0.0, (0, 0, 3))
    if updates is None:
        return False
    change = updates[1] - updates[0]
    return bool(np.allclose(change[:-1] / change[-1], site.source.train.x[ONE], atol=1e-3))


def the_only_row_with_two_categories(site: Site) -> bool:
    """Three models with equal weights for two ordinary categories: rows with one of them move the
    model by known shares, and the row with both by others. No policy refuses this.
    """
    weights = np.array([0.0, 1.0, 2.0])
    updates = updates_of(site, *((0, weight, weight) for weight in weights))
    if updates is None:
        return False
    shares = 1 / (1 + np.exp(-np.outer(weights[1:], (1, 2)))) - 0.5
    _, alone = np.linalg.solve(shares, updates[1:] - updates[0])
    with np.errstate(all="ignore"):
        return bool(np.allclose(alone[:-1] / alone[-1], site.source.train.x[ONE], atol=1e-2))


def row_of_a_category_from_losses(site: Site) -> bool:
    """The label and features of the only test row of a category, from losses: under a low bias no
    prediction turns, and only this row's loss changes with the weight of its category.
    """
    own, bias, step = site.source.test, -4.0, 2.0
    scores, found, number = np.linspace(-4, 4, 80_001), [], 0
    for feature in range(2):
        losses = []
        for weight in (0.0, step):
            number += 1
            model = linear(weight * np.eye(3)[2] + 0.5 * np.eye(3)[feature], (0.0, bias))
            losses.append(site.ask("evaluate", model, number).get("loss", np.nan) * own.size)
        change = losses[1] - losses[0]  # falls if the label is yes
        rise = np.logaddexp(0, scores + bias + step) - np.logaddexp(0, scores + bias)
        found.append(np.interp(change + step * (change < 0), rise, scores) / 0.5)
        if (change < 0) != own.y[ONE]:
            return False
    return bool(np.allclose(found, own.x[ONE, :2], atol=1e-2))


MORE_ATTEMPTS = [
    Attempt(the_only_row_of_a_category, "1 of 3 features are rare", SPECIAL, ONE_STEP),
    Attempt(the_only_row_of_a_category, "1 of 3 features are rare", SPECIAL, "fedsgd"),
    Attempt(row_of_a_category_from_losses, "", SPECIAL),
    Attempt(two_models_of_one_digest, "with other contents before"),
    Attempt(choice_that_rests_on_one_row, "Only 1.0 of 61 rows", RARE, "ifca(groups=2)"),
    Attempt(choice_among_many_models, "the method has 2", method="ifca(groups=2)"),
    Attempt(row_weights_without_one_row, "group and label", SMALL, "fedfb(batch_size=100)"),
    Attempt(one_row_of_a_group_and_label, "rows of a group and", method="fedfb(batch_size=100)"),
    Attempt(two_biases_and_a_rare_label, "1 labels have", RARE, ONE_STEP),
    Attempt(
        methods_that_weigh_rows_differently, "pairs of group and label", SMALL, ONE_STEP,
        (f"{ONE_STEP}+reweigh",),
    ),
    Attempt(sums_over_changing_parts, "10 of 66 rows", method="fedavg(max_steps=1)"),
    Attempt(a_model_certain_of_all_rows, "certain of every row", method=ONE_STEP),
    Attempt(one_row_between_two_models, "are undecided under", method=ONE_STEP),
    Attempt(one_row_between_two_losses, "are undecided under", MANY),
    Attempt(refusals_without_end, "rounds_a_day is 100", MANY),
    Attempt(another_client_number, "'client' changed"),
    Attempt(a_file_named_in_the_config, "entry 'table/../../etc/pas"),
    Attempt(a_method_with_a_huge_option, "not one that it agreed to"),
    Attempt(epochs_without_end, "not one that it agreed to"),
    Attempt(a_model_that_is_infinite, "NaN"),
]  # fmt: skip
