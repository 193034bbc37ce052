"""The user's own task, from two files: what is to be gained, and what may be paid for it.

counterfactual   columns text and label: a classifier's decisions on texts and their twins; the
                 price is its accuracy on all rows (so does counterfactual_shift)
fairness         columns id, premise, hypothesis, label: rows with ids such as nurse/0/man are
                 the pairs about occupations, all neutral; the price is the accuracy on the rest
strength         the columns of the enhanced StereoSet (Dawkins et al. 2024): twin triples; the
                 price is the accuracy of the next-sentence head on them, stereotypes and
                 anti-stereotypes following their contexts and unrelated sentences not
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from levelhead.core.errors import LevelheadError, NotMeasurable, UnknownName
from levelhead.data.catalog.readers import read
from levelhead.data.counterfactuals.contrast_pairs import swapped_pairs
from levelhead.data.records import TextPair, TwinTriple
from levelhead.data.user_files import own_texts
from levelhead.measures.classification.controlled_difference import Excess
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.measures.classification.nli_occupations import Nli
from levelhead.measures.next_sentence.strength import Strength
from levelhead.measures.utility.accuracy import FOLLOWS, Accuracy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.counterfactuals.contrast_pairs import SwappedPairs
    from levelhead.data.lexicons.lexicon import Lexicon
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

Gain = Literal["counterfactual", "counterfactual_shift", "fairness", "strength"]
Price = Literal["accuracy"]


class Task(NamedTuple):
    """A measure of bias and a price, each on dev and on test."""

    gain: Measure
    gain_test: Measure
    price: Measure
    price_test: Measure


def own_task(
    dev: str,
    test: str,
    *,
    gain: Gain = "counterfactual",
    price: Price = "accuracy",
    text: str = "text",
    label: str = "label",
    labels: Sequence[str] | None = None,
    lexicon: str | Lexicon = "gender-en",
    groups: tuple[str, str] | None = None,
    control: bool = True,
) -> Task:
    """The measures of two files of the user's.

    Args:
        dev: rows on which an edit is chosen: a .csv, .tsv or .jsonl file.
        test: rows on which it is reported.
        gain: what is to come nearer to parity.
        price: what is paid.
        text: the column of texts (counterfactual).
        label: the column of labels (counterfactual).
        labels: names for the classes in the order of the model's columns, where the data name them
            so.
        lexicon: whose words are exchanged, or say which group a sentence is about.
        groups: which two of its groups.
        control: count flips beyond those of placebo twins; False: all flips, also those that any
            other word would cause.
    """
    if gain not in get_args(Gain):
        raise UnknownName("gain", str(gain), get_args(Gain))
    if price not in get_args(Price):
        raise UnknownName("price", str(price), get_args(Price))
    if Path(dev).resolve() == Path(test).resolve():
        raise LevelheadError(
            "dev and test are one file: an edit is not to be reported on the rows it was chosen on",
            mend="split the rows into two files",
        )
    names = None if labels is None else tuple(labels)

    def both(path: str) -> tuple[Measure, Measure]:
        if gain == "fairness":
            return _fairness(path, names, lexicon, groups)
        if gain == "strength":
            return _strength(path)
        own = Counterfactual(
            path,
            text=text,
            label=label,
            labels=names,
            lexicon=lexicon,
            groups=groups,
            metric=gain,
        )
        paid = Accuracy(path, text=text, label=label, labels=names)
        return Excess(own) if control else own, paid

    (gained, paid), (gained_test, paid_test) = both(dev), both(test)
    return Task(gained, gained_test, paid, paid_test)


def own_pairs(
    lm: LM,
    measure: Measure,
    *,
    lexicon: str | Lexicon = "gender-en",
    groups: tuple[str, str] | None = None,
) -> SwappedPairs:
    """What a measure asks, each text with its swap: to fit subspaces on the task's own texts.

    Args:
        lm: the model that is asked.
        measure: on dev; its texts that name one of the groups are taken.
        lexicon: whose words are swapped.
        groups: which two; by default its first two.
    """
    texts = dict.fromkeys(
        part
        for item in measure.asked(lm)[0].items
        for ask in item.asks[:1]
        for part in ask
        if isinstance(part, str)
    )
    return swapped_pairs(texts, lexicon, groups=groups)


def _fairness(
    path: str,
    labels: tuple[str, ...] | None,
    lexicon: str | Lexicon,
    groups: tuple[str, str] | None,
) -> tuple[Measure, Measure]:
    first, second = own_texts(path, "premise", "label"), own_texts(path, "hypothesis", "id")
    rows = [
        TextPair(two.label, one.text, two.text, one.label)
        for one, two in zip(first, second, strict=True)
    ]
    named = [row for row in rows if row.id.count("/") == 2]
    rest = [row for row in rows if row.id.count("/") != 2]
    for some, what, mend in (
        (named, "no id names occupation, template and word", "give ids such as nurse/0/man"),
        (rest, "every row is about an occupation", "add labelled pairs with plain ids"),
    ):
        if not some:
            raise NotMeasurable(
                f"{Path(path).name}: {what}", mend=f"{mend}: gain and price need rows of their own"
            )
    own = Nli(tuple(named), labels=labels, lexicon=lexicon, groups=groups)
    return own, Accuracy(tuple(rest), labels=labels)


def _strength(path: str) -> tuple[Measure, Measure]:
    try:
        whole = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(
            f"cannot read {path}: {error}", mend="give a file of UTF-8 text that is there"
        ) from None
    found = read("twins", whole, Path(path).stem)
    triples = tuple(item for item in found if isinstance(item, TwinTriple))
    yes, no = FOLLOWS
    pairs = tuple(
        TextPair(f"{one.id}/{side}/{i}", context, said, no if i == 2 else yes)
        for one in triples
        for side, context, ends in (
            ("own", one.context, (one.stereotype, one.anti_stereotype, one.unrelated)),
            (
                "twin",
                one.twin_context,
                (one.twin_stereotype, one.twin_anti_stereotype, one.twin_unrelated),
            ),
        )
        for i, said in enumerate(ends)
    )
    return Strength(triples), Accuracy(pairs)
