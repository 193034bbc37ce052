"""Path patching: the effect of one part of a model on another, past all other parts.

Wang et al. 2023 ("Interpretability in the wild", section 3.1), Goldowsky-Dill et al. 2023. The
sender has its activation of the twin; all parts between sender and receiver keep those of the text,
so that only the residual stream carries the change. The receiver's activation is recorded, and the
text is run once more with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, final

import torch

from levelhead.core.errors import LevelheadError
from levelhead.locate.effects import DEFAULT_RESAMPLES, estimate_effects
from levelhead.locate.patching.interchange import (
    InterchangeEdit,
    RecordingReadout,
    Recordings,
    restore_order,
)
from levelhead.locate.patching.twins import build_twin_queries, make_twins
from levelhead.measures.metric import require_differentiable
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from levelhead.core.results import Estimate
    from levelhead.core.run_context import Inference, RunContext
    from levelhead.locate.patching.twins import TwinWords
    from levelhead.measures.base import Measure
    from levelhead.models.inputs.batching import Batch
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import Query
    from levelhead.models.sites import Stream, StreamLayer

SENDERS: tuple[Stream, ...] = ("embeddings", "head_out", "mlp_out")
RECEIVERS: tuple[Stream, ...] = ("head_out", "mlp_out")


class Path(NamedTuple):
    """A part that sends a change, and the part that receives it."""

    sender: Site
    receiver: Site

    def __str__(self) -> str:
        return f"{self.sender} to {self.receiver}"


@final
@dataclass(frozen=True)
class _Batch:
    """One batch of texts and twins, with their activations."""

    query: Query
    indices: Sequence[int]
    text: Batch
    of_text: Recordings
    of_twin: Recordings


def run_paths(lm: LM, query: Query, twin: Query, paths: Sequence[Path]) -> torch.Tensor:
    """Run a query, and the query with the change of each path: `[1 + paths, items, ...]`.

    Args:
        lm: The model, edited or not.
        query: Rows of the texts.
        twin: Rows of the twins: the same lengths in the same order.
        paths: Senders and receivers.
    """
    for path in paths:
        _check_path(lm, path)

    def run_batch(indices: Sequence[int]) -> torch.Tensor:
        with torch.no_grad():
            return torch.stack(list(_run_batch(lm, (query, twin), indices, paths)))

    return restore_order(query, lm.batching.run_batches(query.rows, run_batch))


def estimate_path_effects(
    lm: LM,
    measure: Measure,
    paths: Sequence[Path],
    *,
    twins: TwinWords,
    inference: Inference,
    context: RunContext,
) -> tuple[Estimate | None, ...]:
    """Estimate the effect of an exchange along each path, corrected as one family.

    Args:
        lm: The model.
        measure: The measure; its primary metric must be smooth.
        paths: Senders and receivers; chosen before, or the p-values ignore the choice.
        twins: The words that are exchanged.
        inference: Seed, resamples and level.
        context: Store, threads, progress and cancellation.
    """
    require_differentiable(measure.primary_metric)
    responses = measure.read(lm, context=context)[0]
    twin_items = make_twins(lm, measure, responses, twins)
    responses = responses.select(lambda item: item.id in twin_items.item_ids)
    queries = [query for item in responses.items for query in item.queries]
    query_set = twin_items.query_set
    query, twin = build_twin_queries(
        lm, query_set.query_kind, queries, twin_items.twins(queries), query_set.settings
    )
    answers = run_paths(lm, query.query, twin, paths)
    variants = [
        replace(
            responses,
            values=query.join_columns(values).double().view_as(responses.values),
        )
        for values in answers
    ]
    effects = estimate_effects(
        measure,
        variants[0],
        variants[1:],
        sign=-1,
        inference=inference,
        name="paths",
        n_resamples=max(99, min(inference.resamples, DEFAULT_RESAMPLES)),
    )
    if not (effects.standard_errors > 0).any():
        return (None,) * len(paths)
    return effects.to_estimates([str(path) for path in paths], unit=measure.primary_metric.unit)


def _run_batch(
    lm: LM, queries: tuple[Query, Query], indices: Sequence[int], paths: Sequence[Path]
) -> Iterator[torch.Tensor]:
    """Yield the values of the texts, and of the texts with each path's change."""
    every: set[StreamLayer] = {
        (stream, layer) for stream in RECEIVERS for layer in range(lm.layout.layers)
    }
    senders: set[StreamLayer] = {(path.sender.stream, path.sender.layer) for path in paths}
    recordings, values = [], []
    for query, recorded in zip(queries, (every, senders), strict=True):
        recordings.append(Recordings())
        readout = RecordingReadout(query.readout, frozenset(recorded), recordings[-1])
        values.append(lm.run_rows(replace(query, readout=readout), indices).values)
    yield values[0].cpu()
    batch = _Batch(
        queries[0], indices, lm.make_batch(queries[0], indices), recordings[0], recordings[1]
    )
    for path in paths:
        received = _record_receiver(lm, batch, path)
        edited = lm.edited(InterchangeEdit((path.receiver,), received))
        yield edited.run_rows(queries[0], indices, batch=batch.text).values.cpu()


def _record_receiver(lm: LM, batch: _Batch, path: Path) -> Recordings:
    """Record the receiver where the sender is that of the twin and all between them is frozen."""
    received = Recordings()
    place: StreamLayer = path.receiver.stream, path.receiver.layer
    readout = RecordingReadout(batch.query.readout, frozenset({place}), received)
    edits = [InterchangeEdit((path.sender,), batch.of_twin)]
    if frozen := tuple(_sites_between(lm, path)):
        edits.append(InterchangeEdit(frozen, batch.of_text))
    lm.edited(*edits).run_rows(
        replace(batch.query, readout=readout), batch.indices, batch=batch.text
    )
    return received


def _sites_between(lm: LM, path: Path) -> Iterator[Site]:
    """Yield the heads (of a layer together) and feed-forward layers between two parts."""
    sender, receiver = path
    # A layer's heads come before its feed-forward part; heads of one layer are side by side.
    first_heads = 0 if sender.stream == "embeddings" else sender.layer + 1
    first_mlp = sender.layer + 1 if sender.stream == "mlp_out" else sender.layer
    last_heads = receiver.layer if receiver.stream == "mlp_out" else receiver.layer - 1
    for layer in range(lm.layout.layers):
        if first_heads <= layer <= last_heads:
            yield Site("head_out", layer)
        if first_mlp <= layer < receiver.layer:
            yield Site("mlp_out", layer)


def _check_path(lm: LM, path: Path) -> None:
    for site, streams in ((path.sender, SENDERS), (path.receiver, RECEIVERS)):
        lm.layout.require_site(site)
        if site.stream not in streams:
            raise LevelheadError(
                f"a path cannot begin or end at {site}", hint=f"choose from {', '.join(streams)}"
            )
    sender, receiver = path
    is_before = sender.stream == "embeddings" or (
        sender.layer < receiver.layer
        or (sender.layer == receiver.layer and (sender.stream, receiver.stream) == RECEIVERS)
    )
    if not is_before:
        raise LevelheadError(f"{receiver} does not read {sender}", hint="give a later receiver")
