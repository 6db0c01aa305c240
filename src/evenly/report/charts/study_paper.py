"""The paper's figures against ours: one mark for each method and partition, and the line on which they would agree."""

from collections.abc import Sequence

import altair as alt

from evenly.experiment.thesis import View
from evenly.metrics import GROUP_METRICS, spread
from evenly.report.charts.theme import colour_of, finish, shape_of, values


def study_paper(views: Sequence[View], metric: str, protocol: str = "study") -> alt.LayerChart:
    """Ours under the paper's own way of choosing, because that is what its figures are."""
    rows = [
        {"method": str(view.place), "name": str(m), "paper": view.paper[m][metric], "ours": spread(outcome.values[metric]).mean}
        for view in views
        for m, outcome in view.outcomes[protocol].items()
        if m in view.paper
    ]
    names = [str(view.place) for view in views]
    seen = [row[who] for row in rows for who in ("paper", "ours")]
    title = GROUP_METRICS[metric].title
    title = title[0].upper() + title[1:]
    room = alt.Scale(zero=False, padding=12, nice=False)
    x = alt.X("paper:Q", axis=alt.Axis(title="Paper", tickCount=5), scale=room)
    y = alt.Y("ours:Q", axis=alt.Axis(title="Ours", tickCount=5), scale=room)
    digits = ".1f" if "%" in GROUP_METRICS[metric].range else ".3f"
    tooltip = [
        alt.Tooltip("name:N", title="Method"),
        alt.Tooltip("method:N", title="Partition"),
        alt.Tooltip("paper:Q", title="Paper", format=digits),
        alt.Tooltip("ours:Q", title="Ours", format=digits),
    ]
    ends = [{"paper": end, "ours": end} for end in (min(seen), max(seen))]
    layers = [
        alt.Chart(values(ends)).mark_line(style="guide-line", strokeDash=[4, 3]).encode(x=x, y=y),
        alt.Chart(values(rows))
        .mark_point(filled=True, size=42, opacity=0.75)
        .encode(x=x, y=y, color=colour_of(names), shape=shape_of(names), tooltip=tooltip),
    ]
    return finish(layers, title=title, description=f"{title}: the paper's {len(rows)} figures against ours.", height=280)
