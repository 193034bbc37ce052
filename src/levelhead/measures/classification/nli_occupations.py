"""Inference about occupations: that a nurse bought a coat does not say that a woman did.

Dev et al. 2020 (net, fraction and threshold neutral); Dawkins et al. 2024, section 3
and Eq. 4: fairness is accuracy times parity, and says nothing without its two factors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar, cast, final, get_args

import torch

from levelhead.core.errors import LevelheadError, NotMeasurable
from levelhead.core.frozen import Frozen
from levelhead.core.results import Interval
from levelhead.data.catalog.datasets import dataset
from levelhead.data.catalog.readers import NLI
from levelhead.data.lexicons.lexicon import Lexicon
from levelhead.data.lexicons.published import any_lexicon
from levelhead.data.prompts import nli_occupations as nli
from levelhead.data.records import TextPair
from levelhead.data.tokenize import folded
from levelhead.measures.base import Beside, Measure, Need, chosen, items_hash, refuse_idle
from levelhead.measures.inference import corrected, estimate
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect, exchanged_first
from levelhead.measures.reductions import drawn, mean, refuse_undecided
from levelhead.measures.skills.skills import SkillCheck, nli_skill_check
from levelhead.stats.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design, Draw

Number = TypeVar("Number", float, torch.Tensor)
Source = Literal["dev2020", "coal"]
FACTORS = ("occupations", "templates")
DEV, DAWKINS = "Dev et al. 2020", "Dawkins et al. 2024"
NEUTRAL = NLI.index("neutral")


def fairness(accuracy: Number, parity: Number) -> Number:
    """Eq. 4 of Dawkins et al. 2024: eta = accuracy x parity.

    Table 7, "SENT, 1": 24 of 164 occupations are treated alike (eta is misprinted there as .1231).

    >>> round(fairness(0.4717, 24 / 164), 4)
    0.069
    """
    return accuracy * parity


@final
@dataclass(frozen=True)
class Nli(Measure):
    """Predictions on pairs of an occupation's sentence and a gendered word's (all neutral).

    Occupations are what is sampled; templates and gendered words are taken as they are.
    """

    pairs: tuple[TextPair, ...] | None = None
    """Your own, with ids occupation/template/word; by default those of `source`."""
    source: Source = "dev2020"
    """10,824 pairs of Dev et al. 2020, or the 5,420 of NLI-CoAL."""
    labels: tuple[str, ...] | None = None
    """The classes in the order of the model's columns, where its config does not name them."""
    tau: float = 0.5
    """The probability above which threshold_neutral calls a pair neutral; Dev et al.: .5, .7."""
    lexicon: str | Lexicon = "gender-en"
    """Says which group a hypothesis speaks of."""
    groups: tuple[str, str] | None = None

    metrics: ClassVar[dict[str, str]] = {
        "nli_fairness": "inference about occupations: accuracy x parity, and both factors",
        "nli_accuracy": "share of these pairs that are called neutral, as they are",
        "nli_parity": "share of occupations labelled alike whichever the gendered word",
        "nli_parity_majority": "the same by the commonest label of either group",
        "nli_gap": "how far class probabilities of the two groups lie apart, by occupation",
        "net_neutral": "mean probability of neutral",
        "fraction_neutral": "share of occupation x word called neutral",
        "threshold_neutral": "share whose probability of neutral is above tau",
    }
    needs: ClassVar[tuple[Need, ...]] = ("classifier",)
    of_the_model: ClassVar[tuple[str, ...]] = ("labels",)

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen(self.source, get_args(Source), "source")
        if self.pairs is not None:
            refuse_idle(self, ("source",), "pairs of your own")
        if not 0 < self.tau < 1:
            raise LevelheadError(f"tau is {self.tau}", mend="give a probability such as 0.5")

    # -- items

    @cached_property
    def own_lexicon(self) -> Lexicon:
        """The lexicon itself."""
        return any_lexicon(self.lexicon)

    @property
    def compared(self) -> tuple[str, str]:
        """The two groups that are compared."""
        return self.own_lexicon.two(self.groups)

    @cached_property
    def items(self) -> tuple[TextPair, ...]:
        """The pairs."""
        if self.pairs is not None:
            return self.pairs
        if self.source == "coal":
            return tuple(pair for part in nli.COAL_PARTS for pair in nli.coal(part))
        return tuple(nli.subset(*nli.dev2020()))

    @property
    def data(self) -> Mapping[str, str]:
        """The files of the source or the pairs themselves; the lexicon."""
        words = {f"lexicon {self.own_lexicon.name}": self.own_lexicon.sha256}
        if self.pairs is not None:
            return words | {"pairs": items_hash(self.pairs)}
        sets = ("nli-coal",) if self.source == "coal" else ("nli-words", "nli-occupations")
        return words | {
            f"{name}/{file.path}": file.sha256 for name in sets for file in dataset(name).files
        }

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """What the classifier says of every pair."""
        of_group = {
            folded(word): group for group in self.compared for word in self.own_lexicon.words(group)
        }
        items = []
        for pair in self.items:
            if pair.label not in ("", NLI[NEUTRAL]):
                raise LevelheadError(
                    f"{pair.id} is labelled {pair.label}",
                    mend="give pairs that are neutral by construction; snli takes any",
                )
            occupation, template, word = _parts(pair)
            group = of_group.get(folded(word), "")
            items.append(
                Item(
                    pair.id,
                    ((pair.first, pair.second),) if group else (),
                    (occupation, template),
                    group,
                    word,
                    cannot="" if group else f"{word!r} is of neither group",
                )
            )
        order = label_order(lm, self.labels)
        facts = Frozen({"labels": list(order)})
        return (Asked("classify", Frozen({}), FACTORS, tuple(items), facts=facts),)

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Occupations."""
        return readouts.design(["occupations"])

    def skill_check(self, lm: LM, readouts: Readouts) -> SkillCheck | None:
        """That SNLI's labels are predicted; of pairs of your own nothing labelled is known."""
        return None if self.pairs is not None else nli_skill_check(label_order(lm, self.labels))

    # -- formulas

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """All of them: fairness is never shown without its factors."""
        return *self._dawkins, *self._dev

    @property
    def _dawkins(self) -> tuple[Aspect, ...]:
        accuracy = Aspect(
            name="nli_accuracy",
            equation=f"{DAWKINS}, section 3.3",
            per_item=lambda readouts: (_predicted(readouts) == NEUTRAL).double(),
            over=mean,
            unit="share of pairs",
            low=0.0,
            high=1.0,
            direction="larger: more pairs are called neutral, as all of them are",
            comparable="nli accuracy",
            role="parity",
            parity=None,
            companion="net_neutral",
            closed=constant_share,
        )
        parity = replace(
            accuracy,
            name="nli_parity",
            equation=f"{DAWKINS}, section 3.3, strict: alike for every template",
            per_item=lambda readouts: _by_occupation(readouts, self.alike(readouts)),
            over=_weighted,
            unit="share of occupations",
            direction="larger: more occupations get the same labels with every gendered word",
            comparable="nli parity, strict",
            companion="nli_gap",
            closed=_wilson,
        )
        majority = replace(
            parity,
            name="nli_parity_majority",
            equation=f"{DAWKINS}, section 3.3, by the commonest label of either group",
            per_item=lambda readouts: _by_occupation(readouts, self.alike_by_majority(readouts)),
            direction="larger: more occupations get the same commonest label in both groups",
            comparable="nli parity, majority",
        )
        gap = replace(
            parity,
            name="nli_gap",
            equation="total variation between the groups' mean class probabilities, by occupation",
            per_item=lambda readouts: _by_occupation(readouts, self.variation(readouts)),
            unit="probability",
            direction="larger: occupations are judged more unequally with the two groups' words",
            comparable="nli gap",
            role="bias",
            worse=None,
            companion=None,
            method="expanded",
            closed=None,
        )
        eta = replace(
            accuracy,
            name="nli_fairness",
            equation=f"{DAWKINS}, Eq. 4: accuracy x parity, strict",
            per_item=self._both_factors,
            over=_eta,
            unit="accuracy x parity",
            direction="larger: more accurate, more alike, or both: look at the factors",
            comparable="nli fairness, strict parity",
            closed=_constant_factor,
        )
        return eta, accuracy, parity, majority, gap

    @property
    def _dev(self) -> tuple[Aspect, ...]:
        net = Aspect(
            name="net_neutral",
            equation=f"{DEV}, NN",
            per_item=lambda readouts: probabilities(readouts)[:, NEUTRAL],
            over=mean,
            unit="probability",
            low=0.0,
            high=1.0,
            direction="larger: more probability of neutral, which every pair is",
            comparable="net neutral",
            role="parity",
            parity=None,
        )
        fraction = replace(
            net,
            name="fraction_neutral",
            equation=f"{DEV}, FN, of probabilities averaged over templates",
            per_item=lambda readouts: _by_cell(readouts, lambda p: p.argmax(1) == NEUTRAL),
            over=_weighted,
            unit="share of occupation x word",
            direction="larger: more pairs of occupation and word are called neutral",
            comparable="fraction neutral",
            companion="net_neutral",
            closed=constant_share,
        )
        threshold = replace(
            fraction,
            name="threshold_neutral",
            equation=f"{DEV}, T: {self.tau:g}, of probabilities averaged over templates",
            per_item=lambda readouts: _by_cell(readouts, lambda p: p[:, NEUTRAL] > self.tau),
            direction=f"larger: more have a probability of neutral above {self.tau:g}",
            comparable=f"threshold neutral, {self.tau:g}",
        )
        return net, fraction, threshold

    def alike(self, readouts: Readouts) -> torch.Tensor:
        """`[occupations]`: whether every template got one label, whichever the gendered word."""
        occupation, predicted = occupations(readouts), _predicted(readouts)
        cell, _ = _numbers([item.units for item in readouts.items])
        held = {(item.units, item.group) for item in readouts.items}
        alone = [units for units, _ in held if any((units, g) not in held for g in self.compared)]
        if alone:
            raise NotMeasurable(
                f"pairs of {'/'.join(min(alone))} speak of one group only: nothing is compared",
                mend="give every template of an occupation words of both groups",
            )
        count = int(cell.max()) + 1
        least = torch.full((count,), len(NLI)).scatter_reduce(0, cell, predicted, "amin")
        most = torch.full((count,), -1).scatter_reduce(0, cell, predicted, "amax")
        same = (least == most).double()[cell]
        whole = torch.ones(int(occupation.max()) + 1, dtype=torch.float64)
        return whole.scatter_reduce(0, occupation, same, "amin")

    def alike_by_majority(self, readouts: Readouts) -> torch.Tensor:
        """`[occupations]`: whether the two groups' commonest labels are one.

        Labels equally common are told apart by their summed probabilities.
        """
        p = probabilities(readouts).detach()
        for side in (0, 1):
            self._means(readouts, side)  # refuses an occupation without one of the groups
        votes = torch.nn.functional.one_hot(_predicted(readouts), len(NLI)).double()
        first, second = (
            _summed(readouts, votes + 1e-6 * p, group).argmax(1) for group in self.compared
        )
        return (first == second).double()

    def variation(self, readouts: Readouts) -> torch.Tensor:
        """`[occupations]`: half the sum over classes of |mean p, first group - mean p, second|."""
        return (self._means(readouts, 0) - self._means(readouts, 1)).abs().sum(1) / 2

    def _means(self, readouts: Readouts, side: int) -> torch.Tensor:
        group = self.compared[side]
        total = _summed(readouts, probabilities(readouts), group)
        ones = torch.ones(len(readouts), 1, dtype=torch.float64)
        count = _summed(readouts, ones, group)
        if not bool((count > 0).all()):
            raise NotMeasurable(
                f"an occupation has no pair of {group!r} that could be read",
                mend="give every occupation pairs of both groups",
            )
        return total / count

    def _both_factors(self, readouts: Readouts) -> torch.Tensor:
        neutral = (_predicted(readouts) == NEUTRAL).double()
        equal = _by_occupation(readouts, self.alike(readouts))
        return torch.stack([neutral * equal[:, 0], neutral, equal[:, 0], equal[:, 1]], dim=1)

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """Which group's sentences are called what more readily, class by class (Holm)."""
        readouts = found[0]
        first, second = self.compared
        difference = self._means(readouts, 0) - self._means(readouts, 1)
        estimates = []
        notes = ["p of differences between groups is about occupations, for these words only"]
        for i, label in enumerate(NLI):
            signed = replace(
                self.aspect("nli_gap"),
                name=f"{label}, {first} less {second}",
                equation="difference of the groups' mean class probabilities, by occupation",
                low=-1.0,
                direction=f"above 0: pairs with {first} words are rather called {label}",
                above=f"pairs with {first} words are rather called {label}",
                below=f"pairs with {second} words are rather called {label}",
                parity=0.0,
                null="flip",
                flip=exchanged_first,
                method=None,
            )
            values = _by_occupation(readouts, difference[:, i])
            try:
                estimates.append(estimate(inference, signed, values, self.design(readouts, signed)))
            except NotMeasurable as error:
                notes.append(f"{signed.name}: {error.what}")
        return Beside(corrected(estimates), tuple(notes))


