"""The paper's figures beside ours."""

from evenly.experiment.reproduce import Line, as_rows
from evenly.metrics import EVERY_METRIC
from evenly.report.grid import Column, grid
from evenly.report.markup import Html, element, section
from evenly.report.table import format_value

BRIEF = {"average": "average", "average_devices": "by client", "worst10": "worst 10 %", "best10": "best 10 %", "kl": "KL"}
WHO = ("paper", "ours", "ours − paper")


def title(metric: str) -> str:
    """A metric's name in a table's head; a single client's accuracy is called by the client's name."""
    return BRIEF.get(metric, EVERY_METRIC[metric].title if metric in EVERY_METRIC else metric.removeprefix("client:"))


def figures(line: Line | None) -> tuple[str, str, str]:
    """The paper's figure, ours and the difference, as a table shows them."""
    if line is None:
        return "", "", ""
    metric = EVERY_METRIC.get(line.metric, EVERY_METRIC["average"])  # a client's accuracy is shown like an average
    spreads = line.paper_deviation, line.ours.deviation if line.ours.seeds > 1 else None
    paper, ours = (
        format_value(mean, metric) + ("" if spread is None else f" ± {format_value(spread, metric)}")
        for mean, spread in zip((line.paper, line.ours.mean), spreads, strict=True)
    )
    return paper, ours, ("+" if line.difference > 0 else "") + format_value(line.difference, metric)


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
    intro = "Mean ± standard deviation over seeds, the paper's as printed. Accuracies in percent, variances in percent squared."
    return section(
        "paper", "Beside the paper", element("p", None, intro), grid("Every figure the paper gives for these methods.", columns, body)
    )
