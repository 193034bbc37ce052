"""Effects of a word list on a model: every pair of words with every target, in neutral frames.

Section 9 of Yang et al. 2025 asks for word lists that are tested before they are used. A pair of
group words (woman, man) is put into frames before each target (nurse). The reported changes are
those of the attention of the target on the group's word, and of the log-probability of the target.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple, final

import numpy as np
from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurableError
from levelhead.core.results import DroppedItem, Estimate, Precision, Provenance, Record
from levelhead.core.run_context import Inference
from levelhead.data.counterfactuals.templates import fill_carrier_frames, subject_phrase
from levelhead.explain.attention.attention_scores import read_attribute_attention
from levelhead.explain.attention.head_groups import make_provenance, validate_heads
from levelhead.explain.attention.pairs import AnnotatedSentence
from levelhead.measures.inference import holm_corrected
from levelhead.stats.means import t_test
from levelhead.stats.power import holm_detectable_effect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from levelhead.data.counterfactuals.templates import CarrierKind
    from levelhead.data.lexicons.lexicon import Lexicon, Term
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

    Values = NDArray[np.float64]

ATTENTION, MARGIN = "attention", "margin"
UNITS = {ATTENTION: "of the row's range", MARGIN: "nats"}


class WordEffect(Record):
    """Effect of one pair or one target: the mean over the others, with its interval over them."""

    word: str
    """A target, or a pair as first/second."""
    attention: Estimate
    margin: Estimate | None
    """Change of the target's log-probability; None if the model has no head over the vocabulary."""

    @property
    def has_no_effect(self) -> bool:
        """Whether no change is shown: every interval contains 0."""
        estimates = (self.attention, self.margin)
        return all(0 in estimate.interval for estimate in estimates if estimate is not None)


class LexiconEffects(Record):
    """Effects of every pair and every target of a word list on a model."""

    lexicon: str
    groups: tuple[str, str]
    """Direction of the changes: with the word of the group that a target leans to, less with the
    other's; for targets without such a group, the first group's less the second's."""
    pairs: tuple[WordEffect, ...]
    targets: tuple[WordEffect, ...]
    words_without_effect: tuple[str, ...]
    """Pairs and targets for which no change is shown; their `detectable` gives the change that
    could have been shown."""
    n: Annotated[int, Field(ge=1)]
    """Number of pairs of sentences that were read."""
    dropped: tuple[DroppedItem, ...]
    notes: tuple[str, ...] = ()
    provenance: Provenance


@final
@dataclass(frozen=True)
class FrameOptions:
    """Neutral frames for the words."""

    carrier_kind: CarrierKind = "any"
    """Kind of the targets: any, thing, bare, adjective."""
    max_frames: int = 2
    """Number of frames that are used."""


class _FrameCell(NamedTuple):
    """A pair and a target in one frame."""

    name: str
    pair: str
    target: str
    sign: int
    sentences: tuple[AnnotatedSentence, AnnotatedSentence]


