"""SNLI accuracy: what a mitigation costs an inference classifier (Dawkins et al. 2024, section 4).

Pairs that share a premise are not independent: premises are what is sampled.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, final

import torch

from levelhead.core.errors import NotMeasurable, UnknownName
from levelhead.core.frozen import Frozen
from levelhead.data.catalog.datasets import dataset
from levelhead.data.catalog.readers import NLI
from levelhead.data.records import TextPair
from levelhead.measures.base import Beside, Measure, Need, items_hash
from levelhead.measures.classification.nli_occupations import label_order, probabilities
from levelhead.measures.inference import estimate
from levelhead.measures.items import Asked, Item
from levelhead.measures.metric import Aspect, all_or_none
from levelhead.measures.reductions import mean, scaled_by

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from levelhead.core.run_context import Inference
    from levelhead.measures.responses import Readouts
    from levelhead.models.lm import LM
    from levelhead.stats.designs import Design


@final
@dataclass(frozen=True)
class Snli(Measure):
    """How often the label of an inference pair is foretold. A price, not a bias: no parity."""

    pairs: tuple[TextPair, ...] | None = None
    """Your own, labelled entailment, neutral or contradiction; by default SNLI's."""
    part: str = "test"
    labels: tuple[str, ...] | None = None
    """The classes in the order of the model's columns, where its config does not name them."""

    metrics: ClassVar[dict[str, str]] = {
        "snli": "accuracy of an inference classifier",
        "snli_likelihood": "log-probability of the label",
    }
    needs: ClassVar[tuple[Need, ...]] = ("classifier",)
    of_the_model: ClassVar[tuple[str, ...]] = ("labels",)

    @cached_property
    def items(self) -> tuple[TextPair, ...]:
        """The pairs."""
        if self.pairs is not None:
            return self.pairs
        rows = dataset("snli").items(self.part)
        return tuple(pair for pair in rows if isinstance(pair, TextPair))

    @property
    def data(self) -> Mapping[str, str]:
        """The file, or the pairs themselves."""
        if self.pairs is not None:
            return {"pairs": items_hash(self.pairs)}
        file = dataset("snli").file(self.part)
        return {f"snli/{file.path}": file.sha256}

    def questions(self, lm: LM) -> tuple[Asked, ...]:
        """What the classifier says of every pair."""
        for pair in self.items:
            if pair.label not in NLI:
                raise UnknownName("label", pair.label, NLI)
        items = tuple(
            Item(pair.id, ((pair.first, pair.second),), (pair.first,), pair.label)
            for pair in self.items
        )
        facts = Frozen({"labels": list(label_order(lm, self.labels))})
        return (Asked("classify", Frozen({}), ("premises",), items, facts=facts),)

    def design(self, readouts: Readouts, aspect: Aspect) -> Design:
        """Premises, whatever the label."""
        return readouts.design()

    @property
    def formulas(self) -> tuple[Aspect, ...]:
        """The accuracy and its smooth companion, either of them first."""
        accuracy = Aspect(
            name="snli",
            equation="accuracy; Dawkins et al. 2024, section 4",
            per_item=_is_right,
            over=scaled_by(100, mean),
            unit="% of pairs",
            low=0.0,
            high=100.0,
            direction="larger: more labels are foretold",
            comparable="snli accuracy",
            role="utility",
            worse="lower",
            parity=None,
            companion="snli_likelihood",
        )
        likelihood = replace(
            accuracy,
            name="snli_likelihood",
            equation="mean log-probability of the label",
            per_item=lambda readouts: _of_label(readouts).log(),
            over=mean,
            unit="nats",
            low=-float("inf"),
            high=0.0,
            direction="larger: labels are likelier",
            comparable="snli likelihood",
            companion=None,
        )
        return accuracy, likelihood

    def beside(self, found: Sequence[Readouts], inference: Inference) -> Beside:
        """The accuracy by label, and what the commonest label alone would give."""
        readouts, estimates, notes = found[0], [], []
        (label, hits), *_ = Counter(item.group for item in readouts.items).most_common(1)
        notes.append(f"always {label}: {100 * hits / len(readouts):.1f}% of pairs")
        share = self.aspect("snli")
        for label in readouts.groups:
            own = readouts.some(lambda item, label=label: item.group == label)  # type: ignore[misc]
            values = share.per_item(own)
            constant = float(values.min()) == float(values.max())
            part = replace(share, closed=all_or_none) if constant else share
            try:
                design = self.design(own, part)
                estimates.append(estimate(inference, part, values, design, name=f"label: {label}"))
            except NotMeasurable as error:
                notes.append(f"label {label}: {error.what}")
        return Beside(tuple(estimates), tuple(notes))


def _of_label(readouts: Readouts) -> torch.Tensor:
    """`[pairs]` the probability of each one's label."""
    wanted = torch.tensor([NLI.index(item.group) for item in readouts.items])
    return probabilities(readouts).gather(1, wanted[:, None])[:, 0]


def _is_right(readouts: Readouts) -> torch.Tensor:
    wanted = torch.tensor([NLI.index(item.group) for item in readouts.items])
    return (probabilities(readouts).argmax(1) == wanted).double()
