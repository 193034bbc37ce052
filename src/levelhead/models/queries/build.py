"""Build queries from texts: the rows to run, and the tokens to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from levelhead.core.errors import LevelheadError, UnknownNameError
from levelhead.models.inputs.tokenizer import TokenRow, UnreadableTextError
from levelhead.models.queries.query import (
    AttentionRows,
    ClassLogProbs,
    HiddenStates,
    LogProbs,
    NormWeightedAttention,
    Query,
    RegressionOutput,
    ScoredPosition,
)
from levelhead.models.sites import Site, overlaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.models.editable_model import EditableModel
    from levelhead.models.inputs.tokenizer import EncodedText, Span, Tokens
    from levelhead.models.queries.query import OutputStage

Pooling = Literal["mean", "first", "last"]
"""How the tokens of a sentence become one vector."""
QueryWithCounts = tuple[Query, list[int]]
"""A query, and the number of tokens that each of its items sums over."""


def build_lm_embedding_query(
    lm: EditableModel, texts: Sequence[str], spans: Sequence[Span] | None, pooling: Pooling | None
) -> Query:
    """Build a query of the last hidden states of words or sentences."""
    return build_lm_hidden_states_query(lm, texts, (), spans, pooling)


def build_lm_hidden_states_query(
    lm: EditableModel,
    texts: Sequence[str],
    sites: Sequence[Site],
    spans: Sequence[Span] | None,
    pooling: Pooling | None,
) -> Query:
    """Build a query of activations of words or sentences.

    Args:
        lm: Model.
        texts: Texts.
        sites: Sites; empty: the last hidden state.
        spans: For each text, the first character of a word and the one after its last; None:
            sentences.
        pooling: How a sentence becomes one vector.
    """
    _forbid_merged_sites(lm, sites, spans, pooling)
    encoded = lm.tokens.encode(texts)
    if spans is None:
        tokens = tuple(_pooled_positions(lm, encoded_text, pooling) for encoded_text in encoded)
    else:
        tokens = _positions_at_spans(lm.tokens, encoded, texts, spans)
    stage: OutputStage = "hidden"
    # The pooled vector is a head's input: the pass must go on to that head.
    if any(site.stream == "pooled" for site in sites):
        model_class = lm.layout.model_class
        stage = (
            "classifier"
            if model_class.classifier
            else "next_sentence"
            if model_class.next_sentence
            else stage
        )
    return Query(_rows(encoded), HiddenStates(tokens, tuple(sites), stage))


def build_lm_attention_query(
    lm: EditableModel, texts: Sequence[str], spans: Sequence[Span], *, weighted: bool = False
) -> Query:
    """Build a query of the attention from a word of each text to all tokens.

    Args:
        lm: Model.
        texts: Texts.
        spans: For each text, the first character of a word and the one after its last.
        weighted: Also return attention times the norm of the value vector that it moves.
    """
    encoded = lm.tokens.encode(texts)
    tokens = _positions_at_spans(lm.tokens, encoded, texts, spans)
    readout = NormWeightedAttention(tokens, lm.layout.layers) if weighted else AttentionRows(tokens)
    return Query(_rows(encoded), readout)


def build_lm_next_sentence_query(lm: EditableModel, pairs: Sequence[tuple[str, str]]) -> Query:
    """Build a query of the probability that one text follows another."""
    encoded = lm.tokens.encode(pairs)
    # `encode` accepts single texts too, and the head would score them without a warning.
    if not all(1 in encoded_text.text_indices for encoded_text in encoded):
        raise LevelheadError(
            "a single text is given instead of a pair", hint="give (first, second)"
        )
    return Query(_rows(encoded), ClassLogProbs("next_sentence"))


def build_lm_classify_query(lm: EditableModel, texts: Sequence[str | tuple[str, str]]) -> Query:
    """Build a query of the classifier's class probabilities."""
    return Query(_rows(lm.tokens.encode(texts)), ClassLogProbs("classifier"))


def build_lm_regress_query(lm: EditableModel, texts: Sequence[str | tuple[str, str]]) -> Query:
    """Build a query of the number that a regression model predicts."""
    return Query(_rows(lm.tokens.encode(texts)), RegressionOutput())


def build_lm_causal_log_prob_query(
    lm: EditableModel,
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]] | None,
    positions_by_text: Sequence[Sequence[int]] | None = None,
) -> QueryWithCounts:
    """Build a query of a causal model's log-probability; a token is read at the position before it.

    Args:
        lm: Causal model.
        texts: Texts.
        spans: Spans to score in each text; None: the full text.
        positions_by_text: Positions of the tokens to score, instead of spans.
    """
    encoded = lm.tokens.encode(texts)
    candidate_positions = (
        _scored_positions(lm.tokens, encoded, texts, spans)
        if positions_by_text is None
        else positions_by_text
    )
    # The first token has no token before it, so a causal model gives it no probability.
    target_positions = [sorted(i for i in positions if i > 0) for positions in candidate_positions]
    _require_scored(target_positions, texts)
    targets = tuple(
        tuple(ScoredPosition(i - 1, (encoded_text.row.ids[i],), (0,)) for i in positions)
        for encoded_text, positions in zip(encoded, target_positions, strict=True)
    )
    # Rows end before the last scored token: nothing is read at it or after it.
    rows = tuple(
        TokenRow(
            encoded_text.row.ids[: positions[-1]],
            encoded_text.row.token_types and encoded_text.row.token_types[: positions[-1]],
        )
        for encoded_text, positions in zip(encoded, target_positions, strict=True)
    )
    return Query(rows, LogProbs(targets, columns=1)), [
        len(positions) for positions in target_positions
    ]


