"""Group preference: which group does a model name where the sentence says nothing about it?

A model that puts one group's words everywhere treats the groups unequally without any stereotype:
measures of stereotypes are built so that such a default drops out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, cast, final

from scipy import stats

from levelhead.core.frozen import Frozen
from levelhead.data.catalog.frequencies import log_odds
from levelhead.measures.base import Beside
from levelhead.measures.cloze.cloze import Cloze, masses
from levelhead.measures.cloze.prompts_base import BASE, PAPER, Prompted, base_only
from levelhead.measures.inference import estimate
from levelhead.measures.likelihood.frequency_control import (
    AUTO,
    Frequencies,
    chosen_sources,
    hashes_of,
)
from levelhead.measures.metric import Aspect, jackknife
from levelhead.measures.reductions import mean, sides
from levelhead.stats.power import detectable_effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from levelhead.core.results import Estimate, Provenance
    from levelhead.core.run_context import Inference
    from levelhead.data.catalog.frequencies import Source
    from levelhead.measures.items import Asked
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Draw

BEYOND = "preference beyond word frequency"
MARGIN = math.log(1.25)
"""A smaller preference is not called one: by the four-fifths rule (Uniform Guidelines on Employee
Selection Procedures, 1978) a rate below 4/5 of another is a difference that counts."""


@final
@dataclass(frozen=True)
class GroupPreference(Prompted):
    """The mean log-odds that the first group's words are put into a sentence, not the second's.

    With l = log P(first group's words) - log P(second's) of a base prompt of cloze, the mean of the
    means of l over occupations that the first and that the second group dominates. Both kinds of
    occupations weigh the same, so that stereotypes cancel: what `cloze` takes out is what is left.
    """

    frequencies: Frequencies = AUTO
    """The text whose word frequencies are the control: data sets of the catalog, or files. "auto":
    WikiText-2 for the published prompts in English, none for your own; None: no control."""

    of_the_model: ClassVar[tuple[str, ...]] = ("frequencies",)
    """The control stands beside the number and does not change it: values compare without it."""
    metrics: ClassVar[dict[str, str]] = {
        "group_preference": "which group is named where the sentence says nothing about it",
    }

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """What cloze asks: where one was asked, the other costs nothing."""
        shared = {one.name: getattr(self, one.name) for one in fields(Prompted)}
        del shared["metric"]  # its own: what is asked does not depend on what is reported
        return Cloze(**shared).questions(lm)

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The preference."""
        first, second = self.compared
        return (
            Aspect(
                name="group_preference",
                equation=f"{PAPER}, Evaluation Metrics; mean log-odds of exact masses, both kinds "
                "of occupations weighing the same",
                per_item=lambda readouts: base_only(readouts, _log_odds(readouts)),
                over=balanced_mean,
                unit="log-odds",
                low=-float("inf"),
                high=float("inf"),
                direction=f"above 0: {first} is named more often than {second}",
                above=f"{first} is named more often than {second}",
                below=f"{second} is named more often than {first}",
                comparable="group preference, same prompts and words",
                # No rearrangement fits: dealing occupations to groups leaves the preference as it
                # is, and signs cannot be turned round where occupations lean either way. So p is
                # the bootstrap's t, over occupations.
                null=None,
            ),
        )

    def estimated(
        self, readouts: Readouts, aspect: Aspect, inference: Inference, name: str | None = None
    ) -> Estimate:
        """With a test of whether the preference is larger than MARGIN, to either side.

        Every trained model names one group a little more often, and with enough occupations the
        least of it is significant. So the null is a preference of at most MARGIN (a minimum-effect
        test; Murphy and Myors 1999).
        """
        plain = super().estimated(readouts, aspect, inference, name)
        if plain.precision is None or plain.p is None:
            return plain
        precision = plain.precision.model_copy(update={"margin": MARGIN})
        t = (abs(plain.value) - MARGIN) / precision.standard_error
        p = plain.p.model_copy(
            update={
                "value": min(1.0, 2 * float(stats.t.sf(t, precision.df))),
                "method": f"minimum-effect t, |log-odds| <= {MARGIN:.3g}",
            }
        )
        detectable = detectable_effect(precision, alternative=aspect.alternative)
        return plain.model_copy(update={"p": p, "precision": precision, "detectable": detectable})

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """The preference beyond word frequency, and the mass that the groups' words hold."""
        base = found[0].some(lambda item: item.kind == BASE)
        design, head = self.design(found[0], self.headline), self.headline
        mass = replace(
            head,
            name="mass covered",
            over=mean,
            unit="sum of the words' probabilities",
            low=0.0,
            direction="larger: the groups' words are likelier among all words",
            above="",
            below="",
            parity=None,
        )
        covered = base.values[:, 0].exp().sum(-1)
        estimates = [estimate(inference, mass, covered, design, tested=False)]
        notes = [
            "the words that stand for the groups are fixed: the interval is over occupations, and "
            "says nothing of other words",
            f"p is of a preference beyond {MARGIN:.3g}: one group named 1.25 times as often",
        ]
        sources = self._sources()
        if isinstance(sources, str):
            notes.append(f"{BEYOND}: not available: {sources}")
            return Beside(tuple(estimates), tuple(notes))
        lists = cast("tuple[tuple[str, ...], ...]", found[0].facts["words"])
        frequent = log_odds(sources, *lists)
        beyond = replace(
            head,
            name=BEYOND,
            direction=f"{head.direction} than its words are frequent",
            comparable=f"{head.comparable}, beyond frequency",
        )
        estimates.append(
            estimate(
                inference,
                beyond,
                _log_odds(base) - frequent.value,
                design,
                # The text was sampled, too: its blocks vary beside the occupations.
                among=jackknife(frequent.left_out),
            )
        )
        names = "; ".join(f"{source.name} ({source.licence})" for source in sources)
        notes.append(
            f"word frequency: log-odds {frequent.value:.4g} in {frequent.n} words of {names}, add-1"
        )
        return Beside(tuple(estimates), tuple(notes))

    def _sources(self) -> tuple[Source, ...] | str:
        published = isinstance(self.prompts, str) and self.own_lexicon.language == "en"
        return chosen_sources(self.frequencies, fits=published)

    def _provenance(
        self, lm: LM, found: Sequence[Readouts], inference: Inference, threads: int
    ) -> Provenance:
        plain = super()._provenance(lm, found, inference, threads)
        sources = self._sources()
        if isinstance(sources, str):
            return plain
        return plain.model_copy(
            update={"data": Frozen(dict(plain.data) | dict(hashes_of(sources)))}
        )


def balanced_mean(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """The mean of the means of occupations that the first and that the second group dominates."""
    first, second = sides(values, draw)
    return (first.mean() + second.mean()) / 2


def _log_odds(readouts: Readouts) -> torch.Tensor:
    both = masses(readouts)
    return both[:, 0] - both[:, 1]
