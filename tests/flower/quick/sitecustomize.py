"""For processes with this folder on their PYTHONPATH: SuperNodes tell every 10 seconds that they
live, the least that Flower allows, instead of every 30. A killed SuperNode can come back after two
of these times.
"""

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

NAME = "flwr.common.constant"


class Quick(importlib.abc.MetaPathFinder):
    """Finds the module of Flower's constants, and changes one of them."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def changed(module: ModuleType) -> None:
            run(module)
            module.HEARTBEAT_DEFAULT_INTERVAL = module.HEARTBEAT_MIN_INTERVAL  # pyright: ignore[reportAttributeAccessIssue]

        spec.loader.exec_module = changed
        return spec


sys.meta_path.insert(0, Quick())
