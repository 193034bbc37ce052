"""Train a sparse dictionary of a model's activations.

A TopK autoencoder (Gao et al. 2024, "Scaling and evaluating sparse autoencoders"): squared error of
the reconstruction (section 2.3), directions of length 1, an encoder that begins as the transposed
decoder, and an auxiliary loss by which features that are never active learn the remaining error
(appendix A.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

import torch

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.models.edits.dictionary import Encoder, SparseDictionary
from levelhead.models.inputs.tokenizer import UnreadableTextError
from levelhead.models.queries.query import Query, Readout
from levelhead.models.sites import PER_HEAD_STREAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.models.lm import LM
    from levelhead.models.queries.query import ForwardOutput
    from levelhead.models.sites import Site, StreamLayer

AUXILIARY_WEIGHT = 1 / 32
"""Weight of the auxiliary loss (Gao et al. 2024, appendix A.2)."""
DEAD_AFTER_TOKENS = 50_000
"""Number of tokens without activity after which a feature counts as dead in training: a tenth of a
small training, where the paper has ten million."""


@final
@dataclass(frozen=True)
class DictionaryConfig:
    """Size and training of a dictionary."""

    n_features: int = 1024
    k: int = 32
    """Number of features that are active at each token."""
    steps: int = 1000
    batch_size: int = 1024
    """Number of tokens of a step."""
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = (self.n_features, self.k, self.steps, self.batch_size)
        if min(sizes) < 1 or self.k > self.n_features or not self.learning_rate > 0:
            raise LevelheadError(f"{self} cannot be trained", hint="give sizes above 0, k below")


class DictionaryQuality(NamedTuple):
    """How well a dictionary describes activations, other than those of its training."""

    n_tokens: int
    variance_explained: float
    """1 - squared error / variance, summed over dimensions."""
    l0: float
    """Mean number of active features."""
    n_dead: int
    """Number of features that are active at no token."""


def read_token_activations(
    lm: LM, texts: Sequence[str], site: Site, *, limit: int | None = None
) -> torch.Tensor:
    """Read the activations at a site, `[tokens, width]`, of all tokens that are not special.

    Args:
        lm: The model, edited or not.
        texts: Texts; those that the model cannot read are left out.
        site: The site.
        limit: Maximum number of tokens.
    """
    lm.layout.require_site(site)
    if site.stream == "pooled":
        raise LevelheadError(f"{site} has no tokens", hint="give a site such as block_out")
    rows, kept, total = [], [], 0
    for text in texts:
        try:
            (encoded,) = lm.tokens.encode([text])
        except UnreadableTextError:
            continue
        positions = encoded.word_positions()
        if not positions:
            continue
        rows.append(encoded.row)
        kept.append(positions)
        total += len(positions)
        if limit is not None and total >= limit:
            break
    if not rows:
        raise NotMeasurableError("the model can read no text", hint="give texts with words")
    readout = _TokenActivations(site, tuple(kept), [])
    # Run batch by batch: a batch has one number of tokens, and the next another.
    for _ in lm.iterate_batches(Query(tuple(rows), readout)):
        pass
    return torch.cat(readout.activations)[:limit]


@final
@dataclass(frozen=True, eq=False)
class _TokenActivations(Readout):
    """Keeps the activations of some tokens of every row; its numbers are of no use."""

    site: Site
    positions: tuple[tuple[int, ...], ...]
    activations: list[torch.Tensor]

    @property
    def capture_sites(self) -> frozenset[StreamLayer]:
        """The site."""
        return frozenset({(self.site.stream, self.site.layer)})

    @property
    def is_capture_only(self) -> bool:
        """Yes."""
        return True

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Keep the activations, and return a column of zeros."""
        values = output.captured[self.site.stream, self.site.layer]
        if self.site.stream in PER_HEAD_STREAMS:
            values = (
                values.flatten(-2) if self.site.head is None else values[..., self.site.head, :]
            )
        for row, index in enumerate(output.batch.indices):
            self.activations.append(values[row, list(self.positions[index])].float().cpu())
        return torch.zeros(len(output.batch.indices), 1)


