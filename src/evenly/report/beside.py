"""The paper's figures beside ours."""

from evenly.experiment.paper import Line, as_rows
from evenly.metrics import EVERY_METRIC
from evenly.report.grid import Column, grid
from evenly.report.markup import Html, element, section
from evenly.report.table import format_spread, format_value

WHO = ("paper", "ours", "ours − paper")
SPREADS = "Ours: mean ± half of the 95 % interval over seeds. The paper's: mean, with its standard deviation (sd) where it prints one."


def title(metric: str) -> str:
    """A metric's name in a table's head; a single client's accuracy is called by the client's name."""
    return EVERY_METRIC[metric].title if metric in EVERY_METRIC else metric.removeprefix("client:")


def figures(line: Line | None) -> tuple[str, str, str]:
    """The paper's figure, ours and the difference, as a table shows them."""
    if line is None:
        return "", "", ""
    metric = EVERY_METRIC.get(line.metric, EVERY_METRIC["average"])  # a client's accuracy is shown like an average
    printed = "" if line.paper_deviation is None else f" (sd {format_value(line.paper_deviation, metric)})"
    ours = format_spread(line.ours, metric)
    return (
        f"{format_value(line.paper, metric)}{printed}",
        ours,
        ("+" if line.difference > 0 else "") + format_value(line.difference, metric),
    )


def beside(lines: list[Line]) -> Html:
    """The section of the report; nothing where there is no paper."""
    if not lines:
        return Html("")
    metrics, rows = as_rows(lines)
    columns = [Column("Method"), Column("Rows", words=True), Column("Whose", words=True), *(Column(title(m)) for m in metrics)]
    body = []
    for row in rows:
        cells = [figures(line) for line in row.lines]
        body += [[row.label, row.split, who, *(cell[i] for cell in cells)] for i, who in enumerate(WHO)]
    intro = f"{SPREADS} Accuracies in percent, variances in percent squared."
    return section(
        "paper", "Beside the paper", element("p", None, intro), grid("Every figure the paper gives for these methods.", columns, body)
    )
