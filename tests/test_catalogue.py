"""Every name that `evenly list` prints can be described, and every method can be cited: entries are
complete, and say the same as the reference of the method and as CITATION.cff.
"""

import dataclasses
import re
from itertools import accumulate
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import evenly
from evenly.algorithms import METHODS
from evenly.cli import app
from evenly.datasets import DATASETS
from evenly.experiment.config import packaged_experiments
from evenly.metrics import EVERY_METRIC
from evenly.models.named_models import ALL_MODELS
from evenly.parts.optimisers import optimiser_parts
from evenly.parts.sampling import SAMPLINGS
from evenly.parts.work import PREPARES
from evenly.privacy import PRIVACIES

ROOT = Path(__file__).parents[1]
KINDS = {
    "method": METHODS,
    "part": [*SAMPLINGS, *PREPARES, *PRIVACIES],
    "optimiser": optimiser_parts(),
    "model": ALL_MODELS,
    "data set": DATASETS,
    "metric": EVERY_METRIC,
    "experiment": packaged_experiments(),
}
VENUES = {
    "inproceedings": "booktitle",
    "article": "journal",
    "mastersthesis": "school",
    "software": "version",
}
LINKS = {"url", "doi", "eprint"}


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result.output


def parse(bibtex: str) -> dict[str, dict[str, str]]:
    """The entries of a BibTeX file by key, with the type as the field "type"."""
    entries: dict[str, dict[str, str]] = {}
    rest = bibtex.strip()
    while rest:
        head = re.match(r"@(\w+)\{([\w-]+),\s*", rest)
        assert head, f"no entry begins here: {rest[:60]!r}"
        fields, rest = {"type": head[1]}, rest[head.end() :]
        while not rest.startswith("}"):
            field = re.match(r"(\w+)\s*=\s*", rest)
            assert field, f"no field begins here: {rest[:60]!r}"
            fields[field[1]], rest = value(rest[field.end() :])
        assert head[2] not in entries, f"the key {head[2]} occurs twice"
        entries[head[2]], rest = fields, rest[1:].strip()
    return entries


def value(text: str) -> tuple[str, str]:
    """The value at the beginning of a text, in braces or a word, and what follows it."""
    if text.startswith("{"):
        depths = accumulate({"{": 1, "}": -1}.get(letter, 0) for letter in text)
        end = next((at for at, depth in enumerate(depths) if depth == 0), None)
        assert end, "a brace is not closed"
        found, rest = text[1:end], text[end + 1 :]
    else:
        found, rest = re.split(r"(?=[,\s}])", text, maxsplit=1)
    return " ".join(found.split()), rest.removeprefix(",").lstrip()


def test_the_parser_of_these_tests_reads_braces_words_and_broken_entries():
    text = "@misc{a-1,\n title = {An {E2E}\n  test}, month = mar\n}\n\n@book{b, year = {1},}"
    assert parse(text) == {
        "a-1": {"type": "misc", "title": "An {E2E} test", "month": "mar"},
        "b": {"type": "book", "year": "1"},
    }
    for broken in ("@misc{a", "@misc{a, title = {b}", "title", "@misc{a, x={1}}@misc{a, x={1}}"):
        with pytest.raises((AssertionError, ValueError)):
            parse(broken)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_complete_entries_that_agree_with_its_reference(name: str):
    method = METHODS[name]
    entries = parse(method.bibtex)
    assert entries, "give the method a `bibtex`"
    for fields in entries.values():
        assert {"author", "title", "year"} <= set(fields)
        assert all(fields.values()), "a field is empty"
        venue = VENUES.get(fields["type"])
        assert venue in fields or (venue is None and {"eprint", "howpublished"} & set(fields))
        assert fields["type"] == "mastersthesis" or (LINKS | {"note"}) & set(fields)
        assert ("eprint" in fields) == (fields.get("archivePrefix") == "arXiv")
        assert re.fullmatch(r"\d{4}\.\d{5}", fields.get("eprint", "0000.00000"))
        assert re.fullmatch(r"(19|20)\d\d|n\.d\.", fields["year"])
        assert all(", " in author for author in re.split(r"\s+and\s+", fields["author"]))
    first = next(iter(entries.values()))
    assert method.reference.startswith(first["author"].split(",")[0])
    assert first["year"].replace("n.d.", "undated") in method.reference


