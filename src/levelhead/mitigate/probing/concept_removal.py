"""Removed or hidden: can the group still be read from a model's vectors after an edit?

A ruler that falls does not say that what it measured is gone: "lipstick on a pig" (Gonen and
Goldberg 2019) is what stays in places the ruler does not look at. Probes that were fixed in advance
look at words and texts that the edit never met, at a site that later parts of the model read:

- removed: the upper bound of the AUC of both probes is at most 0.55;
- hidden: a lower bound is at least 0.60, and a ruler is shown to have fallen;
- unclear: all else, and whenever the data could not have shown it.

Both bounds are ends of one interval of level 0.9: one-sided bounds of 0.95, as in tests of
equivalence (Schuirmann 1987). Removed is said of these probes at this site, and of nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import torch
from pydantic import Field

from levelhead.core.calibration import Ruler
from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.results import Dropped, Estimate, Provenance, Record
from levelhead.core.run_context import Inference
from levelhead.data.counterfactuals.contrast_pairs import pairs_hash
from levelhead.data.counterfactuals.held_out import seen_words, word_units
from levelhead.mitigate.probing.probe_report import CHANCE, DEALS, Found, found_in
from levelhead.mitigate.probing.probes import COMPONENTS, FOLDS, INNER, REPEATS, STRENGTHS, labelled
from levelhead.mitigate.projection.edit_points import has_sent
from levelhead.mitigate.projection.subspace import at_by_default, both_sides, readable
from levelhead.models.sites import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from levelhead.data.counterfactuals.contrast_pairs import TextPair
    from levelhead.mitigate.probing.probes import Labelled
    from levelhead.mitigate.projection.subspace import At
    from levelhead.models.edits.base import Edit
    from levelhead.models.lm import LM

Verdict = Literal["removed", "hidden", "unclear"]
GONE, THERE = 0.55, 0.60
"""The bounds of the AUC; set before any case was tried."""
LEVEL = 0.9
EQUATION = "AUC of probes on held-out words; after Gonen and Goldberg 2019, Hewitt and Liang 2019"


class Reasoned(NamedTuple):
    """A verdict and its reason."""

    verdict: Verdict
    why: str


class Place(Record):
    """One site, before and after the edit."""

    site: tuple[str, int, int | None]
    at: str
    verdict: Verdict
    why: str
    before: Found
    after: Found


class Removed(Record):
    """Whether the groups can still be told apart, at every site that was asked."""

    verdict: Verdict
    """Hidden if it is so at any site, removed if at all of them."""
    why: str
    places: Annotated[tuple[Place, ...], Field(min_length=1)]
    ruler: Estimate | bool | None
    """The gain of the measure that the edit is to mitigate, or whether it fell."""
    gain_by: Ruler | None = None
    """What that is measured by."""
    words: Annotated[int, Field(ge=1)]
    """Words that no other shares a twin with: what was cut into training and test."""
    n: Annotated[int, Field(ge=1)]
    """Pairs of texts."""
    dropped: tuple[Dropped, ...]
    notes: tuple[str, ...] = ()
    provenance: Provenance


def verdict(before: Found, after: Found, *, ruler: Estimate | bool | None) -> Reasoned:
    """Removed, hidden or unclear, by what was found before and after an edit.

    Args:
        before: in the vectors of the model as it is.
        after: in those of the edited model.
        ruler: the gain of a measure of bias, or whether it fell; None: nobody measured it.
    """
    if not _readable(before):
        return Reasoned(
            "unclear", "the groups could not be told apart before the edit: nothing to take out"
        )
    if told := _readable(after):
        if down(ruler):
            return Reasoned("hidden", f"the ruler fell, and {told}")
        fell = "no ruler was given" if ruler is None else "the ruler is not shown to have fallen"
        return Reasoned("unclear", f"still readable ({told}); {fell}")
    for one in after.probes:
        if why := _not_shown(one.auc):
            return Reasoned("unclear", why)
    return Reasoned("removed", f"no probe is above {GONE}: {_told(after)}")


def down(ruler: Estimate | bool | None) -> bool:
    """Whether a ruler is shown to have fallen: a gain whose interval lies above 0."""
    return ruler.interval.low > 0 if isinstance(ruler, Estimate) else bool(ruler)


def read_by(lm: LM) -> tuple[Site, ...]:
    """The sites that a model's heads read: its pooled vector, its last layer, or both."""
    last = Site("block_out", lm.anatomy.layers - 1)
    if not has_sent(lm):
        return (last,)
    return (Site("pooled"), last) if lm.heads & {"masked", "causal"} else (Site("pooled"),)


