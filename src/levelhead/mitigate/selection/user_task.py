"""The user's own task, from two files: the bias to reduce, and the utility it may cost.

counterfactual   columns text and label: a classifier's decisions on texts and their twins; the
                 utility is its accuracy on all rows (so does counterfactual_shift)
fairness         columns id, premise, hypothesis, label: rows with ids such as nurse/0/man are
                 the pairs about occupations, all neutral; the utility is the accuracy on the rest
strength         the columns of the enhanced StereoSet (Dawkins et al. 2024): twin triples; the
                 utility is the accuracy of the next-sentence head on them, stereotypes and
                 anti-stereotypes following their contexts and unrelated sentences not
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, final, get_args

from levelhead.core.errors import LevelheadError, NotMeasurableError, require_option
from levelhead.data.catalog.readers import read_items
from levelhead.data.counterfactuals.contrast_pairs import swapped_pairs
from levelhead.data.records import TextPair, TwinTriple
from levelhead.data.user_files import read_user_texts
from levelhead.measures.classification.controlled_difference import ControlledDifference
from levelhead.measures.classification.counterfactual import Counterfactual
from levelhead.measures.classification.nli_occupations import Nli
from levelhead.measures.next_sentence.strength import Strength
from levelhead.measures.utility.accuracy import NEXT_SENTENCE_CLASSES, Accuracy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.counterfactuals.contrast_pairs import PairSet
    from levelhead.data.lexicons.lexicon import Lexicon
    from levelhead.measures.base import Measure
    from levelhead.models.lm import LM

BiasMeasureName = Literal["counterfactual", "counterfactual_shift", "fairness", "strength"]
UtilityMeasureName = Literal["accuracy"]


class BiasUtilityTask(NamedTuple):
    """A measure of bias and a utility measure, each on dev and on test."""

    bias: Measure
    bias_test: Measure
    utility: Measure
    utility_test: Measure


@final
@dataclass(frozen=True)
class TaskFiles:
    """Two files of the user, and the measures on them."""

    dev: str
    """Rows to choose an edit on: a .csv, .tsv or .jsonl file."""
    test: str
    """Rows to report it on."""
    bias_measure: BiasMeasureName = "counterfactual"
    """The measure of bias to reduce."""
    utility_measure: UtilityMeasureName = "accuracy"
    """The utility measure."""
    text: str = "text"
    """Column of the texts (counterfactual)."""
    label: str = "label"
    """Column of the labels (counterfactual)."""
    labels: Sequence[str] | None = None
    """Names of the classes in the order of the model's columns, if the data use names."""
    lexicon: str | Lexicon = "gender-en"
    """Lexicon of the exchanged words, or of the words that mark a group in a sentence."""
    groups: tuple[str, str] | None = None
    """Two groups of the lexicon."""
    control: bool = True
    """Whether to count flips beyond those of placebo twins; False: all flips, also those that
    any other word would cause."""

    def __post_init__(self) -> None:
        require_option("gain", self.bias_measure, get_args(BiasMeasureName))
        require_option("utility measure", self.utility_measure, get_args(UtilityMeasureName))


def load_user_task(files: TaskFiles) -> BiasUtilityTask:
    """Make the measures on two files of the user."""
    # Two names of one file, such as a link, are refused as well.
    if Path(files.dev).resolve() == Path(files.test).resolve():
        raise LevelheadError(
            "dev and test are one file: an edit is not to be reported on the rows it was chosen on",
            hint="split the rows into two files",
        )
    names = None if files.labels is None else tuple(files.labels)

    def load_measures(path: str) -> tuple[Measure, Measure]:
        if files.bias_measure == "fairness":
            return _fairness(path, names, files.lexicon, files.groups)
        if files.bias_measure == "strength":
            return _strength(path)
        counterfactual = Counterfactual(
            path,
            text=files.text,
            label=files.label,
            labels=names,
            lexicon=files.lexicon,
            groups=files.groups,
            metric=files.bias_measure,
        )
        accuracy = Accuracy(path, text=files.text, label=files.label, labels=names)
        return ControlledDifference(counterfactual) if files.control else counterfactual, accuracy

    (bias, utility), (bias_test, utility_test) = map(load_measures, (files.dev, files.test))
    return BiasUtilityTask(bias, bias_test, utility, utility_test)


def pairs_from_task(
    lm: LM,
    measure: Measure,
    *,
    lexicon: str | Lexicon = "gender-en",
    groups: tuple[str, str] | None = None,
) -> PairSet:
    """The texts of a measure with their swaps, to fit subspaces on the texts of the task.

    Args:
        lm: The model.
        measure: The measure on dev; its texts that name a group are used.
        lexicon: Lexicon of the swapped words.
        groups: Two of its groups; by default the first two.
    """
    texts = dict.fromkeys(
        part
        for item in measure.queries(lm)[0].items
        # Only the original text: its counterfactual would give the same pair in reverse.
        for args in item.queries[:1]
        for part in args
        if isinstance(part, str)
    )
    return swapped_pairs(texts, lexicon, groups=groups)


def _fairness(
    path: str,
    labels: tuple[str, ...] | None,
    lexicon: str | Lexicon,
    groups: tuple[str, str] | None,
) -> tuple[Measure, Measure]:
    first, second = (
        read_user_texts(path, "premise", "label"),
        read_user_texts(path, "hypothesis", "id"),
    )
    rows = [
        TextPair(hypothesis.label, premise.text, hypothesis.text, premise.label)
        for premise, hypothesis in zip(first, second, strict=True)
    ]
    occupation_rows = [row for row in rows if row.id.count("/") == 2]
    other_rows = [row for row in rows if row.id.count("/") != 2]
    for required_rows, problem, hint in (
        (
            occupation_rows,
            "no id names occupation, template and word",
            "give ids such as nurse/0/man",
        ),
        (other_rows, "every row is about an occupation", "add labelled pairs with plain ids"),
    ):
        if not required_rows:
            raise NotMeasurableError(
                f"{Path(path).name}: {problem}",
                hint=f"{hint}: gain and utility need separate rows",
            )
    nli = Nli(tuple(occupation_rows), labels=labels, lexicon=lexicon, groups=groups)
    return nli, Accuracy(tuple(other_rows), labels=labels)


def _strength(path: str) -> tuple[Measure, Measure]:
    try:
        # utf-8-sig drops the byte order mark that spreadsheet programs write.
        content = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise LevelheadError(
            f"cannot read {path}: {error}", hint="give a file of UTF-8 text that is there"
        ) from None
    records = read_items("twins", content, Path(path).stem)
    triples = tuple(item for item in records if isinstance(item, TwinTriple))
    yes, no = NEXT_SENTENCE_CLASSES
    pairs = tuple(
        # The third ending is the unrelated one.
        TextPair(f"{triple.id}/{side}/{i}", context, ending, no if i == 2 else yes)
        for triple in triples
        for side, context, ends in (
            ("own", triple.context, (triple.stereotype, triple.anti_stereotype, triple.unrelated)),
            (
                "twin",
                triple.twin_context,
                (triple.twin_stereotype, triple.twin_anti_stereotype, triple.twin_unrelated),
            ),
        )
        for i, ending in enumerate(ends)
    )
    return Strength(triples), Accuracy(pairs)