def test_one_key_is_one_publication():
    """Methods of the same paper share its entry; different papers have different keys."""
    entries: dict[str, dict[str, str]] = {}
    for method in METHODS.values():
        for key, fields in parse(method.bibtex).items():
            assert entries.setdefault(key, fields) == fields
    titles = [fields["title"] for fields in entries.values()]
    assert len(titles) == len(set(titles))


def test_the_entry_of_the_tool_has_the_facts_of_the_citation_file():
    facts = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    ((key, fields),) = parse(evenly.cite()).items()
    assert key == "evenly"
    plain = {name: text.replace("{", "").replace("}", "") for name, text in fields.items()}
    assert plain == {
        "type": facts["type"],
        "author": facts["authors"][0]["name"],
        "title": facts["title"],
        "version": facts["version"],
        "year": str(facts["date-released"].year),
        "license": facts["license"],
    }
    assert facts["version"] == evenly.__version__


def test_the_command_prints_the_tool_and_each_paper_once():
    assert run("cite") == evenly.cite() + "\n"
    shown = run("cite", "fairfed", "q-fedavg", "q-fedsgd", "fairfed")
    assert list(parse(shown)) == ["evenly", "ezzeldin2023fairfed", "li2020fair"]
    assert list(parse(run("cite", *METHODS)))[:2] == ["evenly", "mcmahan2017communication"]
    assert "Did you mean 'fairfed'?" in run("cite", "fairfedd", code=2)
    notations = ("q-fedavg(q=2)+uniform(clients=5)", "fairfed+reweigh")
    assert evenly.cite(*notations) == evenly.cite("q-fedavg", "fairfed")


def test_a_method_of_your_own_is_cited_by_its_entry_or_named_in_a_comment(registries: None):
    own = dataclasses.replace(METHODS["fedavg"], name="own", title="Own", reference="this page")
    evenly.register(dataclasses.replace(own, bibtex="\n@misc{me,\n  title = {Mine}\n}\n"))
    assert parse(evenly.cite("own"))["me"] == {"type": "misc", "title": "Mine"}
    evenly.register(dataclasses.replace(own, bibtex=""), replace=True)
    assert evenly.cite("own").splitlines()[-1] == (
        "% Own has no BibTeX entry. Its reference: this page"
    )


@pytest.mark.parametrize(
    "kind, name", [(kind, name) for kind, names in KINDS.items() for name in names]
)
def test_everything_that_is_listed_can_be_described(kind: str, name: str):
    found = evenly.describe(name)
    assert (found.name, found.kind) == (name, kind)
    assert len(repr(found)) > 20
    assert not re.search(r"Args:|Raises:|Example:|>>>", repr(found))


@pytest.mark.parametrize(
    "name", ["fairfed", "parity", "local-adam", "mlp", "adult", "eod_abs", "qffl/synthetic"]
)
def test_the_command_prints_the_text_of_the_function(name: str):
    printed = [line.rstrip() for line in run("describe", name).rstrip().splitlines()]
    assert printed == repr(evenly.describe(name)).splitlines()


@pytest.mark.parametrize(
    "name, words",
    [
        ("fedavg", ["Cite it: evenly cite fedavg", "learning_rate"]),
        ("server-fedyogi", ["The server applies Reddi et al.'s FedYogi", "beta2 = 0.99"]),
        ("local-momentum", ["Clients apply optax's SGD with momentum", "momentum = 0.9"]),
        ("lenet-no-bias", ["convolution"]),
        ("compas", ["licence: ", "Clients and groups: evenly data describe compas"]),
        ("thesis/adult-coverage", ["6 partitions, 100 rounds, 5 seeds", "evenly reproduce thesis"]),
    ],
)
def test_a_description_says(name: str, words: list[str]):
    text = " ".join(repr(evenly.describe(name)).split())
    assert [word for word in words if word not in text] == []


def test_without_a_name_all_names_are_listed_as_the_command_lists_them():
    printed = [line.rstrip() for line in run("list").rstrip().splitlines()]
    assert printed == repr(evenly.describe()).splitlines()
    assert all(name in " ".join(printed) for names in KINDS.values() for name in names)


def test_other_names_are_answered_with_a_sentence():
    with pytest.raises(ValueError, match=r"experiment 'worst100'\. Did you mean 'worst10'\?"):
        evenly.describe("worst100")
    for ask in (evenly.describe, evenly.cite):
        with pytest.raises(TypeError, match=r"^A name is written as text, .* got Method\.$"):
            ask(METHODS["fedavg"])  # pyright: ignore[reportArgumentType]
