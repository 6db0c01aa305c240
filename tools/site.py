"""Build the documentation site: assemble its pages in one folder, then run the site generator.

    python -m tools.site              build into site/
    python -m tools.site --out DIR    build into another folder

The generator reads a folder of Markdown and a settings file. Everything particular to this project
happens before: pages from outside docs/ are added, links are rewritten to where their targets are
in the site, folders in `nav` are replaced by their pages, the gallery and the first page show the
reports that `tools/gallery.py` built, and charts get dark colours. A page in `nav` that does not
exist is left out.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tools import gallery
from tools.colours import with_dark_colours

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SETTINGS = ROOT / "mkdocs.yml"
ASSEMBLED = ROOT / ".site"
OUTSIDE = {
    "benchmarks.md": ROOT / "benchmarks" / "README.md",
    "changelog.md": ROOT / "CHANGELOG.md",
    "code-of-conduct.md": ROOT / "CODE_OF_CONDUCT.md",
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "security.md": ROOT / "SECURITY.md",
}
DATA = ROOT / "benchmarks" / "results"  # files that the page of the benchmarks links to
SCRIPTS = (".py", ".pyc")  # of tutorials; they are no part of the site
LINK = re.compile(r"(\]\()([^)\s#]+)([^)]*\))")
COLOUR = r"\x1b\[[0-9;]*m"  # of a terminal
# what is not prose: blocks and pieces of code, formulas, tags and headings
FIXED = re.compile(
    r"(^```.*?^```|^ {4}.*?$|^#.*?$|`[^`]*`|\$[^$]*\$|<[^>]*>)", re.DOTALL | re.MULTILINE
)
PAIRED = re.compile(
    r"(?<=\d)[ \n](?=%)|(?<=[\d%])[ \n](?=±\s?\d)|(?<=±)[ \n](?=\d)"
    r"|(?<=\b\w)[ \n](?==\s\d)|(?<=\b\w =)[ \n](?=\d)"
)
LONG = 30  # letters of a heading that fit into the navigation


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.site", description="Build the documentation site."
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "site", help="folder to write (default: site)"
    )
    parser.add_argument(
        "--assemble",
        type=Path,
        default=ASSEMBLED,
        help="folder for the pages before they are built (default: .site)",
    )
    parser.add_argument(
        "--reports",
        type=Path,
        default=gallery.REPORTS,
        help="folder of the reports for the gallery (default: .gallery)",
    )
    options = parser.parse_args()
    settings = assemble(options.assemble, options.reports)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(settings)]
    done = subprocess.run(
        command, cwd=options.assemble, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        print(re.sub(COLOUR, "", done.stdout).partition("Traceback")[0], file=sys.stderr)
        return done.returncode
    shutil.rmtree(options.out, ignore_errors=True)
    shutil.move(options.assemble / "built", options.out)
    return 0


def assemble(folder: Path, reports: Path) -> Path:
    """Write the pages and the settings of the generator into a folder.

    Returns:
        The settings file.
    """
    for old in ("pages", "built"):
        shutil.rmtree(folder / old, ignore_errors=True)
    places = site_places()
    for source, place in places.items():
        target = folder / "pages" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(relinked(source, places))
        else:
            shutil.copyfile(source, target)
    page = folder / "pages" / "gallery" / "index.md"
    page.write_text(gallery.with_reports(page.read_text(), reports, page.parent))
    first = folder / "pages" / "index.md"
    first.write_text(gallery.with_example(first.read_text(), reports))
    for written in (folder / "pages").rglob("*.md"):
        written.write_text(unbroken(written.read_text()))
    for picture in (folder / "pages").rglob("*.svg"):
        picture.write_text(with_dark_colours(picture.read_text()))
    settings, _, nav = SETTINGS.read_text().partition("\nnav:\n")
    expanded = json.dumps(expand(yaml.safe_load(nav), folder / "pages"))
    path = folder / "mkdocs.yml"
    path.write_text(f"{settings}\ndocs_dir: pages\nsite_dir: built\nnav: {expanded}\n")
    return path


def site_places() -> dict[Path, str]:
    """Return every file of the site and its place in it."""
    found = {
        path: path.relative_to(DOCS).as_posix()
        for path in sorted(DOCS.rglob("*"))
        if path.is_file() and path.suffix not in SCRIPTS
    }
    found |= {path: name for name, path in OUTSIDE.items() if path.exists()}
    return found | {path: f"benchmarks/{path.name}" for path in sorted(DATA.glob("*.json"))}


def relinked(source: Path, places: dict[Path, str]) -> str:
    """Return a page with links to where their targets are in the site."""
    start = os.path.dirname(places[source])

    def relink(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        place = places.get((source.parent / target).resolve())
        return f"{before}{os.path.relpath(place, start or '.')}{after}" if place else match[0]

    return LINK.sub(relink, source.read_text())


def unbroken(page: str) -> str:
    """Return a page in which no line starts with the sign or the unit of a number.

    >>> unbroken("84 ± 2 % with q = 1, `a = 1`").replace("\N{NO-BREAK SPACE}", "_")
    '84_±_2_% with q_=_1, `a = 1`'
    """
    pieces = FIXED.split(page)  # prose and what is not prose take turns
    pieces[::2] = [PAIRED.sub("\N{NO-BREAK SPACE}", prose) for prose in pieces[::2]]
    return "".join(pieces)


def expand(entries: list[Any], pages: Path) -> list[Any]:
    """Replace folders in the navigation by their pages, and leave out what does not exist."""
    found = []
    for entry in entries:
        title, value = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(value, list):
            inside = expand(value, pages)
        elif value.endswith("/"):
            inside = page_entries(sorted_pages(pages / value), pages)
        else:
            found += [entry] if (pages / value).exists() else []
            continue
        found += inside if title is None else [{title: inside}] if inside else []
    return found


def sorted_pages(folder: Path) -> list[Path]:
    """Return the pages of a folder: the index, then the others in the order of its links."""
    index = folder / "index.md"
    links = LINK.findall(index.read_text()) if index.exists() else []
    order = {target: place for place, (_, target, _) in reversed([*enumerate(links)])}
    return sorted(
        folder.glob("*.md"),
        key=lambda path: (path != index, order.get(path.name, len(links)), path.name),
    )


def page_entries(paths: list[Path], pages: Path) -> list[Any]:
    """Return the entries of pages. A long heading is cut at its first colon or semicolon, unless
    two pages would then have the same entry.
    """
    headings = [path.read_text().partition("\n")[0].removeprefix("# ") for path in paths]
    short = [re.split("[:;]", each)[0] if len(each) > LONG else each for each in headings]
    found = []
    for path, heading, cut in zip(paths, headings, short, strict=True):
        place = path.relative_to(pages).as_posix()
        title = cut if short.count(cut) == 1 else heading
        found.append(place if path.stem == "index" else {title: place})
    return found


if __name__ == "__main__":
    sys.exit(main())
