"""A server that was killed goes on to the same bits, and never with another run's folder."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenly.algorithms import METHODS, algorithm
from evenly.data.federation import Census
from evenly.experiment.deployment import Deployment
from evenly.flower import aggregation
from evenly.flower.server_state import NAME, claim, load, rounds_done, save
from evenly.round import Memory
from evenly.types import Seeds
from tests.flower.deployments import deployment

CENSUS = Census(
    np.array([30, 50, 20]), np.array([[[10, 5], [5, 10]], [[20, 10], [10, 10]], [[5, 5], [5, 5]]])
)


def saved(folder, state, run: Deployment | None = None, **more):
    claim(folder, run or deployment())
    return save(folder, run or deployment(), round=3, state=state, **more)


def alike(a, b) -> None:
    """The same structure, kinds, types and bits."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(one) is type(other)
        assert np.ndim(one) or getattr(one, "weak_type", None) == getattr(other, "weak_type", None)
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def fresh(text: str) -> aggregation.ServerState:
    made = algorithm(text)
    groups = made.rule.groups if made.rule.apart else 0
    model = [
        np.ones((*([groups] if groups else []), 4, 2), np.float32),
        np.zeros((*([groups] if groups else []), 2), np.float32),
    ]
    if made.network is not None:
        model = [np.arange(8, dtype=np.float32)]
    return aggregation.first_state(made, model, CENSUS)


@pytest.mark.parametrize(
    "text", [m.example or m.name for m in METHODS.values() if m.combine is None]
)
def test_every_methods_state_comes_back_to_the_bit(text, tmp_path):
    state = fresh(text)
    saved(tmp_path, state)
    found = load(tmp_path, deployment(), lambda _: state)
    assert found is not None
    assert found.round == rounds_done(tmp_path) == 3
    alike(found.state, state)


@pytest.mark.parametrize(
    "server", ["server-adam(learning_rate=0.1)", "server-momentum(learning_rate=0.1)"]
)
def test_an_optimisers_state_comes_back(server, tmp_path):
    state = fresh(f"fedavg+{server}")
    moved = state._replace(server=jax.tree.map(lambda leaf: leaf + 1, state.server))
    saved(tmp_path, moved)
    found = load(tmp_path, deployment(), lambda _: state)
    assert found is not None
    alike(found.state, moved)


def test_numbers_arrays_and_their_types_are_kept(tmp_path):
    state = {
        "float": 0.1,
        "int": 7,
        "bool": True,
        "weak": jnp.asarray(0.5),
        "half": jnp.ones(3, jnp.bfloat16),
        "numpy": np.float64(1 / 3) * np.ones(2),
        "whole": np.arange(3),
    }
    saved(tmp_path, state, nodes=[2**63 + 5, 11], notes={"metrics": {"1": 0.5}})
    found = load(tmp_path, deployment(), lambda _: state)
    assert found is not None
    alike(found.state, state)
    assert found.nodes == (2**63 + 5, 11)
    assert found.notes == {"metrics": {"1": 0.5}}


def test_nothing_kept_is_nothing_found(tmp_path):
    claim(tmp_path / "new", deployment())
    assert load(tmp_path / "new", deployment(), lambda _: {}) is None
    assert rounds_done(tmp_path / "new") == 0


@pytest.mark.parametrize(
    "other, words",
    [
        (deployment("fedavg"), r"the method differs, there q-fedavg\(q=1\), here fedavg"),
        (
            deployment(seeds=Seeds.all(1)),
            "the setting of seeds differs, there .*'cohort': 0.* here .*'cohort': 1",
        ),
        (
            dataclasses.replace(
                deployment(), arrays=[["w", [10, 3], "float32"], ["b", [3], "float32"]]
            ),
            (
                r"the form of the model differs, there \['w', \[10, 2\], 'float32'\], here \['w',"
                r" \[10, 3\], 'float32'\]"
            ),
        ),
        (
            dataclasses.replace(deployment(), arrays=[["w", [10, 2], "float32"]]),
            "the form of the model differs, there 2 arrays, here 1",
        ),
        (dataclasses.replace(deployment(), caps={"loss": 3.0}), "the setting of caps"),
    ],
)
def test_the_folder_of_another_run_is_refused(other, words, tmp_path):
    saved(tmp_path, {"a": np.ones(2)})
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=f"belongs to another run: .*{words}"):
        claim(tmp_path, other)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_same_run_under_another_name_goes_on(tmp_path):
    saved(tmp_path, {"a": np.ones(2)})
    claim(tmp_path, dataclasses.replace(deployment(), name="clinics"))


def test_other_folders_are_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"holds other files, such as 'thesis\.txt'"):
        claim(tmp_path / "mine", deployment())
    (tmp_path / "simulated").mkdir()
    (tmp_path / "simulated" / "plan.json").write_text('{"schema": 1, "methods": ["fedavg"]}')
    with pytest.raises(ValueError, match="holds results that are not of a deployment"):
        claim(tmp_path / "simulated", deployment())
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="must be a folder, but it is a file"):
        claim(tmp_path / "file", deployment())
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "plan.json").write_text('{"schema": 99}')
    with pytest.raises(
        ValueError, match=r"was written by a newer version of evenly.* Nothing was changed"
    ):
        claim(tmp_path / "newer", deployment())


