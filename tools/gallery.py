"""The gallery: reports of short comparisons, built with `make gallery` and shown by the site.

    python -m tools.gallery                    build every report
    python -m tools.gallery synthetic compas   build some of them
    python -m tools.gallery --missing          build those that are not there yet

Each report is built by the command that its page shows. The reports are stored in .gallery/ and
are not committed. `make docs` builds the missing ones and copies all of them into the site; the
first page of the site shows the first report.
"""

import argparse
import html
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from evenly.datasets import DATASETS
from evenly.datasets.files import complete

REPORTS = Path(__file__).resolve().parent.parent / ".gallery"
EXAMPLE = "<!-- example report -->"  # on the first page
PLACE = re.compile(r"^<!-- report: ([\w-]+) -->$", re.MULTILINE)


class Exhibit(NamedTuple):
    """A report of the gallery."""

    name: str
    title: str
    about: str
    data: str  # name of its data set
    settings: str  # options of `evenly compare`
    chart: str  # chart of the report that is shown on the page

    @property
    def command(self) -> str:
        return f"evenly compare {self.settings} --out {self.name}"


EXHIBITS = (
    Exhibit(
        "synthetic",
        "Clients that disagree",
        "A hundred synthetic clients whose best models differ. q-FedAvg gives clients with a large"
        " loss more weight. Nothing is downloaded.",
        "synthetic",
        '--algorithms "fedavg,q-fedavg(q=1)" --rounds 1000 --seeds 3',
        "distribution",
    ),
    Exhibit(
        "acs-income",
        "Census income in 35 states",
        "Every state is a client, and women and men are the groups. Reweighing the rows of each"
        " client addresses the gap between the groups; q-FedAvg addresses the gap between states.",
        "acs-income",
        '--data "acs-income(rows_per_state=2000)"'
        ' --algorithms "fedavg,q-fedavg(q=5),fedavg+reweigh" --model logistic --sampling full'
        " --rounds 50 --seeds 3 --batch-size 32 --learning-rate 0.3",
        "groups-tpr",
    ),
    Exhibit(
        "compas",
        "Recidivism (COMPAS)",
        "Five clients with different shares of women and men. The favourable prediction is no"
        " recidivism.",
        "compas",
        '--data compas --algorithms "fedavg,fedavg+reweigh,fairfed(metric=eod)" --model logistic'
        " --sampling full --rounds 100 --seeds 3 --batch-size 32",
        "groups-tpr",
    ),
    Exhibit(
        "adult",
        "Income (Adult)",
        "The census data of many fairness papers, with different shares of women and men at each"
        " client.",
        "adult-sex",
        '--data adult-sex --algorithms "fedavg,fedavg+reweigh,fairfed(metric=eod)"'
        " --model logistic --sampling full --rounds 50 --seeds 3 --batch-size 32",
        "groups-tpr",
    ),
    Exhibit(
        "rotated-digits",
        "Rotated digits",
        "A thousand clients in ten groups, each with its own rotation of handwritten digits. One"
        " shared model fails small groups; IFCA trains several models, and each client chooses"
        " one.",
        "fair_mnist_rotate",
        '--data fair_mnist_rotate --algorithms "fedavg,ifca(groups=10)"'
        ' --sampling "uniform(clients=25)" --rounds 300 --seeds 2 --learning-rate 0.00001',
        "front",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.gallery", description="Build the reports of the gallery."
    )
    names = [exhibit.name for exhibit in EXHIBITS]
    parser.add_argument("names", nargs="*", default=[], help=f"of {', '.join(names)}")
    parser.add_argument(
        "--missing", action="store_true", help="build only reports that are not there yet"
    )
    options = parser.parse_args()
    wanted = options.names or names
    if unknown := set(wanted) - set(names):
        parser.error(f"there is no report {', '.join(sorted(unknown))}; there are {names}")
    for exhibit in EXHIBITS:
        there = (REPORTS / exhibit.name / "report.html").exists()
        if exhibit.name not in wanted or (options.missing and there):
            continue
        if not has_data(exhibit):
            print(f"{exhibit.name}: left out, data missing ({fetch(exhibit)} gets them)")
            continue
        seconds = build(exhibit, REPORTS / exhibit.name)
        print(f"{exhibit.name}: {seconds:.0f} s")
    return 0


def has_data(exhibit: Exhibit) -> bool:
    layouts = DATASETS[exhibit.data].layouts
    return not layouts or any(complete(layout) for layout in layouts)


def fetch(exhibit: Exhibit) -> str:
    return f"`evenly data fetch {exhibit.data}`"


def build(exhibit: Exhibit, folder: Path) -> float:
    """Build a report, its chart and the time that the command took, in seconds."""
    with tempfile.TemporaryDirectory() as place:
        start = time.perf_counter()
        _run(shlex.split(exhibit.command), place)
        seconds = time.perf_counter() - start
        _run(["evenly", "report", exhibit.name, "--figures", "figures"], place)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copyfile(f"{place}/{exhibit.name}/report.html", folder / "report.html")
        shutil.copyfile(f"{place}/figures/{exhibit.chart}.svg", folder / "chart.svg")
    (folder / "built.json").write_text(json.dumps({"seconds": round(seconds, 1)}))
    return seconds


def _run(words: list[str], folder: str) -> None:
    """Run a command of evenly in a folder; what it prints is shown only if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"`{shlex.join(words)}` failed:\n{done.stdout}{done.stderr}")


def part() -> str:
    """Return the generated part of the page: each report's title, subject and command."""
    return "\n\n".join("\n\n".join(_exhibit_parts(exhibit)) for exhibit in EXHIBITS)


def _exhibit_parts(exhibit: Exhibit) -> Iterator[str]:
    yield f"## {exhibit.title}"
    yield _wrapped(exhibit.about)
    if DATASETS[exhibit.data].layouts:
        yield f"<!-- needs data: {exhibit.data} -->"
    yield "    " + " \\\n      ".join(_split(exhibit.command))
    yield f"<!-- report: {exhibit.name} -->"


def _wrapped(text: str) -> str:
    return re.sub(r"(.{1,98})(?: |$)", r"\1\n", text).strip()


def _split(command: str) -> list[str]:
    """Return the lines of a command: options stay with their values."""
    lines = [""]
    for option in re.split(r" (?=--)", command):
        if lines[-1] and len(lines[-1]) + len(option) > 84:
            lines.append("")
        lines[-1] = f"{lines[-1]} {option}".strip()
    return lines


def with_reports(page: str, reports: Path, folder: Path) -> str:
    """Return the page with the reports that are built, and copy these into a folder."""

    def shown(match: re.Match[str]) -> str:
        (exhibit,) = [each for each in EXHIBITS if each.name == match[1]]
        built = reports / exhibit.name
        if not (built / "report.html").exists():
            return _absent(exhibit)
        shutil.copytree(built, folder / exhibit.name, ignore=shutil.ignore_patterns("*.json"))
        return _summary(exhibit, built)

    return PLACE.sub(shown, page)


def with_example(page: str, reports: Path) -> str:
    """Return the first page with the first report of the gallery inside it, if it is built."""
    exhibit = EXHIBITS[0]
    link = f"gallery/{exhibit.name}/report.html"
    shown = (
        f"[Open it alone]({link}), or scroll in it here:\n\n"
        f'<iframe class="report" src="{link}" title="An example report" loading="lazy"></iframe>'
        if (reports / exhibit.name / "report.html").exists()
        else _absent(exhibit)
    )
    return page.replace(EXAMPLE, shown)


def _absent(exhibit: Exhibit) -> str:
    data = "" if has_data(exhibit) else f" Its data are missing: run {fetch(exhibit)} first."
    return f"This copy of the site was built without the report: run `make gallery`.{data}"


def _summary(exhibit: Exhibit, built: Path) -> str:
    seconds = json.loads((built / "built.json").read_text())["seconds"]
    quoted = "\n>\n".join(f"> {text}" for text in opening((built / "report.html").read_text()))
    link = f"{exhibit.name}/report.html"
    return (
        f"**[Open the report]({link})**, built in {seconds:.0f} seconds. It begins:\n\n{quoted}\n\n"
        f"[![A chart of the report: {exhibit.title}]({exhibit.name}/chart.svg)]({link})"
    )


def opening(report: str, paragraphs: int = 4) -> list[str]:
    """Return the first sentences of a report below its title, as text for Markdown. Notes in small
    print and lone figures are left out.
    """
    head = report.partition("</h1>")[2].partition("</header>")[0]
    found = re.findall(r"<p\b([^>]*)>(.*?)</p>", head, re.DOTALL)
    texts = [
        html.unescape(re.sub(r"<[^>]+>", "", text)) for said, text in found if "soft" not in said
    ]
    sentences = [text for text in texts if text.endswith(".")][:paragraphs]
    return [re.sub(r"([*_`\\|])", r"\\\1", html.escape(text, quote=False)) for text in sentences]


if __name__ == "__main__":
    sys.exit(main())
