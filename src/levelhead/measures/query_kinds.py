"""Query kinds: builders that turn the queries of a measure into forward passes of a model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from levelhead.measures.generation.text_queries import (
    Answers,
    GenerationQuery,
    SampledText,
    ServedGenerationQuery,
    forbid_unknown_words,
    make_generation_query,
    make_sampling_query,
)
from levelhead.models.inputs.chat import ChatFormat
from levelhead.models.queries import build, choices, cloze
from levelhead.models.serving.served_model import ServedModel, UnsupportedOverHttpError
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.measures.items import QueryArgs, QueryKind, QuerySet
    from levelhead.models.lm import LM
    from levelhead.models.queries.query import Query

    Settings = Mapping[str, Any]


class HttpQuery(NamedTuple):
    """A query to a model behind HTTP, which is a request instead of a forward pass."""

    request: Callable[[], torch.Tensor]

    def run(self, lm: LM) -> torch.Tensor:
        """`[n, r]` answers of the server."""
        return self.request()


class LocalQuery(NamedTuple):
    """A query of a local model, with columns that are counted instead of computed."""

    query: Query
    extra_columns: torch.Tensor | None = None
    """`[n, c]` additional columns, such as the number of scored tokens."""
    n_columns: int | None = None
    """Number of columns to keep; a query that fills blanks has a spare one."""

    def run(self, lm: LM) -> torch.Tensor:
        """`[n, r]` answers of the model."""
        return self.join_columns(lm.run(self.query))

    def join_columns(self, values: torch.Tensor) -> torch.Tensor:
        """`[n, r]`: computed columns, followed by counted ones."""
        flat = values.flatten(1)[:, : self.n_columns]
        return (
            flat
            if self.extra_columns is None
            else torch.cat([flat, self.extra_columns.to(flat)], dim=1)
        )


ModelQuery = LocalQuery | HttpQuery | SampledText | GenerationQuery | ServedGenerationQuery


def answer_query(query: ModelQuery, lm: LM) -> Answers:
    """Answers of a model to a query, with texts if these are the answers."""
    if isinstance(query, GenerationQuery | ServedGenerationQuery):
        return query.run_with_texts(lm)
    return Answers(query.run(lm))


def make_embedding_query(lm: LM, rows: Sequence[QueryArgs], settings: Settings) -> LocalQuery:
    """Query of (text, start, end): the vector of a word; or of (text,): of the sentence."""
    texts = [str(row[0]) for row in rows]
    spans: Any = None if len(rows[0]) == 1 else [(row[1], row[2]) for row in rows]
    layer = settings.get("layer")
    sites = [] if layer is None else [Site("block_out", layer)]
    for site in sites:
        lm.layout.require_site(site)
    query = build.build_lm_hidden_states_query(lm, texts, sites, spans, settings.get("pooling"))
    # A word's context may contain unknown words; a sentence's vector depends on all of its words.
    return _require_known_words(lm, query) if spans is None else LocalQuery(query)


def make_next_sentence_query(lm: LM, rows: Sequence[QueryArgs], settings: Settings) -> LocalQuery:
    """Query of (first, second): log-probabilities that the second follows, and that it does not."""
    return _require_known_words(
        lm,
        build.build_lm_next_sentence_query(
            lm, [(str(first), str(second)) for first, second in rows]
        ),
    )


def make_classification_query(lm: LM, rows: Sequence[QueryArgs], settings: Settings) -> LocalQuery:
    """Query of (text,) or (first, second): log-probabilities of the classifier's classes."""
    texts: Any = [row[0] if len(row) == 1 else (row[0], row[1]) for row in rows]
    return _require_known_words(lm, build.build_lm_classify_query(lm, texts))


def make_regression_query(lm: LM, rows: Sequence[QueryArgs], settings: Settings) -> LocalQuery:
    """Query of (text,) or (first, second): the score that a regression model predicts."""
    texts: Any = [row[0] if len(row) == 1 else (row[0], row[1]) for row in rows]
    return _require_known_words(lm, build.build_lm_regress_query(lm, texts))