def lexicon_effects(
    lm: LM,
    lexicon: Lexicon,
    *,
    heads: Sequence[Site] | None = None,
    targets: str | None = None,
    groups: tuple[str, str] | None = None,
    frames: FrameOptions = FrameOptions(),
    inference: Inference = Inference(),
    progress: Callable[[int, int], None] | None = None,
) -> LexiconEffects:
    """Test a word list on a model.

    Args:
        lm: The model.
        lexicon: The word list.
        heads: Heads whose attention is averaged, such as the positive heads of a map; all by
            default.
        targets: One of its families of targets; all of them by default.
        groups: The two groups; by default the first two of the lexicon.
        frames: Neutral frames for the words.
        inference: Its level; nothing is sampled.
        progress: Callback for the number of texts read and the total number.
    """
    if frames.max_frames < 1:
        raise LevelheadError(f"{frames.max_frames} frames", hint="use at least one")
    sites = None if heads is None else validate_heads(lm, heads)
    group_pair = lexicon.resolve_group_pair(groups)
    cells = tuple(_make_cells(lexicon, group_pair, targets, frames))
    unframed_pairs = _unframed_pairs(lexicon, group_pair, cells)
    if not cells:
        raise NotMeasurableError(
            f"no pair of {lexicon.name} can be the subject of a sentence: "
            f"{', '.join(unframed_pairs)}",
            hint="give nouns, or pronouns with role = 'subject'",
        )
    changes, dropped, notes = _read_changes(lm, cells, sites, progress)
    if unframed_pairs:
        listing = ", ".join(unframed_pairs[:10]) + (" ..." if len(unframed_pairs) > 10 else "")
        notes.append(
            f"{len(unframed_pairs)} pairs cannot be a subject and were not tried: {listing}"
        )
    by_pair = _estimate_effects(
        changes, [cell.pair for cell in cells], [cell.target for cell in cells], inference
    )
    by_target = _estimate_effects(
        changes, [cell.target for cell in cells], [cell.pair for cell in cells], inference
    )
    effects = (*by_pair.words, *by_target.words)
    if not effects:
        raise NotMeasurableError(
            f"no pair and no target can be tested: {(*by_pair.notes, *by_target.notes)[0]}",
            hint="give at least two pairs of words and two targets that the model knows",
        )
    return LexiconEffects(
        lexicon=lexicon.name,
        groups=group_pair,
        pairs=by_pair.words,
        targets=by_target.words,
        words_without_effect=tuple(effect.word for effect in effects if effect.has_no_effect),
        n=int(np.isfinite(changes[ATTENTION]).sum()),
        dropped=tuple(sorted(dropped)),
        notes=(*notes, *by_pair.notes, *by_target.notes),
        provenance=make_provenance(
            lm,
            data={f"lexicon {lexicon.name}": lexicon.sha256},
            settings={
                "groups": list(group_pair),
                "targets": targets,
                "carrier_kind": frames.carrier_kind,
                "max_frames": frames.max_frames,
                "heads": None
                if sites is None
                else [[site.layer, int(site.head or 0)] for site in sites],
            },
            inference=inference,
        ),
    )


def _make_cells(
    lexicon: Lexicon, groups: tuple[str, str], targets: str | None, frames: FrameOptions
) -> Iterator[_FrameCell]:
    """Every pair with every target in every frame; words that cannot be a subject are left out."""
    families = lexicon.families if targets is None else (lexicon.targets(targets),)
    signs = {
        # Turned so that a stereotyped change is positive for targets of either group and does not
        # cancel in a pair's mean.
        word: -1 if side.stereotyped_group == groups[1] else 1
        for family in families
        for side in family.sides
        if side.stereotyped_group in (None, *groups)
        for word in side.words
    }
    if not signs:
        raise LevelheadError(
            f"{lexicon.name} has no targets for {' and '.join(groups)}",
            hint="add [targets.NAME.sides.a] with words, as gender-en has them",
        )
    terms = {
        (first_word, second_word): phrase
        for term in lexicon.terms
        if (first_word := _word_of_group(term, groups[0]))
        and (second_word := _word_of_group(term, groups[1]))
        if (phrase := subject_phrase(term.kind, term.role))
    }
    for (first_word, second_word), phrase in terms.items():
        for target, sign in signs.items():
            framed = (
                fill_carrier_frames(
                    phrase,
                    word,
                    target,
                    carrier_kind=frames.carrier_kind,
                    max_frames=frames.max_frames,
                )
                for word in (first_word, second_word)
            )
            for first, second in zip(*framed, strict=True):
                yield _FrameCell(
                    f"{first_word}/{second_word}/{target}/{first.id}",
                    f"{first_word}/{second_word}",
                    target,
                    sign,
                    (AnnotatedSentence(*first[1:]), AnnotatedSentence(*second[1:])),
                )


def _unframed_pairs(
    lexicon: Lexicon, groups: tuple[str, str], cells: Sequence[_FrameCell]
) -> tuple[str, ...]:
    """Pairs of the word list that fit into no frame."""
    framed_pairs = {cell.pair for cell in cells}
    pairs = (
        (_word_of_group(term, groups[0]), _word_of_group(term, groups[1])) for term in lexicon.terms
    )
    pair_names = (
        f"{first_word}/{second_word}"
        for first_word, second_word in pairs
        if first_word and second_word
    )
    return tuple(name for name in dict.fromkeys(pair_names) if name not in framed_pairs)


