"""levelhead: measure, locate, explain and mitigate stereotype bias in language models.

Names are imported when they are first used (PEP 562), so `import levelhead` and `levelhead --help`
load neither torch nor scipy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead._lazy import attach
from levelhead._version import __version__ as __version__

# The only list of the public names: type checkers read it, and so does `attach`.
if TYPE_CHECKING:
    from levelhead import data as data
    from levelhead import explain as explain
    from levelhead import measures as measures
    from levelhead import mitigate as mitigation  # noqa: F401  # a noun, as its siblings are
    from levelhead.calibrate import organisms as organisms
    from levelhead.core.errors import LevelheadError as LevelheadError
    from levelhead.core.errors import NotMeasurableError as NotMeasurableError
    from levelhead.core.results import Estimate as Estimate
    from levelhead.core.results import Interval as Interval
    from levelhead.core.results import Measurement as Measurement
    from levelhead.core.results import Provenance as Provenance
    from levelhead.core.results import PValue as PValue
    from levelhead.core.run_context import Inference as Inference
    from levelhead.core.run_context import RunContext as RunContext
    from levelhead.locate import locate as locate
    from levelhead.locate.head_map import HeadMap as HeadMap
    from levelhead.measures.compare import Comparison as Comparison
    from levelhead.measures.run import compare as compare
    from levelhead.models import edits as edits
    from levelhead.models.edits.base import Edit as Edit
    from levelhead.models.edits.files import load_edits as load_edits
    from levelhead.models.edits.files import save_edits as save_edits
    from levelhead.models.edits.merge import NotMergeableError as NotMergeableError
    from levelhead.models.generation.config import GenerationConfig as GenerationConfig
    from levelhead.models.inputs.chat import ChatFormat as ChatFormat
    from levelhead.models.lm import LM as LM
    from levelhead.models.loading.checkpoints import MissingHeadError as MissingHeadError
    from levelhead.models.loading.load import load as load
    from levelhead.models.sites import Site as Site
    from levelhead.models.training.configs import FinetuneConfig as FinetuneConfig
    from levelhead.models.training.finetune import finetune as finetune
    from levelhead.report.charts.registry import chart as chart
    from levelhead.report.tracking.log import log as log

__getattr__, __dir__, __all__ = attach(__name__, __file__)
