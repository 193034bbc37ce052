"""An edit judged by placebo edits of the same model: made, read and compared in one go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from levelhead.core.calibration import Ruler
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Provenance, Record
from levelhead.core.run_context import RunContext
from levelhead.data.counterfactuals.contrast_pairs import placebo_pairs
from levelhead.mitigate.controls.confidence_control import Collapse, of_two_classes, tempered
from levelhead.mitigate.controls.placebo_edits import Matched, matched, placebos, shuffled
from levelhead.mitigate.controls.placebo_test import LEAST, Judged, Outcome, judged, refuse_few
from levelhead.mitigate.evaluation.sweep import said
from levelhead.mitigate.projection.subspace import activations, at_by_default, both_sides, readable
from levelhead.models.edits.base import Projection
from levelhead.models.inputs.tokenizer import MASK

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from levelhead.core.run_context import Inference
    from levelhead.data.counterfactuals.contrast_pairs import Placebo, TextPair
    from levelhead.measures.base import Measure
    from levelhead.measures.items import Asked
    from levelhead.mitigate.evaluation.gain import By
    from levelhead.models.lm import LM
    from levelhead.models.sites import Site

CONTRASTS: tuple[Placebo, ...] = ("tense", "number", "names")
OF_PAIRS = ("follows", "classify", "rate")
"""Verbs whose question is a text or a pair; that of others begins with its text."""
TEXTS = 400
"""Texts whose activations say how much a direction takes away, at most."""


class Placeboed(Record):
    """Whether a setting mitigates, beside placebos that take as much away."""

    setting: str
    judged: Judged
    by_value: Judged | None = None
    """The same where a smaller value counts as a gain; None of measures with one parity for all."""
    collapse: Collapse | None = None
    """What is left beyond lost confidence; None of measures that are not of two classes."""
    matched: Matched
    """On texts that the placebos were not matched on."""
    among: Annotated[int, Field(ge=1)] = 1
    """Of how many settings this is the best, by other items. Its placebos had no such choice: p is
    corrected for it."""
    measured_by: Ruler | None = None
    """What it is measured by."""
    provenance: Provenance | None = None
    """Its edits' hash is of the setting and all placebos."""

    @property
    def verdict(self) -> str:
        """In words: what a gain is, if it is one."""
        if (
            self.judged.outcome == "mitigates"
            and self.collapse is not None
            and not self.collapse.beyond
        ):
            return f"the gain is not more than lost confidence; {self.collapse.verdict}"
        return self.judged.verdict

    @property
    def outcome(self) -> Outcome:
        """What the comparison shows, or why it can show nothing."""
        if self.judged.outcome == "mitigates" and not self.mitigates:
            return "not shown to mitigate"
        return self.judged.outcome

    @property
    def mitigates(self) -> bool:
        """Beyond placebos and, where it can be told apart, beyond lost confidence."""
        return self.judged.mitigates and (self.collapse is None or self.collapse.beyond)

    @property
    def notes(self) -> tuple[str, ...]:
        """What its verdict leaves open."""
        told = list(self.judged.notes)
        if self.collapse is None:
            told.append("lost confidence is not told apart: the measure is not of two classes")
        if self.among > 1:
            told.append(
                f"the setting is the best of {self.among} on other items, and placebos stand at it "
                f"alone: p is multiplied by {self.among}, an upper bound on what it would be if "
                "each had chosen its own"
            )
        return tuple(told)


