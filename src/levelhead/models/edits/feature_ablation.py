"""Feature ablation: what some features of a sparse dictionary add is subtracted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, final

import torch

from levelhead.core.errors import LevelheadError, require_option
from levelhead.models.edits.base import (
    Edit,
    EditParts,
    TokenSelection,
    apply_to_tokens,
    describe_tokens,
    validate_tokens,
)
from levelhead.models.edits.dictionary import Encoder, SparseDictionary
from levelhead.models.edits.shift import validate_strength
from levelhead.models.sites import Site, validate_site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.canonical_json import Json


@final
@dataclass(frozen=True, eq=False)
class FeatureAblation(Edit):
    """Subtract the contributions of some features: h' = h - s sum_i f_i(h) d_i.

    The rest of the activation stays, with the part that the dictionary does not reconstruct, so
    that an ablation changes nothing where its features are not active. It is no affine map, and
    plain weights cannot express it.
    """

    site: Site
    _encoder: Encoder = field(repr=False)
    _rows: torch.Tensor = field(repr=False)
    """Numbers of the features among those of the encoder."""
    _decoder: torch.Tensor = field(repr=False)
    """`[ablated, width]` directions."""
    features: tuple[int, ...] = ()
    """Their numbers in the dictionary."""
    strength: float = 1.0
    tokens: TokenSelection = "all"
    kind: ClassVar[str] = "feature_ablation"

    @classmethod
    def of(
        cls,
        dictionary: SparseDictionary,
        features: Sequence[int],
        *,
        strength: float = 1.0,
        tokens: TokenSelection = "all",
    ) -> Self:
        """Ablate features of a dictionary, at its site.

        Args:
            dictionary: The dictionary.
            features: Numbers of the features, from 0.
            strength: Share of their contributions that is subtracted.
            tokens: The tokens that are edited.
        """
        numbers = tuple(dict.fromkeys(int(feature) for feature in features))
        if not numbers or min(numbers) < 0 or max(numbers) >= dictionary.n_features:
            raise LevelheadError(
                f"features {list(numbers)} of a dictionary of {dictionary.n_features}",
                hint=f"give numbers from 0 to {dictionary.n_features - 1}",
            )
        index = torch.tensor(numbers)
        encoder, rows = dictionary.encoder.select(index)
        return cls(
            validate_site(dictionary.site),
            # float64 on the CPU: the hash of an edit must not depend on where it was made.
            Encoder(
                _to_double(encoder.weight),
                _to_double(encoder.bias),
                encoder.activation,
                encoder.k,
                None if encoder.threshold is None else _to_double(encoder.threshold),
                encoder.normalization,
            ),
            rows,
            _to_double(dictionary.decoder[index]),
            numbers,
            validate_strength(strength),
            validate_tokens(tokens),
        )

    @property
    def sites(self) -> tuple[Site, ...]:  # type: ignore[override]  # a field there, derived here
        """The site, as a tuple of one."""
        return (self.site,)

    @property
    def directions(self) -> torch.Tensor:
        """`[ablated, width]` directions in float64. A copy, because edits are frozen."""
        return self._decoder.clone()

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """Return the activation without what the features add."""
        return apply_to_tokens(activation, self.tokens, self._ablate)

    def _ablate(self, activation: torch.Tensor) -> torch.Tensor:
        features, scale = self._encoder(activation)
        active = features[..., self._rows.to(features.device)]
        removed = (self.strength * scale) * (active @ self._decoder.to(features))
        return activation - removed.to(activation)

    def matrix(self, site: Site, width: int) -> None:
        """Return None: features are no linear map of the activation."""
        return

    def width(self, site: Site) -> int:
        """Return the width of the directions."""
        return int(self._decoder.shape[1])

    @property
    def settings(self) -> Mapping[str, Json]:
        """Everything but tensors."""
        return {
            "activation": self._encoder.activation,
            "k": float(self._encoder.k),
            "normalization": self._encoder.normalization,
            "features": ",".join(map(str, self.features)),
            "strength": self.strength,
            "tokens": self.tokens,
        }

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Encoder, numbers of the features in it, and their directions."""
        encoder = self._encoder
        tensors = {
            "weight": encoder.weight.clone(),
            "bias": encoder.bias.clone(),
            "rows": self._rows.clone(),
            "decoder": self._decoder.clone(),
        }
        return (
            tensors
            if encoder.threshold is None
            else tensors | {"threshold": encoder.threshold.clone()}
        )

    @classmethod
    def from_parts(cls, parts: EditParts) -> Self:
        """Create it from its site, settings and tensors."""
        (site,) = parts.sites
        settings, tensors = cast("dict[str, Any]", dict(parts.settings)), dict(parts.tensors)
        missing = (set(_TENSORS) - set(tensors)) | (set(_SETTINGS) - set(settings))
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        rows, decoder = tensors["rows"], tensors["decoder"]
        weight, bias = tensors["weight"], tensors["bias"]
        # The same checks as those of a dictionary: a file is untrusted.
        encoder = Encoder(
            weight,
            bias,
            settings["activation"],
            int(settings["k"]),
            tensors.get("threshold"),
            settings["normalization"],
        )
        SparseDictionary(site, encoder, torch.zeros_like(weight), weight.new_zeros(weight.shape[1]))
        features = tuple(int(number) for number in str(settings["features"]).split(","))
        is_valid = (
            rows.dtype == torch.int64
            and rows.shape == decoder.shape[:1] == (len(features),)
            and decoder.shape[1:] == weight.shape[1:]
            and bool(((rows >= 0) & (rows < len(weight))).all())
            and bool(decoder.isfinite().all())
        )
        if not is_valid:
            raise ValueError("numbers and directions of the features do not fit the encoder")
        require_option("token selection", settings["tokens"], ("all", "first"))
        return cls(
            validate_site(site),
            encoder,
            rows,
            decoder,
            features,
            validate_strength(settings["strength"]),
            settings["tokens"],
        )

    def describe(self) -> str:
        """Describe the features, and the share that is subtracted."""
        named = ", ".join(map(str, self.features[:10]))
        more = f" and {len(self.features) - 10} more" if len(self.features) > 10 else ""
        return (
            f"{self.strength:g} times what the feature(s) {named}{more} of a sparse dictionary add "
            f"is subtracted{describe_tokens(self.tokens)}"
        )

    @classmethod
    def standalone_code(cls) -> str:
        """Return the code that computes the features and subtracts their contributions."""
        return _FEATURE_ABLATION_CODE

    # By hash: the == of tensors is elementwise and has no truth value.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureAblation) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)


