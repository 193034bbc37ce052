"""How much of a model's loss is recovered where a dictionary stands in for the activation.

(H(zero) - H(reconstructed)) / (H(zero) - H(model)), with H the mean negative log-probability of a
token (Bricken et al. 2023, "Loss recovered"; Rajamanoharan et al. 2024, section 4): 1 if nothing is
lost, 0 if the reconstruction is as bad as an activation of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, final

from levelhead.core.errors import NotMeasurableError
from levelhead.models.edits.base import Edit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from levelhead.core.canonical_json import Json
    from levelhead.models.edits.dictionary import SparseDictionary
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site


class RecoveredLoss(NamedTuple):
    """Losses in nats a token, and the share that is recovered."""

    model: float
    reconstructed: float
    zero: float
    n_tokens: int

    @property
    def share(self) -> float:
        """The share."""
        return (self.zero - self.reconstructed) / (self.zero - self.model)


@final
@dataclass(frozen=True, eq=False)
class _ReconstructionEdit(Edit):
    """Puts the reconstruction, or zeros, in place of an activation; for measuring only."""

    dictionary: SparseDictionary
    factor: float = 1.0
    kind: ClassVar[str] = "reconstruction"

    @property
    def sites(self) -> tuple[Site, ...]:  # type: ignore[override]  # a field there, derived here
        """The site of the dictionary."""
        return (self.dictionary.site,)

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """Return the reconstruction."""
        return self.factor * self.dictionary.reconstruct(activation)

    def matrix(self, site: Site, width: int) -> None:
        """Return None: it is not affine."""
        return

    def width(self, site: Site) -> int:
        """Return that of the dictionary."""
        return self.dictionary.width

    @property
    def settings(self) -> Mapping[str, Json]:
        """The dictionary's hash and the factor."""
        return {"dictionary": self.dictionary.content_hash, "factor": self.factor}

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """None are stored."""
        return {}


def compute_recovered_loss(
    lm: LM, dictionary: SparseDictionary, texts: Sequence[str]
) -> RecoveredLoss:
    """Compute the loss of a model, with a reconstruction, and with zeros in its place.

    Args:
        lm: A causal or masked model.
        dictionary: The dictionary.
        texts: Texts on which it was not trained.
    """
    losses = []
    for model in (
        lm,
        lm.edited(_ReconstructionEdit(dictionary)),
        lm.edited(_ReconstructionEdit(dictionary, 0.0)),
    ):
        scores = model.log_prob(texts)
        n_tokens = int(scores.token_counts.sum())
        losses.append(-float(scores.value.double().sum()) / n_tokens)
    model_loss, reconstructed, zero = losses
    if not zero > model_loss:
        raise NotMeasurableError(
            f"the model loses nothing without {dictionary.site}: no share can be recovered",
            hint="give another site or other texts",
        )
    return RecoveredLoss(model_loss, reconstructed, zero, n_tokens)
