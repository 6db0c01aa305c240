"""The page: whole, self-contained, escaped, and of bounded size whatever it is given."""

import html
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from tests.report.invented import HOSTILE, comparison, federation, specs, unbroken

from evenly.experiment.comparison import DeploymentSetup
from evenly.report import write_report
from evenly.report.html import breakable, data_block, definitions, element, script
from evenly.report.page import render

MIB = 2**20


class Outline(HTMLParser):
    """Collects tags, identifiers and links, and checks that elements nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.identifiers: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        found = {name: value or "" for name, value in attrs}
        self.identifiers += [found["id"]] if "id" in found else []
        self.links += [found[k] for k in ("href", "src") if k in found]
        if tag not in ("meta", "link", "br", "input", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def outline(text: str) -> Outline:
    parser = Outline()
    parser.feed(text)
    assert parser.open == []
    return parser


def words(text: str) -> str:
    return re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def page() -> str:
    return render(comparison())


def test_the_page_is_well_formed_and_every_link_stays_inside(page):
    found = outline(page)
    assert {"html", "main", "h1", "table", "caption", "figure", "figcaption", "nav"} <= set(
        found.tags
    )
    assert len(found.identifiers) == len(set(found.identifiers))
    assert [
        link for link in found.links if link.startswith("#") and link[1:] not in found.identifiers
    ] == []
    assert [link for link in found.links if not link.startswith("#")] == ["data:,"]


def test_the_page_has_every_section(page):
    for name in (
        "results",
        "distribution",
        "tradeoff",
        "chance",
        "rounds",
        "influence",
        "weighing",
        "clients",
        "privacy",
        "data",
        "settings",
    ):
        assert f'<section id="{name}"' in page


def test_every_chart_takes_its_containers_width_and_is_described(page):
    found = specs(page)
    assert len([key for key in found if "@" not in key]) == 9
    assert all(
        spec["width"] == "container" and spec["description"] and spec["title"]
        for spec in found.values()
    )


def test_the_same_results_give_the_same_page(page):
    assert render(comparison()) == page


def test_user_text_is_escaped_everywhere():
    data = federation(
        5, names=[HOSTILE, "</script><b>", "a&b", 'quote"', "ok"], labels=(HOSTILE, "<!--")
    )
    text = render(comparison((HOSTILE, "fedavg"), data=data, name=HOSTILE, command=HOSTILE))
    assert "<script>window.hacked" not in text
    assert "</script><b>" not in text
    assert "&lt;script&gt;window.hacked" in text
    # yet the chart shows the name as it is
    assert any(HOSTILE in json.dumps(spec) for spec in specs(text).values())
    outline(words(text))


@pytest.mark.parametrize(
    "found",
    [
        comparison(("fedavg",), seeds=1),
        comparison(data=federation(1)),
        comparison(data=federation(4, rows=(10, 0, 1))),
        comparison(data=federation(4, rows=(10, 5, 0))),
        comparison(evaluations=1),
        comparison(("x" * 300, "y z " * 60), seeds=1),
    ],
    ids=[
        "one method and seed",
        "one client",
        "one test row",
        "no test rows",
        "never trained",
        "long labels",
    ],
)
def test_unusual_results_still_make_a_page(found):
    text = render(found)
    outline(text)
    assert not re.search(r"\b(nan|NaN|None|inf)\b", words(text))


def test_undefined_metrics_read_na():
    text = render(comparison(data=federation(4, rows=(10, 0, 0))))
    assert "n/a" in text
    assert specs(text) == {}


def test_small_test_sets_are_pointed_out_and_large_ones_not():
    assert "Small test sets." in render(comparison(data=federation(20, rows=(40, 10, 8))))
    assert "Small test sets." not in render(comparison(data=federation(20, rows=(40, 10, 5000))))


def test_excluded_updates_are_named(page):
    found = comparison()
    times = np.zeros(20, np.int32)
    times[3] = 7
    run = found.runs[0]
    text = render(
        found._replace(
            runs=[run._replace(trace=run.trace._replace(excluded=times)), *found.runs[1:]]
        )
    )
    assert '<section id="excluded"' in text
    assert "7 updates or losses were not finite" in text
    assert '<section id="excluded"' not in page


def test_very_many_methods_stay_readable():
    text = render(comparison(["fedavg", *(f"q-fedavg(q={i})" for i in range(120))], seeds=2))
    assert "All 121 methods" in text
    assert len(text.encode()) < 4 * MIB
    lines = specs(text)["chart-rounds-average"]
    assert "q-fedavg(q=119)" in json.dumps(lines)
    assert "q-fedavg(q=50)" not in json.dumps(lines)  # only the coloured ones have lines
    assert "q-fedavg(q=50)" in json.dumps(specs(text)["chart-front"])  # but all have a point


def test_notation_may_break_before_its_parts_and_can_be_copied():
    """A break inside of a word is hard to read; other marks for breaks would be copied with it."""
    label = "fedavg(learning_rate=0.001)+server-adam(b1=0.9)+uniform(clients=10)"
    text = words(render(comparison(("fedavg", label), seeds=1)))
    adam = '<span class="nowrap">server-adam</span>'
    broken = f"fedavg<wbr>(learning<wbr>_rate=0.001)<wbr>+{adam}<wbr>(b1=0.9)<wbr>+uniform"
    header = text[: text.index("</header>")]
    table = text[text.index('<section id="results"') :]
    for part in (header, table[: table.index("</table>")], text[text.index('class="legend"') :]):
        assert broken in part
    assert "\u200b" not in text
    assert breakable("with --min-cell") == 'with <span class="nowrap">--min-cell</span>'
    assert breakable("f(x) + 1 (one) <b>_</b>") == "f<wbr>(x) + 1 (one) &lt;b&gt;_&lt;/b&gt;"


def test_names_of_settings_and_commands_do_not_break_inside_of_words():
    """On a phone, one read "min_available_n / odes" and "-- / client"."""
    command = "evenly compare --data a,b --algorithms 'q-fedavg(q=1)' --min-cell 5"
    text = render(comparison(command=command))
    code = re.findall(r"<code>(.*?)</code>", text)[0]
    option = '<span class="nowrap">{}</span>'.format
    assert f"{option('--data')} a,<wbr>b {option('--algorithms')}" in code
    assert f"&#39;{option('q-fedavg')}<wbr>(q=1)&#39; {option('--min-cell')} 5" in code
    assert html.unescape(re.sub(r"<[^>]*>", "", code)) == command
    assert definitions([("Nodes (min_nodes)", "8")]) == (
        "<dl><div><dt>Nodes (min<wbr>_nodes)</dt><dd>8</dd></div></dl>"
    )


def test_settings_of_a_method_that_reveal_the_same_are_told_once():
    text = words(
        render(comparison(["fedavg", *(f"q-fedavg(q={i})" for i in range(5))], seeds=1))
    ).split('<section id="privacy"')[1]
    text = unbroken(text)
    assert "q-fedavg(q=0) and 4 more settings of it" in text
    assert "q-fedavg(q=3)" not in text.split("</section>")[0]


def test_ten_thousand_clients_are_aggregated():
    text = render(
        comparison(
            ("fedavg", "q-fedavg(q=1)", "q-fedavg(q=5)"),
            data=federation(10_000),
            seeds=2,
            evaluations=3,
        )
    )
    assert len(text.encode()) < 2 * MIB


def test_a_comparison_without_runs_is_refused():
    with pytest.raises(ValueError, match="at least one run, got none"):
        render(comparison()._replace(runs=[]))


def test_runs_on_other_clients_are_refused():
    with pytest.raises(
        ValueError, match="the federation's 3 clients, but 'fedavg' with seed 0 has 20"
    ):
        render(comparison()._replace(federation=federation(3)))


def test_the_file_appears_whole_and_leaves_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "new" / "report.html"
    assert write_report(comparison(), path) == path
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(comparison(name="other"), path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_elements_escape_text_and_attributes():
    assert (
        element("p", {"title": 'a"b'}, "<i>", element("b", None, "&"))
        == '<p title="a&#34;b">&lt;i&gt;<b>&amp;</b></p>'
    )


def test_data_cannot_end_its_block_and_nan_is_refused():
    block = data_block("d", {"name": "</script><!--"})
    assert block.count("</script>") == 1
    assert "<!--" not in block
    with pytest.raises(ValueError, match="JSON compliant"):
        data_block("d", float("nan"))


def test_a_script_cannot_hold_its_own_end():
    with pytest.raises(ValueError, match="must not contain"):
        script("'</script>'")


def test_an_experiments_title_and_notes_are_shown_and_escaped():
    text = render(
        comparison(name="paper/table")._replace(
            title=f"Table 1 {HOSTILE}", notes=f"\nFirst\nparagraph.\n\nSecond {HOSTILE}\n"
        )
    )
    header = text.split("<nav")[0]
    assert "<p>First\nparagraph.</p>\n<p>Second &lt;script&gt;" in header
    assert "<h1>Table 1 &lt;script&gt;" in header
    assert "paper/table" in header
    assert HOSTILE not in text
    outline(text)


def test_without_a_title_the_heading_says_the_data_and_the_question(page):
    assert "<h1>Invented: which of 2 methods serves clients most evenly?</h1>" in page
    assert (
        "<title>Invented: which of 2 methods serves clients most evenly? · evenly</title>" in page
    )
    assert "<h1>Invented: whom does fedavg serve worst?</h1>" in render(
        comparison(("fedavg",), seeds=1)
    )
    assert "About the experiment" not in page


def test_the_settings_say_where_sizes_do_not_count(page):
    sizes = "All 20 clients take part in every round, and larger ones do not count more."
    text = render(comparison()._replace(sizes=sizes))
    assert f"<dt>Sizes of clients</dt><dd>{sizes}</dd>" in unbroken(text)
    assert "Sizes of clients" not in page


def test_a_deployment_says_where_its_rows_are():
    """The page had "Clients by: who holds them: this is a deployment"."""
    found = comparison(["fedavg"], seeds=1)._replace(deployed=DeploymentSetup({}))
    text = unbroken(render(found))
    place = "<dt>Where the rows are</dt><dd>with the clients: this is a deployment</dd>"
    assert place in text
    assert "Clients by" not in text
    assert "<dt>Clients by</dt><dd>natural</dd>" in unbroken(render(comparison(["fedavg"])))


def test_a_deployment_does_not_count_rows_that_were_not_reported():
    """ "0 validation" was said of clients that have them, and report their test rows only."""
    found = comparison(["fedavg"], seeds=1, data=federation(4, rows=(40, 0, 10)))
    rows = re.compile(r"<dt>Rows</dt><dd>(.*?)</dd>")
    (here,) = rows.findall(render(found))
    assert re.fullmatch(r"[\d,]+ \([\d,]+ training, 0 validation, [\d,]+ test\)", here)
    (there,) = rows.findall(render(found._replace(deployed=DeploymentSetup({}))))
    assert re.fullmatch(r".* training, [\d,]+ test; validation rows are not reported\)", there)


def test_a_number_of_bytes_stays_on_one_line():
    assert re.search(r">[\d.]+\u00a0(kB|bytes)<", render(comparison(["fedavg"], seeds=1)))