def train_dictionary(
    activations: torch.Tensor,
    site: Site,
    *,
    config: DictionaryConfig = DictionaryConfig(),
    progress: Callable[[int, int], None] | None = None,
) -> SparseDictionary:
    """Train a dictionary; the same activations and config give the same weights on one machine.

    Args:
        activations: `[tokens, width]` activations at the site, as `read_token_activations` reads
            them.
        site: The site.
        config: Size and training.
        progress: Called with steps done and all steps.
    """
    if activations.dim() != 2 or len(activations) < config.batch_size:
        raise NotMeasurableError(
            f"activations of shape {tuple(activations.shape)} are too few",
            hint=f"read at least {config.batch_size} tokens",
        )
    generator = torch.Generator().manual_seed(config.seed)
    centre = activations.mean(0)
    # Lengths of about 1: one learning rate then fits the activations of any model.
    scale = float((activations - centre).norm(dim=1).mean())
    if not scale > 0:
        raise NotMeasurableError("all activations are the same", hint="give other texts")
    directions = torch.randn(config.n_features, activations.shape[1], generator=generator)
    directions = directions / directions.norm(dim=1, keepdim=True)
    weights = _Weights(
        directions.clone().requires_grad_(),
        torch.zeros(config.n_features).requires_grad_(),
        directions.clone().requires_grad_(),
        (centre / scale).clone().requires_grad_(),
    )
    optimizer = torch.optim.Adam(list(weights), lr=config.learning_rate, betas=(0.9, 0.999))
    idle = torch.zeros(config.n_features)
    for step in range(config.steps):
        # Falling over the last fifth, as is usual for dictionaries.
        optimizer.param_groups[0]["lr"] = config.learning_rate * min(
            1.0, 5 * (config.steps - step) / config.steps
        )
        rows = torch.randint(len(activations), (config.batch_size,), generator=generator)
        loss, is_active = _loss(weights, activations[rows] / scale, config.k, idle)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            weights.decoder.div_(weights.decoder.norm(dim=1, keepdim=True))
            idle = torch.where(is_active, 0.0, idle + len(rows))
        if progress is not None:
            progress(step + 1, config.steps)
    encoder, bias, decoder, decoder_bias = (tensor.detach() for tensor in weights)
    return SparseDictionary(
        site,
        # f(h) = s f(h / s): the scale is folded into the biases.
        Encoder(encoder, scale * (bias - encoder @ decoder_bias), "topk", config.k),
        decoder,
        scale * decoder_bias,
    )


class _Weights(NamedTuple):
    encoder: torch.Tensor
    bias: torch.Tensor
    decoder: torch.Tensor
    decoder_bias: torch.Tensor


def _loss(
    weights: _Weights, batch: torch.Tensor, k: int, idle: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared error with the auxiliary loss, and which features are active."""
    before = (batch - weights.decoder_bias) @ weights.encoder.T + weights.bias
    features = _keep_largest(before, k)
    residual = batch - features @ weights.decoder - weights.decoder_bias
    loss = (residual**2).sum(1).mean()
    is_active = (features.detach() > 0).any(0)
    is_dead = idle >= DEAD_AFTER_TOKENS
    if n_dead := int(is_dead.sum()):
        # The dead features that would be largest learn the error that the others leave.
        among_dead = _keep_largest(
            before.masked_fill(~is_dead, -torch.inf), min(n_dead, batch.shape[1] // 2)
        )
        auxiliary = ((residual.detach() - among_dead @ weights.decoder) ** 2).sum(1).mean()
        loss = loss + AUXILIARY_WEIGHT * auxiliary
    return loss, is_active


def _keep_largest(before: torch.Tensor, k: int) -> torch.Tensor:
    top = before.topk(k, dim=-1)
    return torch.zeros_like(before).scatter(-1, top.indices, top.values.relu())


def assess_dictionary(
    dictionary: SparseDictionary, activations: torch.Tensor, *, rows: int = 4096
) -> DictionaryQuality:
    """Compute reconstruction and sparsity on activations.

    Args:
        dictionary: The dictionary.
        activations: `[tokens, width]`, other than those that it was trained on.
        rows: Number of tokens of a batch.
    """
    if len(activations) < 2:
        raise NotMeasurableError("a dictionary needs tokens to describe", hint="give 2 or more")
    variance = float(((activations - activations.mean(0)).double() ** 2).sum())
    if not variance > 0:
        raise NotMeasurableError("all activations are the same", hint="give other texts")
    error, active = 0.0, torch.zeros(dictionary.n_features, dtype=torch.float64)
    for part in activations.split(rows):
        error += float(((part - dictionary.reconstruct(part)).double() ** 2).sum())
        active += (dictionary.encode(part) > 0).double().sum(0)
    return DictionaryQuality(
        n_tokens=len(activations),
        variance_explained=1 - error / variance,
        l0=float(active.sum()) / len(activations),
        n_dead=int((active == 0).sum()),
    )