def label_order(lm: LM, given: tuple[str, ...] | None) -> tuple[str, ...]:
    """The model's classes by name, in the order of its columns: never by number.

    Published classifiers order them differently, and a wrong order gives a plausible number.
    """
    own = tuple(folded(name) for name in lm.labels)
    names = own if given is None else tuple(folded(name) for name in given)
    if names != own and sorted(names) == sorted(own):
        raise LevelheadError(
            f"the model itself names its classes {', '.join(own)}, in this order",
            mend="leave labels out",
        )
    if sorted(names) != sorted(NLI) or len(names) != len(lm.labels):
        raise LevelheadError(
            f"the classifier's classes are {', '.join(lm.labels)}: which is {', '.join(NLI)}?",
            mend=f"name them in the order of its columns: labels={'+'.join(NLI)}",
        )
    return names


def probabilities(readouts: Readouts) -> torch.Tensor:
    """`[pairs, 3]` of entailment, neutral and contradiction, whatever the model's order."""
    order = cast("list[str]", list(readouts.facts["labels"]))  # type: ignore[arg-type]
    p = readouts.values[:, 0, [order.index(label) for label in NLI]].exp()
    refuse_undecided(p)
    return p


def occupations(readouts: Readouts) -> torch.Tensor:
    """`[pairs]` the number of each one's occupation."""
    return _numbers([item.units[0] for item in readouts.items])[0]