def build_lm_pseudo_log_likelihood_query(
    lm: EditableModel,
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]] | None,
    positions_by_text: Sequence[Sequence[int]] | None = None,
) -> QueryWithCounts:
    """Build a query of a masked model's pseudo-log-likelihood (Salazar et al. 2020).

    It has one row for every scored token, with that token masked.

    Args:
        lm: Masked model.
        texts: Texts.
        spans: Spans to score in each text; None: the full text.
        positions_by_text: Positions of the tokens to score, instead of spans.
    """
    encoded = lm.tokens.encode(texts)
    target_positions = (
        _scored_positions(lm.tokens, encoded, texts, spans)
        if positions_by_text is None
        else positions_by_text
    )
    _require_scored(target_positions, texts)
    rows, targets, items, mask = [], [], [], lm.tokens.mask
    for item, (encoded_text, positions) in enumerate(zip(encoded, target_positions, strict=True)):
        for i in positions:
            ids = encoded_text.row.ids
            rows.append(encoded_text.row._replace(ids=(*ids[:i], mask, *ids[i + 1 :])))
            targets.append((ScoredPosition(i, (encoded_text.row.ids[i],), (0,)),))
            items.append(item)
    query = Query(tuple(rows), LogProbs(tuple(targets), columns=1), tuple(items))
    return query, [len(positions) for positions in target_positions]


def _rows(encoded: Sequence[EncodedText]) -> tuple[TokenRow, ...]:
    return tuple(encoded_text.row for encoded_text in encoded)


def _pooled_positions(
    lm: EditableModel, encoded: EncodedText, pooling: Pooling | None
) -> tuple[int, ...]:
    word_positions = encoded.word_positions()
    positions_of_pooling = {
        "mean": word_positions,
        "first": (0,),
        "last": (len(encoded.row.ids) - 1,),
    }
    # Only a decoder's last token attends to the full text; encoders are trained to pool the first.
    default = "last" if lm.is_causal else "first"
    if (pooling_name := pooling or default) not in positions_of_pooling:
        raise UnknownNameError("pooling", str(pooling_name), positions_of_pooling)
    return positions_of_pooling[pooling_name]


def _positions_at_spans(
    tokens: Tokens, encoded: Sequence[EncodedText], texts: Sequence[str], spans: Sequence[Span]
) -> tuple[tuple[int, ...], ...]:
    _check_same_length(texts, spans)
    return tuple(
        tokens.positions_of_word(encoded_text, span, text)
        for encoded_text, span, text in zip(encoded, spans, texts, strict=True)
    )


def _scored_positions(
    tokens: Tokens,
    encoded: Sequence[EncodedText],
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]] | None,
) -> list[list[int]]:
    if spans is None:
        # Unknown tokens have the same score for all words, which would look like parity.
        for encoded_text, text in zip(encoded, texts, strict=True):
            tokens.require_known(encoded_text, encoded_text.word_positions(), text)
        return [list(encoded_text.word_positions()) for encoded_text in encoded]
    _check_same_length(texts, spans)
    return [
        sorted(
            {i for span in text_spans for i in tokens.positions_of_word(encoded_text, span, text)}
        )
        for encoded_text, text_spans, text in zip(encoded, spans, texts, strict=True)
    ]


def _require_scored(positions_by_text: Sequence[Sequence[int]], texts: Sequence[str]) -> None:
    for i, positions in enumerate(positions_by_text):
        if not positions:
            raise UnreadableTextError(
                f"no token of text {i} can be scored: {texts[i]!r:.60}",
                hint="leave it out, or load a causal model with bos='always'",
            )


def _forbid_merged_sites(
    lm: EditableModel, sites: Sequence[Site], spans: Sequence[Span] | None, pooling: Pooling | None
) -> None:
    """Raise if a query reads a site whose edit was merged into the map that reads the site.

    The activation there is still the base's, so the edit would seem to have no effect. In the last
    layer, this concerns the state of the first token, which the pooler reads.
    """
    last, hint = Site("block_out", lm.layout.layers - 1), "read it from the model before merging"
    is_first_token = spans is None and (pooling or ("last" if lm.is_causal else "first")) == "first"
    if (
        last in lm.merged_sites
        and is_first_token
        and (not sites or last in sites or Site("pooled") in sites)
    ):
        raise LevelheadError(
            "the edit of the first token was merged into the pooler; its hidden state is still the "
            "base's",
            hint=hint,
        )
    for site in sites:
        if any(
            site.stream != "block_out" and overlaps(site, merged_site)
            for merged_site in lm.merged_sites
        ):
            raise LevelheadError(
                f"an edit was merged into the weights that read {site}; the activation there is "
                "still the base's",
                hint=hint,
            )


def _check_same_length(texts: Sequence[str], spans: Sequence[object]) -> None:
    if len(texts) != len(spans):
        raise LevelheadError(
            f"{len(texts)} texts and {len(spans)} spans", hint="give one for each text"
        )