def make_fill_query(
    lm: LM | ServedModel, rows: Sequence[QueryArgs], settings: Settings
) -> LocalQuery | HttpQuery:
    """Query of (text,): log-probabilities of the settings' words in its blank.

    (text, span or null): the same, with the characters of the span masked. With the setting "best",
    the most likely tokens follow, as in `make_top_k_query`.
    """
    words = list(settings["words"])
    hidden: Any = [row[1] if len(row) > 1 else None for row in rows]
    is_before_hidden = settings.get("prior") == "before hidden"
    texts = [str(row[0]) for row in rows]
    top_k = settings.get("best", 0)
    if isinstance(lm, ServedModel):
        # Raises an error for an invalid text before the first probability is requested.
        lm.split_at_blanks(texts, words)
        return HttpQuery(partial(lm.fill, texts, words, top_k=top_k))
    query = cloze.build_lm_fill_words_query(
        lm, texts, words, hidden, use_kurita_position=is_before_hidden, top_k=top_k
    )
    return _require_known_words(lm, query)._replace(n_columns=len(words) + 2 * top_k)


def make_word_score_query(lm: LM, rows: Sequence[QueryArgs], settings: Settings) -> LocalQuery:
    """Query of (text, word): summed probabilities of the word's tokens, and their number."""
    texts, words = ([str(row[i]) for row in rows] for i in (0, 1))
    query, counts = cloze.build_lm_score_word_query(lm, texts, words)
    return _require_known_words(lm, query)._replace(extra_columns=torch.tensor(counts)[:, None])


def make_top_k_query(lm: LM, rows: Sequence[QueryArgs], settings: Settings) -> LocalQuery:
    """Query of (text,): the k most likely tokens of its blank, then their log-probabilities."""
    return _require_known_words(
        lm, cloze.build_lm_top_k_query(lm, [str(text) for (text,) in rows], settings["k"])
    )


def make_text_score_query(
    lm: LM | ServedModel, rows: Sequence[QueryArgs], settings: Settings
) -> LocalQuery | HttpQuery:
    """Query of (text, spans or null): log-probability, and the number of tokens it sums over.

    Spans are ranges of characters, or, with the setting "by": "token", positions of tokens.
    """
    if isinstance(lm, ServedModel):
        if any(row[1] is not None for row in rows):
            raise UnsupportedOverHttpError(
                "parts of a text cannot be scored behind HTTP", hint="load the model's weights"
            )
        texts = [str(row[0]) for row in rows]
        lm.tokenize_all(texts)
        for text in texts:
            lm.scorable_tokens(text)
        return HttpQuery(lambda: torch.stack(lm.log_prob(texts), dim=1))
    spans: Any = None if rows[0][1] is None else [row[1] for row in rows]
    build_scored = (
        build.build_lm_causal_log_prob_query
        if lm.layout.model_class.causal
        else build.build_lm_pseudo_log_likelihood_query
    )
    by_token = settings.get("by") == "token"
    span_options = {"spans": None, "positions_by_text": spans} if by_token else {"spans": spans}
    # The number of scored tokens is a second column: values are sums, and some protocols average.
    query, counts = build_scored(lm, [str(row[0]) for row in rows], **span_options)
    return _require_known_words(lm, query)._replace(extra_columns=torch.tensor(counts)[:, None])


def make_choice_query(
    lm: LM | ServedModel, rows: Sequence[QueryArgs], settings: Settings
) -> LocalQuery | HttpQuery:
    """Query of (request, options): log-probability of each option, then their numbers of tokens."""
    chat_format = ChatFormat.from_settings(settings["chat"])
    answer_start = str(settings.get("answer_start", ""))
    requests = [str(row[0]) for row in rows]
    if isinstance(lm, ServedModel):
        prompts = lm.format_requests(requests, chat_format, answer_start)
    else:
        chat_format = chat_format.after_system(lm.system_prompt)
        prompts = [
            chat_format.format_request(lm.tokens, request, answer_start) for request in requests
        ]
    # A space before an option, unless the prompt ends with one: the option is then tokenized as
    # inside a text.
    options = [
        [
            str(option) if prompt[-1:].isspace() else f" {option}"
            for option in cast("Sequence[str]", row[1])
        ]
        for prompt, row in zip(prompts, rows, strict=True)
    ]
    if isinstance(lm, ServedModel):
        placed = lm.place_options(prompts, options)
        return HttpQuery(lambda: torch.cat([lm.score_choices(placed), placed.token_counts], dim=1))
    query, counts = choices.build_lm_choose_query(lm, prompts, options)
    return _require_known_words(lm, query)._replace(extra_columns=counts, n_columns=counts.shape[1])


