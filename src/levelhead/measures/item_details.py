"""Content of items as a person reads it: the text of each query, and the labelled responses.

It is derived from the queries and the stored responses, so that it cannot differ from what the
metrics were computed from.
"""

from __future__ import annotations

import math
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from levelhead.core.results import ItemDetail, QueryDetail
from levelhead.models.inputs.tokenizer import MASK
from levelhead.models.loading.http_model import HttpModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.measures.items import QueryArgs, QueryKind
    from levelhead.measures.metric import Metric
    from levelhead.measures.responses import Responses
    from levelhead.models.lm import LM

MAX_DETAILS = 500
"""Items of a measurement whose content is recorded: a result must remain a file that opens."""
MAX_QUERIES = 4
"""Recorded queries of an item; the contexts of a word may be hundreds."""
MAX_RESPONSES = 10
"""Recorded responses of a query: the most probable ones; a lexicon has dozens of words."""
PAIR = " / "
"""Sign between the two texts of a pair."""


Query = TypeVar("Query")


class QueryLabels(NamedTuple):
    """Names of the columns of a query set's answers."""

    words: tuple[str, ...] = ()
    """Words that are scored in the blank."""
    classes: tuple[str, ...] = ()
    """Classes of a classifier, in the order of its columns."""
    groups: tuple[str, ...] = ()
    """Groups whose words are searched in generated text."""
    decode: Callable[..., str] = str
    """Function from token ids to text."""
    text: str = ""
    """The generated text, if texts are the answers."""


def describe_items(
    lm: LM, responses: Responses, values: Sequence[float], center: float, groups: tuple[str, ...]
) -> tuple[ItemDetail, ...]:
    """Describe the items that contribute most: those whose values are farthest from a center.

    Args:
        lm: The model that gave the responses.
        responses: Responses to the items that the metric samples.
        values: Value of each of these items.
        center: Value of an item that contributes nothing: see `neutral_value`.
        groups: The compared groups, if the measure names them.
    """
    if responses.query_kind is None:
        return ()
    describe, labels = DESCRIBERS[responses.query_kind], _query_labels(lm, responses, groups)
    answers = _answers_by_item(responses)
    # Ties by id, so that the recorded items do not depend on the order of the data.
    ranked = sorted(
        range(len(responses)), key=lambda i: (-abs(values[i] - center), responses.items[i].id)
    )
    return tuple(
        ItemDetail(
            responses.items[i].id,
            responses.items[i].group,
            tuple(
                describe(query, answer, labels._replace(text=text))
                for (query, answer), text in _select_queries(
                    list(
                        zip(
                            answers[i],
                            responses.texts[i] if responses.texts else repeat(""),
                            strict=False,
                        )
                    ),
                    is_spread=bool(responses.texts),
                )
            ),
        )
        for i in ranked[:MAX_DETAILS]
    )