def placeboed(
    lm: LM,
    measure: Measure,
    edits: tuple[Projection, ...],
    pairs: Sequence[TextPair],
    *,
    setting: str,
    others: Sequence[Sequence[TextPair]] | None = None,
    among: int = 1,
    n: int = LEAST,
    least: int = LEAST,
    inference: Inference,
    context: RunContext = RunContext(),
) -> Placeboed:
    """Make placebos of some edits, ask the model with each, and judge.

    Args:
        lm: the model as it is.
        measure: of bias, on items that the edits were not chosen on.
        edits: a setting's.
        pairs: that they were fitted on; their texts are paired anew within each side.
        setting: its name.
        others: pairs with other contrasts, for the placebos; by default tense, number and two words
            of one group, in English.
        among: of how many settings it was chosen as the best; p is corrected for it.
        n: placebos.
        least: placebos below which nothing is judged.
        inference: seed, resamples and level.
        context: store, threads, progress and cancellation.
    """
    refuse_few(n, least)
    for edit in edits:
        if not isinstance(edit, Projection):
            raise LevelheadError(
                f"placebos are projections along other directions, not a {type(edit).__name__}",
                mend="judge heads by `control`, beside random ones; erasures have no placebos",
            )
    sites = [edit.site for edit in edits]
    held = activations_of(lm, measure, sites, inference.seed)
    matching, kept = ({site: rows[half::2] for site, rows in held.items()} for half in (0, 1))
    pools = contrasts(lm, pairs, sites, others=others, seed=inference.seed)
    made = placebos(edits, pools, matching, n=n, seed=inference.seed)
    sets = {setting: edits} | {f"placebo {i}": own for i, own in enumerate(made)}
    found = said(lm, measure, sets, context=context)
    if found.behind:
        raise NotMeasurable(
            f"{setting} acts behind all that {measure.name} reads",
            mend="judge it by a measure that it can change",
        )
    edited, *rest = found.settings.values()
    collapse = None
    if of_two_classes(found.base):
        collapse = tempered(measure, found.base, edited, rest, inference=inference)

    def judge_by(by: By) -> Judged:
        return judged(
            measure,
            found.base,
            edited,
            rest,
            by=by,
            inference=inference,
            least=least,
            among=among,
        )

    by_value = None
    if measure.headline.lean is not None:
        by_value = judge_by("value")
    return Placeboed(
        setting=setting,
        judged=judge_by("parity"),
        by_value=by_value,
        collapse=collapse,
        matched=matched(edits, made, kept),
        among=among,
        measured_by=found.measured_by,
        provenance=found.judged_by(inference),
    )


def contrasts(
    lm: LM,
    pairs: Sequence[TextPair],
    sites: Sequence[Site],
    *,
    others: Sequence[Sequence[TextPair]] | None = None,
    seed: int = 0,
) -> dict[Site, tuple[torch.Tensor, ...]]:
    """For every site the differences of other contrasts, and of texts of the same side."""
    found: dict[Site, list[torch.Tensor]] = {site: [] for site in sites}
    for each in [placebo_pairs(one) for one in CONTRASTS] if others is None else others:
        own, _ = readable(lm, each)
        for site, (first, second) in both_sides(lm, own, sites).items():
            found[site].append(first - second)
    for site, sides in both_sides(lm, readable(lm, pairs)[0], sites).items():
        found[site].append(shuffled(*sides, seed=seed))
    return {site: tuple(pools) for site, pools in found.items()}


def activations_of(
    lm: LM, measure: Measure, sites: Sequence[Site], seed: int
) -> dict[Site, torch.Tensor]:
    """What sites hold of the measure's own texts, at the tokens that are edited.

    The first token, and what a classifier is given, of the questions as they are asked; elsewhere a
    random word of every text: an edit of all tokens takes away what single tokens vary in, not what
    their means do.
    """
    rng = np.random.default_rng(seed)
    asked = running(measure.asked(lm)[0], rng)
    if len(asked) < 2:
        raise NotMeasurable(
            f"{measure.name} asks {len(asked)} running texts, by which placebos could be matched",
            mend="judge the edit by a measure that asks whole texts, or words in their blanks",
        )
    by_word = [site for site in sites if at_by_default(lm, site) == "mean"]
    first = [site for site in sites if site not in by_word]
    found: dict[Site, torch.Tensor] = {}
    if first:
        some = [asked[i] for i in sorted(rng.permutation(len(asked))[:TEXTS])]
        texts = [own[0] if len(own) == 1 else own for own in some]
        found |= lm.read(texts, first, pooling="first")
    if by_word:
        chosen, spans = _words(lm, sorted({text for own in asked for text in own}), rng)
        found |= activations(lm, chosen, spans, by_word, at="word")
    return {site: found[site].double() for site in sites}


def running(asked: Asked, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """The texts of a question, or the pairs of them, with a word that is asked for in each blank.

    Where none is asked for, a text with a blank is left out.
    """
    found = set()
    for ask in (ask for item in asked.items for ask in item.asks):
        if asked.verb in OF_PAIRS:
            found.add(tuple(map(str, ask)))
            continue
        text = str(ask[0])
        words = ask[1:2] if asked.verb == "put" else asked.settings.get("words", ())
        if MASK in text and isinstance(words, tuple) and words:
            text = text.replace(MASK, str(words[rng.integers(len(words))]))
        if MASK not in text:
            found.add((text,))
    return sorted(found)


def _words(
    lm: LM, texts: Sequence[str], rng: np.random.Generator
) -> tuple[list[str], list[tuple[int, int]]]:
    """Some texts and a word of each, of those that the model can read."""
    chosen, spans = [], []
    for i in rng.permutation(len(texts)):
        try:
            (one,) = lm.tokens.encode([texts[i]])
        except LevelheadError:
            continue
        words = one.words()
        chosen.append(texts[i])
        spans.append(one.offsets[words[rng.integers(len(words))]])
        if len(chosen) == TEXTS:
            break
    return chosen, spans