def _read_changes(
    lm: LM,
    cells: Sequence[_FrameCell],
    sites: Sequence[Site] | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[dict[str, Values], list[DroppedItem], list[str]]:
    """`[cells]` changes of attention and of the target's log-probability; NaN if there is none."""
    # Word pairs share words and so sentences, each of which is read once.
    texts = list(dict.fromkeys(sentence for cell in cells for sentence in cell.sentences))
    attention = dict(
        zip(texts, read_attribute_attention(lm, texts, progress=progress), strict=True)
    )
    readable = [sentence for sentence in texts if not isinstance(attention[sentence], str)]
    values: dict[str, dict[AnnotatedSentence, float]] = {ATTENTION: {}}
    for sentence in readable:
        values[ATTENTION][sentence] = _mean_attention(attention[sentence], sites)
    notes = []
    if readable and lm.heads & {"masked", "causal"}:
        scores = lm.log_prob(
            [sentence.text for sentence in readable], [[sentence.target] for sentence in readable]
        ).value
        values[MARGIN] = dict(zip(readable, scores.tolist(), strict=True))
    else:
        notes.append("margin: the model has no vocabulary head, so only attention is measured")
    dropped = [
        DroppedItem(cell.name, str(reasons[0]))
        for cell in cells
        if (
            reasons := [
                attention[sentence]
                for sentence in cell.sentences
                if isinstance(attention[sentence], str)
            ]
        )
    ]
    changes = {
        name: np.array(
            [
                cell.sign
                * (
                    value_of.get(cell.sentences[0], np.nan)
                    - value_of.get(cell.sentences[1], np.nan)
                )
                for cell in cells
            ]
        )
        for name, value_of in values.items()
    }
    return changes, dropped, notes


def _word_of_group(term: Term, group: str) -> str | None:
    return term.word(group) if term.is_marker_of(group) else None


def _mean_attention(attention: torch.Tensor | str, sites: Sequence[Site] | None) -> float:
    """Mean raw attention over heads."""
    assert not isinstance(attention, str)  # noqa: S101  # those were left out
    raw = attention[0]
    if sites is None:
        return float(raw.mean())
    return float(
        raw[[site.layer for site in sites], [int(site.head or 0) for site in sites]].mean()
    )


class _WordEffects(NamedTuple):
    words: tuple[WordEffect, ...]
    notes: tuple[str, ...]


def _estimate_effects(
    changes: Mapping[str, Values],
    labels: Sequence[str],
    partners: Sequence[str],
    inference: Inference,
) -> _WordEffects:
    """Mean change of every label over the others, with p corrected by Holm over the labels."""
    estimates: dict[str, dict[str, Estimate]] = {}
    notes: list[str] = []
    for name, values in changes.items():
        rows = []
        for label, label_values in _mean_over_frames(values, labels, partners).items():
            try:
                rows.append(_estimate(label, label_values, name, inference))
            except NotMeasurableError as error:
                notes.append(f"{label}: no {name}: {error.problem}")
        # Attention and margin are two questions, and so two families.
        estimates[name] = {estimate.name: estimate for estimate in holm_corrected(rows)}
    margins = estimates.get(MARGIN)
    # Both numbers or none: the columns of one table are of the same words.
    estimated_labels = [
        label for label in estimates[ATTENTION] if margins is None or label in margins
    ]
    return _WordEffects(
        tuple(
            WordEffect(
                word=label,
                attention=estimates[ATTENTION][label],
                margin=None if margins is None else margins[label],
            )
            for label in estimated_labels
        ),
        tuple(notes),
    )


def _mean_over_frames(
    values: Values, labels: Sequence[str], partners: Sequence[str]
) -> dict[str, Values]:
    """For every label, its mean over frames with each of the others that could be read."""
    cells: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for label, partner, value in zip(labels, partners, values.tolist(), strict=True):
        label_cells = cells[label]  # a label without any value is there too, and says so
        if np.isfinite(value):
            label_cells[partner].append(value)
    return {
        # Frames of one pair and target are nearly the same sentence: they are averaged and not
        # counted as observations.
        label: np.array([np.mean(frame_values) for frame_values in values_of_partner.values()])
        for label, values_of_partner in cells.items()
    }


def _estimate(label: str, values: Values, name: str, inference: Inference) -> Estimate:
    test = t_test(values, level=inference.level)
    # The standard error of the t-test above, for the effect that it could have detected.
    standard_error = float(values.std(ddof=1)) / len(values) ** 0.5
    precision = Precision(standard_error=standard_error, df=len(values) - 1)
    return Estimate(
        name=label,
        value=test.mean,
        interval=test.interval,
        parity=0.0,
        p=test.p,
        n=len(values),
        unit=UNITS[name],
        detectable=holm_detectable_effect(precision),
        precision=precision,
    )
