"""The pictures of docs/concepts: small, readable in light and dark, and drawn by tools.pictures."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from evenly.report.charts.theme import DARK, LIGHT
from tools import pictures

DOCS = Path(__file__).parents[2] / "docs"
LARGEST = 60_000  # bytes
# these are drawn in a moment; the others train models first
EXACT = ("unfair-levels", "client-and-group", "q-weights", "ranked-edges", "round", "chance-rows")


def test_every_picture_of_the_concepts_is_drawn_by_the_script_and_used():
    pages = [path.read_text() for path in (DOCS / "concepts").glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"pictures/([\w-]+)\.svg", page)}
    assert shown == set(pictures.PICTURES)


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_small_and_has_colours_for_light_and_dark(name: str):
    text = (DOCS / "pictures" / f"{name}.svg").read_text()
    assert len(text.encode()) < LARGEST
    ElementTree.fromstring(text)
    style, _, body = text.partition("</style>")
    light, dark = style.split("@media(prefers-color-scheme:dark)")
    used = set(re.findall(r"var\(--([\w-]+)\)", body))
    assert "paper" in used
    for theme, css in ((LIGHT, light), (DARK, dark)):
        assert all(f"--{colour}:{theme[colour]};" in css for colour in used)
    assert not re.search(r'(fill|stroke)="#', body), "a colour would be the same in light and dark"


@pytest.mark.parametrize("name", EXACT)
def test_pictures_of_formulas_are_up_to_date(name: str):
    """Numbers may differ in the last digit on another machine."""
    drawn = pictures.themed(pictures.PICTURES[name]())
    kept = (DOCS / "pictures" / f"{name}.svg").read_text()
    numbers = re.compile(r"-?\d+\.?\d*")
    assert numbers.sub("#", drawn) == numbers.sub("#", kept).rstrip("\n")
    both = [[float(found) for found in numbers.findall(text)] for text in (drawn, kept)]
    np.testing.assert_allclose(*both, rtol=1e-3, atol=0.1)


def test_a_picture_whose_data_are_missing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("EVENLY_DATA", str(tmp_path))
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["pictures", "unfair-states", "round"])
    assert pictures.main() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["round.svg"]
    assert "unfair-states: left out" in capsys.readouterr().err


def test_an_unknown_picture_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.argv", ["pictures", "rond"])
    with pytest.raises(SystemExit):
        pictures.main()


def test_the_picture_and_the_page_have_the_same_three_models():
    page = (DOCS / "concepts" / "client-and-group-fairness.md").read_text()
    written = re.findall(r"hospital\(\((\d+), (\d+)\), \((\d+), (\d+)\)\)", page)
    models = pictures.example_models()
    drawn = [models["model A"][0], models["model C"][0], models["model C"][2]]
    assert [tuple(map(int, numbers)) for numbers in written] == [
        (*table[:, 1, 1], *table[:, 0, 0]) for table in drawn
    ]
    found = models["model B"][:, :, 1, 1]
    assert "for n in (24, 22, 19, 15)" in page
    assert found.tolist() == [[n, n] for n in (24, 22, 19, 15)]