def _parts(pair: TextPair) -> tuple[str, str, str]:
    parts = pair.id.rsplit("/", 2)
    if len(parts) != 3:
        raise LevelheadError(
            f"the id {pair.id!r} does not name occupation, template and word",
            mend="give ids such as nurse/0/man",
        )
    return parts[0], parts[1], parts[2]


def _predicted(readouts: Readouts) -> torch.Tensor:
    return probabilities(readouts).argmax(1)


def _numbers(labels: Sequence[object]) -> tuple[torch.Tensor, int]:
    """Labels as numbers, in the order in which they come; and how many there are."""
    number: dict[object, int] = {}
    found = [number.setdefault(label, len(number)) for label in labels]
    return torch.tensor(found), len(number)


def _summed(readouts: Readouts, values: torch.Tensor, group: str) -> torch.Tensor:
    """`[occupations, k]`: sums over a group's pairs."""
    own = torch.tensor([item.group == group for item in readouts.items])
    occupation = occupations(readouts)
    total = torch.zeros(int(occupation.max()) + 1, values.shape[1], dtype=torch.float64)
    return total.index_add(0, occupation[own], values[own])


def _by_occupation(readouts: Readouts, values: torch.Tensor) -> torch.Tensor:
    """`[pairs, 2]`: an occupation's value at each of its pairs, and the pair's part of it."""
    return _shared(values, occupations(readouts))


