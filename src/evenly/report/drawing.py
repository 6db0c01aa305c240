"""Every chart of a report as a file of its own: PNG, SVG or PDF, drawn without a browser or a network."""

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import altair
import vl_convert

from evenly.report.charts.theme import ROOM, SAVED_WIDTH, saved_config
from evenly.writing import write_whole

SCALE = 2.0  # of PNG: sharp on paper and on dense screens
FORMATS = ("png", "svg", "pdf")


def write_figures(specs: Mapping[str, dict[str, Any]], folder: Path, kind: str = "svg") -> list[Path]:
    """Write the charts of a page (`specs` as in `page.build`) into a folder; the files are called as the charts are."""
    if kind not in FORMATS:
        raise ValueError(f"The format of figures must be one of {', '.join(FORMATS)}, got {kind!r}.")
    return [_write(folder / f"{file_name(key)}.{kind}", drawn(spec, kind)) for key, spec in specs.items()]


def drawn(spec: dict[str, Any], kind: str) -> bytes:
    """One chart as it stands alone: with its title and legend, light colours and a fixed width."""
    config = saved_config()
    config["legend"] = config["legend"] | {"layout": {"top": {"margin": ROOM}}}  # between legends; Altair's schema has no word for it
    found = _convert(kind)(vl_spec={**spec, "width": SAVED_WIDTH}, config=config, vl_version=_version())
    return found.encode() if isinstance(found, str) else found


def file_name(key: str) -> str:
    """
    >>> file_name("chart-rounds-average@bytes")
    'rounds-average-bytes'
    """
    return re.sub(r"[^A-Za-z0-9.=]+", "-", key.removeprefix("chart-")).strip("-")


def _write(path: Path, content: bytes) -> Path:
    return write_whole(path, lambda file: file.write(content))


def _convert(kind: str) -> Callable[..., str | bytes]:
    png = functools.partial(vl_convert.vegalite_to_png, scale=SCALE)
    return {"png": png, "svg": vl_convert.vegalite_to_svg, "pdf": vl_convert.vegalite_to_pdf}[kind]


def _version() -> str:
    """The version of Vega-Lite that Altair writes for."""
    major, minor, *_ = altair.SCHEMA_VERSION.lstrip("v").split(".")
    return f"{major}.{minor}"
