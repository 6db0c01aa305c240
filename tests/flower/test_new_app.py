"""Apps that are written for users: which files, which method, and a name that Python accepts."""

import shutil
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from evenly.data.federation import Federation
from evenly.flower.app import policy_path, write_synthetic_app, write_table_app
from evenly.flower.clients.policy import read_policy
from evenly.flower.deploy.loopback import read_app

CODE = {"__init__.py", "server_app.py", "client_app.py", "task.py"}


def config(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def test_an_app_of_one_round_is_written_and_listed(tmp_path: Path):
    folder = tmp_path / "My Ward"
    written = write_synthetic_app(folder, rounds=1)
    assert {path.relative_to(folder).as_posix() for path in written} == {
        "pyproject.toml",
        "README.md",
        *(f"my_ward/{n}" for n in CODE),
    }
    assert all(path.is_file() for path in written)
    told = config(folder)
    assert told["project"]["name"] == "my-ward"
    assert {
        key: told["tool"]["flwr"]["app"]["config"][key] for key in ("method", "rounds", "clients")
    } == {
        "method": "q-fedavg(q=1)",
        "rounds": 1,
        "clients": 3,
    }
    assert told["tool"]["flwr"]["app"]["fab-include"] == ["my_ward/*.py"]
    assert "evenly" not in told["tool"]
    assert list(read_app(folder).nodes) == ["client-0", "client-1", "client-2"]
    policy = folder / "sites" / "client-0" / "policy.toml"
    assert read_policy(policy).any_model, "the model has ten classes"
    assert "the server can read single rows" in policy.read_text()
    assert read_app(folder, 1).nodes == {
        "client-0": {
            "partition-id": 0, "num-partitions": 1, "policy": str(policy.resolve()),
            "memory": str(policy.resolve().parent / "memory"),
        }
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"There is no policy .*client-3"):
        read_app(folder, 4)


def test_an_app_for_a_single_client_asks_for_one_answer(tmp_path: Path):
    """A round that waits for two answers of one client would stop the run."""
    table = pd.DataFrame({"site": ["A"] * 40, "x": range(40), "y": ["no", "yes"] * 20})
    path = tmp_path / "table.csv"
    table.to_csv(path, index=False)
    federation = Federation.from_frame(table, client="site", label="y", features=["x"])
    folder = tmp_path / "alone"
    write_table_app(folder, path, federation, client="site", label="y")
    assert config(folder)["tool"]["flwr"]["app"]["config"]["least"] == 1


def test_an_app_with_more_rounds_than_a_plan_allows_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="rounds must be at most 1,000,000,000, got 10000000000"):
        write_synthetic_app(tmp_path / "ward", rounds=10**10)
    assert not (tmp_path / "ward").exists()


@pytest.mark.parametrize("rounds", [0, -3])
def test_an_app_without_rounds_is_refused(tmp_path: Path, rounds: int):
    with pytest.raises(ValueError, match=f"rounds must be at least 1, got {rounds}"):
        write_synthetic_app(tmp_path / "ward", rounds=rounds)
    assert not (tmp_path / "ward").exists()


NAMES = {
    "ward": "ward", "North & South": "north-south", "2 wards": "app-2-wards", "class": "app-class",
    "fedavg": "app-fedavg", "evenly": "app-evenly", "flwr": "app-flwr", "---": "app", "w4": "w4",
}  # fmt: skip


@pytest.mark.parametrize("folder, name", NAMES.items())
def test_a_project_is_called_as_its_folder_where_it_can_be(tmp_path: Path, folder: str, name: str):
    write_synthetic_app(tmp_path / folder)
    assert config(tmp_path / folder)["project"]["name"] == name


