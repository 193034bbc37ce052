"""Which parts of a model carry a measured bias: gradients, exact ablation and the head map.

The package is callable: `levelhead.locate(lm, measure)` is `locate.score_heads.locate`. A function
with the name of the package could not be in `levelhead` as well, because importing a submodule
binds the package to that name.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from levelhead.locate.score_heads import locate as locate
else:

    class _CallablePackage(ModuleType):
        def __call__(self, lm, measure, **options):
            """Score every head of a model: see `levelhead.locate.score_heads.locate`."""
            from levelhead.locate.score_heads import locate as score_heads_locate

            return score_heads_locate(lm, measure, **options)

    sys.modules[__name__].__class__ = _CallablePackage
    locate = sys.modules[__name__]
