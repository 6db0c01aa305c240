"""The colours of charts on the site: those of the report, light or dark as the reader asks."""

import re
from collections.abc import Iterable

from evenly.report.charts.theme import DARK, LIGHT

# a chart of the report begins with its background
PAPER = re.compile(rf'<svg [^>]*><rect [^>]*fill="{LIGHT["paper"]}"/>')


def rules(names: Iterable[str]) -> str:
    """Return the rules that give colours their values in the light and in the dark theme.

    >>> rules(["paper"])
    ':root{--paper:#ffffff;}@media(prefers-color-scheme:dark){:root{--paper:#14171b;}}'
    """
    used = list(names)
    light, dark = (
        ":root{" + "".join(f"--{name}:{theme[name]};" for name in used) + "}"
        for theme in (LIGHT, DARK)
    )
    return f"{light}@media(prefers-color-scheme:dark){{{dark}}}"


def with_dark_colours(svg: str) -> str:
    """Return a chart of the report with the dark colours, too. Other pictures stay as they are.

    >>> with_dark_colours('<svg><rect fill="#000"/></svg>')
    '<svg><rect fill="#000"/></svg>'
    """
    if not PAPER.match(svg):
        return svg
    used = [name for name, light in LIGHT.items() if f'"{light}"' in svg]
    for name in used:
        svg = svg.replace(f'"{LIGHT[name]}"', f'"var(--{name})"')
    head, end, body = svg.partition(">")
    return f"{head}{end}<style>{rules(used)}</style>{body}"
