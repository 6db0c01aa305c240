"""Four independent seeds, and a plan that does not depend on how it is cut."""

import numpy as np
import pytest

from evenly import randomness
from evenly.data.federation import Federation
from evenly.models import MLP
from evenly.parts.sampling import Full, Weighted
from evenly.simulate import simulate
from evenly.simulate.schedule import Block, Planner
from evenly.types import Seeds
from tests.simulations import Simulated, algorithms, flat, same_bits

TEXT, ROUNDS = "q-fedavg(q=1)", 12


def plan(
    federation: Federation,
    seeds: Seeds,
    select=None,
    text: str = "fedavg(epochs=2)",
    dropout: float = 0.0,
) -> Planner:
    (algorithm,) = algorithms(text)
    return Planner(
        federation, algorithm.work, [select or algorithm.select], seeds=seeds, dropout=dropout
    )


def block(planner: Planner, start: int, stop: int) -> Block:
    rounds = stop - start
    return planner.block(
        start,
        stop,
        rounds=rounds,
        steps=rounds * planner.most_steps_per_round,
        stops=np.array([rounds]),
        evaluate=np.array([True]),
    )


def batches(planner: Planner, start: int, stop: int) -> dict[tuple[int, int], list[list[int]]]:
    """The batches of every (round, client), padding and all."""
    found, plan = {}, block(planner, start, stop)
    for i, client in enumerate(plan.cohort.flat):
        rows = plan.rows[plan.first_step[i] : plan.first_step[i + 1]]
        found[start + i // planner.slots, int(client)] = rows.tolist()
    return found


def test_the_batch_seed_changes_batches_only(simulated: Simulated):
    base, other = simulated(TEXT, ROUNDS), simulated(TEXT, ROUNDS, seeds=Seeds(batches=1))
    np.testing.assert_array_equal(base.cohort, other.cohort)
    assert np.abs(flat(base.model) - flat(other.model)).max() > 1e-4


def test_the_cohort_seed_changes_cohorts_but_not_a_clients_batches(
    simulated: Simulated, tiny: Federation
):
    base, other = simulated(TEXT, ROUNDS), simulated(TEXT, ROUNDS, seeds=Seeds(cohort=1))
    assert (base.cohort != other.cohort).any()
    one, two = (
        batches(plan(tiny, Seeds()), 0, ROUNDS),
        batches(plan(tiny, Seeds(cohort=1)), 0, ROUNDS),
    )
    shared = one.keys() & two.keys()
    assert shared
    assert one.keys() != two.keys()
    assert all(one[visit] == two[visit] for visit in shared)


def test_the_model_seed_changes_the_first_model_only(tiny: Federation):
    task = MLP(features=5, classes=3, hidden=(4,))
    base, other = (
        simulate(task, tiny, algorithms("fedavg"), 2, seeds=Seeds(model=m))[0] for m in (0, 1)
    )
    np.testing.assert_array_equal(base.cohort, other.cohort)
    assert (base.losses[0] != other.losses[0]).any()


def test_the_data_seed_is_for_the_split_and_changes_nothing_here(simulated: Simulated):
    same_bits(simulated(TEXT, ROUNDS), simulated(TEXT, ROUNDS, seeds=Seeds(data=1)))


def test_who_drops_out_follows_the_cohort_seed_and_no_other(tiny: Federation):
    def lost(seeds: Seeds) -> list:
        return plan(tiny, seeds, Full(), dropout=0.5).cohorts(0, 20)[1].tolist()

    assert lost(Seeds()) == lost(Seeds(batches=1, model=1, data=1))
    assert lost(Seeds()) != lost(Seeds(cohort=1))


def test_seeds_all_sets_all_four():
    assert repr(Seeds.all(4)) == repr(Seeds(data=4, model=4, cohort=4, batches=4))


def test_every_training_row_is_seen_once_an_epoch(tiny: Federation):
    size, padding = 5, len(tiny.y)
    found = batches(plan(tiny, Seeds(), Full()), 0, 2)
    assert len(found) == 12
    for (_, client), rows in found.items():
        own = np.sort(tiny.train.of(client))
        per_epoch = -(-len(own) // size)
        assert len(rows) == 2 * per_epoch
        for epoch in (rows[:per_epoch], rows[per_epoch:]):
            flat_rows = np.array(epoch).ravel()
            np.testing.assert_array_equal(np.sort(flat_rows[flat_rows < padding]), own)
            assert (np.array(epoch[:-1]) < padding).all(), "only the last batch is partial"


def test_epochs_rounds_and_clients_are_shuffled_differently(tiny: Federation):
    found = batches(plan(tiny, Seeds(), Full()), 0, 2)
    first, second = found[0, 5], found[1, 5]
    half = len(first) // 2
    assert first != second
    assert first[:half] != first[half:]


def test_full_gradients_read_rows_in_order(tiny: Federation):
    found = batches(plan(tiny, Seeds(), Full(), text="fedsgd"), 0, 1)
    rows = np.array(found[0, 5]).ravel()
    np.testing.assert_array_equal(rows[rows < len(tiny.y)], tiny.train.of(5))


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_a_plan_does_not_depend_on_where_it_is_cut(tiny: Federation, cut: int):
    whole = plan(tiny, Seeds(), dropout=0.3)
    expected, returned = batches(whole, 0, 10), whole.cohorts(0, 10)[1]
    later = plan(tiny, Seeds(), dropout=0.3)  # a resumed run never draws the rounds before
    found = batches(later, cut, 10)
    assert found == {visit: rows for visit, rows in expected.items() if visit[0] >= cut}
    np.testing.assert_array_equal(later.cohorts(cut, 10)[1], returned[cut:])


def test_dropping_out_is_a_matter_of_round_and_client(tiny: Federation):
    # The same client in the same round drops out or not whatever the sampling around it.
    full, some = (
        plan(tiny, Seeds(), s, dropout=0.5).cohorts(0, 40) for s in (Full(), Weighted(clients=3))
    )
    everyone = {
        (t, k): bool(r) for t in range(40) for k, r in zip(full[0][t], full[1][t], strict=True)
    }
    assert all(
        everyone[t, k] == r for t in range(40) for k, r in zip(some[0][t], some[1][t], strict=True)
    )
    assert 0.4 < np.mean(list(everyone.values())) < 0.6


def test_who_drops_out_trains_nothing(tiny: Federation):
    planner = plan(tiny, Seeds(), dropout=0.5)
    made = block(planner, 0, 20)
    steps = np.diff(made.first_step).reshape(made.returned.shape)
    np.testing.assert_array_equal(steps > 0, made.returned)
    assert made.first_step[-1] <= len(made.rows)


def test_drop_out_must_leave_somebody(simulated: Simulated):
    for wrong in (1.0, -0.1):
        with pytest.raises(
            ValueError, match=rf"^dropout must be at least 0 and below 1, got {wrong}\.$"
        ):
            simulate(simulated.task, simulated.federation, algorithms(TEXT), 2, dropout=wrong)


@pytest.mark.parametrize(
    "select",
    [Full(), Weighted(clients=2), Weighted(clients=9, replace=True)],
    ids=["full", "two", "replaced"],
)
def test_planned_steps_fit_their_bound(tiny: Federation, select):
    planner = plan(tiny, Seeds(), select)
    for t in range(30):
        made = block(planner, t, t + 1)
        assert made.first_step[-1] <= planner.most_steps_per_round


@pytest.mark.parametrize(
    "settings", ["epochs=1", "epochs=3", "epochs=2, max_steps=3", "epochs=2, batch_size=1000"]
)
@pytest.mark.parametrize("small", [0, 20, 128])
@pytest.mark.parametrize("enough", [1, 10**6], ids=["together", "one by one"])
def test_a_visits_batches_are_those_that_the_client_draws_by_itself(
    tiny: Federation, monkeypatch: pytest.MonkeyPatch, settings: str, small: int, enough: int
):
    monkeypatch.setattr("evenly.simulate.schedule.SMALL", small)
    monkeypatch.setattr("evenly.randomness.ENOUGH", enough)
    planner = plan(tiny, Seeds(batches=3), Full(), text=f"fedavg({settings})")
    (method,) = algorithms(f"fedavg({settings})")
    for (t, client), found in batches(planner, 2, 5).items():
        own = randomness.batches(
            tiny.train.of(client), method.work.batch_size, epochs=method.work.epochs,
            shuffle=randomness.generator(3, "batches", t, client), padding=len(tiny.y),
            most=method.work.max_steps or None,
        )  # fmt: skip
        assert found == own.tolist()


def test_another_numpy_shuffles_by_itself(tiny: Federation, monkeypatch: pytest.MonkeyPatch):
    expected = batches(plan(tiny, Seeds(), Full(), text="fedavg"), 0, 3)
    monkeypatch.setattr("evenly.randomness.ENOUGH", 1)
    monkeypatch.setattr("evenly.randomness.FACTORS", (3, 5))
    assert batches(plan(tiny, Seeds(), Full(), text="fedavg"), 0, 3) != expected
    monkeypatch.setattr("evenly.randomness.like_numpy", lambda: False)
    assert batches(plan(tiny, Seeds(), Full(), text="fedavg"), 0, 3) == expected


def test_rounds_fit_into_the_steps_that_there_is_room_for(tiny: Federation):
    planner = plan(tiny, Seeds(), Weighted(clients=2), dropout=0.3)
    loads = [int(planner.steps[planner.cohorts(t, t + 1).cohort].sum()) for t in range(20)]
    assert len(set(loads)) > 2
    for room in (
        planner.most_steps_per_round,
        sum(loads[4:9]),
        sum(loads[4:9]) + 1,
        sum(loads[4:]),
        10**6,
    ):
        fresh = plan(tiny, Seeds(), Weighted(clients=2), dropout=0.3)
        stop = fresh.fit_rounds(4, 20, room)
        assert stop > 4
        assert sum(loads[4:stop]) <= room
        assert stop == 20 or sum(loads[4 : stop + 1]) > room
        assert block(fresh, stop, 20).cohort.tolist() == [
            planner.cohorts(t, t + 1).cohort[0].tolist() for t in range(stop, 20)
        ]


def test_a_sampling_that_draws_a_client_twice_must_say_so(tiny: Federation):
    longest = int(tiny.train.counts.argmax())

    class Thrice(Full):
        def slots(self, census):
            return 3

        def __call__(self, state, generator):
            return np.full(3, longest), state

    planner = plan(tiny, Seeds(), Thrice())
    assert planner.fit_rounds(0, 2, planner.most_steps_per_round) == 1
    with pytest.raises(
        ValueError,
        match=(
            r"^Rounds from 0 take \d+ steps, but at most \d+ were expected\. .* attribute replace ="
            r" True\.$"
        ),
    ):
        block(planner, 0, 1)
