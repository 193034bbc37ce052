"""Interchange of activations: run a text with some activations of its twin.

`run_interchanges` is exact: one forward pass from the patched layer for every site. Its linear
approximation is `compute_attributions` (attribution patching; Nanda 2023, Syed et al. 2023): with
z the activation of the text and z' that of its twin, the change of a readout by the exchange of z
is about (z' - z) dr/dz, for all sites at the cost of one forward pass of the twin and a forward and
a backward pass of the text. It is exact for a readout that is linear in z.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast, final

import torch

from levelhead.models.edits.base import Edit
from levelhead.models.queries.query import Readout
from levelhead.models.sites import PER_HEAD_STREAMS, Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from levelhead.core.canonical_json import Json
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import ForwardOutput, OutputStage, Query
    from levelhead.models.sites import Stream, StreamLayer

TokenChoice = Literal["all", "exchanged", "others"]
"""Tokens whose activations are exchanged: all, those that differ between the twins, or the others.
"""
Direction = Literal["indirect", "direct"]
"""indirect: the text with the site of its twin; direct: the twin with the site of the text."""


class Patch(NamedTuple):
    """Sites whose activations are exchanged together."""

    sites: tuple[Site, ...]
    direction: Direction = "indirect"

    @property
    def as_json(self) -> tuple[Json, ...]:
        """The patch as plain JSON."""
        return tuple(tuple(site) for site in self.sites), self.direction

    @classmethod
    def from_json(cls, values: Sequence[object]) -> Patch:
        """Read the patch from plain JSON."""
        sites, direction = cast("tuple[Sequence[Sequence[Any]], Direction]", values)
        return cls(tuple(Site(*site) for site in sites), direction)


class Recordings(dict["StreamLayer", torch.Tensor]):
    """Activations of one batch: `[rows, tokens, heads, width]`, or `[rows, tokens, width]`."""

    def at(self, site: Site) -> torch.Tensor:
        """The activation at a site, in the form in which an edit receives it."""
        activation = self[site.stream, site.layer]
        if site.stream not in PER_HEAD_STREAMS:
            return activation
        return activation.flatten(-2) if site.head is None else activation[..., site.head, :]


@final
@dataclass(frozen=True, eq=False)
class RecordingReadout(Readout):
    """Another readout, which also keeps the activations of some streams."""

    readout: Readout
    recorded: frozenset[StreamLayer]
    recordings: Recordings

    @property
    def output_stage(self) -> OutputStage:
        """That of the other readout."""
        return self.readout.output_stage

    @property
    def capture_sites(self) -> frozenset[StreamLayer]:
        """The streams, and what the other readout needs."""
        return self.recorded | self.readout.capture_sites

    def attention_query_weights(self, batch: Batch) -> torch.Tensor | None:
        """Those of the other readout."""
        return self.readout.attention_query_weights(batch)

    def __call__(self, output: ForwardOutput) -> torch.Tensor:
        """Keep the activations and compute the other readout."""
        self.recordings.update({place: output.captured[place].detach() for place in self.recorded})
        return self.readout(output)


@dataclass(frozen=True, eq=False)
class _TwinEdit(Edit):
    """Abstract: an edit by the activations of the twin, for measuring only, never saved."""

    sites: tuple[Site, ...]
    twin: Recordings
    kind: ClassVar[str] = "interchange"

    def matrix(self, site: Site, width: int) -> None:
        """None: it depends on the text."""
        return

    def width(self, site: Site) -> None:
        """None: the recordings are of the same model."""
        return

    @property
    def settings(self) -> Mapping[str, Json]:
        """Identity of the recordings: another batch has others."""
        return {"recordings": id(self.twin)}

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """None are stored."""
        return {}


@final
@dataclass(frozen=True, eq=False)
class InterchangeEdit(_TwinEdit):
    """Replace activations by those of the twin."""

    token_mask: torch.Tensor | None = None
    """`[rows, tokens]` whether a token's activation is replaced; None: all."""

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """Return the activation of the twin."""
        twin = self.twin.at(site).to(activation)
        if self.token_mask is None or activation.dim() == 2:
            return twin
        return torch.where(self.token_mask[..., None], twin, activation)


