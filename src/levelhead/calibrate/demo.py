"""The demo: the same small model grown twice, without and with a planted bias, and measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from levelhead.calibrate.organisms.language_pairs import paired
from levelhead.calibrate.organisms.organism import HELD_OUT, Organism, organism
from levelhead.calibrate.skills import Skill, learned
from levelhead.core.canonical_json import content_hash
from levelhead.core.errors import NotMeasurable
from levelhead.core.run_context import Inference
from levelhead.locate.score_heads import locate
from levelhead.measures.run import run
from levelhead.measures.utility.perplexity import Perplexity, PseudoPerplexity
from levelhead.mitigate.projection.edit_points import project
from levelhead.models.sites import Site
from levelhead.study.audit.audit import Audit
from levelhead.study.config import Plan
from levelhead.study.steps.config import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from levelhead.core.results import Measurement, Record
    from levelhead.locate.head_map import HeadMap
    from levelhead.measures.compare import Comparison

RHOS = (0.0, 1.0)
KNOWN_HEAD = (1, 2)
"""(layer, head) of the third model's only head that sees group words, counted from 0."""
PRICED = 60
"""Sentences on which the price of an edit is measured."""
FOUND = 0.01
"""A p-value, corrected for the rulers of a run, at which a ruler counts as having found it."""


class Grown(NamedTuple):
    """One of the two models: what was planted, what it learned, what the rulers say."""

    organism: Organism
    folder: str
    skills: tuple[Skill, ...]
    measurements: tuple[Measurement, ...]

    @property
    def found(self) -> tuple[str, ...]:
        """The rulers that say that the model leans to what was planted."""
        return tuple(
            one.measure
            for one in self.measurements
            if one.parity is not None and one.value > one.parity and _p(one) <= FOUND
        )


def demo(
    architecture: str = "bert",
    *,
    seed: int = 0,
    inference: Inference = Inference(),
    tell: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> tuple[Grown, ...]:
    """Grow an organism at rho 0 and at rho 1, see what both learned, and measure both.

    Args:
        architecture: bert, roberta, albert, gpt2 or llama.
        seed: of text and training.
        inference: seed, resamples and level of the statistics.
        tell: is told what is being done, and how far it is.
    """
    found = []
    for rho in RHOS:
        one = organism(architecture, rho, seed=seed)
        lm = one.lm(lambda done, total, rho=rho: tell(f"growing rho {rho:g}", done, total))  # type: ignore[misc]
        skills = learned(lm, one.language, seed=seed + HELD_OUT)
        rulers = one.rulers().of(lm)
        tell(f"measuring rho {rho:g}", 0, len(rulers))
        measured = run(lm, list(rulers.values()), inference=inference).measurements
        tell(f"measuring rho {rho:g}", len(rulers), len(rulers))
        found.append(Grown(one, str(one.grown()), skills, measured))
    return tuple(found)


def located(
    *,
    seed: int = 0,
    inference: Inference = Inference(),
    tell: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> tuple[HeadMap, Site]:
    """Grow a model in which one head alone sees group words, and locate its heads.

    Args:
        seed: of text and training.
        inference: seed, resamples and level of the statistics.
        tell: is told what is being done, and how far it is.
    """
    one = organism("gpt2", 1.0, seed=seed, known_head=KNOWN_HEAD)
    lm = one.lm(lambda done, total: tell("growing a known head", done, total))
    # Of all items: a top tenth of 52 would be five.
    ruler = replace(one.rulers().contrast, top=1.0)
    tell("locating", 0, 1)
    heads = locate(lm, ruler, exact="all", inference=inference)
    tell("locating", 1, 1)
    return heads, Site("head_out", *KNOWN_HEAD)


def mitigated(
    grown: Grown,
    *,
    inference: Inference = Inference(),
    tell: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> tuple[Comparison, ...]:
    """Take the groups' direction out of a model, and measure what that buys and what it costs.

    A projection from the last layer but one onwards (Dawkins et al. 2024), fitted on sentences that
    differ in the group's word; how the rulers move, and how well the model still predicts text.

    Args:
        grown: one of the demo's models.
        inference: seed, resamples and level of the statistics.
        tell: is told what is being done, and how far it is.
    """
    one = grown.organism
    lm, rulers = one.lm(), one.rulers()
    edited = lm.edited(*project(lm, "penultimate", paired(one.language), weighted=False))
    price = (Perplexity if lm.is_causal else PseudoPerplexity)(texts=rulers.corpus, limit=PRICED)
    bias = rulers.strength if "next_sentence" in lm.heads else rulers.contrast
    wanted = (bias, rulers.seat, price)
    tell("mitigating", 0, len(wanted))
    found = run(edited, list(wanted), against=lm, inference=inference).comparisons
    tell("mitigating", len(wanted), len(wanted))
    return found


def audited(
    grown: Grown, compared: Sequence[Comparison], heads: HeadMap
) -> tuple[Audit, dict[str, Record]]:
    """What the demo found of its biased model, as an audit: what `report.page` shows.

    Args:
        grown: the model.
        compared: its edited self beside it.
        heads: the map of the third model.
    """
    names = [one.measure for one in grown.measurements]
    rho = grown.organism.language.rho
    plan = Plan(
        format="levelhead-study-1",
        name="demo",
        about=f"The demo: a small model with a planted bias (rho {rho:g})",
        models={"model": Source(path=grown.folder)},
        measures={name: name for name in names},
    )
    audit = Audit(
        request=content_hash([one.content_hash for one in grown.measurements]),
        budget=None,
        about=f"{grown.organism.recipe.architecture}, grown on text in which groups and "
        "occupations always agree; its heads are those of another model, in which one head alone "
        "sees group words",
        plan=plan,
        roles=tuple((name, "bias") for name in names),
        left_out=(),
        cut=(),
        expected=None,
    )
    results: dict[str, Record] = {
        f"cell.demo.model.{one.measure}": one for one in grown.measurements
    }
    results |= {f"against.edited.{one.measure}": one for one in compared}
    return audit, results | {"map.heads": heads}


def _p(one: Measurement) -> float:
    if one.p is None:
        raise NotMeasurable(f"{one.measure} could not be judged", mend="report this")
    return one.p.value if one.p.adjusted is None else one.p.adjusted
