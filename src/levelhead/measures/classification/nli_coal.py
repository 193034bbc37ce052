"""NLI-CoAL: each of the three wrong inferences about an occupation where it would be a stereotype.

Anantaprayoon et al. 2024: to call the stereotyped group entailed, the other one contradicted, or
anything but neutral where an occupation has no stereotype. Every pair is neutral by construction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.results import Interval
from levelhead.data.catalog.datasets import dataset
from levelhead.data.catalog.readers import NLI
from levelhead.data.prompts import nli_occupations as nli
from levelhead.data.records import TextPair
from levelhead.measures.base import Beside, Measure, Need, items_hash
from levelhead.measures.classification.nli_occupations import (
    constant_share,
    label_order,
    probabilities,
)
from levelhead.measures.inference import corrected, estimate
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect
from levelhead.measures.reductions import drawn, mean
from levelhead.measures.skills.skills import SkillCheck, nli_skill_check
from levelhead.stats.designs import crossed
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Draw

ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)
PARTS = nli.COAL_PARTS
PAPER = "Anantaprayoon et al. 2024"
SHARES = {
    # What is wrong in each part, and what it is called beside the number.
    "pro": "entailed, as the stereotype has it",
    "anti": "contradicted, as the stereotype has it",
    "non": "not neutral, of occupations without a stereotype",
}


@final
@dataclass(frozen=True)
class Coal(Measure):
    """The mean share of stereotyped inferences over pro-, anti- and non-stereotypical pairs.

    Occupations are what is sampled, those with a stereotype and those without apart.
    """

    pairs: tuple[TextPair, ...] | None = None
    """Your own, with ids part/occupation/sentence/word, parts pro, anti and non; by default."""
    labels: tuple[str, ...] | None = None
    """The classes in the order of the model's columns, where its config does not name them."""

    metrics: ClassVar[dict[str, str]] = {
        "nli_coal": "inferences as a stereotype has them, by all three labels",
        "nli_coal_probability": "the same in class probabilities",
    }
    needs: ClassVar[tuple[Need, ...]] = ("classifier",)
    of_the_model: ClassVar[tuple[str, ...]] = ("labels",)

    @cached_property
    def items(self) -> tuple[TextPair, ...]:
        """The pairs, ids with their part."""
        if self.pairs is not None:
            return self.pairs
        return tuple(
            pair._replace(id=f"{part}/{pair.id}") for part in PARTS for pair in nli.coal(part)
        )

    @property
    def data(self) -> Mapping[str, str]:
        """The files, or the pairs themselves."""
        if self.pairs is not None:
            return {"pairs": items_hash(self.pairs)}
        return {f"nli-coal/{file.path}": file.sha256 for file in dataset("nli-coal").files}

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """What the classifier says of every pair."""
        items = []
        for pair in self.items:
            part, occupation, sentence, word = _parts(pair)
            asks = ((pair.first, pair.second),)
            items.append(Item(pair.id, asks, (occupation, sentence), part, word))
        facts = Frozen({"labels": list(label_order(lm, self.labels))})
        return (
            Asked("classify", Frozen({}), ("occupations", "sentences"), tuple(items), facts=facts),
        )

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Occupations, with a stereotype and without."""
        within = ["without" if item.group == "non" else "with" for item in readouts.items]
        return crossed({"occupations": [item.units[0] for item in readouts.items]}, within=within)

    def skill_check(self, lm: LM, readouts: Readouts) -> SkillCheck | None:
        """That SNLI's labels are predicted; of pairs of your own nothing labelled is known."""
        return None if self.pairs is not None else nli_skill_check(label_order(lm, self.labels))

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The score and its smooth companion, either of them first."""
        score = Aspect(
            name="nli_coal",
            equation=f"{PAPER}: s = (e_p + c_a + (1 - n_n)) / 3",
            per_item=lambda readouts: _with_parts(readouts, _decided(readouts)),
            over=_mean_of_parts,
            unit="share of pairs",
            low=0.0,
            high=1.0,
            direction="larger: more inferences as the stereotype has them",
            comparable="nli-coal",
            role="bias",
            parity=None,
            companion="nli_coal_probability",
            closed=_constant_parts,
        )
        smooth = replace(
            score,
            name="nli_coal_probability",
            equation=f"{PAPER}, of class probabilities instead of decisions",
            per_item=lambda readouts: _with_parts(
                readouts, _wrong(probabilities(readouts), readouts)
            ),
            unit="probability",
            direction="larger: more probability of inferences as the stereotype has them",
            comparable="nli-coal, probability",
            companion=None,
            closed=None,
        )
        return score, smooth

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """The three shares, and what is left of two of them once the other group's is taken off.

        A classifier that calls everything entailed has a high share of "entailed"; only the
        difference between twins is about the group.
        """
        readouts, notes = found[0], []
        shares = []
        for part, name in SHARES.items():
            own = readouts.some(lambda item, part=part: item.group == part)  # type: ignore[misc]
            values = _decided(own)
            share = replace(
                self.aspect("nli_coal"), per_item=_decided, over=mean, closed=constant_share
            )
            shares.append(
                estimate(inference, share, values, own.design(["occupations"]), name=name)
            )
        tests = []
        twins = readouts.some(lambda item: item.group != "non")
        side = torch.tensor([1.0 if item.group == "pro" else -1.0 for item in twins.items])
        for column, sign, name in (
            (ENTAILMENT, 2.0, "entailment, pro less anti"),
            (CONTRADICTION, -2.0, "contradiction, anti less pro"),
        ):
            differs = replace(
                self.aspect("nli_coal_probability"),
                name=name,
                equation="difference of mean class probabilities between twins",
                over=mean,
                low=-1.0,
                direction="above 0: as the stereotype has it",
                above="inferences are drawn as the stereotype has it",
                below="inferences are drawn against the stereotype",
                parity=0.0,
                null="flip",
            )
            # Every twin of a pair counts half of the mean.
            values = probabilities(twins)[:, column] * side * sign
            try:
                tests.append(estimate(inference, differs, values, twins.design(["occupations"])))
            except NotMeasurable as error:
                notes.append(f"{name}: {error.what}")
        return Beside((*shares, *corrected(tests)), tuple(notes))


def _parts(pair: TextPair) -> tuple[str, str, str, str]:
    part, _, rest = pair.id.partition("/")
    names = rest.rsplit("/", 2)
    if part not in PARTS or len(names) != 3:
        raise LevelheadError(
            f"the id {pair.id!r} does not name part, occupation, sentence and word",
            mend="give ids such as pro/nurse/0/woman, parts pro, anti and non",
        )
    if pair.label not in ("", NLI[NEUTRAL]):
        raise LevelheadError(
            f"{pair.id} is labelled {pair.label}",
            mend="give pairs that are neutral by construction; snli takes any",
        )
    return part, names[0], names[1], names[2]


def _wrong(p: torch.Tensor, readouts: Readouts) -> torch.Tensor:
    """`[pairs]`: of each one's classes, those that would be the stereotype's."""
    by_part = {"pro": p[:, ENTAILMENT], "anti": p[:, CONTRADICTION], "non": 1 - p[:, NEUTRAL]}
    found = torch.zeros(len(p), dtype=p.dtype)
    for part, values in by_part.items():
        own = torch.tensor([item.group == part for item in readouts.items])
        found = torch.where(own, values, found)
    return found


def _decided(readouts: Readouts) -> torch.Tensor:
    p = probabilities(readouts)
    return _wrong(torch.nn.functional.one_hot(p.argmax(1), len(NLI)).double(), readouts)


def _with_parts(readouts: Readouts, values: torch.Tensor) -> torch.Tensor:
    """`[pairs, 4]`: the value, and to which part it belongs; pro and anti must be twins."""
    counts = Counter((item.group, *item.units) for item in readouts.items)
    for part in PARTS:
        if not any(own == part for own, *_ in counts):
            raise NotMeasurable(
                f"no pair of part {part} could be read", mend="give pairs of all three parts"
            )
    for (part, occupation, sentence), count in counts.items():
        other = {"pro": "anti", "anti": "pro"}.get(part)
        if other and counts[other, occupation, sentence] != count:
            raise NotMeasurable(
                f"{part}/{occupation}/{sentence} has no twin that could be read",
                mend="give every sentence of a stereotyped occupation words of both groups",
            )
    marks = torch.tensor([[item.group == part for part in PARTS] for item in readouts.items])
    return torch.cat([values[:, None], marks.double()], dim=1)


def _mean_of_parts(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    own = drawn(values, draw)
    marks = own[:, 1:]
    return ((own[:, :1] * marks).sum(0) / marks.sum(0)).mean()


def _constant_parts(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Where every part is judged alike: the mean of Wilson's ends, by the fewest occupations."""
    hits = [values[mark > 0, 0] for mark in values[:, 1:].T]
    if any(float(own.min()) != float(own.max()) for own in hits):
        return None
    units = min(len(stratum) for stratum in design.samples)
    ends = [proportion_interval(units if float(own[0]) else 0, units, level=level) for own in hits]
    return Interval(
        low=sum(one.low for one in ends) / len(ends),
        high=sum(one.high for one in ends) / len(ends),
        level=level,
        method=f"wilson, {design}",
    )
