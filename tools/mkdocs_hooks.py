"""Hooks of MkDocs, which builds the site (see mkdocs.yml).

A folder in `nav` stands for its pages, the index first, then the others in the order of its links.
The changelog and the page of the benchmarks are outside docs/. They are added to the site, and
links to them are rewritten. Scripts of tutorials are no part of the site.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "changelog.md": ROOT / "CHANGELOG.md",
    "benchmarks.md": ROOT / "benchmarks" / "README.md",
}
LONG = 30  # letters of a heading that fit into the navigation
DATA = ROOT / "benchmarks" / "results"  # files that the page of the benchmarks links to


def on_config(config: Any) -> Any:
    """Replace folders in the navigation by their pages."""
    docs = Path(config["docs_dir"])
    config["nav"] = [_expand(entry, docs) for entry in config["nav"]]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that are outside docs/, and leave out scripts."""
    for script in [file for file in files if file.src_uri.endswith(".py")]:
        files.remove(script)
    for name, path in OUTSIDE.items():
        files.append(File.generated(config, name, content=_relative_to_docs(path.read_text())))
    for path in sorted(DATA.glob("*.json")):
        files.append(File.generated(config, f"benchmarks/{path.name}", content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links to the pages that are outside docs/."""
    up = "../" * page.file.src_uri.count("/")
    for name, path in OUTSIDE.items():
        markdown = markdown.replace(
            f"]({up}../{path.relative_to(ROOT).as_posix()}", f"]({up}{name}"
        )
    return markdown


def _expand(entry: Any, docs: Path) -> Any:
    if isinstance(entry, str):
        return entry
    ((title, value),) = entry.items()
    if isinstance(value, list):
        return {title: [_expand(part, docs) for part in value]}
    if not value.endswith("/"):
        return entry
    return {title: [_entry(path, docs) for path in _pages(docs / value)]}


def _pages(folder: Path) -> list[Path]:
    """Return the pages of a folder: the index, then the others in the order of its links."""
    index = folder / "index.md"
    links = re.findall(r"\]\(([^)\s#]+)", index.read_text()) if index.exists() else []
    order = {target: place for place, target in reversed([*enumerate(links)])}
    return sorted(
        folder.glob("*.md"),
        key=lambda path: (path != index, order.get(path.name, len(links)), path.name),
    )


def _entry(path: Path, docs: Path) -> Any:
    """Return the entry of a page. A long heading is cut at its first colon or semicolon."""
    place, heading = (
        path.relative_to(docs).as_posix(),
        path.read_text().partition("\n")[0].removeprefix("# "),
    )
    return (
        place
        if path.stem == "index"
        else {re.split("[:;]", heading)[0] if len(heading) > LONG else heading: place}
    )


def _relative_to_docs(text: str) -> str:
    """Return a page from outside docs/ with links relative to docs/."""
    return re.sub(r"\]\(results/", "](benchmarks/", text.replace("](../docs/", "]("))