def removed(
    lm: LM,
    edits: Sequence[Edit],
    pairs: Sequence[TextPair],
    *,
    seen: Iterable[str | TextPair],
    ruler: Estimate | bool | None = None,
    gain_by: Ruler | None = None,
    sites: Iterable[Site] | None = None,
    at: At | None = None,
    deals: int = DEALS,
    inference: Inference = Inference(resamples=499, level=LEVEL),
    on_step: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Removed:
    """Judge an edit by probes on words and texts that it never met.

    Args:
        lm: the model as it is.
        edits: of which the question is asked.
        pairs: of held-out texts, such as `held_out("gender-en", seen=...)`.
        seen: words, or pairs of texts, that the edits were fitted or chosen on; pairs that hold one
            of them are refused.
        ruler: the gain of the measure that the edits are to mitigate, or whether it fell.
        gain_by: that measure, asked of such a model.
        sites: where vectors are read; by default where the model's heads read (`read_by`).
        at: at which tokens; by default those that an edit there acts on.
        deals: how often labels are dealt anew.
        inference: seed of folds, deals and resamples; resamples of the words; level of the
            intervals, whose ends are the bounds.
        on_step: is told what is done, how much of it, and how much there is.
    """
    _refuse_seen(pairs, seen)
    if inference.level < LEVEL:
        raise LevelheadError(
            f"bounds of level {inference.level:g} show little", mend=f"give {LEVEL} or more"
        )
    kept, dropped = readable(lm, pairs)
    if not kept:
        raise NotMeasurable(
            "the model can read no pair" + (f": {dropped[0].reason}" if dropped else ""),
            mend="give pairs of words that its vocabulary has",
        )
    asked = read_by(lm) if sites is None else tuple(dict.fromkeys(sites))
    edited = lm.edited(*edits)
    sides = [both_sides(one, kept, asked, at=at) for one in (lm, edited)]
    untouched = [site for site in asked if _same(sides[0][site], sides[1][site])]
    if len(untouched) == len(asked):
        raise LevelheadError(
            f"the edit changes nothing at {', '.join(map(str, asked))}",
            mend="read a site at or behind the edit",
        )
    units = word_units(kept)

    def _found(own: tuple[torch.Tensor, torch.Tensor], what: str) -> Found:
        data = _labelled(own, kept, units)
        tell = _telling(on_step, what)
        return found_in(data, inference=inference, deals=deals, on_step=tell)

    places = []
    for site in asked:
        before = _found(sides[0][site], f"{site} before")
        same = site in untouched
        after = before if same else _found(sides[1][site], f"{site} after")
        own = verdict(before, after, ruler=ruler)
        places.append(
            Place(
                site=(site.stream, site.layer, site.head),
                at=at or at_by_default(lm, site),
                verdict=own.verdict,
                why=own.why,
                before=before,
                after=after,
            )
        )
    overall = together(places)
    return Removed(
        verdict=overall.verdict,
        why=overall.why,
        places=tuple(places),
        ruler=ruler,
        gain_by=gain_by,
        words=len(set(units)),
        n=len(kept),
        dropped=dropped,
        notes=tuple(f"{site}: the edit changes nothing there" for site in untouched),
        provenance=Provenance.of(
            lm.identity.name,
            lm.content_hash,
            revision=lm.identity.revision,
            edits=tuple(edit.content_hash for edit in edited.edits),
            data={"pairs": pairs_hash(kept)},
            equation=EQUATION,
            seed=inference.seed,
            settings=_settings()
            | {"deals": deals, "draws": inference.resamples, "level": inference.level},
        ),
    )


def together(places: Sequence[Place]) -> Reasoned:
    """One verdict of several places: hidden anywhere is hidden, removed must be everywhere."""
    named = [(f"{Site(*place.site)}: {place.why}", place.verdict) for place in places]  # type: ignore[arg-type]
    for wanted in ("hidden", "unclear"):
        for why, own in named:
            if own == wanted:
                return Reasoned(own, why)
    return Reasoned("removed", "; ".join(why for why, _ in named))


def _readable(found: Found) -> str:
    """What can be told apart, in words; empty if it is not shown."""
    best = max((one.auc for one in found.probes), key=lambda auc: auc.interval.low)
    return f"{best}" if best.interval.low >= THERE else ""


def _not_shown(auc: Estimate) -> str:
    """Why an AUC does not say that a group is gone; empty if it does."""
    if auc.interval.high > GONE:
        return f"neither gone nor shown to be there: {auc}"
    if auc.value < 1 - GONE and auc.interval.high < CHANCE:
        return f"below chance, which is readable too: {auc}"
    if auc.detectable is not None and CHANCE + auc.detectable > THERE:
        return f"too few words: the least AUC they could show is {CHANCE + auc.detectable:.2f}"
    return ""


def _told(found: Found) -> str:
    return ", ".join(str(one.auc) for one in found.probes)


def _settings() -> dict[str, object]:
    return {
        "folds": FOLDS,
        "inner folds": INNER,
        "repeats": REPEATS,
        "linear": list(STRENGTHS),
        "nonlinear": list(COMPONENTS),
        "gone": GONE,
        "there": THERE,
    }


def _refuse_seen(pairs: Sequence[TextPair], seen: Iterable[str | TextPair]) -> None:
    used = seen_words(seen)
    met = sorted(seen_words(pairs) & used)
    if met:
        raise LevelheadError(
            f"{len(met)} words of the pairs were used for the edit: {', '.join(met[:5])}",
            mend="take held_out(lexicon, seen=...), which leaves them out and counts them",
        )


def _same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(first, second) for first, second in zip(one, other, strict=True))


def _labelled(
    sides: tuple[torch.Tensor, torch.Tensor], pairs: Sequence[TextPair], units: list[int]
) -> Labelled:
    contexts = [pair.id.partition(": ")[2] for pair in pairs]
    return labelled(
        torch.cat(sides).numpy(),
        [True] * len(pairs) + [False] * len(pairs),
        units * 2,
        contexts=contexts * 2,
    )


def _telling(on_step: Callable[[str, int, int], None], what: str) -> Callable[[int, int], None]:
    return lambda done, total: on_step(what, done, total)
