"""Real data files: tests that need them are skipped where they are not, unless
EVENLY_REQUIRE_DATA=1 says that they must be there.
"""

import os

import pytest

from evenly.datasets import DATASETS, data_folder
from evenly.datasets.files import complete


def need(name: str, *, always_optional: bool = False) -> None:
    """Skip, or fail, unless the files of a data set are there. `always_optional`: too large for the
    folder that CI has.
    """
    card = DATASETS[name]
    if any(complete(layout) for layout in card.layouts):
        return
    sentence = (
        f"{name} is not in {data_folder()}: run `evenly data fetch {name}`, or set EVENLY_DATA to"
        f" the folder that holds {name}/."
    )
    if os.environ.get("EVENLY_REQUIRE_DATA") == "1" and not always_optional:
        pytest.fail(f"EVENLY_REQUIRE_DATA=1, but {sentence}")
    pytest.skip(sentence)
