"""Draw the pictures that need no training: `python docs/draw.py`. Weights of methods, and what benchmarks found."""

from pathlib import Path

import growth_page
import numpy as np
import speed

from evenly.report.charts import save_chart, weighing_chart

PICTURES = Path(__file__).resolve().parent / "pictures"
LOSSES = np.linspace(0.1, 2, 20)  # of twenty clients


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    save_chart(weighing_chart(LOSSES), PICTURES / "weighing.svg")
    for name, chart in growth_page.pictures().items():
        save_chart(chart, PICTURES / f"{name}.svg")
    save_chart(speed.chart(speed.kept()), PICTURES / "speed.svg")


if __name__ == "__main__":
    main()