def _require_known_words(lm: LM, query: Query) -> LocalQuery:
    """Raise an error for texts with an unknown word."""
    forbid_unknown_words(lm, query.rows)
    return LocalQuery(query)


QUERY_KINDS: dict[QueryKind, Callable[[LM, Sequence[QueryArgs], Settings], ModelQuery]] = {
    "embed": make_embedding_query,
    "follows": make_next_sentence_query,
    "classify": make_classification_query,
    "rate": make_regression_query,
    "fill": make_fill_query,
    "put": make_word_score_query,
    "top": make_top_k_query,
    "score": make_text_score_query,
    "choose": make_choice_query,
    "sample": make_sampling_query,
    "generate": make_generation_query,
}
"""Builder of each kind of query: its arguments (settings) -> columns of its answer.

- `embed`: text, or text, start and end of a word (`layer`; `pooling` of a text) -> the vector
- `follows`: two texts -> log-probability that the second follows, and that it does not
- `classify`: a text or two -> log-probability of each class
- `rate`: a text or two -> the predicted score
- `fill`: text with a blank, or text and span to mask (`words`, `best`, `prior`) -> log-probability
  of each word; then the `best` likeliest tokens, then their log-probabilities
- `put`: text with a blank, word -> summed probability of the word's tokens, number of tokens
- `top`: text with a blank (`k`) -> the k likeliest tokens, then their log-probabilities
- `score`: text, spans or null (`by`) -> log-probability, number of scored tokens
- `choose`: request, options (`chat`, `answer_start`) -> log-probability of each option, then the
  number of tokens of each
- `sample`: prompt, number of the sample (`words`, `phrases`, `tokens`, `temperature`, `top_p`,
  `seed`) -> position of the first word of each list, whether it is a refusal, length, whether it
  ended, then the token ids
- `generate`: request, number of the sample (`chat`, `answer_start`, `max_tokens`, `temperature`,
  `top_p`, `seed`, `stop`) -> number of tokens, whether the text ended, number of tokens of the
  prompt; and the text (`Responses.texts`)
"""
QUERIES_PER_SHARD: dict[QueryKind, int] = {
    "embed": 512,
    "follows": 512,
    "classify": 512,
    "rate": 512,
    "fill": 128,
    "put": 256,
    "top": 512,
    "score": 64,
    "choose": 128,
    "sample": 32,
    "generate": 32,
}
"""Approximate number of queries in a shard: a few seconds of work, lost if it is interrupted."""
MASKED_ROWS_PER_TEXT = 8
"""Factor for shards of causal models: a masked model needs one row for each token of a text, a
causal model one row for the text."""


SERVED_QUERY_KINDS: tuple[QueryKind, ...] = ("fill", "score", "choose", "generate")
"""Kinds of queries that a model behind HTTP can answer; "score" only for complete texts."""
QUERIES_PER_SERVED_SHARD = 16
"""Number of queries in a shard of a model behind HTTP: what is lost if a server or a budget ends,
and the steps of the progress."""


def shard_size(lm: LM | ServedModel, query_kind: QueryKind) -> int:
    """Number of queries in a shard; larger shards allow batches of texts of similar length."""
    if isinstance(lm, ServedModel):
        return QUERIES_PER_SERVED_SHARD
    return QUERIES_PER_SHARD[query_kind] * (
        MASKED_ROWS_PER_TEXT if query_kind == "score" and lm.is_causal else 1
    )


def check_answerable(lm: LM | ServedModel, query_sets: Sequence[QuerySet]) -> None:
    """Raise an error, before any request, if a model behind HTTP cannot answer some queries.

    Raises:
        UnsupportedOverHttpError: the queries need the weights of the model.
        NotMeasurableError: the server reports no log-probabilities.
    """
    if not isinstance(lm, ServedModel):
        return
    for query_set in query_sets:
        kind = query_set.query_kind
        if kind not in SERVED_QUERY_KINDS:
            raise UnsupportedOverHttpError(
                f"a model {lm.place} answers no queries of the kind {kind!r}",
                hint="load the model's weights",
            )
        queries = (query for item in query_set.items for query in item.queries)
        if kind == "score" and any(query[1] is not None for query in queries):
            raise UnsupportedOverHttpError(
                f"parts of a text cannot be scored {lm.place}", hint="load the model's weights"
            )
        if kind != "generate":
            lm.require_log_probs()
