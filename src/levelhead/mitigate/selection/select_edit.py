"""Tune: an edit chosen on the user's own task, by its bounds on dev, and reported once on test.

Dawkins et al. 2024, section 6: intrinsic scores do not say which edit helps downstream, so that it
must be chosen on "a task-specific development set". Candidates are projections and masks of heads
(candidates.py). On dev a candidate is eligible if the lower bound of its gain, which holds
for all candidates together, lies above 0, and the upper bound of its loss within what may be paid;
the one with the largest lower bound is chosen. Test is asked of it alone, once. It is recommended
only if both hold there again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from levelhead.core.errors import LevelheadError, UnknownName
from levelhead.core.results import Provenance
from levelhead.core.run_context import Inference, RunContext
from levelhead.data.counterfactuals.contrast_pairs import paired, pairs_hash
from levelhead.data.counterfactuals.held_out import seen_words
from levelhead.mitigate.selection.candidates import SIZES, By, masks, projections
from levelhead.mitigate.selection.selection_report import OnTest, Tuned, largest, why_this
from levelhead.mitigate.selection.trial import Losses, Trial
from levelhead.mitigate.selection.user_task import Gain, Price, Task, own_pairs, own_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from levelhead.data.counterfactuals.contrast_pairs import TextPair
    from levelhead.data.lexicons.lexicon import Lexicon
    from levelhead.measures.metric import Worse
    from levelhead.models.forward.edit_sweep import Edits
    from levelhead.models.lm import LM

Pairs = Literal["frames", "dev"]
LEAST_LEVEL = 0.9
EQUATION = "Dawkins et al. 2024, section 6"


class Found(NamedTuple):
    """What was found, and the edit itself; no edits where none is recommended."""

    told: Tuned
    edits: Edits


def tune(
    lm: LM,
    dev: str,
    test: str,
    *,
    gain: Gain = "counterfactual",
    price: Price = "accuracy",
    keep: float = 0.95,
    most: float | None = None,
    text: str = "text",
    label: str = "label",
    labels: Sequence[str] | None = None,
    lexicon: str | Lexicon = "gender-en",
    groups: tuple[str, str] | None = None,
    control: bool = True,
    trim: bool = True,
    by: By = "gradient",
    n: int | None = None,
    pairs: Pairs = "frames",
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Found:
    """Choose an edit on the rows of one file and report it on those of another.

    Args:
        lm: the model, such as your classifier.
        dev: the file on which the edit is chosen; see `own_task` for its columns.
        test: the file on which it is reported.
        gain: what is to come nearer to parity.
        price: what is paid.
        keep: the share of the price that must be kept.
        most: the largest loss in the price's own unit (points of accuracy), instead of `keep`.
        text: the column of texts.
        label: the column of labels.
        labels: names for the classes in the order of the model's columns.
        lexicon: whose words are exchanged, and whose pairs of words subspaces are fitted on.
        groups: which two of its groups.
        control: count flips beyond those of placebo twins only.
        trim: leave out settings that the paper found not worth trying.
        by: how heads are ranked.
        n: how many of the lexicon's pairs of texts, all by default; fewer leave words by which
            `removed` can judge the edit.
        pairs: subspaces are fitted on the lexicon's pairs of words in neutral frames, or on the
            texts of dev and their swaps ("dev").
        inference: seed, resamples and level.
        context: store, threads, progress and cancellation.
    """
    if pairs not in get_args(Pairs):
        raise UnknownName("kind of pairs", str(pairs), get_args(Pairs))
    task = own_task(
        dev,
        test,
        gain=gain,
        price=price,
        text=text,
        label=label,
        labels=labels,
        lexicon=lexicon,
        groups=groups,
        control=control,
    )
    texts = (
        own_pairs(lm, task.gain, lexicon=lexicon, groups=groups).pairs
        if pairs == "dev"
        else paired(lexicon, groups=groups, n=n)
    )
    return tune_task(
        lm,
        task,
        texts,
        keep=keep,
        most=most,
        worse="lower",
        trim=trim,
        by=by,
        inference=inference,
        context=context,
    )


def tune_task(
    lm: LM,
    task: Task,
    pairs: Sequence[TextPair],
    *,
    keep: float = 0.95,
    most: float | None = None,
    worse: Worse | None = None,
    trim: bool = True,
    by: By = "gradient",
    sizes: Sequence[int] = SIZES,
    inference: Inference = Inference(),
    context: RunContext = RunContext(),
) -> Found:
    """The same of any measures: of bias and of a price, each on dev and on test.

    Args:
        lm: the model.
        task: the measures.
        pairs: of texts that differ in the contrast, which subspaces are fitted on.
        keep: the share of the price that must be kept.
        most: the largest loss in the price's own unit, instead of `keep`.
        worse: which way the price is worse, where its name does not tell.
        trim: leave out settings that the paper found not worth trying.
        by: how heads are ranked.
        sizes: how many of the first heads are masked.
        inference: seed, resamples and level.
        context: store, threads, progress and cancellation.
    """
    if not 0 < keep <= 1:
        raise LevelheadError(
            f"{keep} of the price is to be kept", mend="give a share such as 0.95, at most 1"
        )
    if most is not None and most < 0:
        raise LevelheadError(f"a loss of at most {most}", mend="give 0 or more")
    if inference.level < LEAST_LEVEL:
        raise LevelheadError(
            f"bounds of level {inference.level:g} show little", mend=f"give {LEAST_LEVEL} or more"
        )
    settings: dict[str, object] = {
        "trim": trim,
        "by": by,
        "sizes": list(sizes),
        "threads": context.threads,
    }
    notes = refuse_seen(lm, task)
    tried = projections(lm, pairs, trim=trim).beside(
        masks(lm, task.gain, by=by, sizes=sizes, context=context)
    )
    work = Trial(inference, worse, None if most is not None else keep, most)
    gained = work.read(lm, task.gain, tried.edits, context)
    paid = work.read(lm, task.price, tried.edits, context)
    rows, dropped = work.on_dev(tried, gained, paid)
    allowed = work.allowed(paid.said)
    name = largest(rows)
    on_test: OnTest | None = None
    lost: Losses = ()
    if name is not None:
        alone = {name: tried.edits[name]}
        gained_test = work.read(lm, task.gain_test, alone, context)
        paid_test = work.read(lm, task.price_test, alone, context)
        on_test, lost = work.on_test(name, gained_test, paid_test)
    confirmed = on_test is not None and on_test.gains and on_test.keeps
    told = Tuned(
        gain=task.gain.name,
        price=task.price.name,
        keep=work.keep,
        most=allowed,
        base=work.of_base(gained.said),
        base_price=work.of_base(paid.said),
        chosen=name,
        recommended=confirmed,
        why=why_this(rows, name, on_test),
        tried=rows,
        on_test=on_test,
        trimmed=tried.trimmed,
        dropped=(*dropped, *lost, ("pairs of texts", tried.dropped)),
        seen=tuple(sorted(seen_words(pairs))),
        notes=(*notes, *tried.notes),
        provenance=_provenance(lm, task, pairs, inference, settings),
        measured_by=task.gain.ruler(lm),
    )
    return Found(told, tried.edits[name] if name is not None and confirmed else ())


def refuse_seen(lm: LM, task: Task) -> tuple[str, ...]:
    """Refuse items of test that are in dev; tell of units that are in both.

    Items are the same if the same is asked, whatever they are called and whichever of two twins
    comes first.
    """
    notes = []
    for dev, test in ((task.gain, task.gain_test), (task.price, task.price_test)):
        if dev.name != test.name:
            raise LevelheadError(
                f"chosen by {dev.name} and reported by {test.name}",
                mend="give one measure, on dev and on test",
            )
        seen, new = ([item for item in own.asked(lm)[0].items if item.asks] for own in (dev, test))
        asked = {frozenset(item.asks[:2]) for item in seen}
        again = [item.id for item in new if frozenset(item.asks[:2]) in asked]
        if again:
            raise LevelheadError(
                f"{len(again)} items of test are in dev ({again[0]}), by {dev.name}: a choice is "
                "not to be reported on items it has seen",
                mend="split the items before choosing, the same text and its twin to one side",
            )
        units = {item.units[0] for item in new}
        both = units & {item.units[0] for item in seen}
        if both:
            what = dev.asked(lm)[0].factors[0]
            notes.append(
                f"{dev.name}: {len(both)} of {len(units)} {what} of test are in dev, too: what is "
                "told of test holds for these"
            )
    return tuple(notes)


def _provenance(
    lm: LM, task: Task, pairs: Sequence[TextPair], inference: Inference, settings: dict[str, object]
) -> Provenance:
    """Everything the choice depends on."""
    parts = dict(zip(task._fields, task, strict=True))
    data = {
        f"{part}: {name}": digest
        for part, own in parts.items()
        for name, digest in own.data.items()
    }
    return Provenance.of(
        lm.identity.name,
        lm.content_hash,
        revision=lm.identity.revision,
        edits=tuple(edit.content_hash for edit in lm.edits),
        data=data | {"pairs of texts": pairs_hash(pairs)},
        equation=EQUATION,
        seed=inference.seed,
        settings={part: own.settings for part, own in parts.items()}
        | settings
        | {"resamples": inference.resamples, "level": inference.level},
    )