_TENSORS = ("weight", "bias", "rows", "decoder")
_SETTINGS = ("activation", "k", "normalization", "features", "strength", "tokens")
_FEATURE_ABLATION_CODE = """\
precise = part.to(torch.promote_types(part.dtype, torch.float32))
weight, bias, decoder = (
    tensors[f"{step['edit']}.{n}"].to(precise) for n in ("weight", "bias", "decoder")
)
scale = precise.new_ones(1)
if step["normalization"] == "constant_norm":
    scale = precise.norm(dim=-1, keepdim=True) / precise.shape[-1] ** 0.5
    precise = precise / scale
elif step["normalization"] == "layer_norm":
    precise = precise - precise.mean(-1, keepdim=True)
    scale = precise.std(-1, keepdim=True)
    precise = precise / (scale + 1e-5)
before = precise @ weight.T + bias
features = before.relu()
if step["activation"] == "topk":
    top = before.topk(int(step["k"]), dim=-1)
    features = torch.zeros_like(before).scatter(-1, top.indices, top.values.relu())
elif step["activation"] == "jumprelu":
    features = features * (before > tensors[f"{step['edit']}.threshold"].to(before))
active = features[..., tensors[f"{step['edit']}.rows"]]
part = part - (step["strength"] * scale * (active @ decoder)).to(x)
"""


def _to_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", torch.float64, copy=True)
