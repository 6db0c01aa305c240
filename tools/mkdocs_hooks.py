"""What MkDocs asks while it builds the site (see mkdocs.yml).

A folder in `nav` stands for its pages, the index first. The changelog and the benchmarks lie outside the folder of the pages
and are read from there; links to them work in both places.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {"changelog.md": ROOT / "CHANGELOG.md", "benchmarks.md": ROOT / "benchmarks" / "README.md"}
LONG = 30  # letters that fit beside a page
DATA = ROOT / "benchmarks" / "results"  # what the benchmarks' page links


def on_config(config: Any) -> Any:
    """Put pages in the place of folders."""
    docs = Path(config["docs_dir"])
    config["nav"] = [_filled(entry, docs) for entry in config["nav"]]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that lie elsewhere."""
    for name, path in OUTSIDE.items():
        files.append(File.generated(config, name, content=_at_home(path.read_text())))
    for path in sorted(DATA.glob("*.json")):
        files.append(File.generated(config, f"benchmarks/{path.name}", content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to the pages that lie elsewhere lead to where the site has them."""
    up = "../" * page.file.src_uri.count("/")
    for name, path in OUTSIDE.items():
        markdown = markdown.replace(f"]({up}../{path.relative_to(ROOT).as_posix()}", f"]({up}{name}")
    return markdown


def _filled(entry: Any, docs: Path) -> Any:
    if isinstance(entry, str):
        return entry
    ((title, value),) = entry.items()
    if isinstance(value, list):
        return {title: [_filled(one, docs) for one in value]}
    if not value.endswith("/"):
        return entry
    pages = sorted(docs.joinpath(value).glob("*.md"), key=lambda path: (path.stem != "index", path.stem))
    return {title: [_entry(path, docs) for path in pages]}


def _entry(path: Path, docs: Path) -> Any:
    """A page in a list of many: long headings are cut at their first break."""
    place, heading = path.relative_to(docs).as_posix(), path.read_text().partition("\n")[0].removeprefix("# ")
    return place if path.stem == "index" else {re.split("[:;]", heading)[0] if len(heading) > LONG else heading: place}


def _at_home(text: str) -> str:
    """A page from elsewhere, with links as they are from the folder of the pages."""
    return re.sub(r"\]\(results/", "](benchmarks/", text.replace("](../docs/", "]("))