def _by_cell(readouts: Readouts, holds: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """`[pairs, 2]`: the same of each occupation with each word, p averaged over templates first."""
    cell, count = _numbers([(item.units[0], item.kind) for item in readouts.items])
    total = torch.zeros(count, len(NLI), dtype=torch.float64)
    total = total.index_add(0, cell, probabilities(readouts).detach())
    return _shared(holds(total / cell.bincount()[:, None]).double(), cell)


def _shared(values: torch.Tensor, owner: torch.Tensor) -> torch.Tensor:
    part = 1 / owner.bincount().double()
    return torch.stack([values[owner], part[owner]], dim=1)


def _weighted(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    """The mean over occupations, or cells, of values that stand at each of their pairs."""
    own = drawn(values, draw)
    return (own[:, 0] * own[:, 1]).sum() / own[:, 1].sum()


def _eta(values: torch.Tensor, draw: Draw) -> torch.Tensor:
    own = drawn(values, draw)
    return fairness(own[:, 1].mean(), (own[:, 2] * own[:, 3]).sum() / own[:, 3].sum())


def constant_share(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Wilson's interval, by occupations, of a share that is 0 or 1 everywhere."""
    shown = values if values.dim() == 1 else values[:, 0]
    if float(shown.min()) != float(shown.max()):
        return None
    units = design.scarcest.units
    return proportion_interval(units if float(shown[0]) else 0, units, level=level)


def _wilson(values: torch.Tensor, design: Design, level: float) -> Interval:
    """Wilson's interval of a share of occupations."""
    hits = round(float((values[:, 0] * values[:, 1]).sum()))
    found = proportion_interval(hits, design.scarcest.units, level=level)
    return found.model_copy(update={"method": f"wilson, {design}"})


def _constant_factor(values: torch.Tensor, design: Design, level: float) -> Interval | None:
    """Where one factor is the same everywhere: the product of the factors' ends, by occupations."""
    neutral, equal = values[:, 1], values[:, 2]
    if all(float(one.min()) != float(one.max()) for one in (neutral, equal)):
        return None
    units = design.scarcest.units
    parity = _wilson(values[:, 2:], design, level)
    accuracy = proportion_interval(round(float(neutral.mean()) * units), units, level=level)
    return Interval(
        low=parity.low * accuracy.low,
        high=parity.high * accuracy.high,
        level=level,
        method="wilson of either factor",
    )
