"""Does a word list do anything to a model? Every pair of words, every target, in neutral frames.

Section 9 of Yang et al. 2025 asks for word lists that are tried before they are used. A pair of
group words (woman, man) is put into frames before each target (nurse); what changes from one to
the other is the attention of the target on the group's word, and how likely the target is.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from pydantic import Field

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Dropped, Estimate, Precision, Provenance, Record
from levelhead.core.run_context import Inference
from levelhead.data.counterfactuals.templates import carried, subject
from levelhead.explain.attention.attention_scores import on_attribute
from levelhead.explain.attention.head_groups import checked_heads, provenance
from levelhead.explain.attention.pairs import Question
from levelhead.measures.inference import corrected
from levelhead.stats.means import t_test
from levelhead.stats.power import detectable_effect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from levelhead.data.counterfactuals.templates import Carried
    from levelhead.data.lexicons.lexicon import Lexicon, Term
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

    Values = NDArray[np.float64]

ATTENTION, MARGIN = "attention", "margin"
UNITS = {ATTENTION: "of the row's range", MARGIN: "nats"}


class WordChange(Record):
    """What one pair, or one target, does: the mean over the others, with its interval over them."""

    word: str
    """A target, or a pair as first/second."""
    attention: Estimate
    margin: Estimate | None
    """Change of the target's log-probability; None if the model has no vocabulary head."""

    @property
    def does_nothing(self) -> bool:
        """Whether no change is shown: every interval contains 0."""
        shown = (self.attention, self.margin)
        return all(0 in one.interval for one in shown if one is not None)


class LexiconTest(Record):
    """What every pair and every target of a word list does to a model."""

    lexicon: str
    groups: tuple[str, str]
    """Changes are with the word of the group a target leans to, less with the other's; for targets
    that lean to neither, the first group's less the second's."""
    pairs: tuple[WordChange, ...]
    targets: tuple[WordChange, ...]
    nothing: tuple[str, ...]
    """Pairs and targets for which no change is shown; how large a one would have been is in their
    `detectable`."""
    n: Annotated[int, Field(ge=1)]
    """Pairs of sentences that were read."""
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...] = ()
    provenance: Provenance


class _Cell(NamedTuple):
    """A pair and a target in one frame."""

    name: str
    pair: str
    target: str
    sign: int
    questions: tuple[Question, Question]


def lexicon_test(
    lm: LM,
    lexicon: Lexicon,
    *,
    heads: Sequence[Site] | None = None,
    targets: str | None = None,
    groups: tuple[str, str] | None = None,
    sort: Carried = "any",
    frames: int = 2,
    inference: Inference = Inference(),
    progress: Callable[[int, int], None] | None = None,
) -> LexiconTest:
    """Try a word list on a model.

    Args:
        lm: the model.
        lexicon: the list.
        heads: whose attention is averaged, such as a map's positive ones; all by default.
        targets: one of its families of targets; all of them by default.
        groups: which two groups; by default its first two.
        sort: what the targets are, for the frames: any, thing, bare, adjective.
        frames: how many of the frames are used.
        inference: its level; nothing is drawn.
        progress: is called with the number of texts read, and how many there are.
    """
    if frames < 1:
        raise LevelheadError(f"{frames} frames", mend="use at least one")
    sites = None if heads is None else checked_heads(lm, heads)
    compared = lexicon.two(groups)
    cells = tuple(_cells(lexicon, compared, targets, sort, frames))
    untried = _untried(lexicon, compared, cells)
    if not cells:
        raise NotMeasurable(
            f"no pair of {lexicon.name} can be the subject of a sentence: {', '.join(untried)}",
            mend="give nouns, or pronouns with role = 'subject'",
        )
    changes, dropped, notes = _read(lm, cells, sites, progress)
    if untried:
        shown = ", ".join(untried[:10]) + (" ..." if len(untried) > 10 else "")
        notes.append(f"{len(untried)} pairs cannot be a subject and were not tried: {shown}")
    by_pair = _judged(
        changes, [cell.pair for cell in cells], [cell.target for cell in cells], inference
    )
    by_target = _judged(
        changes, [cell.target for cell in cells], [cell.pair for cell in cells], inference
    )
    every = (*by_pair.words, *by_target.words)
    if not every:
        raise NotMeasurable(
            f"no pair and no target can be judged: {(*by_pair.notes, *by_target.notes)[0]}",
            mend="give at least two pairs of words and two targets that the model knows",
        )
    return LexiconTest(
        lexicon=lexicon.name,
        groups=compared,
        pairs=by_pair.words,
        targets=by_target.words,
        nothing=tuple(one.word for one in every if one.does_nothing),
        n=int(np.isfinite(changes[ATTENTION]).sum()),
        dropped=tuple(sorted(dropped)),
        notes=(*notes, *by_pair.notes, *by_target.notes),
        provenance=provenance(
            lm,
            data={f"lexicon {lexicon.name}": lexicon.sha256},
            settings={
                "groups": list(compared),
                "targets": targets,
                "sort": sort,
                "frames": frames,
                "heads": None
                if sites is None
                else [[site.layer, int(site.head or 0)] for site in sites],
            },
            inference=inference,
        ),
    )


