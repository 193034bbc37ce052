"""From texts to Readings: which rows are run for a verb, and which tokens of them are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.models.inputs.tokenizer import NotReadable, Row
from levelhead.models.queries.query import (
    AttentionRows,
    Classes,
    LogProbs,
    Numbers,
    Reading,
    States,
    Target,
    WeightedRows,
)
from levelhead.models.sites import Site, meets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.inputs.tokenizer import Encoded, Span
    from levelhead.models.lm import LM, Pooling
    from levelhead.models.queries.query import Part

Scored = tuple[Reading, list[int]]
"""A reading, and how many tokens each of its items is the sum of."""


def embedding(
    lm: LM, texts: Sequence[str], spans: Sequence[Span] | None, pooling: Pooling | None
) -> Reading:
    """Last hidden states of words or sentences."""
    return states(lm, texts, (), spans, pooling)


def states(
    lm: LM,
    texts: Sequence[str],
    sites: Sequence[Site],
    spans: Sequence[Span] | None,
    pooling: Pooling | None,
) -> Reading:
    """Activations at sites (none: the last hidden state) of words or sentences."""
    _not_of_the_base(lm, sites, spans, pooling)
    encoded = lm.tokens.encode(texts)
    if spans is None:
        tokens = tuple(_pooled(lm, one, pooling) for one in encoded)
    else:
        tokens = _at_spans(lm, encoded, texts, spans)
    part: Part = "hidden"
    if any(site.stream == "pooled" for site in sites):
        row = lm.anatomy.cls
        part = "classifier" if row.classifier else "next_sentence" if row.next_sentence else part
    return Reading(_rows(encoded), States(tokens, tuple(sites), part))


def attention(
    lm: LM, texts: Sequence[str], spans: Sequence[Span], *, weighted: bool = False
) -> Reading:
    """The attention of a word of each text on all tokens; `weighted`: by what is moved, beside."""
    encoded = lm.tokens.encode(texts)
    tokens = _at_spans(lm, encoded, texts, spans)
    readout = WeightedRows(tokens, lm.anatomy.layers) if weighted else AttentionRows(tokens)
    return Reading(_rows(encoded), readout)


def follows(lm: LM, pairs: Sequence[tuple[str, str]]) -> Reading:
    """Whether one text follows another."""
    encoded = lm.tokens.encode(pairs)
    if not all(1 in one.texts for one in encoded):
        raise LevelheadError("a single text where a pair is wanted", mend="give (first, second)")
    return Reading(_rows(encoded), Classes("next_sentence"))


def classes(lm: LM, texts: Sequence[str | tuple[str, str]]) -> Reading:
    """The classifier's classes."""
    return Reading(_rows(lm.tokens.encode(texts)), Classes("classifier"))


def numbers(lm: LM, texts: Sequence[str | tuple[str, str]]) -> Reading:
    """The number that a model trained on scores foretells."""
    return Reading(_rows(lm.tokens.encode(texts)), Numbers())


def continuing(
    lm: LM,
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]] | None,
    places: Sequence[Sequence[int]] | None = None,
) -> Scored:
    """A causal model's log-probability: every token is read at the position before it."""
    encoded = lm.tokens.encode(texts)
    scored = _scored(lm, encoded, texts, spans) if places is None else places
    wanted = [sorted(i for i in one if i > 0) for one in scored]
    _check_scored(wanted, texts)
    targets = tuple(
        tuple(Target(i - 1, (one.row.ids[i],), (0,)) for i in positions)
        for one, positions in zip(encoded, wanted, strict=True)
    )
    # Nothing is read at the last token that is scored, nor behind it.
    rows = tuple(
        Row(one.row.ids[: positions[-1]], one.row.types and one.row.types[: positions[-1]])
        for one, positions in zip(encoded, wanted, strict=True)
    )
    return Reading(rows, LogProbs(targets, columns=1)), [len(positions) for positions in wanted]


def masking(
    lm: LM,
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]] | None,
    places: Sequence[Sequence[int]] | None = None,
) -> Scored:
    """A masked model's pseudo log-likelihood: a row for every token, with that token masked."""
    encoded = lm.tokens.encode(texts)
    wanted = _scored(lm, encoded, texts, spans) if places is None else places
    _check_scored(wanted, texts)
    rows, targets, items, mask = [], [], [], lm.tokens.mask
    for item, (one, positions) in enumerate(zip(encoded, wanted, strict=True)):
        for i in positions:
            ids = one.row.ids
            rows.append(one.row._replace(ids=(*ids[:i], mask, *ids[i + 1 :])))
            targets.append((Target(i, (one.row.ids[i],), (0,)),))
            items.append(item)
    reading = Reading(tuple(rows), LogProbs(tuple(targets), columns=1), tuple(items))
    return reading, [len(positions) for positions in wanted]


def _rows(encoded: Sequence[Encoded]) -> tuple[Row, ...]:
    return tuple(one.row for one in encoded)


def _pooled(lm: LM, encoded: Encoded, pooling: Pooling | None) -> tuple[int, ...]:
    words = encoded.words()
    ways = {
        "mean": words,
        "first": (0,),
        "last": (len(encoded.row.ids) - 1,),
    }
    default = "last" if lm.is_causal else "first"
    if (chosen := pooling or default) not in ways:
        raise UnknownName("pooling", str(chosen), ways)
    return ways[chosen]


def _at_spans(
    lm: LM, encoded: Sequence[Encoded], texts: Sequence[str], spans: Sequence[Span]
) -> tuple[tuple[int, ...], ...]:
    _same_length(texts, spans)
    return tuple(
        lm.tokens.at(one, span, text) for one, span, text in zip(encoded, spans, texts, strict=True)
    )


def _scored(
    lm: LM,
    encoded: Sequence[Encoded],
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]] | None,
) -> list[list[int]]:
    if spans is None:
        for one, text in zip(encoded, texts, strict=True):
            lm.tokens.known(one, one.words(), text)
        return [list(one.words()) for one in encoded]
    _same_length(texts, spans)
    return [
        sorted({i for span in own for i in lm.tokens.at(one, span, text)})
        for one, own, text in zip(encoded, spans, texts, strict=True)
    ]


def _check_scored(wanted: Sequence[Sequence[int]], texts: Sequence[str]) -> None:
    for i, positions in enumerate(wanted):
        if not positions:
            raise NotReadable(
                f"no token of text {i} can be scored: {texts[i]!r:.60}",
                mend="leave it out, or load a causal model with bos='always'",
            )


def _not_of_the_base(
    lm: LM, sites: Sequence[Site], spans: Sequence[Span] | None, pooling: Pooling | None
) -> None:
    """Refuse what folds into the maps that read it have left unedited: it would read as no effect.

    Of the last layer that is the first token's own state, which the pooler reads.
    """
    last, mend = Site("block_out", lm.anatomy.layers - 1), "read it from the model before baking"
    first = spans is None and (pooling or ("last" if lm.is_causal else "first")) == "first"
    if last in lm.as_base and first and (not sites or last in sites or Site("pooled") in sites):
        raise LevelheadError(
            "the first token's edit was folded into the pooler; its hidden state is the base's",
            mend=mend,
        )
    for site in sites:
        if any(site.stream != "block_out" and meets(site, own) for own in lm.as_base):
            raise LevelheadError(
                f"an edit was folded into the weights that read {site}; what stands there is the "
                "base's",
                mend=mend,
            )


def _same_length(texts: Sequence[str], spans: Sequence[object]) -> None:
    if len(texts) != len(spans):
        raise LevelheadError(
            f"{len(texts)} texts and {len(spans)} spans", mend="give one for each text"
        )