def _select_queries(queries: list[Query], *, is_spread: bool) -> list[Query]:
    """The first queries of an item; or of texts, some of each part: groups follow each other."""
    if not is_spread or len(queries) <= MAX_QUERIES:
        return queries[:MAX_QUERIES]
    return [queries[i * len(queries) // MAX_QUERIES] for i in range(MAX_QUERIES)]


def neutral_value(
    metric: Metric, values: Sequence[float], value: float, parity: float | None
) -> float:
    """Value of an item that contributes nothing: parity, or the mean if parity is of another scale.

    Args:
        metric: The metric.
        values: Values of the items.
        value: Value of the metric.
        parity: Parity of the metric.
    """
    # Exchanging counterfactuals changes the sign of an item's value: 0 is its parity, also if the
    # metric is a share or a mean of the largest values.
    if metric.flips_signs:
        return 0.0
    mean = math.fsum(values) / len(values)
    # Only if the metric is the mean of its items is its parity on their scale.
    is_mean = math.isclose(mean, value, rel_tol=1e-6, abs_tol=1e-9)
    return parity if is_mean and parity is not None else mean


def _answers_by_item(responses: Responses) -> list[list[tuple[QueryArgs, list[float]]]]:
    """Queries and answers of each item, averaged or not."""
    answers: list[list[tuple[QueryArgs, list[float]]]] = [[] for _ in responses.items]
    if responses.owner:
        for owner, query, answer in zip(
            responses.owner, responses.queries, responses.answers, strict=True
        ):
            # Not all contexts of a word: converting thousands of vectors takes seconds.
            if len(answers[owner]) < MAX_QUERIES:
                answers[owner].append((query, answer.tolist()))
        return answers
    for item, row, item_values in zip(responses.items, answers, responses.values, strict=True):
        row += zip(item.queries, item_values.detach().tolist(), strict=True)
    return answers


def _query_labels(lm: LM | HttpModel, responses: Responses, groups: tuple[str, ...]) -> QueryLabels:
    def names(mapping: Mapping[str, object], *keys: str) -> tuple[str, ...]:
        return next((tuple(map(str, cast("Any", mapping[k]))) for k in keys if mapping.get(k)), ())

    classes: tuple[str, ...] = ()
    if responses.query_kind == "classify":
        # The user's names of the classes, if there are any; both are in the order of the columns.
        classes = names(responses.metadata, "classes", "labels") or tuple(lm.labels)
    # A model behind HTTP has no tokenizer here; it answers only queries that need none.
    decode: Any = str if isinstance(lm, HttpModel) else lm.tokens.tokenizer.decode
    return QueryLabels(
        names(responses.settings, "words") if responses.query_kind == "fill" else (),
        classes,
        groups,
        decode,
    )


def _label_responses(
    labels: Sequence[str], values: Sequence[float]
) -> tuple[tuple[str, float], ...]:
    """The largest values with their labels; ties in the order of the labels."""
    pairs = sorted(zip(labels, values, strict=False), key=lambda pair: -pair[1])
    # Six digits: what a reader needs, and the rest depends on the machine. A log-probability of
    # minus infinity has no place in JSON.
    return tuple(
        (label, float(f"{value:.6g}"))
        for label, value in pairs[:MAX_RESPONSES]
        if math.isfinite(value)
    )


def _join_texts(query: QueryArgs) -> str:
    return PAIR.join(text for text in query if isinstance(text, str))


def _describe_text(query: QueryArgs, answer: Sequence[float], labels: QueryLabels) -> QueryDetail:
    # A vector is no response that a person reads.
    return QueryDetail(_join_texts(query))


def _describe_next_sentence(
    query: QueryArgs, answer: Sequence[float], labels: QueryLabels
) -> QueryDetail:
    # The other column is the probability that it does not follow, which is 1 less this.
    return QueryDetail(
        _join_texts(query), _label_responses(("next sentence",), (math.exp(answer[0]),))
    )


def _describe_classes(
    query: QueryArgs, answer: Sequence[float], labels: QueryLabels
) -> QueryDetail:
    return QueryDetail(
        _join_texts(query), _label_responses(labels.classes, [*map(math.exp, answer)])
    )


def _describe_rating(query: QueryArgs, answer: Sequence[float], labels: QueryLabels) -> QueryDetail:
    return QueryDetail(_join_texts(query), _label_responses(("score",), answer))


def _describe_filled_blank(
    query: QueryArgs, answer: Sequence[float], labels: QueryLabels
) -> QueryDetail:
    text, span = str(query[0]), cast("Any", query[1] if len(query) > 1 else None)
    if span:
        text = text[: span[0]] + MASK + text[span[1] :]
    # The columns after those of the words hold the likeliest tokens, with ids instead of words.
    return QueryDetail(
        text, _label_responses(labels.words, [*map(math.exp, answer[: len(labels.words)])])
    )


def _describe_placed_word(
    query: QueryArgs, answer: Sequence[float], labels: QueryLabels
) -> QueryDetail:
    total, count = answer[:2]
    text = str(query[0]).replace(MASK, str(query[1]), 1)
    # One label for all words, which the text shows: else a data frame has a column for each.
    return QueryDetail(text, _label_responses(("word probability",), (total / max(count, 1),)))


def _describe_top_tokens(
    query: QueryArgs, answer: Sequence[float], labels: QueryLabels
) -> QueryDetail:
    k = len(answer) // 2
    tokens = [labels.decode([int(token)]) for token in answer[:k]]
    return QueryDetail(_join_texts(query), _label_responses(tokens, [*map(math.exp, answer[k:])]))


def _describe_scored_text(
    query: QueryArgs, answer: Sequence[float], labels: QueryLabels
) -> QueryDetail:
    return QueryDetail(str(query[0]), _label_responses(("log-probability",), answer[:1]))


def _describe_choice(query: QueryArgs, answer: Sequence[float], labels: QueryLabels) -> QueryDetail:
    options = [str(option) for option in cast("Sequence[str]", query[1])]
    # The columns after those of the options count their tokens.
    return QueryDetail(
        str(query[0]), _label_responses(options, [*map(math.exp, answer[: len(options)])])
    )


def _describe_sample(query: QueryArgs, answer: Sequence[float], labels: QueryLabels) -> QueryDetail:
    """The prompt with its continuation, and 1 for each group that it mentions."""
    *positions, _refusal, length, _ended = answer[: (n := len(labels.groups)) + 3]
    ids = [int(token) for token in answer[n + 3 :][: int(length)]]
    continuation = labels.decode(ids, skip_special_tokens=True)
    # Some tokenizers drop the space before the first token.
    space = " " if continuation[:1].isalnum() else ""
    mentions = [float(position >= 0) for position in positions]
    return QueryDetail(
        f"{query[0]}{space}{continuation}", _label_responses(labels.groups, mentions)
    )


def _describe_generated_text(
    query: QueryArgs, answer: Sequence[float], labels: QueryLabels
) -> QueryDetail:
    return QueryDetail(f"{query[0]}{PAIR}{labels.text}", _label_responses(("tokens",), answer[:1]))


DESCRIBERS: dict[QueryKind, Callable[[QueryArgs, Sequence[float], QueryLabels], QueryDetail]] = {
    "embed": _describe_text,
    "follows": _describe_next_sentence,
    "classify": _describe_classes,
    "rate": _describe_rating,
    "fill": _describe_filled_blank,
    "put": _describe_placed_word,
    "top": _describe_top_tokens,
    "score": _describe_scored_text,
    "choose": _describe_choice,
    "sample": _describe_sample,
    "generate": _describe_generated_text,
}
"""Function that describes a query and its answer, by kind; `query_kinds` defines the columns."""
