"""What CHANGELOG.md promises to keep, as names. `python -m tests.promises` writes promised.json
with every version that adds some.
"""

import importlib
import json
from pathlib import Path
from typing import Any

from evenly.algorithms import METHODS, settings_of
from evenly.datasets import DATASETS
from evenly.experiment.config import packaged_experiments
from evenly.experiment.result_rows import tidy_rows
from evenly.metrics import EVERY_METRIC
from evenly.models.named_models import ALL_MODELS
from evenly.parts.optimisers import optimiser_parts
from evenly.parts.sampling import SAMPLINGS
from evenly.parts.work import PREPARES
from evenly.privacy import PRIVACIES
from tests.report.invented import comparison

PROMISED = Path(__file__).with_name("promised.json")
PUBLIC = ("evenly", *(f"evenly.{one}" for one in ("types", "models", "metrics", "parts", "flower")))


def present() -> dict[str, list[str]]:
    """The names of this version, by what they are names of."""
    parts: dict[str, Any] = {**SAMPLINGS, **PREPARES, **PRIVACIES}
    found = {f"names in {one}": importlib.import_module(one).__all__ for one in PUBLIC}
    found |= {f"settings of {name}": list(method.settings) for name, method in METHODS.items()}
    found |= {
        f"settings of {name}": [one.name for one in settings_of(part, "select")]
        for name, part in parts.items()
    }
    return {name: sorted(names) for name, names in found.items()} | {
        "columns of results.csv": list(next(tidy_rows(comparison()))),
        "experiments": packaged_experiments(),
        "optimisers": sorted(optimiser_parts()),
        "models": sorted(ALL_MODELS),
        "data sets": sorted(DATASETS),
        "metrics": sorted(EVERY_METRIC),
    }


if __name__ == "__main__":
    PROMISED.write_text(json.dumps(present(), indent=1) + "\n")
