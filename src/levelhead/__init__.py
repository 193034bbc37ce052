"""levelhead: measure, locate, explain and mitigate stereotype bias in language models.

Names are imported when they are first used (PEP 562), so `import levelhead` and `levelhead --help`
load neither torch nor scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

# What a type checker sees, and, name by name, what __getattr__ imports. A test compares the two.
if TYPE_CHECKING:
    from levelhead.core.errors import LevelheadError as LevelheadError
    from levelhead.core.results import Interval as Interval
    from levelhead.core.results import Measurement as Measurement
    from levelhead.core.results import Provenance as Provenance
    from levelhead.core.results import PValue as PValue

_HOME = {
    "LevelheadError": "levelhead.core.errors",
    "Interval": "levelhead.core.results",
    "Measurement": "levelhead.core.results",
    "PValue": "levelhead.core.results",
    "Provenance": "levelhead.core.results",
}

__all__ = ["Interval", "LevelheadError", "Measurement", "PValue", "Provenance"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'levelhead' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_HOME))