def test_only_a_new_or_an_empty_folder_is_written_to(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    write_synthetic_app(tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    for taken in ("empty", "file"):
        with pytest.raises(ValueError, match="nothing is overwritten"):
            write_synthetic_app(tmp_path / taken)
    assert (tmp_path / "file").read_text() == "mine"


def people() -> pd.DataFrame:
    rows = 24
    return pd.DataFrame(
        {
            "hospital": ["north", "St. Mary's", "wést"] * (rows // 3),
            "sex": ["f", "m"] * (rows // 2),
            "age": [40 + 7 * k % 11 for k in range(rows)],
            "returned": ["no", "no", "no", "yes"] * (rows // 4),
        }
    )


@pytest.mark.parametrize(
    "sensitive, method", [((), "q-fedavg(q=1)"), (("sex",), "fairfed(metric=eod)+reweigh")]
)
def test_an_app_on_a_table_has_a_schema_and_a_method_that_fits(
    tmp_path: Path, sensitive: tuple[str, ...], method: str
):
    table, folder = tmp_path / "people.csv", tmp_path / "apps" / "ward"
    people().to_csv(table, index=False)
    federation = Federation.from_frame(
        people(), client="hospital", label="returned", sensitive=[*sensitive]
    )
    given = {"client": "hospital", "label": "returned", "sensitive": sensitive}
    written = write_table_app(folder, table, federation, **given)  # pyright: ignore[reportArgumentType]
    assert written[-1] == folder / "ward" / "schema.json"
    assert written[-1].is_file()
    told = config(folder)["tool"]
    assert told["evenly"]["table"] == "../../people.csv"
    assert told["flwr"]["app"]["fab-include"] == ["ward/*.py", "ward/*.json"]
    assert (told["flwr"]["app"]["config"]["method"], told["flwr"]["app"]["config"]["clients"]) == (
        method,
        3,
    )
    assert f'client="{federation.names[0]}"' in (folder / "README.md").read_text()
    assert (
        list(read_app(folder, 3).nodes)
        == list(read_app(folder).nodes)
        == ["client-0-St--Mary-s", "client-1-north", "client-2-w-st"]
    )
    assert [node["client"] for node in read_app(folder, 1).nodes.values()] == ["St. Mary's"]
    with pytest.raises(
        ValueError, match="clients must be at most 3, the number of clients in the table, got 4"
    ):
        read_app(folder, 4)
    assert [read_policy(policy_path(folder, site)).methods for site in read_app(folder).nodes] == [
        (method,)
    ] * 3
    written[-1].unlink()  # without what was agreed, clients have only numbers
    shutil.rmtree(folder / "sites")  # and no policies
    assert list(read_app(folder).nodes) == ["client-0", "client-1", "client-2"]


def test_a_method_that_is_named_is_taken(tmp_path: Path):
    federation = Federation.from_frame(people(), client="hospital", label="returned")
    write_table_app(
        tmp_path / "ward",
        tmp_path / "people.csv",
        federation,
        client="hospital",
        label="returned",
        method="fedavg",
    )
    assert config(tmp_path / "ward")["tool"]["flwr"]["app"]["config"]["method"] == "fedavg"


@pytest.mark.parametrize("third", [False, True])
def test_policies_allow_any_model_only_where_a_label_has_more_than_two_values(
    third: bool, tmp_path: Path
):
    table = people()
    if third:
        table.loc[0, "returned"] = "died"
    federation = Federation.from_frame(table, client="hospital", label="returned")
    write_table_app(
        tmp_path / "ward", tmp_path / "people.csv", federation, client="hospital", label="returned"
    )
    policies = [read_policy(path) for path in (tmp_path / "ward" / "sites").glob("*/policy.toml")]
    assert [one.any_model for one in policies] == [third] * 3


def test_a_trial_with_a_rare_category_counts_from_one(tmp_path: Path):
    """Else its site would not train: four patients of the north have been to another ward."""
    count = 1600
    table = pd.DataFrame(
        {
            "hospital": ["north", "south"] * (count // 2),
            "age": [20 + k % 70 for k in range(count)],
            "returned": ["no", "no", "yes", "yes"] * (count // 4),
        }
    )
    table["elsewhere"] = "no"
    table.loc[table["hospital"] == "south", "elsewhere"] = ["no", "yes"] * (count // 4)
    table.loc[table.index[table["hospital"] == "north"][:4], "elsewhere"] = "yes"
    federation = Federation.from_frame(table, client="hospital", label="returned")
    write_table_app(
        tmp_path / "ward", tmp_path / "t.csv", federation, client="hospital", label="returned"
    )
    sites = tmp_path / "ward" / "sites"
    assert [read_policy(path).least_cell for path in sorted(sites.glob("*/policy.toml"))] == [1, 5]


@pytest.mark.parametrize("name, components", [("''", "{serverapp = 'a:b'}"), ("'x'", "{}")])
def test_a_project_without_a_name_or_an_app_is_no_flower_app(
    tmp_path: Path, name: str, components: str
):
    (tmp_path / "pyproject.toml").write_text(
        f"[project]\nname = {name}\n[tool.flwr.app]\ncomponents = {components}\n"
    )
    with pytest.raises(ValueError, match="does not describe a Flower app"):
        read_app(tmp_path)


def test_an_app_that_says_nothing_of_clients_has_two(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'x'\n[tool.flwr.app.components]\nclientapp = 'x.client:app'\n"
    )
    assert [*read_app(tmp_path).nodes] == ["client-0", "client-1"]