def test_a_state_of_other_clients_is_refused(tmp_path):
    saved(tmp_path, {"lambda": np.ones(5, np.float32)})
    with pytest.raises(
        ValueError,
        match=r"an array float32\[5\], where float32\[6\] is needed.*Use the settings of that run",
    ):
        load(tmp_path, deployment(), lambda _: {"lambda": np.ones(6, np.float32)})
    with pytest.raises(ValueError, match="1 arrays, where 2 are needed"):
        load(tmp_path, deployment(), lambda _: {"a": np.ones(5, np.float32), "b": 1})


def test_a_state_is_read_in_the_shapes_for_the_clients_that_it_has(tmp_path):
    """They may be more than are connected now."""
    saved(tmp_path, {"lambda": np.arange(5.0)}, nodes=[1, 2, 3, 4, 5])
    found = load(tmp_path, deployment(), lambda clients: {"lambda": np.zeros(clients)})
    assert found is not None
    assert found.state["lambda"].tolist() == [0, 1, 2, 3, 4]


def test_a_state_of_another_run_is_refused(tmp_path):
    saved(tmp_path, {"a": np.ones(2)})
    with pytest.raises(ValueError, match="belongs to another run than the plan"):
        load(tmp_path, deployment("fedavg"), lambda _: {"a": np.ones(2)})


def test_a_damaged_state_says_so(tmp_path):
    path = saved(tmp_path, {"a": np.ones(2000)})
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"is damaged\. Remove it"):
        load(tmp_path, deployment(), lambda _: {"a": np.ones(2000)})


def test_a_kill_while_writing_leaves_the_state_before(tmp_path, monkeypatch):
    saved(tmp_path, {"a": np.ones(2)})

    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("evenly.flower.server_state.np.savez", killed)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, deployment(), round=4, state={"a": np.zeros(2)})
    assert rounds_done(tmp_path) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", NAME]


def rewritten(path, **entries) -> None:
    """Change entries of the header of a state."""
    with np.load(path) as file:
        held = dict(file)
    header = json.loads(str(held["header"])) | entries
    with open(path, "wb") as file:
        np.savez(file, **(held | {"header": np.array(json.dumps(header))}))  # pyright: ignore[reportArgumentType]


def test_the_format_is_2_and_a_newer_one_is_refused(tmp_path):
    path = saved(tmp_path, {"a": np.ones(2)})
    with np.load(path) as file:
        assert json.loads(str(file["header"]))["format"] == 2
    rewritten(path, format=3)
    with pytest.raises(ValueError, match="has format 3"):
        load(tmp_path, deployment(), lambda _: {"a": np.ones(2)})


@pytest.mark.parametrize("run", [deployment(), deployment("fedavg")])
def test_a_state_of_an_earlier_version_is_refused_by_name_and_left_alone(run, tmp_path):
    """Also where the plan looks like that of another run now, and wherever the state is read."""
    path = saved(tmp_path, {"a": np.ones(2)})
    rewritten(path, format=1)
    before = {one: one.read_bytes() for one in tmp_path.iterdir()}
    for reading in (
        lambda: claim(tmp_path, run),
        lambda: load(tmp_path, run, lambda _: {"a": np.ones(2)}),
        lambda: rounds_done(tmp_path),
    ):
        with pytest.raises(
            ValueError,
            match=(
                r"state\.npz' was written by an earlier version of evenly \(format 1.*`evenly"
                r" report` shows the deployment, but only that version can train its next rounds\."
                r".*choose another folder or remove this file"
            ),
        ):
            reading()
    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == before


@pytest.mark.parametrize("text", ["fedcvg-ratio", "afl", "fairfed", "q-fedavg"])
def test_what_clients_keep_comes_back_to_the_bit(text, tmp_path):
    """As plain NumPy arrays, whatever the rule computes with."""
    state = fresh(text)
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(state.memory))
    assert state.memory.seen.shape == (3,)
    value = jax.tree.map(lambda leaf: np.asarray(leaf + leaf.dtype.type(1)), state.memory.value)
    kept = state._replace(memory=Memory(np.array([True, False, True]), value))
    saved(tmp_path, kept, nodes=[7, 8, 9])
    found = load(tmp_path, deployment(), lambda _: state)
    assert found is not None
    alike(found.state, kept)


def test_every_difference_between_two_runs_is_named(tmp_path):
    claim(tmp_path, deployment())
    with pytest.raises(
        ValueError,
        match=(
            r"the method differs, there q-fedavg\(q=1\), here fedavg \(the setting of seeds too\)\."
        ),
    ):
        claim(tmp_path, deployment("fedavg", seeds=Seeds.all(1)))