def _cells(
    lexicon: Lexicon, groups: tuple[str, str], targets: str | None, sort: Carried, frames: int
) -> Iterator[_Cell]:
    """Every pair with every target in every frame; words that are no subject are left out."""
    families = lexicon.families if targets is None else (lexicon.targets(targets),)
    signs = {
        word: -1 if side.leans == groups[1] else 1
        for family in families
        for side in family.sides
        if side.leans in (None, *groups)
        for word in side.words
    }
    if not signs:
        raise LevelheadError(
            f"{lexicon.name} has no targets for {' and '.join(groups)}",
            mend="add [targets.NAME.sides.a] with words, as gender-en has them",
        )
    terms = {
        (one, other): phrase
        for term in lexicon.terms
        if (one := _own(term, groups[0])) and (other := _own(term, groups[1]))
        if (phrase := subject(term.kind, term.role))
    }
    for (one, other), phrase in terms.items():
        for target, sign in signs.items():
            both = (
                carried(phrase, word, target, sort=sort, frames=frames) for word in (one, other)
            )
            for first, second in zip(*both, strict=True):
                yield _Cell(
                    f"{one}/{other}/{target}/{first.id}",
                    f"{one}/{other}",
                    target,
                    sign,
                    (Question(*first[1:]), Question(*second[1:])),
                )


def _untried(lexicon: Lexicon, groups: tuple[str, str], cells: Sequence[_Cell]) -> tuple[str, ...]:
    """Pairs of the list that no frame takes."""
    tried = {cell.pair for cell in cells}
    pairs = ((_own(term, groups[0]), _own(term, groups[1])) for term in lexicon.terms)
    named = (f"{one}/{other}" for one, other in pairs if one and other)
    return tuple(name for name in dict.fromkeys(named) if name not in tried)


def _read(
    lm: LM,
    cells: Sequence[_Cell],
    sites: Sequence[Site] | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[dict[str, Values], list[Dropped], list[str]]:
    """`[cells]` changes of attention and of the target's log-probability; NaN where none."""
    texts = list(dict.fromkeys(question for cell in cells for question in cell.questions))
    read = dict(zip(texts, on_attribute(lm, texts, progress=progress), strict=True))
    known = [question for question in texts if not isinstance(read[question], str)]
    values: dict[str, dict[Question, float]] = {ATTENTION: {}}
    for question in known:
        values[ATTENTION][question] = _mean(read[question], sites)
    notes = []
    if known and lm.heads & {"masked", "causal"}:
        scores = lm.log_prob([one.text for one in known], [[one.target] for one in known]).value
        values[MARGIN] = dict(zip(known, scores.tolist(), strict=True))
    else:
        notes.append("margin: the model has no vocabulary head, so only attention is judged")
    dropped = [
        Dropped(cell.name, str(why[0]))
        for cell in cells
        if (why := [read[one] for one in cell.questions if isinstance(read[one], str)])
    ]
    changes = {
        name: np.array(
            [
                cell.sign
                * (own.get(cell.questions[0], np.nan) - own.get(cell.questions[1], np.nan))
                for cell in cells
            ]
        )
        for name, own in values.items()
    }
    return changes, dropped, notes


def _own(term: Term, group: str) -> str | None:
    return term.word(group) if term.marks(group) else None


def _mean(read: torch.Tensor | str, sites: Sequence[Site] | None) -> float:
    """The mean raw attention over heads."""
    assert not isinstance(read, str)  # noqa: S101  # those were left out
    raw = read[0]
    if sites is None:
        return float(raw.mean())
    return float(
        raw[[site.layer for site in sites], [int(site.head or 0) for site in sites]].mean()
    )


class _Judged(NamedTuple):
    words: tuple[WordChange, ...]
    notes: tuple[str, ...]


def _judged(
    changes: Mapping[str, Values],
    labels: Sequence[str],
    others: Sequence[str],
    inference: Inference,
) -> _Judged:
    """Every label's mean change over the others, p corrected by Holm over the labels."""
    found: dict[str, dict[str, Estimate]] = {}
    notes: list[str] = []
    for name, values in changes.items():
        rows = []
        for label, own in _table(values, labels, others).items():
            try:
                rows.append(_estimate(label, own, name, inference))
            except NotMeasurable as error:
                notes.append(f"{label}: no {name}: {error.what}")
        found[name] = {one.name: one for one in corrected(rows)}
    margins = found.get(MARGIN)
    kept = [label for label in found[ATTENTION] if margins is None or label in margins]
    return _Judged(
        tuple(
            WordChange(
                word=label,
                attention=found[ATTENTION][label],
                margin=None if margins is None else margins[label],
            )
            for label in kept
        ),
        tuple(notes),
    )


def _table(values: Values, labels: Sequence[str], others: Sequence[str]) -> dict[str, Values]:
    """For every label, its mean over frames with each of the others that could be read."""
    cells: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for label, other, value in zip(labels, others, values.tolist(), strict=True):
        own = cells[label]  # a label without any value is there too, and says so
        if np.isfinite(value):
            own[other].append(value)
    return {
        label: np.array([np.mean(own) for own in found.values()]) for label, found in cells.items()
    }


def _estimate(label: str, values: Values, name: str, inference: Inference) -> Estimate:
    test = t_test(values, level=inference.level)
    error = float(values.std(ddof=1)) / len(values) ** 0.5
    precision = Precision(standard_error=error, df=len(values) - 1)
    return Estimate(
        name=label,
        value=test.mean,
        interval=test.interval,
        parity=0.0,
        p=test.p,
        n=len(values),
        unit=UNITS[name],
        detectable=detectable_effect(precision),
        precision=precision,
    )
