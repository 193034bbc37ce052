"""Sparse dictionaries: an activation as a sum of few directions (sparse autoencoders).

Bricken et al. 2023 ("Towards monosemanticity"), Cunningham et al. 2024. With the activation h, or h
scaled as `normalization` says, feature i is active by

    f_i = phi(<e_i, h> + b_i),        and        h is about sum_i f_i d_i + c.

phi is a ReLU, the ReLU of the k largest (Gao et al. 2024, section 2.3), or a ReLU that is 0 up to a
threshold (JumpReLU; Rajamanoharan et al. 2024).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, final, get_args

import torch

from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import LevelheadError, require_option
from levelhead.models.sites import Site, validate_site

if TYPE_CHECKING:
    from collections.abc import Mapping

ActivationFunction = Literal["relu", "topk", "jumprelu"]
Normalization = Literal["none", "constant_norm", "layer_norm"]
"""Scaling before encoding, undone after decoding: none; to the length of the square root of the
width; or to mean 0 and standard deviation 1."""
STD_EPSILON = 1e-5


@final
@dataclass(frozen=True, eq=False)
class Encoder:
    """The map from activations to features, of all or of some features."""

    weight: torch.Tensor = field(repr=False)
    """`[features, width]`."""
    bias: torch.Tensor = field(repr=False)
    """`[features]`."""
    activation: ActivationFunction = "relu"
    k: int = 0
    """Number of active features of `topk`."""
    threshold: torch.Tensor | None = field(default=None, repr=False)
    """`[features]` of `jumprelu`."""
    normalization: Normalization = "none"

    def __call__(self, activation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features `[..., features]`, and the factor `[..., 1]` of what they decode to.

        Args:
            activation: `[..., width]`.
        """
        # At least float32: in bfloat16 rounding alone would decide which features are active.
        precise = activation.to(torch.promote_types(activation.dtype, torch.float32))
        scale = precise.new_ones(1)
        if self.normalization == "constant_norm":
            scale = precise.norm(dim=-1, keepdim=True) / precise.shape[-1] ** 0.5
            precise = precise / scale
        elif self.normalization == "layer_norm":
            precise = precise - precise.mean(-1, keepdim=True)
            scale = precise.std(-1, keepdim=True)
            precise = precise / (scale + STD_EPSILON)
        before = precise @ self.weight.to(precise).T + self.bias.to(precise)
        return self._activate(before), scale

    def _activate(self, before: torch.Tensor) -> torch.Tensor:
        if self.activation == "topk":
            top = before.topk(self.k, dim=-1)
            return torch.zeros_like(before).scatter(-1, top.indices, top.values.relu())
        if self.threshold is None:
            return before.relu()
        return before.relu() * (before > self.threshold.to(before))

    def select(self, features: torch.Tensor) -> tuple[Encoder, torch.Tensor]:
        """Return an encoder that is enough for some features, and their numbers in it."""
        # Which features are among the k largest depends on all of them.
        if self.activation == "topk":
            return self, features
        threshold = None if self.threshold is None else self.threshold[features]
        part = Encoder(
            self.weight[features],
            self.bias[features],
            self.activation,
            threshold=threshold,
            normalization=self.normalization,
        )
        return part, torch.arange(len(features))


@final
@dataclass(frozen=True, eq=False)
class SparseDictionary:
    """A sparse autoencoder of the activations at a site."""

    site: Site
    encoder: Encoder
    decoder: torch.Tensor = field(repr=False)
    """`[features, width]` directions."""
    decoder_bias: torch.Tensor = field(repr=False)
    """`[width]`."""

    def __post_init__(self) -> None:
        validate_site(self.site)
        encoder = self.encoder
        require_option("activation function", encoder.activation, get_args(ActivationFunction))
        require_option("normalization", encoder.normalization, get_args(Normalization))
        shape = tuple(encoder.weight.shape)
        shapes = {
            "encoder": (shape, tuple(self.decoder.shape)),
            "encoder bias": (tuple(encoder.bias.shape), shape[:1]),
            "decoder bias": (tuple(self.decoder_bias.shape), shape[1:]),
        }
        if encoder.threshold is not None:
            shapes["threshold"] = (tuple(encoder.threshold.shape), shape[:1])
        wrong = [name for name, (given, needed) in shapes.items() if given != needed]
        if len(shape) != 2 or 0 in shape or wrong:
            raise LevelheadError(
                f"tensors of a dictionary do not fit: {', '.join(wrong) or shape}",
                hint="give encoder and decoder as [features, width], biases as [features], [width]",
            )
        if not all(bool(tensor.isfinite().all()) for tensor in self.tensors.values()):
            raise LevelheadError("the dictionary holds NaN or infinity", hint="train it again")
        if (encoder.activation == "jumprelu") != (encoder.threshold is not None):
            raise LevelheadError(
                "only jumprelu has thresholds, and it needs them", hint="give threshold, or relu"
            )
        if encoder.activation == "topk" and not 0 < encoder.k <= shape[0]:
            raise LevelheadError(
                f"{encoder.k} of {shape[0]} features cannot be active",
                hint="give k between 1 and the number of features",
            )

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.decoder)

    @property
    def width(self) -> int:
        """Width of the activations."""
        return int(self.decoder.shape[1])

    def encode(self, activation: torch.Tensor) -> torch.Tensor:
        """Return `[..., features]` of activations `[..., width]`."""
        return self.encoder(activation)[0]

    def reconstruct(self, activation: torch.Tensor) -> torch.Tensor:
        """Return the activations that the features decode to."""
        features, scale = self.encoder(activation)
        decoded = features @ self.decoder.to(features) + self.decoder_bias.to(features)
        if self.encoder.normalization == "layer_norm":
            mean = activation.to(features).mean(-1, keepdim=True)
            return (decoded * scale + mean).to(activation)
        return (decoded * scale).to(activation)

    def contributions(self, activation: torch.Tensor) -> torch.Tensor:
        """Return `[..., features]` lengths of what each feature adds to the activation."""
        features, scale = self.encoder(activation)
        lengths: torch.Tensor = torch.linalg.vector_norm(self.decoder.to(features), dim=1)
        return features * scale * lengths

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """All tensors, by name in files."""
        tensors = {
            "encoder.weight": self.encoder.weight,
            "encoder.bias": self.encoder.bias,
            "decoder.weight": self.decoder,
            "decoder.bias": self.decoder_bias,
        }
        threshold = self.encoder.threshold
        return tensors if threshold is None else tensors | {"encoder.threshold": threshold}

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of site, settings and tensors."""
        return content_hash(
            {
                "site": list(self.site),
                "activation": self.encoder.activation,
                "k": self.encoder.k,
                "normalization": self.encoder.normalization,
                "tensors": {
                    name: hashlib.sha256(
                        tensor.detach().cpu().double().contiguous().numpy().tobytes()
                    ).hexdigest()
                    for name, tensor in self.tensors.items()
                },
            }
        )