@final
@dataclass(frozen=True, eq=False)
class MixingEdit(_TwinEdit):
    """z + g (z' - z) with masks g of 0: their derivative is the attribution of the exchange."""

    masks: Mapping[Stream, torch.Tensor]
    """`[rows, layers, heads]` by stream (heads is 1 for streams without heads)."""
    token_mask: torch.Tensor | None = None

    def __call__(self, activation: torch.Tensor, site: Site) -> torch.Tensor:
        """Return the mixture, which is the activation itself while the masks are 0."""
        difference = self.twin.at(site).to(activation) - activation
        if self.token_mask is not None and activation.dim() > 2:
            difference = difference * self.token_mask[..., None]
        mask = self.masks[site.stream][:, site.layer].to(activation)
        factors = mask.repeat_interleave(activation.shape[-1] // mask.shape[-1], dim=-1)
        return activation + (factors if activation.dim() == 2 else factors[:, None]) * difference


def run_interchanges(
    lm: LM,
    query: Query,
    twin: Query,
    patches: Sequence[Patch],
    *,
    tokens: TokenChoice = "all",
) -> torch.Tensor:
    """Run a query, its twin, and the query or twin with each patch: `[2 + patches, items, ...]`.

    Args:
        lm: The model, edited or not.
        query: Rows of the texts.
        twin: Rows of the twins: the same lengths in the same order.
        patches: Sites that are exchanged together, one forward pass each.
        tokens: The tokens whose activations are exchanged.
    """

    def run_batch(indices: Sequence[int]) -> torch.Tensor:
        with torch.no_grad():
            return torch.stack(list(_run_batch(lm, (query, twin), indices, patches, tokens)))

    return restore_order(query, lm.batching.run_batches(query.rows, run_batch))


def restore_order(
    query: Query, batches: Iterable[tuple[Sequence[int], torch.Tensor]]
) -> torch.Tensor:
    """Join the values of batches, `[variants, rows of the batch, ...]`, in the order of the items.

    Args:
        query: The query, some of whose items may have several rows.
        batches: Numbers of the rows of each batch, and their values.
    """
    order: list[int] = []
    parts = []
    for indices, values in batches:
        order.extend(indices)
        parts.append(values)
    # Batches come longest rows first.
    rows = torch.cat(parts, dim=1)[:, torch.tensor(order).argsort()]
    if query.items is None:
        return rows
    totals = torch.zeros((len(rows), max(query.items) + 1, *rows.shape[2:]), dtype=rows.dtype)
    return totals.index_add(1, torch.tensor(query.items), rows)


def _run_batch(
    lm: LM,
    queries: tuple[Query, Query],
    indices: Sequence[int],
    patches: Sequence[Patch],
    tokens: TokenChoice,
) -> Iterable[torch.Tensor]:
    """Yield the values of the texts, of the twins, and of every patch."""
    batches = tuple(lm.make_batch(query, indices) for query in queries)
    token_mask = _choose_tokens(batches, tokens)
    # The source of an indirect effect is the twin (1), of a direct one the text itself (0).
    recorded: tuple[set[StreamLayer], set[StreamLayer]] = (set(), set())
    for patch in patches:
        source = 1 if patch.direction == "indirect" else 0
        recorded[source].update((site.stream, site.layer) for site in patch.sites)
    cached = (_resume_layers(lm, patches, "indirect"), _resume_layers(lm, patches, "direct"))
    recordings = (Recordings(), Recordings())
    outputs = []
    for number, query in enumerate(queries):
        readout = RecordingReadout(query.readout, frozenset(recorded[number]), recordings[number])
        outputs.append(
            lm.run_rows(
                replace(query, readout=readout),
                indices,
                cache_layers=cached[number],
                batch=batches[number],
            )
        )
        yield outputs[-1].values.cpu()
    for patch in patches:
        run = 0 if patch.direction == "indirect" else 1
        edit = InterchangeEdit(patch.sites, recordings[1 - run], token_mask)
        patched = lm.edited(edit).run_rows(
            queries[run],
            indices,
            # Nothing below the first patched layer changes: it is not run again.
            resume_from=outputs[run].layer_inputs.get(_first_layer(lm, patch)),
            batch=batches[run],
        )
        yield patched.values.cpu()


def compute_attributions(
    lm: LM,
    query: Query,
    twin: Query,
    cotangents: torch.Tensor,
    shapes: Mapping[Stream, tuple[int, int]],
    *,
    tokens: TokenChoice = "all",
) -> torch.Tensor:
    """Approximate the effects of all exchanges: `[rows, masks]`, streams concatenated; float64.

    Args:
        lm: The model, edited or not.
        query: Rows of the texts.
        twin: Rows of the twins.
        cotangents: `[rows, columns]` derivatives of the measure by the values of every row.
        shapes: Numbers of layers and heads of every stream whose sites are attributed.
        tokens: The tokens whose activations are exchanged.
    """
    sites = tuple(
        Site(stream, layer) for stream, (layers, _) in shapes.items() for layer in range(layers)
    )
    recorded = frozenset((site.stream, site.layer) for site in sites)
    n_masks = sum(layers * heads for layers, heads in shapes.values())
    total = torch.zeros(len(query.rows), n_masks, dtype=torch.float64)

    def attribute_batch(indices: Sequence[int]) -> torch.Tensor:
        batches = (lm.make_batch(query, indices), lm.make_batch(twin, indices))
        recordings = Recordings()
        with torch.no_grad():
            lm.run_rows(
                replace(twin, readout=RecordingReadout(twin.readout, recorded, recordings)),
                indices,
                batch=batches[1],
            )
        masks = {
            # Masks of every row: one backward pass then gives each row's share.
            stream: torch.zeros(len(indices), *shape, dtype=torch.float64, requires_grad=True)
            for stream, shape in shapes.items()
        }
        edit = MixingEdit(sites, recordings, masks, _choose_tokens(batches, tokens))
        with torch.enable_grad():
            values = lm.edited(edit).run_rows(query, indices, batch=batches[0]).values.flatten(1)
            # Without columns that are no answers, such as the spare one of a query with blanks.
            values = values[:, : cotangents.shape[1]]
        gradients = torch.autograd.grad(
            values,
            list(masks.values()),
            cotangents[list(indices)][:, : values.shape[1]].to(values),
        )
        return torch.cat([gradient.flatten(1) for gradient in gradients], dim=1).cpu()

    for indices, attributions in lm.batching.run_batches(query.rows, attribute_batch):
        total[list(indices)] = attributions
    return total


def _choose_tokens(batches: tuple[Batch, ...], tokens: TokenChoice) -> torch.Tensor | None:
    """Return `[rows, tokens]` whether a token is chosen; None: all are."""
    if tokens == "all":
        return None
    first, second = (batch.inputs["input_ids"] for batch in batches)
    differs = first != second
    return differs if tokens == "exchanged" else ~differs


def _first_layer(lm: LM, patch: Patch) -> int:
    """Return the layer where a forward pass with this patch can resume."""
    # An edit of a layer's output is applied after resuming at the next layer.
    layer = min(
        0 if site.stream == "embeddings" else site.layer + (site.stream == "block_out")
        for site in patch.sites
    )
    return min(layer, lm.layout.last_resumable_layer)


def _resume_layers(lm: LM, patches: Iterable[Patch], direction: Direction) -> frozenset[int]:
    layers = {_first_layer(lm, patch) for patch in patches if patch.direction == direction}
    return frozenset(layers - {0})
