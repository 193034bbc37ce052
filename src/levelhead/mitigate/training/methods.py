"""All mitigations by training, a row for each. The command line and studies read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, final

from levelhead.mitigate.training.auto_debias import AutoDebiasSettings, auto_debias
from levelhead.mitigate.training.cda_and_dropout import cda, dropout
from levelhead.mitigate.training.context_debias import ContextDebiasSettings, context_debias
from levelhead.mitigate.training.preferences import PreferenceSettings, dpo, npo
from levelhead.mitigate.training.variants import TrainedVariant

if TYPE_CHECKING:
    from levelhead.mitigate.training.variants import MethodName

Train = Callable[..., TrainedVariant]
"""A training with the arguments that all have: base, corpus, folder, config, placebo, progress."""


@final
@dataclass(frozen=True)
class TrainingMethod:
    """A row of TRAINING_METHODS."""

    make: Callable[[str], Train]
    """The training with the words of a lexicon, and otherwise with its default settings."""
    placebo: str
    """What its placebo is: the same base, corpus and steps, without knowledge of groups."""
    heads: tuple[str, ...] = ("masked", "causal")
    """Kinds of models that can be trained."""
    learning_rate: float = 5e-5
    """A default. An adapter is small, and starts without effect: it needs a higher rate."""


TRAINING_METHODS: dict[MethodName, TrainingMethod] = {
    "cda": TrainingMethod(lambda lexicon: partial(cda, lexicon=lexicon), "each text twice"),
    "dropout": TrainingMethod(lambda lexicon: dropout, "the dropout of the base"),
    "context-debias": TrainingMethod(
        lambda lexicon: partial(context_debias, settings=ContextDebiasSettings(lexicon)),
        "other words, as frequent, as attributes",
    ),
    "auto-debias": TrainingMethod(
        lambda lexicon: partial(auto_debias, settings=AutoDebiasSettings(lexicon)),
        "other words, as frequent, as pairs",
        heads=("masked",),
    ),
    "dpo": TrainingMethod(
        lambda lexicon: partial(dpo, settings=PreferenceSettings(lexicon)),
        "preferences drawn at random",
        heads=("causal",),
        learning_rate=5e-4,
    ),
    "npo": TrainingMethod(
        lambda lexicon: partial(npo, settings=PreferenceSettings(lexicon)),
        "preferences drawn at random",
        heads=("causal",),
        learning_rate=5e-4,
    ),
}
