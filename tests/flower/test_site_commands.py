"""`evenly flower egress` and `evenly flower node`, as an operator of a site uses them."""

import shlex
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args
from typer.testing import CliRunner

from evenly.cli import app
from evenly.flower.deploy.security import make_key
from tests.flower.hostile_server import AGREED, LARGE, Site, another_method, linear

TRUSTED = "fpk_1: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGk approver'\n"


def evenly(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["flower", *words])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return " ".join(result.output.split())


def test_the_log_is_printed_in_words(tmp_path: Path):
    site = Site(LARGE, tmp_path, AGREED)
    site.ask("query.census")
    site.ask("train", linear())
    another_method(site)
    printed = evenly("egress", str(tmp_path))
    assert "this site introduced itself. This left: number of rows: 66" in printed
    assert "rows by group and label: [[20, 20], [20, 6]]" in printed
    assert (
        "this site trained with q-fedavg(q=1). This left: a trained model of 8 numbers" in printed
    )
    assert "refused: train. The method 'fedsgd' is not one that it agreed to" in printed
    assert "3 requests: 2 answered, 1 refused or failed." in printed
    assert "introduced" not in evenly("egress", str(tmp_path / "egress.jsonl"), "--refused")


def test_the_folder_of_an_app_names_its_sites(tmp_path: Path):
    """It said that a policy allows nothing, because of an error number."""
    for name in ("client-0-North", "client-1-Old-Town"):
        (folder := tmp_path / "sites" / name).mkdir(parents=True)
        Site(LARGE, folder, AGREED).ask("query.census")
    told = evenly("egress", str(tmp_path), code=2)
    assert (
        "There are 2 sites, and each has a log of its own. Name one: evenly flower egress" in told
    )
    assert "sites/client-1-Old-Town" in told
    assert told == evenly("egress", str(tmp_path / "sites"), code=2)
    (tmp_path / "empty").mkdir()
    told = evenly("egress", str(tmp_path / "empty"), code=2)
    assert "There is no policy.toml in" in told
    assert "not the folder of a site" in told


def test_a_changed_log_is_told_and_stops_the_client(tmp_path: Path):
    site = Site(LARGE, tmp_path, AGREED)
    log = tmp_path / "egress.jsonl"
    for number in (1, 2):
        site.ask("train", linear(), number)
    log.write_text(log.read_text().replace('"num-examples": 66', '"num-examples": 67', 1))
    assert "line 2: the log was changed or is damaged" in evenly("egress", str(log), code=2)
    assert site.ask("train", linear(), 3) == {}
    assert "egress log cannot be written" in site.said
    assert "There is no egress log" in evenly("egress", str(tmp_path / "none.jsonl"), code=2)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    made = {name: tmp_path / name for name in ("ca.pem", "policy.toml", "trusted.yaml")}
    made["ca.pem"].write_text("certificate")
    made["policy.toml"].write_text('methods = ["fedavg"]')
    made["trusted.yaml"].write_text(TRUSTED)
    return {
        "--superlink": "127.0.0.1:9092",
        "--ca": str(made["ca.pem"]),
        "--key": str(make_key(tmp_path / "north").private),
        "--policy": str(made["policy.toml"]),
        "--trusted-entities": str(made["trusted.yaml"]),
    }


def words(files: dict[str, str]) -> list[str]:
    return [word for pair in files.items() for word in pair]


def test_a_node_is_started_with_its_policy_and_those_whom_it_trusts(files: dict[str, str]):
    shown = evenly("node", *words(files), "--config", 'client="north"', "--show")
    assert f"--trusted-entities {files['--trusted-entities']}" in shown
    assert f"""'client="north" policy="{files["--policy"]}"'""" in shown


def test_a_policy_may_lie_in_a_folder_with_any_name(files: dict[str, str], tmp_path: Path):
    policy = tmp_path / 'St. "Mary" 🏥' / "policy.toml"
    policy.parent.mkdir()
    policy.write_text(Path(files["--policy"]).read_text())
    shown = evenly("node", *words({**files, "--policy": str(policy)}), "--show")
    command = shlex.split(shown)
    told = parse_config_args([command[command.index("--node-config") + 1]])
    assert told == {"policy": str(policy)}


@pytest.mark.parametrize("option", ["--trusted-entities", "--policy", "--key", "--ca"])
def test_a_node_needs_its_policy_and_those_whom_it_trusts(files: dict[str, str], option: str):
    rest = {name: value for name, value in files.items() if name != option}
    assert option in evenly("node", *words(rest), "--show", code=2)


def test_a_node_is_not_started_with_a_bad_policy_or_with_nobody_to_trust(files: dict[str, str]):
    for nobody in ("", "{}\n", "[]\n", f"# {TRUSTED}", f"{{}}\n# {TRUSTED}"):
        Path(files["--trusted-entities"]).write_text(nobody)
        assert "names nobody, and Flower runs every app then" in evenly(
            "node", *words(files), "--show", code=2
        )
    Path(files["--trusted-entities"]).write_text("fpk_1: [")
    assert "cannot be read as YAML" in evenly("node", *words(files), "--show", code=2)
    Path(files["--trusted-entities"]).write_text(TRUSTED)
    Path(files["--policy"]).write_text('methods = ["fedavg"]\nleast_cel = 3\n')
    assert "There is no key 'least_cel'" in evenly("node", *words(files), "--show", code=2)
