"""The report of a deployment says of groups what that of a comparison of the same table says: each
sensitive attribute, its unprivileged value, and what nobody named.
"""

import html
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context

import evenly
from evenly.datasets.load import ASSUMED, load, read_table, table_source
from evenly.experiment.reopen import open_results
from evenly.flower import first_arrays, strategy
from evenly.flower.app import client_of_table, read_schema, schema_of, write_schema
from evenly.flower.clients.jax import app
from evenly.models import Softmax
from evenly.types import Seeds
from tests.flower.grids import NODES, OneProcess
from tests.flower.small import algorithm_of

ROLES = {"client": "hospital", "label": "returned", "sensitive": ["sex", "race"]}
FACTS = ("Favourable label", "Unprivileged", "Privileged")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    draw, n = np.random.default_rng(3), 360
    words = {
        name: draw.choice(values, n)
        for name, values in {
            "hospital": ["north", "south", "west"], "sex": ["f", "m"], "race": ["a", "b", "c"],
        }.items()
    }  # fmt: skip
    better = 0.3 + 0.3 * (words["sex"] == "m") - 0.2 * (words["race"] == "b")
    returned = np.where(draw.random(n) < better, "yes", "no")
    pd.DataFrame({**words, "age": draw.normal(60, 12, n), "returned": returned}).to_csv(
        tmp_path / "table.csv", index=False
    )
    return tmp_path / "table.csv"


def deployed(table: Path, folder: Path, **named: object) -> None:
    """One round of an app that `evenly flower new` would write, in this process."""
    source = table_source(str(table), **ROLES, **named)
    schema_file = table.with_name("schema.json")
    made = schema_of(load(source, 0), **ROLES, assumed=source.get(ASSUMED, ()))
    write_schema(made, schema_file)
    schema, frame = read_schema(schema_file), read_table(table, made.identifying_columns)
    task, seeds = Softmax(features=made.features, classes=2), Seeds.all(0)

    def own_rows(context: Context):
        return client_of_table(schema, frame, schema.clients[context.node_config["partition-id"]])

    method = algorithm_of("fedavg")
    server = strategy(method, seeds=seeds, folder=folder, introduce=True)
    server.start(
        OneProcess(app(own_rows, task), NODES[:3]), first_arrays(method, task, seeds), num_rounds=1
    )


def told(folder: Path) -> list[tuple[str, str]]:
    """What a report says of the label and the sides, with its headings."""
    page = html.unescape((folder / "report.html").read_text()).replace("\u00a0", " ")
    section = page[page.index('id="groups"') :].replace("<wbr>", "")
    terms = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", section)
    heads = re.findall(r"<h3[^>]*>(By .*?|Intersections .*?)</h3>", section)
    return [("heads", "; ".join(heads)), *((term, words) for term, words in terms if term in FACTS)]


@pytest.mark.parametrize(
    "named", [{}, {"favourable": "yes", "unprivileged": ["race=c"]}], ids=["assumed", "named"]
)
def test_a_deployment_knows_the_attributes_that_a_comparison_knows(
    table: Path, tmp_path: Path, named: dict[str, object]
):
    deployed(table, tmp_path / "deployed", **named)
    given = {**named, "unprivileged": {"race": "c"}} if named else {}
    evenly.compare(
        str(table), "fedavg", **ROLES, **given, rounds=1, seeds=1, sampling="full", model="softmax",
        out=tmp_path / "compared", progress=False,
    )  # fmt: skip
    found, wanted = open_results(tmp_path / "deployed"), open_results(tmp_path / "compared")
    assert found.federation.attributes == wanted.federation.attributes
    assert found.federation.groups == wanted.federation.groups
    assert (
        set(found.assumed)
        == set(wanted.assumed)
        == ({"sex"} if named else {"favourable", *ROLES["sensitive"]})
    )
    assert told(tmp_path / "deployed") == told(tmp_path / "compared")
    assert any("assumed" in words for _, words in told(tmp_path / "deployed"))


def test_damaged_attributes_are_named(table: Path, tmp_path: Path):
    deployed(table, tmp_path / "run")
    path = tmp_path / "run" / "federation.json"
    known = json.loads(path.read_text())
    known["attributes"][0]["of_group"][0] = 9
    path.write_text(json.dumps(known))
    with pytest.raises(ValueError, match=r"federation\.json' is missing or damaged"):
        open_results(tmp_path / "run")
